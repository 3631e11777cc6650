//! A load on a heap: a number of threads, each of which asks once and keeps what it got.

use super::super::figures::check_addresses;
use super::super::floors::grid_of;
use super::super::timing::{Timer, Timing};
use super::wrong;
use crate::Result;
use crate::kernels::bench::{Counter, Order, Sizes, bench_heap_alloc, bench_heap_free};
use warpheap::driver::{DeviceBuffer, LaunchConfig};
use warpheap::pool::Heap;
use warpheap_device::kernel::{DevicePtr, Kernel};

/// Threads, what they ask for, and what they have.
pub(super) struct Load<'a> {
    pub timer: &'a Timer,
    pub sizes: Sizes,
    /// An address or null for each thread.
    pub out: DeviceBuffer<u64>,
    failures: DeviceBuffer<u64>,
}

/// Rounds of allocations.
pub(super) struct Allocations {
    pub time: Timing,
    /// The fewest that a round was granted.
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

    /// Of what went wrong in the kernels.
    pub fn counter(&self) -> Counter {
        DevicePtr(self.failures.address() as *mut _)
    }

    /// In which the threads free: each its own, or one far from those of its neighbours.
    pub fn order(&self, permuted: bool) -> Order {
        Order { log2: self.threads().ilog2(), permuted: permuted.into() }
    }

    /// Launches a kernel for all threads.
    ///
    /// # Safety
    /// As for the kernel.
    pub unsafe fn launch<K: Kernel>(&self, kernel: K, args: K::Args) -> warpheap::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.timer.stream.launch(&self.timer.module, kernel, &self.grid(), args) }
    }

    /// Every thread allocates; what it had before is forgotten.
    pub fn alloc(&self, heap: &Heap) -> warpheap::Result<()> {
        let args = (heap.handle(), self.out.slice(), self.sizes);
        // SAFETY: heap and `out` live, and this stream alone uses them.
        unsafe { self.launch(bench_heap_alloc, args) }
    }

    /// Every thread frees; one that has nothing counts as a failure.
    pub fn free(&self, heap: &Heap, permuted: bool) -> warpheap::Result<()> {
        let args = (heap.handle(), self.out.slice(), self.order(permuted), self.counter());
        // SAFETY: what `out` names was allocated, and is freed once before the next allocations.
        unsafe { self.launch(bench_heap_free, args) }
    }

    /// Rounds of allocating all and giving all back, of which the allocations are timed. The last are kept.
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

    /// Rounds of the same, of which the frees are timed.
    pub fn time_free(&self, heap: &Heap, permuted: bool) -> Result<Timing> {
        self.timer.time(|| self.alloc(heap), || self.free(heap, permuted))
    }

    /// Threads that have something.
    pub fn granted(&self) -> warpheap::Result<u32> {
        Ok(self.out.copy_to_vec()?.iter().filter(|address| **address != 0).count() as u32)
    }

    /// What went wrong in the kernels since the counter was cleared.
    pub fn failures(&self) -> Result<u64> {
        Ok(self.failures.copy_to_vec()?[0])
    }

    pub fn clear_failures(&mut self) -> warpheap::Result<()> {
        self.failures.fill(0)
    }

    /// Exactly so many threads have something, no two of them the same.
    pub fn check_addresses(&self, name: &str, granted: u32) -> Result<String> {
        check_addresses(name, &self.out, granted)
    }

    /// Nothing went wrong that the threads saw.
    pub fn check(&self, name: &str, heap: &Heap) -> Result<String> {
        let failures = self.failures()?;
        if failures != 0 {
            return Err(wrong(name, format!("{failures} failures")));
        }
        Ok(format!("{}, no failure", check_faults(name, heap)?))
    }
}

/// The heap has seen no misuse.
pub(super) fn check_faults(name: &str, heap: &Heap) -> Result<&'static str> {
    let faults = heap.faults()?;
    if faults.count != 0 {
        let found = format!("{} faults, the first {:?}", faults.count, faults.first.first());
        return Err(wrong(name, found));
    }
    Ok("no fault")
}
