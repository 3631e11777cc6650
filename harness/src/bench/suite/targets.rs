//! The targets of a suite on a GPU, as figures.

use super::contenders::HEAP;
use super::extent::BYTES_OVER_THREADS;
use super::malloc::CUDA_MALLOC;
use super::report::{Collection, Operation, Over, Point, SuiteReport};
use crate::bench::figure::{Bar, Figure};
use crate::bench::timing::Timing;

/// Minimum speedup over CUDA's `malloc`.
const SPEEDUP: f64 = 100.0;
/// Maximum ratio of the 99.9th percentile of an allocation's duration to the median.
const TAIL: f64 = 20.0;

/// The figures of the measurements that have targets. What was left out has none.
pub(super) fn figures(report: &SuiteReport) -> Vec<Figure> {
    let operations = [Operation::Alloc, Operation::Free, Operation::Churn];
    let speedups = operations.into_iter().filter_map(|operation| speedup(report, operation));
    speedups.chain(report.collections.iter().map(of_collection)).chain(tail(report)).collect()
}

/// The heap and CUDA's `malloc` with the most threads that both were measured with.
fn speedup(report: &SuiteReport, operation: Operation) -> Option<Figure> {
    let points = |contender: &str| {
        let series = report.series.iter().find(|series| {
            (series.contender, series.operation, series.over) == (contender, operation, Over::Threads)
        });
        series.map(|series| series.points.as_slice())
    };
    let malloc = points(CUDA_MALLOC)?.last()?;
    let heap = points(HEAP)?.iter().find(|point| point.x == malloc.x)?;
    let name = format!("CUDA's malloc over the heap, {}, {BYTES_OVER_THREADS} B", operation.name());
    let figure = Figure::ratio(&name, heap.x, timing(heap), "CUDA's malloc", timing(malloc), 0.0);
    let checked = format!("{} and {} operations failed", heap.failed, malloc.failed);
    Some(figure.measured_by(malloc.median / heap.median, "x", Bar::AtLeast, SPEEDUP).checked(checked))
}

fn timing(point: &Point) -> Timing {
    Timing { median_us: point.median, min_us: point.min, max_us: point.max }
}

fn of_collection(collection: &Collection) -> Figure {
    let name = format!("CUDA's malloc over the heap, {}", collection.name);
    let figure = Figure::plain(&name, collection.threads, "CUDA's malloc");
    let checked = "every sum as the host computes it".to_owned();
    figure.measured_by(collection.ratio, "x", Bar::AtLeast, SPEEDUP).checked(checked)
}

fn tail(report: &SuiteReport) -> Option<Figure> {
    let is_meant = |contender, operation, situation| {
        (contender, operation, situation) == (HEAP, Operation::Alloc, "one size")
    };
    let mut all = report.latency.iter();
    let latency = all.find(|one| is_meant(one.contender, one.operation, one.situation))?;
    let figure = Figure::plain("heap alloc, one size, p99.9", latency.threads, "the median call");
    let (p50, p999) = (latency.distribution.p50, latency.distribution.p999);
    let checked = format!("{p999} and {p50} cycles, {} calls failed", latency.failed);
    Some(figure.measured_by(p999 as f64 / p50 as f64, "x", Bar::AtMost, TAIL).checked(checked))
}
