//! A load: threads that each allocate one block and keep it, and the floors to compare with. A
//! floor is a kernel that does the same work except for the allocation or the free.

use super::results::{Bar, Figure};
use super::timing::{BLOCK, Timer};
use crate::kernels::bench::{
    Counter, Order, Sizes, bench_alloc_floor, bench_churn_floor, bench_free_floor, bench_freelist_alloc,
    bench_freelist_free, bench_heap_alloc, bench_heap_free,
};
use crate::summary::Timing;
use crate::{Error, Result};
use warpheap::device_pools::{Faults, FreeList, Heap};
use warpheap::driver::{DeviceBuffer, LaunchConfig, Module};
use warpheap_device::kernel::{DevicePtr, Kernel};

pub(super) const WITHOUT_ALLOCATING: &str = "the same without allocating";

/// One size for all threads.
pub(super) fn one_size(bytes: u32) -> Sizes {
    Sizes { min: bytes, max: bytes }
}

/// A pool from which every thread of a load can allocate a block.
pub(super) trait Pool {
    /// Every thread allocates a block. Earlier addresses are overwritten.
    fn alloc(&self, load: &Load<'_>) -> warpheap::Result<()>;
    /// Every thread frees its block. A thread without a block counts as a failure.
    fn free(&self, load: &Load<'_>, permuted: bool) -> warpheap::Result<()>;
    /// Checks the pool after all blocks were freed, and says what was checked.
    fn check_freed(&self, name: &str) -> Result<String>;
}

impl Pool for FreeList {
    fn alloc(&self, load: &Load<'_>) -> warpheap::Result<()> {
        // SAFETY: the pool and `out` are live, and only this stream uses them.
        unsafe { load.launch(bench_freelist_alloc, (self.handle(), load.out.slice())) }
    }

    fn free(&self, load: &Load<'_>, permuted: bool) -> warpheap::Result<()> {
        let args = (self.handle(), load.out.slice(), load.order(permuted), load.counter());
        // SAFETY: the blocks in `out` were allocated, and are freed once before the next
        // allocations.
        unsafe { load.launch(bench_freelist_free, args) }
    }

    fn check_freed(&self, name: &str) -> Result<String> {
        let (stats, faults, broken) = (self.stats()?, self.faults()?, self.check()?);
        let is_free = stats.live_blocks == 0 && stats.free_blocks == stats.blocks;
        if !is_free || faults.count != 0 || !broken.is_empty() {
            let found = format!("{stats:?}, {} faults, {broken:?}", faults.count);
            return Err(Error::wrong(name, found));
        }
        Ok(format!("all {} blocks free afterwards, no fault", stats.blocks))
    }
}

impl Pool for Heap {
    fn alloc(&self, load: &Load<'_>) -> warpheap::Result<()> {
        // SAFETY: the heap and `out` are live, and only this stream uses them.
        unsafe { load.launch(bench_heap_alloc, (self.handle(), load.out.slice(), load.sizes)) }
    }

    fn free(&self, load: &Load<'_>, permuted: bool) -> warpheap::Result<()> {
        let args = (self.handle(), load.out.slice(), load.order(permuted), load.counter());
        // SAFETY: the blocks in `out` were allocated, and are freed once before the next
        // allocations.
        unsafe { load.launch(bench_heap_free, args) }
    }

    fn check_freed(&self, name: &str) -> Result<String> {
        let Faults { count, first, .. } = self.faults()?;
        match count {
            0 => Ok("no fault".into()),
            _ => Err(Error::wrong(name, format!("{count} faults, the first {:?}", first.first()))),
        }
    }
}

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
    pub min: u32,
}

impl<'a> Load<'a> {
    pub fn new(timer: &'a Timer, threads: u32, sizes: Sizes) -> Result<Self> {
        let (out, failures) = (timer.device.zeroed(threads as usize)?, timer.device.zeroed(1)?);
        Ok(Load { timer, sizes, out, failures })
    }

    pub fn threads(&self) -> u32 {
        self.out.len() as u32
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
        unsafe { self.launch_in(&self.timer.module, kernel, args) }
    }

    /// As [`launch`](Self::launch), for a kernel of another module.
    ///
    /// # Safety
    /// As for the kernel.
    pub unsafe fn launch_in<K: Kernel>(
        &self,
        module: &Module,
        kernel: K,
        args: K::Args,
    ) -> warpheap::Result<()> {
        let threads = self.threads();
        let grid = LaunchConfig::linear(threads, BLOCK.min(threads));
        // SAFETY: `launch_in` requires what the kernel requires.
        unsafe { self.timer.stream.launch(module, kernel, &grid, args) }
    }

    /// Times a kernel of all threads, without preparation.
    ///
    /// # Safety
    /// As for the kernel, in every round.
    pub unsafe fn time<K: Kernel>(&self, kernel: K, args: K::Args) -> Result<Timing> {
        // SAFETY: `time` requires what the kernel requires.
        self.timer.time(|| Ok(()), || unsafe { self.launch(kernel, args) })
    }

    /// Each thread stores an address to its entry of `out`.
    pub fn alloc_floor(&self) -> Result<Timing> {
        let args = (self.out.address(), self.out.slice(), self.sizes);
        // SAFETY: `out` is live, and only this stream uses it.
        unsafe { self.time(bench_alloc_floor, args) }
    }

