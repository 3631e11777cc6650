//! The measurements of results, each with the range of its rounds.

use super::super::human::Count;
use super::super::saved::{Bench, Data, Figure, Pair, Pools, Saved, Series};

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
    /// Whether a smaller value is better.
    pub is_lower_better: bool,
    /// Whether it measures a floor, or an allocator of the driver.
    pub is_reference: bool,
}

/// All measurements. Stress runs have none: their rates have no rounds to compare.
pub fn measurements(saved: &Saved) -> Vec<Measurement> {
    match &saved.data {
        Data::Bench(bench) => of_bench(bench),
        Data::Pools(pools) => of_pools(pools),
        Data::Stress(_) => Vec::new(),
    }
}

fn timed(name: String, unit: &'static str, value: f64, range: (f64, f64)) -> Measurement {
    Measurement { name, unit, value, range, is_lower_better: true, is_reference: false }
}

/// The times of figures and series, and values that are not made from times.
fn of_bench(bench: &Bench) -> Vec<Measurement> {
    let series = bench.series.iter().flat_map(of_series);
    bench.figures.iter().flat_map(of_figure).chain(series).collect()
}

fn of_figure(figure: &Figure) -> impl Iterator<Item = Measurement> {
    let time =
        figure.time.map(|time| timed(figure.name.clone(), "us", time.median_us, (time.min_us, time.max_us)));
    let unit = match &*figure.unit {
        "%" => Some("%"),
        "ppm" => Some("ppm"),
        _ => None,
    };
    let value = unit.map(|unit| {
        let name = format!("{} ({unit})", figure.name);
        let is_lower_better = figure.holds == "at_most";
        Measurement { is_lower_better, ..timed(name, unit, figure.value, (figure.value, figure.value)) }
    });
    time.into_iter().chain(value)
}

fn of_series(series: &Series) -> impl Iterator<Item = Measurement> {
    let unit = if series.unit == "ns" { "ns" } else { "us" };
    let is_reference = series.contender == "floor" || series.contender.starts_with("CUDA");
    let fixed = series.fixed.iter().filter_map(|(name, value)| Some((value.as_u64()?, name.as_str())));
    let fixed = fixed.map(|(count, name)| format!("{} {name}, ", Count(count))).collect::<String>();
    // Times of different numbers of turns are different measurements.
    let turns = if series.turns > 1 { format!(" × {}", series.turns) } else { String::new() };
    series.points.iter().map(move |point| {
        let name = format!(
            "{} {}{turns}, {fixed}{} {}",
            series.contender,
            series.operation,
            Count(point.x as u64),
            series.over
        );
        Measurement { is_reference, ..timed(name, unit, point.median, (point.min, point.max)) }
    })
}

fn of_pools(pools: &Pools) -> Vec<Measurement> {
    let pair = |pair: &Pair| {
        let name = format!("{}, {}, {} host threads", pair.name, pair.pool, pair.threads);
        let is_reference = pair.pool.starts_with("driver");
        Measurement { is_reference, ..timed(name, "ns", pair.ns.median, (pair.ns.min, pair.ns.max)) }
    };
    pools.pairs.iter().map(pair).collect()
}
