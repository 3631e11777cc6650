//! Environment of a demonstration: a device with kernels, and the log of checked steps.
//!
//! D1: a step passes only words of blocks that it owns to kernels, and orders all kernels that
//! access the same words.

use super::fault::{Fault, First};
use crate::cli::console::Console;
use serde::Serialize;
use std::fmt::Display;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use warpheap::host_pools::SyncDriverAllocator;
use warpheap::{Backend, Device, DeviceBuffer, LaunchConfig, Module, Result, Stream, kernel_names};
use warpheap_device::kernel::{DevicePtr, DeviceSlice, Kernel};
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::kernels::demo::{demo_count_others, demo_fill, demo_hold, demo_let_go, demo_take};

/// The kernels of all demonstrations. Any other launch is rejected.
pub const KERNELS: [&str; 6] =
    kernel_names![bench_spin, demo_count_others, demo_fill, demo_hold, demo_let_go, demo_take];

/// Threads per block.
const BLOCK: u32 = 256;
/// Maximum number of threads that fill and compare; each then has several words.
const THREADS: u32 = 1 << 16;
/// Maximum on the CPU, which runs the threads one after the other.
const CPU_THREADS: u32 = 1 << 10;
/// Longest wait for a stream that an injected fault should have left unordered.
const MAX_DISORDER: Duration = Duration::from_secs(120);

/// A demonstration.
pub struct Demo {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose.
    pub shows: &'static str,
    /// Its steps, in order. An error ends the demonstration; a failed check does not.
    pub steps: &'static [Step],
}

/// A step. Each step creates the pools that it uses.
pub type Step = fn(&mut Stage) -> Result<()>;

/// A checked property.
#[derive(Debug, Serialize)]
pub struct Check {
    /// The property.
    pub what: String,
    /// The observed value.
    pub found: String,
    /// Whether the check passed.
    pub holds: bool,
    /// Whether the value is one that the library itself reports: an error, or a figure. Tests
    /// require no fault that fails such a check, because the library's own tests cover it.
    #[serde(skip)]
    pub is_reported: bool,
}

/// A device with its kernels and a stream, and the checks so far.
pub struct Stage {
    pub device: Device,
    /// The stream of steps that need only one.
    pub stream: Stream,
    /// The injected fault: none, except in tests.
    pub fault: Option<Fault>,
    /// The stream that pools use if their work is unordered.
    pub(super) other_stream: Stream,
    /// The memory of blocks that come from elsewhere.
    pub(super) other_memory: SyncDriverAllocator,
    pub(super) first: Mutex<Option<First>>,
    module: Module,
    pub(super) console: Console,
    pub(super) checks: Vec<Check>,
    different: DeviceBuffer<u64>,
    /// Held streams wait until this is 1.
    flag: DeviceBuffer<u32>,
    is_holding: bool,
    /// The stream that releases held streams.
    releaser: Stream,
    /// The first failure to release them after a check, for [`finish`](Stage::finish).
    pub(super) released: Result<()>,
}

impl Stage {
    pub fn new(device: &Device, module: &Module, console: &Console) -> Result<Stage> {
        Ok(Stage {
            device: device.clone(),
            stream: device.stream()?,
            fault: None,
            other_stream: device.stream()?,
            other_memory: SyncDriverAllocator::new(device),
            first: Mutex::default(),
            module: module.clone(),
            console: *console,
            checks: Vec::new(),
            different: device.zeroed(1)?,
            flag: device.zeroed(1)?,
            is_holding: false,
            releaser: device.stream()?,
            released: Ok(()),
        })
    }

    pub fn finish(mut self) -> Result<Vec<Check>> {
        self.release_all()?;
        self.released?;
        Ok(self.checks)
    }

    /// Another stream.
    pub fn new_stream(&self) -> Result<Stream> {
        if self.has(Fault::OneStream) { Ok(self.stream.clone()) } else { self.device.stream() }
    }

    /// Makes `stream` wait on the device for the work submitted to `other` so far.
    pub fn wait(&self, stream: &Stream, other: &Stream) -> Result<()> {
        self.unless(Fault::Unordered, || stream.wait(&other.record()?))
    }

    /// Whether kernels run on the CPU, where smaller workloads suffice.
    pub fn is_cpu(&self) -> bool {
        self.device.backend() == Backend::Cpu
    }

    /// Whether this fault is injected.
    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Makes a call, unless the injected fault omits it.
    pub fn unless(&self, fault: Fault, call: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.has(fault) { Ok(()) } else { call() }
    }

    /// Prints the next step.
    pub fn say(&self, what: impl Display) {
        self.console.say(format_args!("  {what}"));
    }

