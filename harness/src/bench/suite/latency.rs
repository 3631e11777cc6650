//! The durations of single calls of the heap and of CUDA's `malloc` in several situations.
//!
//! | situation | what the threads do |
//! |---|---|
//! | `one size` | each allocates one block from a heap with room; then each frees it |
//! | `contention` | each repeatedly allocates and frees a block |
//! | `near exhaustion` | the same, in a heap of which a random 1/32 is free |
//! | `refill` | each allocates one block from a new heap: spans are refilled meanwhile |

use super::extent::BYTES_OVER_THREADS;
use super::series::HEAP;
use super::{Bin, Distribution, Latency, Operation, Operation::*, Setup};
use crate::bench::engine::{Load, Rounds, Run, Subject, one_size};
use crate::bench::subjects::CUDA_MALLOC;
use crate::kernels::bench::{Order, bench_heap_free};
use crate::suite_kernels::{
    FAILED, NOT_CALLED, suite_heap_alloc_latency, suite_heap_churn_latency, suite_heap_free_latency,
    suite_malloc_alloc_latency, suite_malloc_churn_latency, suite_malloc_free_latency,
};
use crate::summary::Sorted;
use crate::{Error, OwnModule, Result};
use warpheap::device_pools::Heap;
use warpheap::driver::{Backend, DeviceBuffer, Module};
use warpheap::kernel_names;

/// Timed launches in each situation, after an untimed one.
const LAUNCHES: u32 = 5;
/// Pairs of an allocation and a free of each thread in a launch of a churn.
const TURNS: u32 = 4;
/// A block of which few fit into a span.
const REFILL_BYTES: u32 = 4096;
/// One of so many blocks of an almost exhausted heap is free.
const FREE_SHARE: u32 = 32;
/// Minimum share of a heap that its blocks take before they are freed, in percent.
const FULL_PERCENT: u64 = 95;

/// The situation with a target.
pub(super) const ONE_SIZE: &str = "one size";
/// The measurement with that situation.
pub(super) const OF_THE_HEAP: &str = "latency of the heap:";
const NEAR_EXHAUSTION: &str = "latency of the heap near exhaustion";
const REFILL: &str = "latency of the heap during refills";

/// An allocator whose calls are timed one by one.
#[derive(Clone, Copy)]
pub(super) struct Calls<'a> {
    /// The kernels that time calls.
    pub module: &'a Module,
    /// `None` for CUDA's `malloc`.
    pub heap: Option<&'a Heap>,
}

/// A duration for each call of a launch.
pub(super) struct Durations {
    allocs: DeviceBuffer<u64>,
    frees: DeviceBuffer<u64>,
}

impl Calls<'_> {
    fn name(self) -> &'static str {
        if self.heap.is_some() { HEAP } else { CUDA_MALLOC }
    }

    /// Launches the kernel of an operation, which stores the duration of each call. A free releases
    /// the blocks that the launch before it allocated.
    fn launch(self, operation: Operation, load: &Load<'_>, to: &Durations) -> warpheap::Result<()> {
        let (module, out, sizes, turns) = (self.module, load.out.slice(), load.sizes, load.turns);
        let (allocs, frees) = (to.allocs.slice(), to.frees.slice());
        match (operation, self.heap.map(Heap::handle)) {
            (Alloc, Some(heap)) => {
                let args = (heap, sizes, out, allocs);
                // SAFETY: heap and buffers are live, and only this stream uses them.
                unsafe { load.launch_in(module, suite_heap_alloc_latency, args) }
            }
            (Free, Some(heap)) => {
                let args = (heap, out, frees);
                // SAFETY: `out` holds the blocks that the previous launch allocated.
                unsafe { load.launch_in(module, suite_heap_free_latency, args) }
            }
            (Churn, Some(heap)) => {
                let args = (heap, sizes, turns, allocs, frees);
                // SAFETY: heap and buffers are live, and only this stream uses them.
                unsafe { load.launch_in(module, suite_heap_churn_latency, args) }
            }
            (Alloc, None) => {
                let args = (sizes, out, allocs);
                // SAFETY: the buffers are live, and only this stream uses them.
                unsafe { load.launch_in(module, suite_malloc_alloc_latency, args) }
            }
            (Free, None) => {
                let args = (out, frees);
                // SAFETY: `out` holds the blocks that the previous launch allocated.
                unsafe { load.launch_in(module, suite_malloc_free_latency, args) }
            }
            (Churn, None) => {
                let args = (sizes, turns, allocs, frees);
                // SAFETY: the buffers are live, and only this stream uses them.
                unsafe { load.launch_in(module, suite_malloc_churn_latency, args) }
            }
        }
    }
}

