//! The environment of a demonstration: a device with kernels, and the log of checked steps.

use crate::cli::console::Console;
use serde::Serialize;
use std::fmt::Debug;
use warpheap::{Backend, Device, DeviceBuffer, Error, LaunchConfig, Module, Result, Stream};
use warpheap_device::kernel::{DevicePtr, DeviceSlice, Kernel};
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::kernels::demo::{demo_count_others, demo_fill, demo_hold, demo_let_go};

/// Threads per block.
const BLOCK: u32 = 256;
/// Maximum number of threads that fill and count; each then has several words.
const THREADS: u32 = 1 << 16;
/// Maximum on the CPU, which runs the threads one after the other.
const CPU_THREADS: u32 = 1 << 10;

/// A fault that a test plants to see it detected.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Fill kernels omit the last word.
    ForgottenWord,
    /// All streams are the same stream.
    OneStream,
    /// Waits between streams do nothing.
    NoWaits,
}

/// A checked step.
#[derive(Debug, Serialize)]
pub struct Check {
    /// The property that was checked.
    pub what: String,
    /// The observed value.
    pub found: String,
    /// Whether the check passed.
    pub holds: bool,
}

/// A device with its kernels and a stream, and the checks so far.
pub struct Stage<'a> {
    device: Device,
    module: Module,
    stream: Stream,
    others: DeviceBuffer<u64>,
    /// The flag that [`hold`](Stage::hold) waits for.
    flag: DeviceBuffer<u32>,
    console: &'a Console,
    checks: Vec<Check>,
    #[cfg(test)]
    pub plant: Option<Plant>,
    /// The gate that blocks streams that must stay busy.
    #[cfg(test)]
    pub gate: Option<super::gate::Gate>,
}

