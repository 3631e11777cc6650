//! Times over the number of threads and over sizes, of all kinds of allocators and of the floor.

use super::extent::BYTES_OVER_THREADS;
use super::{Operation, Operation::*, Over, Point, Series, Setup};
use crate::Result;
use crate::bench::engine::{Load, Run, Subject, one_size};
use crate::bench::subjects::{CUDA_MALLOC, Groups, Pairs, Reset, StridedFloor};
use crate::kernels::bench::{
    bench_alloc_floor, bench_bump_alloc, bench_churn_strided_floor, bench_free_floor, bench_freelist_alloc,
    bench_freelist_churn, bench_freelist_free, bench_heap_alloc, bench_heap_alloc_each, bench_heap_churn,
    bench_heap_churn_cached, bench_heap_free, bench_heap_free_each,
};
use crate::summary::Timing;
use std::time::Duration;
use warpheap::device_pools::Bump;
use warpheap::kernel_names;

/// Pairs per thread of a churn. CUDA's `malloc` takes a second for each with 2^20 threads.
const TURNS: u32 = 4;
/// Maximum distance between the places of two threads in the floor of a churn, in bytes.
const MOST_STRIDE: u32 = 4096;

/// The name of the floor.
const FLOOR: &str = "floor";
/// The name of the heap.
pub(super) const HEAP: &str = "heap";

type Build = fn(&Setup<'_>, u32, u32) -> Result<Box<dyn Subject>>;

/// A kind of allocator, or the floor.
pub(super) struct Kind {
    pub name: &'static str,
    pub operations: &'static [Operation],
    /// Makes one for so many threads and bytes.
    pub build: Build,
}

/// All kinds, the floor first.
pub(super) const KINDS: [Kind; 7] = [
    Kind::new(FLOOR, &[Alloc, Free, Churn], |setup, threads, bytes| {
        let stride = bytes.min(MOST_STRIDE) / 8;
        let memory = setup.bench.device.zeroed(threads as usize * stride as usize)?;
        Ok(Box::new(StridedFloor { memory, stride }))
    }),
    Kind::new("bump", &[Alloc], |setup, threads, bytes| {
        let room = setup.extent.room(threads, bytes);
        Ok(Box::new(Reset::of(Bump::builder(room).build(&setup.bench.device)?)))
    }),
    Kind::new("free list", &[Alloc, Free, Churn], |setup, threads, bytes| {
        // Twice the blocks that are used at once: searches are short.
        Ok(Box::new(setup.bench.freelist(2 * threads, bytes.into())?))
    }),
    Kind::new(HEAP, &[Alloc, Free, Churn], |setup, threads, bytes| {
        Ok(Box::new(setup.bench.heap(setup.extent.room(threads, bytes))?))
    }),
    Kind::new("heap group calls", &[Alloc, Free], |setup, threads, bytes| {
        Ok(Box::new(Groups(setup.bench.heap(setup.extent.room(threads, bytes))?)))
    }),
    Kind::new("heap block cache", &[Churn], |setup, threads, bytes| {
        let heap = setup.bench.heap(setup.extent.room(threads, bytes))?;
        Ok(Box::new(Pairs(heap, bench_heap_churn_cached)))
    }),
    Kind::new(CUDA_MALLOC, &[Alloc, Free, Churn], |setup, _, _| {
        let malloc = setup.malloc.expect("an allocator that is left out is not built");
        Ok(Box::new(malloc.clone()))
    }),
];

/// The kernels that are launched, except for those of CUDA's `malloc`.
pub(super) const LAUNCHED: [&str; 13] = kernel_names![
    bench_alloc_floor,
    bench_bump_alloc,
    bench_churn_strided_floor,
    bench_free_floor,
    bench_freelist_alloc,
    bench_freelist_churn,
    bench_freelist_free,
    bench_heap_alloc,
    bench_heap_alloc_each,
    bench_heap_churn,
    bench_heap_churn_cached,
    bench_heap_free,
    bench_heap_free_each
];

impl Kind {
    const fn new(name: &'static str, operations: &'static [Operation], build: Build) -> Kind {
        Kind { name, operations, build }
    }

    /// Why it is not measured with so many threads and bytes.
    pub fn limit(&self, setup: &Setup<'_>, threads: u32, bytes: u32) -> Option<String> {
        setup.malloc.filter(|_| self.name == CUDA_MALLOC)?.limit(threads, bytes)
    }
}

/// Measures all series over one variable. Each operation begins with its floor.
pub(super) fn measure(setup: &Setup<'_>, over: Over, run: &mut Run<'_>) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for operation in [Alloc, Free, Churn] {
        let mut floors = Vec::new();
        let does = |kind: &&Kind| kind.operations.contains(&operation);
        let is_present = |kind: &&Kind| kind.name != CUDA_MALLOC || setup.malloc.is_some();
        for kind in KINDS.iter().filter(does).filter(is_present) {
            let points = points(setup, kind, operation, over, &floors, run)?;
            if kind.name == FLOOR {
                floors.extend_from_slice(&points);
            }
            let fixed = match over {
                Over::Threads => ("bytes", BYTES_OVER_THREADS),
                Over::Bytes => ("threads", setup.extent.threads_over_bytes),
            };
            all.push(Series {
                contender: kind.name.into(),
                operation: operation.name().into(),
                over: over.name().into(),
                fixed: [(fixed.0.into(), fixed.1.into())].into(),
                turns: if operation == Churn { TURNS } else { 1 },
                unit: "us".into(),
                points,
            });
        }
    }
    Ok(all)
}

