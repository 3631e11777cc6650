//! The targets of a suite on a GPU, as figures.
//!
//! Each target is a figure, or an entry of `wrong` that says why it was not measured.

use super::extent::{BYTES_OVER_THREADS, Extent};
use super::series::{self, HEAP};
use super::{Operation, Over, Point, SuiteReport, collections, latency};
use crate::bench::results::{Bar, Figure};
use crate::bench::subjects::{CUDA_MALLOC, LEFT_OUT};
use crate::summary::Timing;

/// Minimum speedup over CUDA's `malloc`.
const SPEEDUP: f64 = 100.0;
/// Maximum ratio of the 99.9th percentile of an allocation's duration to the median.
const TAIL: f64 = 20.0;

/// A figure, or why there is none.
type Measured = Result<Figure, String>;

/// Adds a figure for each target, or an entry of `wrong`.
pub(super) fn judge(report: &mut SuiteReport, extent: &Extent) {
    for (name, measured) in targets(report, extent) {
        match measured {
            Ok(figure) => report.bench.figures.push(figure),
            Err(why) => report.bench.wrong.push(format!("{name}: not measured: {why}")),
        }
    }
}

/// All targets by name.
fn targets(report: &SuiteReport, extent: &Extent) -> Vec<(String, Measured)> {
    let over_the_heap = |what: String, measured: &dyn Fn(&str) -> Measured| {
        let name = format!("CUDA's malloc over the heap, {what}");
        let measured = measured(&name);
        (name, measured)
    };
    let operations = [Operation::Alloc, Operation::Free, Operation::Churn];
    let speedups = operations.map(|operation| {
        let what = format!("{}, {BYTES_OVER_THREADS} B", operation.name());
        over_the_heap(what, &|name| speedup(report, name, operation, extent.threads_of_targets))
    });
    let collections =
        collections::NAMES.map(|what| over_the_heap(what.into(), &|name| of_collection(report, name, what)));
    let tail_name = "heap alloc, one size, p99.9".to_owned();
    let tail = tail(report, &tail_name, extent.callers);
    speedups.into_iter().chain(collections).chain([(tail_name, tail)]).collect()
}

/// The heap and CUDA's `malloc`, if all their operations succeeded.
fn speedup(report: &SuiteReport, name: &str, operation: Operation, threads: u32) -> Measured {
    let malloc = point(report, CUDA_MALLOC, operation, threads)?;
    let heap = point(report, HEAP, operation, threads)?;
    let figure = Figure::ratio(name, threads, timing(heap), "CUDA's malloc", timing(malloc), 0.0);
    let figure = figure.measured_by(malloc.median / heap.median, "x", Bar::AtLeast, SPEEDUP);
    Ok(figure.checked("no operation failed".to_owned()))
}

/// A point without failed operations.
fn point<'a>(
    report: &'a SuiteReport,
    kind: &str,
    operation: Operation,
    threads: u32,
) -> Result<&'a Point, String> {
    let meant = (kind, operation.name(), Over::Threads.name());
    let series = report.series.iter().find(|one| (&*one.contender, &*one.operation, &*one.over) == meant);
    let mut points = series.iter().flat_map(|series| &series.points);
    match points.find(|point| point.x == u64::from(threads)) {
        None => Err(why(report, &series::name(kind, operation, Over::Threads))),
        Some(point) if point.failed == 0 => Ok(point),
        Some(point) => Err(format!("{} operations of {kind} failed", point.failed)),
    }
}

/// Why a measurement has no result: what the report says about it or about CUDA's `malloc`.
fn why(report: &SuiteReport, measurement: &str) -> String {
    let bench = &report.bench;
    let said = bench.left_out.iter().chain(&bench.wrong).find(|entry| entry.starts_with(measurement));
    let missing = || report.notes.iter().find(|note| note.starts_with(LEFT_OUT));
    said.or_else(missing).cloned().unwrap_or_else(|| format!("{measurement} has no such result"))
}

fn timing(point: &Point) -> Timing {
    Timing { median_us: point.median, min_us: point.min, max_us: point.max }
}

fn of_collection(report: &SuiteReport, name: &str, collection: &str) -> Measured {
    let found = report.collections.iter().find(|one| one.name == collection);
    let found = found.ok_or_else(|| why(report, collection))?;
    let checked = "every sum of every round as the host computes it".to_owned();
    let figure = Figure::plain(name, found.threads, "CUDA's malloc");
    Ok(figure.measured_by(found.cuda_malloc_us / found.heap_us, "x", Bar::AtLeast, SPEEDUP).checked(checked))
}

/// The longest calls of the heap, if all calls succeeded.
fn tail(report: &SuiteReport, name: &str, callers: u32) -> Measured {
    let meant = (HEAP, Operation::Alloc.name(), latency::ONE_SIZE, callers);
    let mut all = report.latency.iter();
    let found = all.find(|one| (&*one.contender, &*one.operation, &*one.situation, one.threads) == meant);
    let latency = found.ok_or_else(|| why(report, latency::OF_THE_HEAP))?;
    if latency.failed != 0 {
        return Err(format!("{} calls failed", latency.failed));
    }
    let (calls, p50, p999) =
        (latency.distribution.calls, latency.distribution.p50, latency.distribution.p999);
    if calls == 0 || p50 == 0 {
        return Err(format!("the median of {calls} calls is {p50} {}", latency.unit));
    }
    let figure = Figure::plain(name, latency.threads, "the median call");
    let checked = format!("{p999} and {p50} {}, no call failed", latency.unit);
    Ok(figure.measured_by(p999 as f64 / p50 as f64, "x", Bar::AtMost, TAIL).checked(checked))
}