impl<'a> Stage<'a> {
    pub fn new(device: &Device, module: &Module, console: &'a Console) -> Result<Stage<'a>> {
        let (device, module) = (device.clone(), module.clone());
        let (stream, others) = (device.stream()?, device.zeroed(1)?);
        let flag = device.zeroed(1)?;
        Ok(Stage {
            device,
            module,
            stream,
            others,
            flag,
            console,
            checks: Vec::new(),
            #[cfg(test)]
            plant: None,
            #[cfg(test)]
            gate: None,
        })
    }

    pub fn finish(self) -> Vec<Check> {
        self.checks
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The stream of steps that need only one.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Another stream.
    pub fn new_stream(&self) -> Result<Stream> {
        #[cfg(test)]
        if self.plant == Some(Plant::OneStream) {
            return Ok(self.stream.clone());
        }
        self.device.stream()
    }

    /// Makes `stream` wait on the device for the work submitted to `other` so far.
    pub fn wait(&self, stream: &Stream, other: &Stream) -> Result<()> {
        #[cfg(test)]
        if self.plant == Some(Plant::NoWaits) {
            return Ok(());
        }
        stream.wait(&other.record()?)
    }

    /// Whether kernels run on the CPU, where smaller workloads suffice.
    pub fn is_cpu(&self) -> bool {
        self.device.backend() == Backend::Cpu
    }

    /// Prints the next step.
    pub fn say(&self, what: impl std::fmt::Display) {
        self.console.say(format_args!("  {what}"));
    }

    /// Records a check with the observed value `found`. In tests this also opens the gate that
    /// blocks streams, so work that runs too early must have done so before.
    pub fn check(&mut self, what: impl Into<String>, found: impl Into<String>, holds: bool) {
        let (what, found) = (what.into(), found.into());
        let word = if holds { "[ok]    " } else { "[FAILED]" };
        self.console.say(format_args!("  {word} {what}: {found}"));
        self.checks.push(Check { what, found, holds });
        #[cfg(test)]
        if let Some(gate) = &self.gate {
            gate.open().unwrap();
        }
    }

    /// Checks that `found` is `expected`.
    pub fn check_is<T: PartialEq + Debug>(&mut self, what: impl Into<String>, found: T, expected: T) {
        let holds = found == expected;
        let instead = if holds { String::new() } else { format!(" instead of {expected:?}") };
        self.check(what, format!("{found:?}{instead}"), holds);
    }

    /// Checks that a call failed with the error that `is_it` accepts, and prints its message.
    pub fn check_refused<T>(
        &mut self,
        what: impl Into<String>,
        outcome: Result<T>,
        is_it: impl FnOnce(&Error) -> bool,
    ) {
        match outcome {
            Ok(_) => self.check(what, "it was not refused", false),
            Err(error) => {
                let holds = is_it(&error);
                self.check(what, error.to_string(), holds);
            }
        }
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
        let grid = LaunchConfig::linear(threads, BLOCK);
        // SAFETY: `launch` requires the contract of the kernel.
        unsafe { stream.launch(&self.module, kernel, &grid, args) }
    }

    /// Launches a kernel that sets all words to `value`.
    ///
    /// # Safety
    /// Nothing else accesses the words until the stream has finished the kernel.
    pub unsafe fn fill(&self, stream: &Stream, words: DeviceSlice<u32>, value: u32) -> Result<()> {
        #[cfg(test)]
        let words = match self.plant {
            // SAFETY: a part of the given words.
            Some(Plant::ForgottenWord) => unsafe {
                DeviceSlice::from_raw_parts(words.as_ptr(), words.len() - 1)
            },
            _ => words,
        };
        let threads = self.threads(words);
        // SAFETY: `fill` requires that nothing else accesses the words.
        unsafe { self.launch(stream, demo_fill, threads, (words, value, threads)) }
    }

    /// Counts the words that differ from `value` with a kernel, after the earlier work of the
    /// stream. There is no wait before the launch.
    ///
    /// # Safety
    /// Nothing writes to the words until then.
    pub unsafe fn others(&mut self, stream: &Stream, words: DeviceSlice<u32>, value: u32) -> Result<u64> {
        let threads = self.threads(words);
        let count: DevicePtr<u64> = self.others.ptr();
        // SAFETY: `others` requires that nothing writes to the words; the counter is live, and
        // nothing else uses it.
        unsafe { self.launch(stream, demo_count_others, threads, (words, value, threads, count)) }?;
        #[cfg(test)]
        if let Some(gate) = &self.gate {
            gate.open_behind(stream)?;
        }
        stream.synchronize()?;
        let others = self.others.copy_to_vec()?[0];
        // Reset the counter last: that waits for the device, and would order unordered work.
        self.others.fill(0)?;
        Ok(others)
    }

    /// Blocks a stream until another stream reaches [`let_go`](Stage::let_go). Waits for the device
    /// first.
    pub fn hold(&mut self, stream: &Stream) -> Result<()> {
        // At the first launch of a kernel a driver may load it and wait for the device, which must
        // not happen while the stream is held.
        self.let_go(stream)?;
        self.device.synchronize()?;
        self.flag.fill(0)?;
        // A few seconds on a GPU, where streams may not run concurrently. Minutes on the CPU, where
        // each stream has a thread.
        let patience: u32 = if self.is_cpu() { 1 << 28 } else { 1 << 22 };
        // With a single stream, the kernel that releases it is queued behind it.
        #[cfg(test)]
        let patience = if self.plant == Some(Plant::OneStream) { 1 << 8 } else { patience };
        // SAFETY: the flag lives until the stream has finished, because its drop waits for the
        // device; the only other kernel that accesses it is `demo_let_go`.
        unsafe { self.launch(stream, demo_hold, 1, (self.flag.ptr(), patience)) }
    }

    /// Releases the stream that [`hold`](Stage::hold) blocks.
    pub fn let_go(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the flag lives until the stream has finished, because its drop waits for the
        // device; the only other kernel that accesses it is `demo_hold`.
        unsafe { self.launch(stream, demo_let_go, 1, (self.flag.ptr(),)) }
    }

    /// Keeps a stream busy for some hundredths of a second; on the CPU for a moment, because no
    /// check depends on it there.
    pub fn linger(&self, stream: &Stream) -> Result<()> {
        #[cfg(test)]
        if let Some(gate) = &self.gate {
            return gate.close(stream);
        }
        // Nanoseconds.
        let long: u64 = if self.device.backend() == Backend::Cpu { 20_000 } else { 30_000_000 };
        // SAFETY: the kernel accesses no memory.
        unsafe { self.launch(stream, bench_spin, 1, (long,)) }
    }

    /// Number of threads that fill or count `words`.
    pub fn threads(&self, words: DeviceSlice<u32>) -> u32 {
        let most = if self.device.backend() == Backend::Cpu { CPU_THREADS } else { THREADS };
        u32::try_from(words.len()).unwrap_or(most).clamp(1, most)
    }
}
