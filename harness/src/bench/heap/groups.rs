//! The heap's group functions, compared with its plain ones.

use crate::Result;
use crate::bench::context::{Bench, GIB, Plan, THREADS};
use crate::bench::load::{Load, WITHOUT_ALLOCATING, one_size};
use crate::bench::results::Figure;
use crate::bench::timing::BLOCK;
use crate::kernels::bench::{
    CACHE_THREADS, Counter, Sizes, bench_alloc_floor, bench_heap_alloc_each, bench_heap_churn,
    bench_heap_churn_cached, bench_heap_free_each,
};
use crate::summary::Timing;
use warpheap::device_pools::Heap;
use warpheap::kernel_names;
use warpheap_device::heap;
use warpheap_device::kernel::{Arg, Kernel};

/// Pairs per thread.
const TURNS: u32 = 64;
/// Minimum speedup of the block cache over plain calls.
const CACHE_GAIN: f64 = 2.0;

const _: () = assert!(CACHE_THREADS == BLOCK);

const CACHED: [&str; 2] = kernel_names![bench_heap_churn, bench_heap_churn_cached];
const EACH: [&str; 3] = kernel_names![bench_alloc_floor, bench_heap_alloc_each, bench_heap_free_each];

pub(super) fn plans() -> Vec<Plan> {
    let cached = [16, 64].map(|size| {
        let name = format!("heap churn through the block cache, {size} B");
        Plan::new(name, &CACHED, move |b, name| b.heap_churn_cached(name, one_size(size)))
    });
    let each = [16, 64].map(|size| {
        let name = format!("heap alloc for whole blocks, {size} B");
        Plan::new(name, &EACH, move |b, name| b.heap_alloc_each(name, one_size(size)))
    });
    cached.into_iter().chain(each).collect()
}

impl Bench {
    /// Pairs through the block cache, and the same pairs through plain calls.
    fn heap_churn_cached(&self, name: &str, sizes: Sizes) -> Result<Figure> {
        let (load, heap) = (self.load(THREADS, sizes)?, self.heap(8 * GIB)?);
        let base = time_pairs(bench_heap_churn, &load, &heap)?;
        let time = time_pairs(bench_heap_churn_cached, &load, &heap)?;
        let checked = load.check(name, &heap)?;
        let bar = CACHE_GAIN * load.pair_rate(TURNS, base);
        let figure = load.churn_figure(name, TURNS, time, ("the heap's plain calls", base), bar);
        Ok(figure.checked(checked))
    }

    /// Rounds of allocating for all blocks and freeing; the allocation of each round is timed.
    fn heap_alloc_each(&self, name: &str, sizes: Sizes) -> Result<Figure> {
        let load = self.load(THREADS, sizes)?;
        let base = load.alloc_floor()?;
        let heap = self.heap(8 * GIB)?;
        let args = (heap.handle(), load.out.slice(), sizes);
        let free_args = (heap.handle(), load.out.slice(), load.counter());
        let time = load.time_alternating(
            // SAFETY: the heap and `out` are live, and only this stream uses them.
            || unsafe { load.launch(bench_heap_alloc_each, args) },
            // SAFETY: `out` holds the blocks that the previous launch allocated.
            || unsafe { load.launch(bench_heap_free_each, free_args) },
        )?;
        let figure = load.alloc_figure(name, time, (WITHOUT_ALLOCATING, base), 2.0, load.threads())?;
        let checked = format!("{}, {}", figure.checked, load.check(name, &heap)?);
        Ok(figure.checked(checked))
    }
}

fn time_pairs<K>(kernel: K, load: &Load<'_>, heap: &Heap) -> Result<Timing>
where
    K: Kernel<Args = (Arg<heap::Heap>, Sizes, u32, Counter)>,
{
    let args = (heap.handle(), load.sizes, TURNS, load.counter());
    // SAFETY: the heap and the counter are live, and only this stream uses them.
    unsafe { load.time(kernel, args) }
}