/// The module with the kernels that time calls of the heap.
pub(super) fn timed_kernels(own: &OwnModule) -> Result<Module> {
    const LAUNCHED: [&str; 3] =
        kernel_names![suite_heap_alloc_latency, suite_heap_free_latency, suite_heap_churn_latency];
    Ok(own.load_suite(&LAUNCHED)?.module().clone())
}

/// Times the calls of both allocators in all situations.
pub(super) fn measure(setup: &Setup<'_>, own: &OwnModule, run: &mut Run<'_>) -> Result<Vec<Latency>> {
    let (extent, module, mut all) = (setup.extent, &timed_kernels(own)?, Vec::new());
    let of_heap = |name: &str, callers| {
        let heap = setup.bench.heap(extent.room(callers, BYTES_OVER_THREADS))?;
        let all = with_room(setup, name, Calls { module, heap: Some(&heap) }, callers)?;
        heap.check_freed(name)?;
        Ok(all)
    };
    let mut situation = |name: &str, measure: &dyn Fn(&str) -> Result<Vec<Latency>>| -> Result<()> {
        all.extend(run.measure(name, || measure(name))?.into_iter().flatten());
        Ok(())
    };
    situation("latency of the heap", &|name| of_heap(name, extent.callers))?;
    situation(NEAR_EXHAUSTION, &|_| near_exhaustion(setup, module))?;
    situation(REFILL, &|_| refill(setup, module))?;
    if let Some(malloc) = setup.malloc {
        let (calls, callers) = (Calls { module: &malloc.module, heap: None }, extent.callers_of_malloc);
        situation("latency of CUDA's malloc", &|name| with_room(setup, name, calls, callers))?;
        situation("latency of the heap, with the threads of CUDA's malloc", &|name| of_heap(name, callers))?;
    }
    Ok(all)
}

/// The latencies of allocations and of frees in each of [`LAUNCHES`] launches after an untimed one,
/// or in fewer if they take longer than the longest point of a series.
fn record(
    setup: &Setup<'_>,
    load: &Load<'_>,
    of: (&'static str, &'static str),
    mut launch: impl FnMut(&Durations) -> Result<()>,
) -> Result<[Latency; 2]> {
    let device = &setup.bench.device;
    let buffer = || device.zeroed(load.threads() as usize * load.turns as usize);
    let durations = Durations { allocs: buffer()?, frees: buffer()? };
    let mut round = || {
        launch(&durations)?;
        device.synchronize()?;
        Ok::<_, Error>((durations.allocs.copy_to_vec()?, durations.frees.copy_to_vec()?))
    };
    // Not part of the budget: the first launch loads the kernel.
    round()?;
    let rounds = Rounds { warm_up: 0, timed: LAUNCHES, least: 1, budget: setup.extent.slowest };
    let recorded = rounds.run(round)?;
    let (allocs, frees): (Vec<_>, Vec<_>) = recorded.into_iter().unzip();
    let shape = (load.threads(), load.sizes.max);
    let unit = if device.backend() == Backend::Cpu { "ns" } else { "cycles" };
    Ok([(Alloc, allocs), (Free, frees)]
        .map(|(operation, launches)| latency(of, operation, shape, unit, launches)))
}

/// The latency of calls of an allocator in a situation, from the durations of each launch: those of
/// calls that succeeded and that failed.
fn latency(
    (contender, situation): (&'static str, &'static str),
    operation: Operation,
    (threads, bytes): (u32, u32),
    unit: &'static str,
    mut launches: Vec<Vec<u64>>,
) -> Latency {
    let mut failures = Vec::new();
    for durations in &mut launches {
        durations.retain(|duration| *duration != NOT_CALLED);
        let failed = durations.extract_if(.., |duration| *duration & FAILED != 0);
        failures.extend(failed.map(|duration| duration & !FAILED));
    }
    let (failed, failures) = (failures.len() as u64, Sorted::of(failures));
    Latency {
        name: format!("{contender} {}, {situation}", operation.name()),
        contender: contender.into(),
        operation: operation.name().into(),
        situation: situation.into(),
        threads,
        bytes,
        unit: unit.into(),
        failed,
        failed_p50: failures.as_ref().map(|failures| failures.percentile(500)),
        failed_max: failures.as_ref().map(Sorted::max),
        distribution: distribution(launches),
    }
}

/// The situations of an allocator with room for all blocks. In one, each thread allocates and frees
/// one block.
fn with_room(setup: &Setup<'_>, name: &str, calls: Calls<'_>, callers: u32) -> Result<Vec<Latency>> {
    let load = setup.bench.load(callers, one_size(BYTES_OVER_THREADS))?;
    let each = record(setup, &load, (calls.name(), ONE_SIZE), |to| {
        calls.launch(Alloc, &load, to)?;
        setup.bench.device.synchronize()?;
        load.check_addresses(name, load.granted()?)?;
        Ok(calls.launch(Free, &load, to)?)
    })?;
    let contention = churn(setup, "contention", calls, callers / TURNS)?;
    Ok(each.into_iter().chain(contention).collect())
}