/// The name of a series, for messages.
pub(super) fn name(kind: &str, operation: Operation, over: Over) -> String {
    format!("{kind} {} over {}", operation.name(), over.name())
}

/// Measures the points of a series, until one exceeds a limit or does not fit into memory.
pub(super) fn points(
    setup: &Setup<'_>,
    kind: &Kind,
    operation: Operation,
    over: Over,
    floors: &[Point],
    run: &mut Run<'_>,
) -> Result<Vec<Point>> {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let name = name(kind.name, operation, over);
    let mut points = Vec::new();
    run.announce(&name);
    for &x in setup.extent.values(over) {
        let (threads, bytes) = setup.extent.at(over, x);
        let slow = points.last().filter(|last: &&Point| last.median > micros(setup.extent.slowest));
        let slow = slow.map(|last| format!("{} took {:.1} s", last.x, last.median / 1e6));
        if let Some(why) = run.out_of_time().or(slow).or_else(|| kind.limit(setup, threads, bytes)) {
            run.left_out.push(format!("{name}, from {x}: {why}"));
            break;
        }
        let measured = point(setup, kind, operation, (threads, bytes), &name);
        let Some((rounds, failed)) = run.keep(&format!("{name}, from {x}"), measured)? else { break };
        // A free without a block would be timed as a free.
        if operation == Free && failed != 0 {
            run.left_out.push(format!("{name}, from {x}: {failed} allocations before the frees failed"));
            break;
        }
        let floor = floors.iter().find(|floor| floor.x == u64::from(x)).map(|floor| floor.median);
        let (x, count) = (x.into(), Some(rounds.len() as u32));
        let Timing { median_us: median, min_us: min, max_us: max } = Timing::of(rounds);
        points.push(Point { x, median, min, max, floor, rounds: count, failed });
    }
    Ok(points)
}

/// The times of the rounds, and the number of operations that failed in all rounds. Frees count
/// the allocations that failed before them; those of an arena count none, so its failures are
/// those of the last round.
fn point(
    setup: &Setup<'_>,
    kind: &Kind,
    operation: Operation,
    (threads, bytes): (u32, u32),
    name: &str,
) -> Result<(Vec<f64>, u64)> {
    let subject = (kind.build)(setup, threads, bytes)?;
    let load = Load { turns: TURNS, ..setup.bench.load(threads, one_size(bytes))? };
    let times = load.times(&*subject, operation, || Ok(()))?;
    let mut missing = 0;
    if operation == Alloc {
        let granted = load.granted()?;
        load.check_addresses(name, granted)?;
        missing = load.threads() - granted;
        subject.launch(Free, &load)?;
    }
    setup.bench.device.synchronize()?;
    let failed = load.failed()?.max(missing.into());
    subject.check_freed(name)?;
    Ok((times, failed))
}
