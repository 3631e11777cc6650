//! What the examples share: the device, the heap, and the comparison of results.

use crate::kernels::stress::take_whole_heap;
use crate::{Error, Result};
use std::fmt::Debug;
use warpheap::device_pools::Heap;
use warpheap::driver::{Device, DeviceBuffer, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap_device::check::hash::absorb;
use warpheap_device::kernel::Kernel;

/// Threads in a block.
const BLOCK: u32 = 256;

/// The kernels that run after each example.
pub(super) const LAUNCHED: [&str; 1] = kernel_names![take_whole_heap];

/// An example.
pub(super) struct Example {
    pub name: &'static str,
    /// What its kernels do.
    pub does: &'static str,
    /// The kernels that it launches. Launching any other kernel is an error.
    pub launched: &'static [&'static str],
    pub run: fn(&Context<'_>) -> Result<Outcome>,
}

/// The result of an example: what was checked, and a sample.
pub(super) type Outcome = (Vec<String>, String);

/// The shared state of the examples.
pub(super) struct Context<'a> {
    pub device: &'a Device,
    pub module: &'a Module,
    pub stream: Stream,
    /// Threads that failed to allocate.
    pub failures: DeviceBuffer<u64>,
    pub heap: Heap,
    pub threads: u32,
}

impl Context<'_> {
    /// Runs a kernel with one thread per item, `count` threads in all, and waits for it.
    ///
    /// # Safety
    /// The requirements of the kernel, for as long as it runs.
    pub unsafe fn run<K: Kernel>(&self, kernel: K, count: usize, args: K::Args) -> warpheap::Result<()> {
        let grid = LaunchConfig::linear(count.max(1) as u32, BLOCK);
        // SAFETY: the caller of this function meets the requirements of the kernel.
        unsafe { self.stream.launch(self.module, kernel, &grid, args) }?;
        self.stream.synchronize()
    }

    /// Checks that no misuse was recorded, no allocation failed, and the heap can allocate all its
    /// memory at once.
    pub fn check_empty(&self, name: &str) -> Result<String> {
        let mut faults = self.heap.faults()?;
        let unset = self.module.global_heap_faults()?;
        faults.count += unset.count;
        faults.first.extend(unset.first);
        let failures: u64 = self.failures.copy_to_vec()?.iter().sum();
        if faults.count + failures != 0 {
            let (count, first) = (faults.count, faults.first.first());
            return Err(wrong(
                name,
                format!("{count} faults (first: {first:?}), {failures} failed allocations"),
            ));
        }
        let taken = self.device.zeroed::<u64>(1)?;
        let (one, args) = (LaunchConfig::linear(1, 1), (self.heap.handle(), taken.ptr()));
        // SAFETY: heap and word live until the kernel has ended, and nothing else uses them.
        unsafe { self.stream.launch(self.module, take_whole_heap, &one, args) }?;
        self.stream.synchronize()?;
        if taken.copy_to_vec()? != [1] || self.heap.faults()?.count != 0 {
            let found = "the heap is not empty: its entire memory cannot be allocated at once";
            return Err(wrong(name, found.into()));
        }
        Ok(format!(
            "the heap is empty: one allocation of all {} succeeds",
            warpheap::Bytes(self.heap.capacity())
        ))
    }

    /// Fails at the first unexpected value. Otherwise returns a message that all are as expected.
    pub fn compare<T: PartialEq + Debug>(
        &self,
        name: &str,
        what: &str,
        found: &[T],
        expected: &[T],
    ) -> Result<String> {
        if found.len() != expected.len() {
            return Err(wrong(name, format!("{} {what} instead of {}", found.len(), expected.len())));
        }
        let pairs = found.iter().zip(expected).enumerate();
        match pairs.into_iter().find(|(_, (found, expected))| found != expected) {
            Some((i, (found, expected))) => {
                Err(wrong(name, format!("{what}: number {i} is {found:?} instead of {expected:?}")))
            }
            None => Ok(format!("{} {what} are as the host computes them", found.len())),
        }
    }
}

fn wrong(name: &str, found: String) -> Error {
    Error::wrong(format!("the example `{name}`"), found)
}

/// A pseudo-random number, equal on every machine.
pub(super) fn scrambled(i: u64) -> u64 {
    absorb(i, 0)
}
