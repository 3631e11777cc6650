//! Streams whose events fail as tests tell them, and that count how often they wait.

use crate::driver::{Device, EventBackend, Launch, Range, Stream, StreamBackend};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A stream of the device's whose records and waits fail as it is told, and are counted.
pub struct Flawed {
    inner: Arc<dyn StreamBackend>,
    fails: AtomicBool,
    pub records: AtomicUsize,
    waits: AtomicUsize,
}

impl Flawed {
    fn outcome(&self, count: &AtomicUsize) -> Result<()> {
        count.fetch_add(1, Ordering::Relaxed);
        match self.fails.load(Ordering::Relaxed) {
            true => Err(Error::Driver {
                call: "cuEvent",
                code: 2,
                name: "FLAWED".into(),
                detail: "told to".into(),
            }),
            false => Ok(()),
        }
    }

    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }

    pub fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }
}

impl StreamBackend for Flawed {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch(launch) }
    }

    unsafe fn write(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.write(to, from, bytes) }
    }

    unsafe fn read(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.read(to, from, bytes) }
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy(to, from, bytes) }
    }

    unsafe fn fill(&self, range: Range, byte: u8) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.fill(range, byte) }
    }

    fn record(&self) -> Result<Arc<dyn EventBackend>> {
        self.outcome(&self.records)?;
        self.inner.record()
    }

    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()> {
        self.outcome(&self.waits)?;
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

/// A stream of the device's, and its inside.
pub fn flawed(device: &Device) -> (Stream, Arc<Flawed>) {
    let inner = device.driver().stream().unwrap();
    let (fails, records, waits) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let flawed = Arc::new(Flawed { inner, fails, records, waits });
    (Stream::new(device.clone(), flawed.clone()), flawed)
}