    /// Launches a kernel on a stream.
    ///
    /// # Safety
    /// The contract of the kernel must hold until it has ended.
    pub unsafe fn launch<K: Kernel>(
        &self,
        stream: &Stream,
        kernel: K,
        threads: u32,
        args: K::Args,
    ) -> Result<()> {
        // SAFETY: `launch` requires the contract of the kernel.
        unsafe { stream.launch(&self.module, kernel, &LaunchConfig::linear(threads, BLOCK), args) }
    }

    /// Launches a kernel that sets all words to `value`.
    pub fn fill(&self, stream: &Stream, words: DeviceSlice<u32>, value: u32) -> Result<()> {
        let len = words.len() - u64::from(self.has(Fault::ForgottenWord));
        // SAFETY: all of the words, or all but the last.
        let words = unsafe { DeviceSlice::from_raw_parts(words.as_ptr(), len) };
        let threads = self.threads(words);
        // SAFETY: the launch fails unless the words are live; nothing else accesses them (D1).
        unsafe { self.launch(stream, demo_fill, threads, (words, value, threads)) }
    }

    /// Launches a kernel that adds the number of words that differ from `value` to `count`.
    pub fn count_different(
        &self,
        stream: &Stream,
        words: DeviceSlice<u32>,
        value: u32,
        count: DevicePtr<u64>,
    ) -> Result<()> {
        let threads = self.threads(words);
        // SAFETY: the launch fails unless the words and the count are live; nothing writes the
        // words, and only kernels of that stream access the count (D1).
        unsafe { self.launch(stream, demo_count_others, threads, (words, value, threads, count)) }
    }

    /// Number of words that differ from `value`, after the earlier work of the stream. There is no
    /// wait before the launch.
    pub fn different(&mut self, stream: &Stream, words: DeviceSlice<u32>, value: u32) -> Result<u64> {
        self.count_different(stream, words, value, self.different.ptr())?;
        let start = Instant::now();
        // Unordered kernels end while the stream that they should wait for is held.
        while self.is_holding && !stream.is_done()? && start.elapsed() < MAX_DISORDER {
            thread::sleep(Duration::from_micros(100));
        }
        self.release_all()?;
        stream.synchronize()?;
        let different = self.different.copy_to_vec()?[0];
        // Reset the counter last: that waits for the device, and would order unordered work.
        self.different.fill(0)?;
        Ok(different)
    }

    /// Blocks a stream until another stream reaches [`release`](Stage::release).
    pub fn hold(&mut self, stream: &Stream) -> Result<()> {
        if !self.is_holding {
            // At the first launch of a kernel a driver may load it and wait for the device, which
            // must not happen while a stream is held.
            self.is_holding = true;
            self.release(stream)?;
            self.device.synchronize()?;
            self.flag.fill(0)?;
            self.is_holding = true;
        }
        let patience: u32 = match self.fault {
            // The kernel that releases the only stream is queued behind this one.
            Some(Fault::OneStream) => 1 << 8,
            // Minutes on the CPU, where each stream has a thread.
            _ if self.is_cpu() => 1 << 28,
            // A few seconds on a GPU, where streams may not run concurrently.
            _ => 1 << 22,
        };
        // SAFETY: the flag lives until the stream has finished, because its drop waits for the
        // device; the only other kernel that accesses it is `demo_let_go`.
        unsafe { self.launch(stream, demo_hold, 1, (self.flag.ptr(), patience)) }
    }

    /// Releases the held streams when `stream` gets there.
    pub fn release(&mut self, stream: &Stream) -> Result<()> {
        if !std::mem::take(&mut self.is_holding) {
            return Ok(());
        }
        // SAFETY: the flag lives until the stream has finished, because its drop waits for the
        // device; the only other kernel that accesses it is `demo_hold`.
        unsafe { self.launch(stream, demo_let_go, 1, (self.flag.ptr(),)) }
    }

    /// Releases the held streams, and waits for them.
    pub(super) fn release_all(&mut self) -> Result<()> {
        let is_holding = self.is_holding;
        self.release(&self.releaser.clone())?;
        if is_holding { self.device.synchronize() } else { Ok(()) }
    }

    /// Keeps a stream busy for some hundredths of a second; on the CPU for a moment, because no
    /// check depends on it there. With an injected disorder, until the next check.
    pub fn linger(&mut self, stream: &Stream) -> Result<()> {
        if self.has(Fault::Unordered) {
            return self.hold(stream);
        }
        let nanos: u64 = if self.is_cpu() { 20_000 } else { 30_000_000 };
        // SAFETY: the kernel accesses no memory.
        unsafe { self.launch(stream, bench_spin, 1, (nanos,)) }
    }

    /// Number of threads that fill or compare `words`.
    fn threads(&self, words: DeviceSlice<u32>) -> u32 {
        let max = if self.is_cpu() { CPU_THREADS } else { THREADS };
        u32::try_from(words.len()).unwrap_or(max).clamp(1, max)
    }
}
