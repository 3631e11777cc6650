//! Times single calls of the heap and of CUDA's `malloc` in several situations.
//!
//! | situation | what the threads do |
//! |---|---|
//! | `one size` | each allocates one block from a heap with room; then each frees it |
//! | `contention` | each repeatedly allocates and frees a block |
//! | `near exhaustion` | the same, in a heap of which a random 1/32 is free |
//! | `refill` | each allocates one block from a new heap: spans are refilled meanwhile |

use super::contenders::{HEAP, Setup};
use super::extent::BYTES_OVER_THREADS;
use super::latency::{Call, Latency};
use super::malloc::{CUDA_MALLOC, Malloc};
use super::report::Operation;
use super::run::{Results, outcome};
use crate::bench::load::{Load, Pool, one_size};
use crate::kernels::bench::{Order, bench_heap_free};
use crate::suite_kernels::{
    suite_heap_alloc_latency, suite_heap_churn_latency, suite_heap_free_latency, suite_malloc_alloc_latency,
    suite_malloc_churn_latency, suite_malloc_free_latency,
};
use crate::{OwnModule, Result};
use warpheap::device_pools::Heap;
use warpheap::driver::{Backend, DeviceBuffer, LaunchConfig, Module};
use warpheap::kernel_names;

/// Pairs per thread under contention.
const TURNS: u32 = 4;
/// A block of which few fit into a span.
const REFILL_BYTES: u32 = 4096;
/// One of so many blocks of an almost exhausted heap is free.
const FREE_SHARE: u32 = 32;

const LAUNCHED: [&str; 3] =
    kernel_names![suite_heap_alloc_latency, suite_heap_free_latency, suite_heap_churn_latency];

/// The kernels that time calls of the heap.
pub(super) struct Timed(Module);

impl Timed {
    pub fn load(own: &OwnModule) -> warpheap::Result<Timed> {
        Ok(Timed(own.load_suite(&LAUNCHED)?.module().clone()))
    }
}

/// An allocator whose calls are timed. Each launch stores a duration for each call.
trait Calls {
    fn alloc(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()>;
    fn free(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()>;
    fn churn(
        &self,
        load: &Load<'_>,
        allocs: &DeviceBuffer<u64>,
        frees: &DeviceBuffer<u64>,
    ) -> warpheap::Result<()>;
}

struct OfHeap<'a> {
    heap: &'a Heap,
    module: &'a Module,
}

impl Calls for OfHeap<'_> {
    fn alloc(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (self.heap.handle(), load.sizes, load.out.slice(), durations.slice());
        // SAFETY: heap and buffers are live, and only this stream uses them.
        unsafe { load.launch_in(self.module, suite_heap_alloc_latency, args) }
    }

    fn free(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (self.heap.handle(), load.out.slice(), durations.slice());
        // SAFETY: `out` holds the blocks that the previous launch allocated.
        unsafe { load.launch_in(self.module, suite_heap_free_latency, args) }
    }

    fn churn(
        &self,
        load: &Load<'_>,
        allocs: &DeviceBuffer<u64>,
        frees: &DeviceBuffer<u64>,
    ) -> warpheap::Result<()> {
        let args = (self.heap.handle(), load.sizes, TURNS, allocs.slice(), frees.slice());
        // SAFETY: heap and buffers are live, and only this stream uses them.
        unsafe { load.launch_in(self.module, suite_heap_churn_latency, args) }
    }
}

impl Calls for Malloc {
    fn alloc(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (load.sizes, load.out.slice(), durations.slice());
        // SAFETY: the buffers are live, and only this stream uses them.
        unsafe { load.launch_in(&self.module, suite_malloc_alloc_latency, args) }
    }

    fn free(&self, load: &Load<'_>, durations: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (load.out.slice(), durations.slice());
        // SAFETY: `out` holds the blocks that the previous launch allocated.
        unsafe { load.launch_in(&self.module, suite_malloc_free_latency, args) }
    }

    fn churn(
        &self,
        load: &Load<'_>,
        allocs: &DeviceBuffer<u64>,
        frees: &DeviceBuffer<u64>,
    ) -> warpheap::Result<()> {
        let args = (load.sizes, TURNS, allocs.slice(), frees.slice());
        // SAFETY: the buffers are live, and only this stream uses them.
        unsafe { load.launch_in(&self.module, suite_malloc_churn_latency, args) }
    }
}

