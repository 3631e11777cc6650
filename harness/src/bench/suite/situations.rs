//! Times single calls of the heap and of CUDA's `malloc` in several situations.
//!
//! | situation | what the threads do |
//! |---|---|
//! | `one size` | each allocates one block from a heap with room; then each frees it |
//! | `contention` | each repeatedly allocates and frees a block |
//! | `near exhaustion` | the same, in a heap of which a random 1/32 is free |
//! | `refill` | each allocates one block from a new heap: spans are refilled meanwhile |

use super::calls::{Calls, Durations, TURNS, Timed};
use super::contenders::{HEAP, Setup};
use super::extent::BYTES_OVER_THREADS;
use super::latency::Call;
use super::malloc::CUDA_MALLOC;
use super::results::Results;
use crate::bench::load::{Load, Pool, one_size};
use crate::bench::results::Latency;
use crate::bench::results::Operation;
use crate::bench::timing::BLOCK;
use crate::kernels::bench::{Order, bench_heap_free};
use crate::{Error, Result};
use std::time::Instant;
use warpheap::device_pools::Heap;
use warpheap::driver::{Backend, LaunchConfig};

/// Timed launches in each situation, after an untimed one.
const LAUNCHES: u32 = 5;
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

/// Times the calls of both allocators in all situations.
pub(super) fn measure(setup: &Setup<'_>, timed: &Timed, results: &mut Results<'_>) -> Result<()> {
    let extent = setup.extent;
    let mut situation = |name: &str, run: &dyn Fn(&str) -> Result<Vec<Latency>>| -> Result<()> {
        if !results.may_begin(name, "") {
            return Ok(());
        }
        let measured = results.keep(name, run(name))?;
        results.report.latency.extend(measured.into_iter().flatten());
        Ok(())
    };
    let of_heap = |name: &str, callers| {
        let heap = setup.bench.heap(extent.room(callers, BYTES_OVER_THREADS))?;
        let all = with_room(setup, HEAP, name, &timed.calls(&heap), callers)?;
        heap.check_freed(name)?;
        Ok(all)
    };
    situation("latency of the heap", &|name| of_heap(name, extent.callers))?;
    situation(NEAR_EXHAUSTION, &|_| near_exhaustion(setup, timed))?;
    situation(REFILL, &|_| refill(setup, timed))?;
    if let Some(malloc) = setup.malloc {
        let callers = extent.callers_of_malloc;
        let of_malloc = |name: &str| with_room(setup, CUDA_MALLOC, name, malloc, callers);
        situation("latency of CUDA's malloc", &of_malloc)?;
        situation("latency of the heap, with the threads of CUDA's malloc", &|name| of_heap(name, callers))?;
    }
    Ok(())
}

/// The durations of allocations and of frees in each of [`LAUNCHES`] launches after an untimed one,
/// or in fewer if they take longer than the longest point of a series.
fn record(
    setup: &Setup<'_>,
    load: &Load<'_>,
    turns: u32,
    mut launch: impl FnMut(&Durations) -> Result<()>,
) -> Result<[Vec<Vec<u64>>; 2]> {
    let durations = Durations::new(load, turns)?;
    let mut launch = || {
        launch(&durations)?;
        Ok::<_, Error>(load.timer.device.synchronize()?)
    };
    launch()?;
    let (started, [mut allocs, mut frees]) = (Instant::now(), [const { Vec::new() }; 2]);
    for _ in 0..LAUNCHES {
        launch()?;
        allocs.push(durations.allocs.copy_to_vec()?);
        frees.push(durations.frees.copy_to_vec()?);
        if started.elapsed() > setup.extent.slowest {
            break;
        }
    }
    Ok([allocs, frees])
}

