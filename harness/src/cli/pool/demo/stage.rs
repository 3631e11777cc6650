//! Where a demonstration happens: a device with kernels, and someone who watches every step.

use crate::cli::console::Console;
use serde::Serialize;
use std::fmt::Debug;
use warpheap::{Backend, Device, DeviceBuffer, Error, LaunchConfig, Module, Result, Stream};
use warpheap_device::kernel::{DevicePtr, DeviceSlice, Kernel};
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::kernels::demo::{demo_count_others, demo_fill, demo_hold, demo_let_go};

/// Threads of a block.
const BLOCK: u32 = 256;
/// Threads that fill and count, at most: each then has several words.
const THREADS: u32 = 1 << 16;
/// The same on the CPU, which runs one after the other.
const CPU_THREADS: u32 = 1 << 10;

/// What a test lets go wrong, to see it found.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Kernels that fill leave the last word out.
    ForgottenWord,
    /// All streams are one.
    OneStream,
    /// No stream waits for another, where a demonstration asks for it.
    NoWaits,
}

/// A step that was checked.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub what: String,
    /// What it was.
    pub found: String,
    /// Whether it is as it must be.
    pub holds: bool,
}

/// A device with its kernels and a stream, and what was checked so far.
pub struct Stage<'a> {
    device: Device,
    module: Module,
    stream: Stream,
    others: DeviceBuffer<u64>,
    /// What [`hold`](Stage::hold) waits for.
    flag: DeviceBuffer<u32>,
    console: &'a Console,
    checks: Vec<Check>,
    #[cfg(test)]
    pub plant: Option<Plant>,
    /// What streams stand before that are to be busy.
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

    /// The stream of what needs but one.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Another one.
    pub fn new_stream(&self) -> Result<Stream> {
        #[cfg(test)]
        if self.plant == Some(Plant::OneStream) {
            return Ok(self.stream.clone());
        }
        self.device.stream()
    }

    /// Lets `stream` wait on the device for what `other` was given so far.
    pub fn wait(&self, stream: &Stream, other: &Stream) -> Result<()> {
        #[cfg(test)]
        if self.plant == Some(Plant::NoWaits) {
            return Ok(());
        }
        stream.wait(&other.record()?)
    }

    /// Whether kernels run on the CPU, where less of them is enough.
    pub fn is_cpu(&self) -> bool {
        self.device.backend() == Backend::Cpu
    }

    /// What happens next.
    pub fn say(&self, what: impl std::fmt::Display) {
        self.console.say(format_args!("  {what}"));
    }

    /// Checks that `holds`, of which `found` is what was seen. In tests, streams that a gate holds go on then: what is to come too early comes before.
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

    /// Checks that something was refused by the error that `is_it` knows, and shows what it says.
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
    /// What the kernel asks of its caller, until it has ended.
    pub unsafe fn launch<K: Kernel>(
        &self,
        stream: &Stream,
        kernel: K,
        threads: u32,
        args: K::Args,
    ) -> Result<()> {
        let grid = LaunchConfig::linear(threads, BLOCK);
        // SAFETY: the caller's promise.
        unsafe { stream.launch(&self.module, kernel, &grid, args) }
    }

    /// Lets a kernel write `value` to all words.
    ///
    /// # Safety
    /// No one else touches them until the stream has come there.
    pub unsafe fn fill(&self, stream: &Stream, words: DeviceSlice<u32>, value: u32) -> Result<()> {
        #[cfg(test)]
        let words = match self.plant {
            // SAFETY: they are among the words that were given.
            Some(Plant::ForgottenWord) => unsafe {
                DeviceSlice::from_raw_parts(words.as_ptr(), words.len() - 1)
            },
            _ => words,
        };
        let threads = self.threads(words);
        // SAFETY: the caller's promise.
        unsafe { self.launch(stream, demo_fill, threads, (words, value, threads)) }
    }

    /// How many of the words are not `value`, counted by a kernel, after what the stream was given before. Nothing is waited for
    /// before the launch.
    ///
    /// # Safety
    /// No one writes them until then.
    pub unsafe fn others(&mut self, stream: &Stream, words: DeviceSlice<u32>, value: u32) -> Result<u64> {
        let threads = self.threads(words);
        let count: DevicePtr<u64> = self.others.ptr();
        // SAFETY: the caller's promise; the counter lives, and nobody else has it.
        unsafe { self.launch(stream, demo_count_others, threads, (words, value, threads, count)) }?;
        #[cfg(test)]
        if let Some(gate) = &self.gate {
            gate.open_behind(stream)?;
        }
        stream.synchronize()?;
        let others = self.others.copy_to_vec()?[0];
        // Afterwards: it waits for the device, and would bring into order what is not.
        self.others.fill(0)?;
        Ok(others)
    }

    /// Holds a stream until another one comes to [`let_go`](Stage::let_go). It waits for the device first.
    pub fn hold(&mut self, stream: &Stream) -> Result<()> {
        // A driver may load a kernel at its first launch, and wait for the device with that: not while this one holds it.
        self.let_go(stream)?;
        self.device.synchronize()?;
        self.flag.fill(0)?;
        // On a GPU some seconds, for streams may not run side by side there; on the CPU each has a thread of its own: minutes.
        let patience: u32 = if self.is_cpu() { 1 << 28 } else { 1 << 22 };
        // With one stream, what lets go comes behind it.
        #[cfg(test)]
        let patience = if self.plant == Some(Plant::OneStream) { 1 << 8 } else { patience };
        // SAFETY: the flag lives until the stream is done, for its end waits for the device; of other kernels only `demo_let_go` touches it.
        unsafe { self.launch(stream, demo_hold, 1, (self.flag.ptr(), patience)) }
    }

    /// The other half of that.
    pub fn let_go(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the same.
        unsafe { self.launch(stream, demo_let_go, 1, (self.flag.ptr(),)) }
    }

    /// Keeps a stream busy for some hundredths of a second; on the CPU for a moment, since no check depends on it there.
    pub fn linger(&self, stream: &Stream) -> Result<()> {
        #[cfg(test)]
        if let Some(gate) = &self.gate {
            return gate.close(stream);
        }
        // Nanoseconds.
        let long: u64 = if self.device.backend() == Backend::Cpu { 20_000 } else { 30_000_000 };
        // SAFETY: it touches no memory.
        unsafe { self.launch(stream, bench_spin, 1, (long,)) }
    }

    /// How many threads fill or count so many words.
    pub fn threads(&self, words: DeviceSlice<u32>) -> u32 {
        let most = if self.device.backend() == Backend::Cpu { CPU_THREADS } else { THREADS };
        u32::try_from(words.len()).unwrap_or(most).clamp(1, most)
    }
}