/// Each thread repeatedly allocates and frees.
pub(super) fn churn(
    setup: &Setup<'_>,
    situation: &'static str,
    calls: Calls<'_>,
    threads: u32,
) -> Result<[Latency; 2]> {
    let load = Load { turns: TURNS, ..setup.bench.load(threads, one_size(BYTES_OVER_THREADS))? };
    record(setup, &load, (calls.name(), situation), |to| Ok(calls.launch(Churn, &load, to)?))
}

/// In a heap that is full except for a random share, a quarter as many threads repeatedly allocate
/// and free.
fn near_exhaustion(setup: &Setup<'_>, module: &Module) -> Result<Vec<Latency>> {
    let heap = setup.bench.heap(setup.extent.exhausted_bytes)?;
    let filled = fill(setup, &heap)?;
    let callers = filled.freed.next_power_of_two() / 4;
    let all = churn(setup, "near exhaustion", Calls { module, heap: Some(&heap) }, callers)?;
    filled.check(&heap)?;
    Ok(all.into())
}

/// What [`fill`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filled {
    /// Blocks that were allocated.
    pub granted: u32,
    /// Blocks that were freed again.
    pub freed: u32,
}

impl Filled {
    /// Checks that the other blocks are live, and no other, and that no fault was recorded.
    pub fn check(self, heap: &Heap) -> Result<()> {
        heap.check_freed(NEAR_EXHAUSTION)?;
        let (live, Filled { granted, freed }) = (heap.stats()?.live_blocks, self);
        if live != u64::from(granted - freed) {
            let found = format!("{live} blocks are live after {granted} were allocated and {freed} freed");
            return Err(Error::wrong(NEAR_EXHAUSTION, found));
        }
        Ok(())
    }
}

/// Fills a heap with blocks, and frees a random share of them.
pub(super) fn fill(setup: &Setup<'_>, heap: &Heap) -> Result<Filled> {
    let wrong = |found| Error::wrong(NEAR_EXHAUSTION, found);
    let most = heap.capacity() / u64::from(BYTES_OVER_THREADS);
    let full = setup.bench.load(most.next_power_of_two() as u32, one_size(BYTES_OVER_THREADS))?;
    let bench = setup.bench;
    heap.launch(Alloc, &full)?;
    bench.device.synchronize()?;
    let granted = full.granted()?;
    full.check_addresses(NEAR_EXHAUSTION, granted)?;
    if u64::from(granted) * 100 < most * FULL_PERCENT {
        return Err(wrong(format!("{granted} of {most} blocks were allocated before the heap was full")));
    }
    let order = Order { log2: full.threads().ilog2(), permuted: 1 };
    let threads = full.threads() / FREE_SHARE;
    let held = full.out.copy_to_vec()?;
    let expected = (0..threads).filter(|i| held[order.place(*i) as usize] != 0).count() as u32;
    let args = (heap.handle(), full.out.slice(), order, full.counter());
    // SAFETY: the blocks in `out` are allocated, and the order names each once.
    unsafe { bench.launch(&bench.module, bench_heap_free, threads, args) }?;
    bench.device.synchronize()?;
    let freed = threads - full.failed()? as u32;
    if freed != expected {
        return Err(wrong(format!("{freed} instead of {expected} blocks were freed")));
    }
    let filled = Filled { granted, freed };
    filled.check(heap)?;
    Ok(filled)
}

/// Each thread allocates one block from a heap that is new in each launch.
fn refill(setup: &Setup<'_>, module: &Module) -> Result<Vec<Latency>> {
    let load = setup.bench.load(setup.extent.callers, one_size(REFILL_BYTES))?;
    let [allocs, _] = record(setup, &load, (HEAP, "refill"), |to| {
        let heap = setup.bench.heap(setup.extent.room(load.threads(), REFILL_BYTES))?;
        Calls { module, heap: Some(&heap) }.launch(Alloc, &load, to)?;
        setup.bench.device.synchronize()?;
        load.check_addresses(REFILL, load.granted()?)?;
        heap.check_freed(REFILL).map(drop)
    })?;
    Ok(vec![allocs])
}

