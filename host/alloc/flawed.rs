//! For tests: streams whose events or copies fail, and that count how often they record and wait.

use crate::driver::{Device, EventBackend, Launch, Range, Stream, StreamBackend};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A stream of the device's that fails as it is told. Its records and waits are counted.
pub(super) struct Flawed {
    inner: Arc<dyn StreamBackend>,
    /// Records and waits.
    fails: AtomicBool,
    /// What writes to memory.
    work_fails: AtomicBool,
    pub records: AtomicUsize,
    waits: AtomicUsize,
}

impl Flawed {
    fn counted(&self, count: &AtomicUsize) -> Result<()> {
        count.fetch_add(1, Ordering::Relaxed);
        outcome("cuEvent", &self.fails)
    }

    pub fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }

    pub fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    pub fn fail_work(&self, fails: bool) {
        self.work_fails.store(fails, Ordering::Relaxed);
    }
}

fn outcome(call: &'static str, fails: &AtomicBool) -> Result<()> {
    match fails.load(Ordering::Relaxed) {
        true => Err(Error::Driver { call, code: 2, name: "FLAWED".into(), detail: "told to".into() }),
        false => Ok(()),
    }
}

impl StreamBackend for Flawed {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch(launch) }
    }

    unsafe fn write(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        outcome("cuMemcpyHtoDAsync", &self.work_fails)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.write(to, from, bytes) }
    }

    unsafe fn read(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.read(to, from, bytes) }
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        outcome("cuMemcpyDtoDAsync", &self.work_fails)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy(to, from, bytes) }
    }

    unsafe fn fill(&self, range: Range, byte: u8) -> Result<()> {
        outcome("cuMemsetD8Async", &self.work_fails)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.fill(range, byte) }
    }

    fn record(&self) -> Result<Arc<dyn EventBackend>> {
        self.counted(&self.records)?;
        self.inner.record()
    }

    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()> {
        self.counted(&self.waits)?;
        self.inner.wait(event)
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }

    fn is_done(&self) -> Result<bool> {
        self.inner.is_done()
    }

    fn raw(&self) -> *mut c_void {
        self.inner.raw()
    }
}

/// A new one, which does not fail yet.
pub(super) fn flawed(device: &Device) -> (Stream, Arc<Flawed>) {
    let inner = device.driver().stream().unwrap();
    let [fails, work_fails] = [(); 2].map(|()| AtomicBool::new(false));
    let [records, waits] = [(); 2].map(|()| AtomicUsize::new(0));
    let flawed = Arc::new(Flawed { inner, fails, work_fails, records, waits });
    (Stream::new(device.clone(), flawed.clone()), flawed)
}
