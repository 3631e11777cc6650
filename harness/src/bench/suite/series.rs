//! Times over the number of threads and over sizes.

use super::contenders::{Contender, FLOOR, KINDS, Kind, Setup, TURNS};
use super::extent::BYTES_OVER_THREADS;
use super::malloc::CUDA_MALLOC;
use super::results::Results;
use crate::Result;
use crate::bench::load::{after_the_first, one_size};
use crate::bench::results::{Operation, Over};
use crate::bench::results::{Point, Series};
use crate::summary::Timing;
use std::cell::RefCell;

const OPERATIONS: [Operation; 3] = [Operation::Alloc, Operation::Free, Operation::Churn];

/// Measures all series over one variable. Each operation begins with its floor.
pub(super) fn measure(setup: &Setup<'_>, over: Over, results: &mut Results<'_>) -> Result<()> {
    for operation in OPERATIONS {
        let mut floors = Vec::new();
        let does = |kind: &&Kind| kind.operations.contains(&operation);
        let is_present = |kind: &&Kind| kind.name != CUDA_MALLOC || setup.malloc.is_some();
        for kind in KINDS.iter().filter(does).filter(is_present) {
            let points = points(setup, kind, operation, over, &floors, results)?;
            if kind.name == FLOOR {
                floors.extend_from_slice(&points);
            }
            results.report.series.push(series(setup, kind.name, operation, over, points));
        }
    }
    Ok(())
}

/// The name of a series, for messages.
pub(super) fn name(contender: &str, operation: Operation, over: Over) -> String {
    format!("{contender} {} over {}", operation.name(), over.name())
}

fn series(
    setup: &Setup<'_>,
    contender: &'static str,
    operation: Operation,
    over: Over,
    points: Vec<Point>,
) -> Series {
    let fixed = match over {
        Over::Threads => ("bytes", BYTES_OVER_THREADS),
        Over::Bytes => ("threads", setup.extent.threads_over_bytes),
    };
    Series {
        contender: contender.into(),
        operation: operation.name().into(),
        over: over.name().into(),
        fixed: [(fixed.0.into(), fixed.1.into())].into(),
        turns: if operation == Operation::Churn { TURNS } else { 1 },
        unit: "us".into(),
        points,
    }
}

/// Measures the points of a series, until one exceeds a limit or does not fit into memory.
pub(super) fn points(
    setup: &Setup<'_>,
    kind: &Kind,
    operation: Operation,
    over: Over,
    floors: &[Point],
    results: &mut Results<'_>,
) -> Result<Vec<Point>> {
    let name = name(kind.name, operation, over);
    let mut points = Vec::new();
    (results.progress)(&name);
    for &x in setup.extent.values(over) {
        let (threads, bytes) = setup.extent.at(over, x);
        let slow = points.last().filter(|last: &&Point| last.median > micros(setup.extent.slowest));
        let slow = slow.map(|last| format!("{} took {:.1} s", last.x, last.median / 1e6));
        if let Some(why) = results.out_of_time().or(slow).or_else(|| (kind.limit)(setup, threads, bytes)) {
            results.leave_out(format!("{name}, from {x}: {why}"));
            break;
        }
        let measured = (kind.build)(setup, threads, bytes)
            .and_then(|contender| point(setup, contender, operation, (threads, bytes), &name));
        let Some((rounds, failed)) = results.keep(&format!("{name}, from {x}"), measured)? else { break };
        // A free without a block would be timed as a free.
        if operation == Operation::Free && failed != 0 {
            results.leave_out(format!("{name}, from {x}: {failed} allocations before the frees failed"));
            break;
        }
        let floor = floors.iter().find(|floor| floor.x == u64::from(x)).map(|floor| floor.median);
        let (x, count) = (x.into(), Some(rounds.len() as u32));
        let Timing { median_us: median, min_us: min, max_us: max } = Timing::of(rounds);
        points.push(Point { x, median, min, max, floor, rounds: count, failed });
    }
    Ok(points)
}

fn micros(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The times of the rounds, and the number of operations that failed in all rounds. Frees count
/// the allocations that failed before them; those of an arena count none, so its failures are
/// those of the last round.
fn point(
    setup: &Setup<'_>,
    contender: Box<dyn Contender>,
    operation: Operation,
    (threads, bytes): (u32, u32),
    name: &str,
) -> Result<(Vec<f64>, u64)> {
    let load = setup.bench.load(threads, one_size(bytes))?;
    let contender = RefCell::new(contender);
    let launch = |operation| contender.borrow_mut().launch(operation, &load);
    let timer = &setup.bench.timer;
    let measured = match operation {
        Operation::Alloc => {
            let free = after_the_first(|| launch(Operation::Free));
            let times = timer.times(free, || launch(Operation::Alloc), || Ok(()))?;
            let granted = load.granted()?;
            load.check_addresses(name, granted)?;
            launch(Operation::Free)?;
            timer.device.synchronize()?;
            (times, load.failures()?.max((load.threads() - granted).into()))
        }
        Operation::Free => {
            let (alloc, free) = (|| launch(Operation::Alloc), || launch(Operation::Free));
            (timer.times(alloc, free, || Ok(()))?, load.failures()?)
        }
        Operation::Churn => {
            (timer.times(|| Ok(()), || launch(Operation::Churn), || Ok(()))?, load.failures()?)
        }
    };
    timer.device.synchronize()?;
    contender.borrow().check(name)?;
    Ok(measured)
}