/// The distribution of the durations of these launches. All zeros if there are none. A launch
/// without calls has no percentiles.
fn distribution(launches: Vec<Vec<u64>>) -> Distribution {
    let count = launches.len() as u32;
    let launches: Vec<_> = launches.into_iter().filter_map(Sorted::of).collect();
    let of_launches = |per_mille| Sorted::of(launches.iter().map(|one| one.percentile(per_mille)).collect());
    let all = Sorted::of(launches.iter().flat_map(|one| one.values()).copied().collect());
    let (Some(p50), Some(p99), Some(p999), Some(all)) =
        (of_launches(500), of_launches(990), of_launches(999), all)
    else {
        return Distribution { launches: count, ..Distribution::default() };
    };
    Distribution {
        launches: count,
        calls: all.values().len() as u64,
        p50: p50.percentile(500),
        p99: p99.percentile(500),
        p999: p999.percentile(500),
        p999_min: p999.min(),
        p999_max: p999.max(),
        max: all.max(),
        histogram: histogram(all.values()),
    }
}

fn histogram(sorted: &[u64]) -> Vec<Bin> {
    let mut rest = sorted;
    let mut bins: Vec<Bin> = Vec::new();
    for upto in bounds() {
        let (inside, after) = rest.split_at(rest.partition_point(|duration| *duration <= upto));
        if !(bins.is_empty() && inside.is_empty()) {
            bins.push(Bin { upto, calls: inside.len() as u64 });
        }
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    bins
}

/// Upper bounds of bins: `2^(k / 4)`, rounded up, each once. The last is the maximum of `u64`.
fn bounds() -> impl Iterator<Item = u64> {
    let bound = |k: u32| (f64::from(k) / 4.0).exp2().ceil() as u64;
    (0..=256).filter(move |k| *k == 0 || bound(k - 1) != bound(*k)).map(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_calls_have_durations_of_their_own() {
        let of = |launches| {
            let of = latency(("heap", "refill"), Alloc, (4, 64), "cycles", launches);
            serde_json::to_value(of).unwrap()
        };
        let launches = vec![vec![FAILED | 9, 3, NOT_CALLED, 5], vec![FAILED | 7, 4, FAILED | 8, 6]];
        let json = of(launches);
        let counts = [("failed", 3), ("calls", 4), ("launches", 2), ("threads", 4)];
        let durations = [("p50", 3), ("max", 6), ("failed_p50", 8), ("failed_max", 9)];
        for (field, value) in counts.into_iter().chain(durations) {
            assert_eq!(json[field], value, "{field}");
        }
        assert_eq!(json["name"], "heap alloc, refill");
        assert_eq!(json["histogram"][0]["upto"], 3);
        let json = of(vec![vec![3]]);
        assert_eq!((json.get("failed_p50"), json.get("failed_max")), (None, None));
    }

    #[test]
    fn percentiles_are_durations_that_occurred() {
        let of = |durations: std::ops::RangeInclusive<u64>| distribution(vec![durations.collect()]);
        let thousand = of(1..=1000);
        assert_eq!(
            (thousand.p50, thousand.p99, thousand.p999, thousand.max, thousand.calls),
            (500, 990, 999, 1000, 1000)
        );
        let three = of(7..=9);
        assert_eq!((three.p50, three.p99, three.p999, three.max), (8, 9, 9, 9));
        assert_eq!(of(5..=5).p50, 5);
        assert_eq!(distribution(Vec::new()), Distribution::default());
    }

    #[test]
    fn percentiles_are_medians_over_launches() {
        let launches = [9, 1, 5].map(|factor| (1..=1000).map(|i| factor * i).collect());
        let of = distribution([launches.to_vec(), vec![Vec::new()]].concat());
        assert_eq!((of.launches, of.calls, of.max), (4, 3000, 9000));
        assert_eq!((of.p50, of.p99, of.p999), (2500, 4950, 4995));
        assert_eq!((of.p999_min, of.p999_max), (999, 8991));
        assert_eq!(of.histogram.iter().map(|bin| bin.calls).sum::<u64>(), 3000);
    }

    #[test]
    fn a_histogram_has_every_call_once() {
        let bins = distribution(vec![vec![600, 100, 610], vec![609, 128, 0]]).histogram;
        assert_eq!(bins.iter().map(|bin| bin.calls).sum::<u64>(), 6);
        assert_eq!(bins.first(), Some(&Bin { upto: 1, calls: 1 }));
        let at = |upto| bins.iter().find(|bin| bin.upto == upto).map(|bin| bin.calls);
        assert_eq!((at(128), at(609), at(725)), (Some(1), Some(2), Some(1)));
        assert_eq!(bins.last().map(|bin| bin.upto), Some(725));
        assert!(bins.is_sorted_by(|a, b| a.upto < b.upto));
    }

    #[test]
    fn the_longest_duration_has_a_bin() {
        let bins = distribution(vec![vec![u64::MAX]]).histogram;
        assert_eq!(bins, [Bin { upto: u64::MAX, calls: 1 }]);
        assert_eq!(bounds().take(6).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    }
}