/// Times the calls of both allocators in all situations.
pub(super) fn measure(setup: &Setup<'_>, timed: &Timed, results: &mut Results<'_>) -> Result<()> {
    let extent = setup.extent;
    let size = BYTES_OVER_THREADS;
    let heap = |threads, bytes| setup.bench.heap(extent.room(threads, bytes));
    let mut situation = |name: &str, run: &dyn Fn() -> Result<Vec<Latency>>| -> Result<()> {
        (results.progress)(name);
        if let Some(why) = results.out_of_time() {
            results.leave_out(format!("{name}: {why}"));
            return Ok(());
        }
        let measured = outcome(run(), || name.to_owned(), results)?;
        results.report.latency.extend(measured.into_iter().flatten());
        Ok(())
    };
    situation("latency of the heap", &|| {
        let heap = heap(extent.callers, size)?;
        let calls = OfHeap { heap: &heap, module: &timed.0 };
        let mut all = one_size_each(setup, HEAP, &calls, extent.callers)?;
        all.extend(churn(setup, HEAP, "contention", &calls, extent.callers / TURNS)?);
        heap.check_freed("latency of the heap")?;
        Ok(all)
    })?;
    situation("latency of the heap near exhaustion", &|| near_exhaustion(setup, timed))?;
    situation("latency of the heap during refills", &|| {
        let heap = heap(extent.callers, REFILL_BYTES)?;
        refill(setup, &OfHeap { heap: &heap, module: &timed.0 })
    })?;
    if let Some(malloc) = setup.malloc {
        situation("latency of CUDA's malloc", &|| {
            let callers = extent.callers_of_malloc;
            let mut all = one_size_each(setup, CUDA_MALLOC, malloc, callers)?;
            all.extend(churn(setup, CUDA_MALLOC, "contention", malloc, callers / TURNS)?);
            Ok(all)
        })?;
    }
    Ok(())
}

/// A buffer for the durations of `turns` calls per thread.
fn durations(load: &Load<'_>, turns: u32) -> warpheap::Result<DeviceBuffer<u64>> {
    load.timer.device.zeroed(load.threads() as usize * turns as usize)
}

/// The durations in `buffer`, which a launch has stored.
fn read(
    setup: &Setup<'_>,
    load: &Load<'_>,
    contender: &'static str,
    situation: &'static str,
    buffers: &[(Operation, &DeviceBuffer<u64>)],
) -> Result<Vec<Latency>> {
    let unit = if setup.bench.timer.device.backend() == Backend::Cpu { "ns" } else { "cycles" };
    setup.bench.timer.device.synchronize()?;
    let (threads, bytes) = (load.threads(), load.sizes.max);
    let read = |(operation, buffer): &(Operation, &DeviceBuffer<u64>)| {
        let call = Call { contender, operation: *operation, situation, threads, bytes };
        Ok(Latency::of(call, unit, buffer.copy_to_vec()?))
    };
    buffers.iter().map(read).collect()
}

/// Each thread allocates and frees one block. The second round is timed.
fn one_size_each(
    setup: &Setup<'_>,
    contender: &'static str,
    calls: &dyn Calls,
    threads: u32,
) -> Result<Vec<Latency>> {
    let load = setup.bench.load(threads, one_size(BYTES_OVER_THREADS))?;
    let (allocs, frees) = (durations(&load, 1)?, durations(&load, 1)?);
    for _ in 0..2 {
        calls.alloc(&load, &allocs)?;
        calls.free(&load, &frees)?;
    }
    let buffers = [(Operation::Alloc, &allocs), (Operation::Free, &frees)];
    read(setup, &load, contender, "one size", &buffers)
}

/// Each thread repeatedly allocates and frees. The second round is timed.
fn churn(
    setup: &Setup<'_>,
    contender: &'static str,
    situation: &'static str,
    calls: &dyn Calls,
    threads: u32,
) -> Result<Vec<Latency>> {
    let load = setup.bench.load(threads, one_size(BYTES_OVER_THREADS))?;
    let (allocs, frees) = (durations(&load, TURNS)?, durations(&load, TURNS)?);
    for _ in 0..2 {
        calls.churn(&load, &allocs, &frees)?;
    }
    let buffers = [(Operation::Alloc, &allocs), (Operation::Free, &frees)];
    read(setup, &load, contender, situation, &buffers)
}

/// Fills a heap with blocks, frees a random share of them, and lets a quarter as many threads
/// repeatedly allocate and free.
fn near_exhaustion(setup: &Setup<'_>, timed: &Timed) -> Result<Vec<Latency>> {
    let heap = setup.bench.heap(setup.extent.exhausted_bytes)?;
    let blocks = (heap.capacity() / u64::from(BYTES_OVER_THREADS)).next_power_of_two() as u32;
    let full = setup.bench.load(blocks, one_size(BYTES_OVER_THREADS))?;
    heap.alloc(&full)?;
    let freed = blocks / FREE_SHARE;
    let order = Order { log2: blocks.ilog2(), permuted: 1 };
    let args = (heap.handle(), full.out.slice(), order, full.counter());
    let (timer, grid) = (&setup.bench.timer, LaunchConfig::linear(freed, freed.min(256)));
    // SAFETY: the blocks in `out` are allocated, and the order names each once.
    unsafe { timer.stream.launch(&timer.module, bench_heap_free, &grid, args) }?;
    churn(setup, HEAP, "near exhaustion", &OfHeap { heap: &heap, module: &timed.0 }, freed / 4)
}

/// Each thread allocates one block from a new heap.
fn refill(setup: &Setup<'_>, calls: &dyn Calls) -> Result<Vec<Latency>> {
    let load = setup.bench.load(setup.extent.callers, one_size(REFILL_BYTES))?;
    let allocs = durations(&load, 1)?;
    calls.alloc(&load, &allocs)?;
    read(setup, &load, HEAP, "refill", &[(Operation::Alloc, &allocs)])
}
