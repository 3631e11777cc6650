//! The measurements of results, each with the range of its rounds.

use super::super::human::{Count, Unit};
use super::super::results::{Data, Results};
use warpheap_harness::bench::suite::{HeapLoad, Series, SuiteReport};
use warpheap_harness::bench::{Bar, Figure};
use warpheap_harness::pool_tools::bench::{PairFigure, PoolBenchReport};

/// A measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// What was measured. It is the same in all results of this measurement.
    pub name: String,
    /// The unit, as in a file of results.
    pub unit: &'static str,
    /// The median.
    pub value: f64,
    /// The fastest and the slowest round; equal without rounds.
    pub range: (f64, f64),
    /// Number of rounds; `None` for a value that is not the median of rounds.
    pub rounds: Option<u32>,
    /// Operations that failed.
    pub failed: u64,
    /// Whether a smaller value is better.
    pub is_lower_better: bool,
    /// Whether it measures a floor, or an allocator of the driver.
    pub is_reference: bool,
}

/// All measurements. Stress runs have none: their rates have no rounds to compare.
pub fn measurements(saved: &Results) -> Vec<Measurement> {
    match &saved.data {
        Data::Bench(bench) => of_bench(bench),
        Data::Pools(pools) => of_pools(pools),
        Data::Stress(_) => Vec::new(),
    }
}

/// The measurements without a value because a result was wrong, and why.
pub fn wrong(saved: &Results) -> &[String] {
    match &saved.data {
        Data::Bench(bench) => &bench.bench.wrong,
        Data::Pools(pools) => &pools.wrong,
        Data::Stress(_) => &[],
    }
}

fn timed(name: String, unit: &'static str, value: f64, range: (f64, f64), rounds: u32) -> Measurement {
    let (rounds, failed) = (Some(rounds), 0);
    Measurement { name, unit, value, range, rounds, failed, is_lower_better: true, is_reference: false }
}

/// The times of figures and series, and values that are not made from times.
fn of_bench(suite: &SuiteReport) -> Vec<Measurement> {
    let rounds = suite.bench.rounds;
    let figures = suite.bench.figures.iter().flat_map(|figure| of_figure(figure, rounds));
    let series = suite.series.iter().flat_map(|series| of_series(series, rounds));
    figures.chain(series).chain(suite.load.iter().flat_map(of_load)).collect()
}

fn of_figure(figure: &Figure, rounds: u32) -> impl Iterator<Item = Measurement> {
    let time = figure
        .time
        .map(|time| timed(time_name(figure), "us", time.median_us, (time.min_us, time.max_us), rounds));
    let unit = match &*figure.unit {
        "%" => Some("%"),
        "ppm" => Some("ppm"),
        _ => None,
    };
    let value = unit.zip(figure.value).map(|(unit, value)| {
        let name = format!("{} ({unit})", figure.name);
        let is_lower_better = figure.holds == Bar::AtMost;
        Measurement { is_lower_better, rounds: None, ..timed(name, unit, value, (value, value), rounds) }
    });
    time.into_iter().chain(value)
}

/// A speedup is measured with as many threads as its base permits, so its name has their number.
fn time_name(figure: &Figure) -> String {
    let is_speedup = figure.unit == "x" && figure.holds == Bar::AtLeast;
    match figure.threads {
        threads if is_speedup && threads > 0 => format!("{}, {} threads", figure.name, Count(threads.into())),
        _ => figure.name.clone(),
    }
}

fn of_series(series: &Series, rounds: u32) -> impl Iterator<Item = Measurement> {
    let unit = if series.unit == "ns" { "ns" } else { "us" };
    let is_reference = series.contender == "floor" || series.contender.starts_with("CUDA");
    let fixed = series.fixed.iter().map(|(name, count)| format!("{} {name}, ", Count(*count)));
    let fixed = fixed.collect::<String>();
    // Times of different numbers of turns are different measurements.
    let turns = if series.turns > 1 { format!(" × {}", series.turns) } else { String::new() };
    series.points.iter().map(move |point| {
        let name = format!(
            "{} {}{turns}, {fixed}{} {}",
            series.contender,
            series.operation,
            Count(point.x),
            series.over
        );
        let rounds = point.rounds.unwrap_or(rounds);
        let time = timed(name, unit, point.median, (point.min, point.max), rounds);
        Measurement { is_reference, failed: point.failed, ..time }
    })
}

/// The median turn at a load, and the share of its allocations that failed: more than before are
/// worse only beyond the threshold, because the sizes of the live blocks are random.
fn of_load(load: &HeapLoad) -> [Measurement; 2] {
    let HeapLoad { heap_bytes, min_bytes, max_bytes, percent, turn, .. } = load;
    let heap = Unit::Bytes.text(*heap_bytes as f64);
    let name = format!("heap turn, {min_bytes}-{max_bytes} B, {heap}, load {percent} %");
    let time = timed(name.clone(), "ns", turn.median_ns, (turn.min_ns, turn.worst_ns), turn.turns);
    let (name, value) = (format!("{name}, failed (%)"), turn.failed_percent);
    [time, Measurement { rounds: None, ..timed(name, "%", value, (value, value), turn.turns) }]
}

fn of_pools(pools: &PoolBenchReport) -> Vec<Measurement> {
    let pair = |pair: &PairFigure| {
        let name = format!("{}, {}, {} host threads", pair.name, pair.pool, pair.threads);
        let is_reference = pair.pool.starts_with("driver");
        let time = timed(name, "ns", pair.ns.median, (pair.ns.min, pair.ns.max), pools.rounds);
        Measurement { is_reference, ..time }
    };
    pools.pairs.iter().map(pair).collect()
}
