//! A load on a heap: threads that each allocate one block and keep it.

use super::super::figures::check_addresses;
use super::super::floors::grid_of;
use super::super::timing::{Timer, Timing};
use super::wrong;
use crate::Result;
use crate::kernels::bench::{Counter, Order, Sizes, bench_heap_alloc, bench_heap_free};
use warpheap::device_pools::Heap;
use warpheap::driver::{DeviceBuffer, LaunchConfig};
use warpheap_device::kernel::{DevicePtr, Kernel};

/// Threads, their sizes and their blocks.
pub(super) struct Load<'a> {
    pub timer: &'a Timer,
    pub sizes: Sizes,
    /// The address of each thread's block, or null.
    pub out: DeviceBuffer<u64>,
    failures: DeviceBuffer<u64>,
}

/// Result of the timed allocation rounds.
pub(super) struct Allocations {
    pub time: Timing,
    /// The smallest number of successful allocations in a round.
    pub least: u32,
}

impl<'a> Load<'a> {
    pub fn new(timer: &'a Timer, threads: u32, sizes: Sizes) -> Result<Self> {
        let (out, failures) = (timer.device.zeroed(threads as usize)?, timer.device.zeroed(1)?);
        Ok(Load { timer, sizes, out, failures })
    }

    pub fn threads(&self) -> u32 {
        self.out.len() as u32
    }

    pub fn grid(&self) -> LaunchConfig {
        grid_of(&self.out)
    }

    /// Counter of failures in the kernels.
    pub fn counter(&self) -> Counter {
        DevicePtr(self.failures.address() as *mut _)
    }

    /// The order in which the threads free: each its own block, or one far from those of its
    /// neighbours.
    pub fn order(&self, permuted: bool) -> Order {
        Order { log2: self.threads().ilog2(), permuted: permuted.into() }
    }

    /// Launches a kernel for all threads.
    ///
    /// # Safety
    /// As for the kernel.
    pub unsafe fn launch<K: Kernel>(&self, kernel: K, args: K::Args) -> warpheap::Result<()> {
        // SAFETY: `launch` requires what the kernel requires.
        unsafe { self.timer.stream.launch(&self.timer.module, kernel, &self.grid(), args) }
    }

    /// Every thread allocates a block. Earlier addresses are overwritten.
    pub fn alloc(&self, heap: &Heap) -> warpheap::Result<()> {
        let args = (heap.handle(), self.out.slice(), self.sizes);
        // SAFETY: the heap and `out` are live, and only this stream uses them.
        unsafe { self.launch(bench_heap_alloc, args) }
    }

    /// Every thread frees its block. A thread without a block counts as a failure.
    pub fn free(&self, heap: &Heap, permuted: bool) -> warpheap::Result<()> {
        let args = (heap.handle(), self.out.slice(), self.order(permuted), self.counter());
        // SAFETY: the blocks in `out` were allocated, and are freed once before the next
        // allocations.
        unsafe { self.launch(bench_heap_free, args) }
    }

    /// Rounds of allocating and freeing all blocks, with the allocations timed. The last
    /// allocations are kept.
    pub fn time_alloc(&self, heap: &Heap) -> Result<Allocations> {
        let mut least = u32::MAX;
        let mut first = true;
        let time = self.timer.time_and_look(
            || if std::mem::take(&mut first) { Ok(()) } else { self.free(heap, false) },
            || self.alloc(heap),
            || {
                least = least.min(self.granted()?);
                Ok(())
            },
        )?;
        Ok(Allocations { time, least })
    }

    /// Rounds of allocating and freeing all blocks, with the frees timed.
    pub fn time_free(&self, heap: &Heap, permuted: bool) -> Result<Timing> {
        self.timer.time(|| self.alloc(heap), || self.free(heap, permuted))
    }

    /// Number of threads that hold a block.
    pub fn granted(&self) -> warpheap::Result<u32> {
        Ok(self.out.copy_to_vec()?.iter().filter(|address| **address != 0).count() as u32)
    }

    /// Failures in the kernels since the counter was reset.
    pub fn failures(&self) -> Result<u64> {
        Ok(self.failures.copy_to_vec()?[0])
    }

    pub fn clear_failures(&mut self) -> warpheap::Result<()> {
        self.failures.fill(0)
    }

    /// Checks that exactly `granted` threads hold a block, and that all addresses differ.
    pub fn check_addresses(&self, name: &str, granted: u32) -> Result<String> {
        check_addresses(name, &self.out, granted)
    }

    /// Checks that the threads observed no failure.
    pub fn check(&self, name: &str, heap: &Heap) -> Result<String> {
        let failures = self.failures()?;
        if failures != 0 {
            return Err(wrong(name, format!("{failures} failures")));
        }
        Ok(format!("{}, no failure", check_faults(name, heap)?))
    }
}

/// Checks that the heap recorded no misuse.
pub(super) fn check_faults(name: &str, heap: &Heap) -> Result<&'static str> {
    let faults = heap.faults()?;
    if faults.count != 0 {
        let found = format!("{} faults, the first {:?}", faults.count, faults.first.first());
        return Err(wrong(name, found));
    }
    Ok("no fault")
}