/// The latencies of allocations and of frees.
fn latencies(
    load: &Load<'_>,
    contender: &'static str,
    situation: &'static str,
    [allocs, frees]: [Vec<Vec<u64>>; 2],
) -> [Latency; 2] {
    let unit = if load.timer.device.backend() == Backend::Cpu { "ns" } else { "cycles" };
    let (threads, bytes) = (load.threads(), load.sizes.max);
    [(Operation::Alloc, allocs), (Operation::Free, frees)].map(|(operation, launches)| {
        Latency::of(Call { contender, operation, situation, threads, bytes }, unit, launches)
    })
}

/// The situations of a pool with room for all blocks.
fn with_room(
    setup: &Setup<'_>,
    contender: &'static str,
    name: &str,
    calls: &dyn Calls,
    callers: u32,
) -> Result<Vec<Latency>> {
    let mut all = one_size_each(setup, contender, name, calls, callers)?;
    all.extend(churn(setup, contender, "contention", calls, callers / TURNS)?);
    Ok(all)
}

/// Each thread allocates and frees one block.
fn one_size_each(
    setup: &Setup<'_>,
    contender: &'static str,
    name: &str,
    calls: &dyn Calls,
    threads: u32,
) -> Result<Vec<Latency>> {
    let load = setup.bench.load(threads, one_size(BYTES_OVER_THREADS))?;
    let durations = record(setup, &load, 1, |to| {
        calls.launch(Operation::Alloc, &load, to)?;
        load.timer.device.synchronize()?;
        load.check_addresses(name, load.granted()?)?;
        Ok(calls.launch(Operation::Free, &load, to)?)
    })?;
    Ok(latencies(&load, contender, ONE_SIZE, durations).into())
}

/// Each thread repeatedly allocates and frees.
pub(super) fn churn(
    setup: &Setup<'_>,
    contender: &'static str,
    situation: &'static str,
    calls: &dyn Calls,
    threads: u32,
) -> Result<Vec<Latency>> {
    let load = setup.bench.load(threads, one_size(BYTES_OVER_THREADS))?;
    let durations = record(setup, &load, TURNS, |to| Ok(calls.launch(Operation::Churn, &load, to)?))?;
    Ok(latencies(&load, contender, situation, durations).into())
}

/// In a heap that is full except for a random share, a quarter as many threads repeatedly allocate
/// and free.
fn near_exhaustion(setup: &Setup<'_>, timed: &Timed) -> Result<Vec<Latency>> {
    let heap = setup.bench.heap(setup.extent.exhausted_bytes)?;
    let filled = fill(setup, &heap)?;
    let callers = filled.freed.next_power_of_two() / 4;
    let all = churn(setup, HEAP, "near exhaustion", &timed.calls(&heap), callers)?;
    filled.check(&heap)?;
    Ok(all)
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
    let timer = &setup.bench.timer;
    heap.alloc(&full)?;
    timer.device.synchronize()?;
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
    let grid = LaunchConfig::linear(threads, threads.min(BLOCK));
    // SAFETY: the blocks in `out` are allocated, and the order names each once.
    unsafe { timer.stream.launch(&timer.module, bench_heap_free, &grid, args) }?;
    timer.device.synchronize()?;
    let freed = threads - full.failures()? as u32;
    if freed != expected {
        return Err(wrong(format!("{freed} instead of {expected} blocks were freed")));
    }
    let filled = Filled { granted, freed };
    filled.check(heap)?;
    Ok(filled)
}

/// Each thread allocates one block from a heap that is new in each launch.
fn refill(setup: &Setup<'_>, timed: &Timed) -> Result<Vec<Latency>> {
    let load = setup.bench.load(setup.extent.callers, one_size(REFILL_BYTES))?;
    let durations = record(setup, &load, 1, |to| {
        let heap = setup.bench.heap(setup.extent.room(load.threads(), REFILL_BYTES))?;
        timed.calls(&heap).launch(Operation::Alloc, &load, to)?;
        load.timer.device.synchronize()?;
        load.check_addresses(REFILL, load.granted()?)?;
        heap.check_freed(REFILL).map(drop)
    })?;
    let [allocs, _] = latencies(&load, HEAP, "refill", durations);
    Ok(vec![allocs])
}
