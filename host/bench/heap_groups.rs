//! The heap's calls for groups, beside its plain ones.

use super::figures::{Bench, THREADS, ratio};
use super::timing::Timing;
use super::{Bar, Figure};
use crate::error::Result;

use crate::pool::Heap;
use warpheap_device::heap;
use warpheap_device::kernel::Kernel;
use warpheap_kernels::bench::{
    CACHE_THREADS, Counter, Sizes, bench_heap_alloc_each, bench_heap_churn, bench_heap_churn_cached,
    bench_heap_free_each,
};

const BYTES: u64 = 8 << 30;
/// Pairs by each thread.
const TURNS: u32 = 64;
/// How much faster than the plain calls the cache's have to be.
const CACHE_GAIN: f64 = 2.0;

const _: () = assert!(CACHE_THREADS == super::figures::BLOCK);

impl Bench<'_> {
    pub fn heap_group_figures(&mut self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        for size in [16, 64] {
            let name = format!("heap churn through the block cache, {size} B");
            self.figure(&name, progress, |b| b.heap_churn_cached(&name, Sizes { min: size, max: size }))?;
        }
        for size in [16, 64] {
            let name = format!("heap alloc for whole blocks, {size} B");
            self.figure(&name, progress, |b| b.heap_alloc_each(&name, Sizes { min: size, max: size }))?;
        }
        Ok(())
    }

    /// Pairs through the cache, and the same through plain calls.
    fn heap_churn_cached(&mut self, name: &str, sizes: Sizes) -> Result<Figure> {
        let heap = self.heap(BYTES)?;
        self.failures.fill(0)?;
        let base = self.time_pairs(bench_heap_churn, &heap, sizes)?;
        let time = self.time_pairs(bench_heap_churn_cached, &heap, sizes)?;
        let checked = self.check_heap(name, &heap)?;
        let rate = |time: Timing| f64::from(THREADS) * f64::from(TURNS) / time.median_us / 1e3;
        let bar = CACHE_GAIN * rate(base);
        let figure = ratio(name, time, "the heap's plain calls", base, 0.0, checked);
        Ok(figure.measured_by(rate(time), "G pairs/s", Bar::AtLeast, bar))
    }

    fn time_pairs<K>(&self, kernel: K, heap: &Heap, sizes: Sizes) -> Result<Timing>
    where
        K: Kernel<Args = (heap::Heap, Sizes, u32, Counter)>,
    {
        let args = (heap.handle(), sizes, TURNS, self.counter());
        // SAFETY: the heap and the counter live, and this stream alone uses them.
        let launch = || unsafe { self.timer.stream.launch(&self.timer.module, kernel, &Self::grid(), args) };
        self.timer.time(|| Ok(()), launch)
    }

    /// Rounds of allocating for all blocks and giving back; the first of each is timed.
    fn heap_alloc_each(&mut self, name: &str, sizes: Sizes) -> Result<Figure> {
        let base = self.alloc_floor(sizes)?;
        let heap = self.heap(BYTES)?;
        self.failures.fill(0)?;
        let (stream, module) = (self.timer.stream.clone(), self.timer.module.clone());
        let args = (heap.handle(), self.out.slice(), sizes);
        // SAFETY: heap and `out` live, and this stream alone uses them.
        let launch = || unsafe { stream.launch(&module, bench_heap_alloc_each, &Self::grid(), args) };
        let free = (heap.handle(), self.out.slice(), self.counter());
        let mut first = true;
        let give_back = || match std::mem::take(&mut first) {
            true => Ok(()),
            // SAFETY: `out` holds what the launch before has allocated.
            false => unsafe { stream.launch(&module, bench_heap_free_each, &Self::grid(), free) },
        };
        let time = self.timer.time(give_back, launch)?;
        let checked = self.check_addresses(name, THREADS)?;
        let checked = format!("{checked}, {}", self.check_heap(name, &heap)?);
        Ok(ratio(name, time, "the same without allocating", base, 2.0, checked))
    }
}