    /// Each thread repeatedly stores to its entry of `out`.
    pub fn churn_floor(&self, turns: u32) -> Result<Timing> {
        // SAFETY: `out` is live, and only this stream uses it.
        unsafe { self.time(bench_churn_floor, (self.out.slice(), turns)) }
    }

    /// Each thread loads an address from an entry of `out`.
    fn free_floor(&self, permuted: bool) -> Result<Timing> {
        let args = (self.out.slice(), self.order(permuted), self.counter());
        // SAFETY: `out` and the counter are live, and only this stream uses them.
        unsafe { self.time(bench_free_floor, args) }
    }

    /// Rounds of allocating and freeing all blocks, with the allocations timed. The last
    /// allocations are kept.
    pub fn time_alloc(&self, heap: &Heap) -> Result<Allocations> {
        let mut min = u32::MAX;
        let time = self.timer.time_and_look(
            after_the_first(|| heap.free(self, false)),
            || heap.alloc(self),
            || {
                min = min.min(self.granted()?);
                Ok(())
            },
        )?;
        Ok(Allocations { time, min })
    }

    /// Rounds of allocations, which are timed, with frees between them.
    pub fn time_alternating(
        &self,
        alloc: impl FnMut() -> warpheap::Result<()>,
        free: impl FnMut() -> warpheap::Result<()>,
    ) -> Result<Timing> {
        self.timer.time(after_the_first(free), alloc)
    }

    /// The figure of timed frees of all blocks, in order or permuted.
    pub fn free_figure(&mut self, name: &str, pool: &impl Pool, permuted: bool, bar: f64) -> Result<Figure> {
        pool.alloc(self)?;
        let base = self.free_floor(permuted)?;
        pool.free(self, false)?;
        self.failures.fill(0)?;
        let time = self.timer.time(|| pool.alloc(self), || pool.free(self, permuted))?;
        let checked = self.check(name, pool)?;
        Ok(Figure::ratio(name, self.threads(), time, "the same without freeing", base, bar).checked(checked))
    }

    /// The figure of timed allocations of which `granted` succeeded, relative to `base`.
    pub fn alloc_figure(
        &self,
        name: &str,
        time: Timing,
        against: (&str, Timing),
        bar: f64,
        granted: u32,
    ) -> Result<Figure> {
        let checked = self.check_addresses(name, granted)?;
        Ok(Figure::ratio(name, self.threads(), time, against.0, against.1, bar).checked(checked))
    }

    /// The figure of a churn of `turns` pairs per thread: pairs per second.
    pub fn churn_figure(
        &self,
        name: &str,
        turns: u32,
        time: Timing,
        against: (&str, Timing),
        bar: f64,
    ) -> Figure {
        let figure = Figure::ratio(name, self.threads(), time, against.0, against.1, 0.0);
        figure.measured_by(self.pair_rate(turns, time), "G pairs/s", Bar::AtLeast, bar)
    }

    /// 10^9 pairs per second.
    pub fn pair_rate(&self, turns: u32, time: Timing) -> f64 {
        f64::from(self.threads()) * f64::from(turns) / time.median_us / 1e3
    }

    /// Number of threads that hold a block.
    pub fn granted(&self) -> warpheap::Result<u32> {
        Ok(self.out.copy_to_vec()?.iter().filter(|address| **address != 0).count() as u32)
    }

    /// Failures in the kernels.
    pub fn failures(&self) -> Result<u64> {
        Ok(self.failures.copy_to_vec()?[0])
    }

    /// Checks that exactly `granted` threads hold a block, and that all addresses differ.
    pub fn check_addresses(&self, name: &str, granted: u32) -> Result<String> {
        check_addresses(name, self.out.copy_to_vec()?, granted)
    }

    /// Checks the pool, and that the threads observed no failure.
    pub fn check(&self, name: &str, pool: &impl Pool) -> Result<String> {
        match self.failures()? {
            0 => Ok(format!("{}, no failure", pool.check_freed(name)?)),
            failures => Err(Error::wrong(name, format!("{failures} failures"))),
        }
    }
}

/// Checks that exactly `granted` distinct addresses were stored, and null elsewhere.
pub(super) fn check_addresses(name: &str, mut addresses: Vec<u64>, granted: u32) -> Result<String> {
    addresses.retain(|&address| address != 0);
    addresses.sort_unstable();
    let found = addresses.len();
    addresses.dedup();
    if (found, addresses.len()) != (granted as usize, granted as usize) {
        let found = format!(
            "{found} instead of {granted} allocations succeeded, at {} different addresses",
            addresses.len()
        );
        return Err(Error::wrong(name, found));
    }
    Ok(format!("exactly {granted} allocations succeeded, at different addresses"))
}

/// `step`, except that its first call does nothing.
pub(super) fn after_the_first(
    mut step: impl FnMut() -> warpheap::Result<()>,
) -> impl FnMut() -> warpheap::Result<()> {
    let mut is_first = true;
    move || if std::mem::take(&mut is_first) { Ok(()) } else { step() }
}
