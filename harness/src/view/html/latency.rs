//! Latencies of single calls: a histogram for each operation and situation, and percentiles.

use super::parts::{Styles, legend, table};
use crate::report::human::{Count, Unit};
use crate::view::chart::Error;
use crate::view::chart::lines::{Chart, Line, Point, X_TICKS, Y_TICKS};
use crate::view::chart::picture::Card;
use crate::view::chart::scale::Axis;
use maud::{Markup, html};
use warpheap_harness::bench::suite::{Bin, Latency, SuiteReport};

/// The most ticks of a decimal axis, which has wider labels.
const DECIMAL_TICKS: usize = 5;
/// The lower end of the stem of a bin: that of any axis.
const STEM: f64 = 1e-9;

/// All histograms. Empty without latencies.
pub fn section(bench: &SuiteReport) -> Result<Markup, Error> {
    if bench.latency.is_empty() {
        return Ok(html! {});
    }
    let columns = [
        ("latency of", "/name"),
        ("threads", "/threads"),
        ("bytes", "/bytes"),
        ("calls", "/calls"),
        ("failed", "/failed"),
        ("p50", "/p50"),
        ("p99", "/p99"),
        ("p99.9", "/p999"),
        ("longest", "/max"),
        ("unit", "/unit"),
    ];
    Ok(html! {
        h2 { "Latency of single calls" }
        p { "The share of the calls that took up to a time, and longer than the previous one. Both axes are logarithmic. A chart compares allocators only with equal numbers of threads. Failed calls have no latency." }
        div.cards { @for card in cards(bench)? { (card) } }
        (table("Values: percentiles", &bench.latency, &columns))
    })
}

/// The histograms.
pub fn cards(bench: &SuiteReport) -> Result<Vec<Card>, Error> {
    let styles = Styles::of_bench(bench);
    // Calls of different numbers of threads meet different contention: they share no chart.
    let place = |one: &Latency| {
        (one.operation.clone(), one.situation.clone(), one.unit.clone(), one.threads, one.bytes)
    };
    let mut groups: Vec<Vec<&Latency>> = Vec::new();
    for latency in &bench.latency {
        match groups.iter_mut().find(|group| place(group[0]) == place(latency)) {
            Some(group) => group.push(latency),
            None => groups.push(vec![latency]),
        }
    }
    groups.iter().filter_map(|group| chart(group, &styles).transpose()).collect()
}

fn chart(group: &[&Latency], styles: &Styles<'_>) -> Result<Option<Card>, Error> {
    let lines: Vec<Line> =
        group.iter().flat_map(|latency| lines(latency, styles.style(&latency.contender))).collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    let unit = Unit::named(&group[0].unit);
    let x = match unit {
        Unit::Cycles => Axis::powers_of_two(all().map(|point| point.x), unit, X_TICKS),
        _ => Axis::decimal(all().map(|point| point.x), unit, DECIMAL_TICKS),
    };
    let y = Axis::decimal(all().map(|point| point.y), Unit::Percent, Y_TICKS);
    let Some((x, y)) = x.zip(y) else { return Ok(None) };
    let threads = match group[0].threads {
        0 => String::new(),
        threads => format!(", {} threads", Unit::Threads.tick(threads.into())),
    };
    let title = format!("{}: {}{threads}", group[0].operation, group[0].situation);
    let description = format!("distribution of the latency of {title}; percentiles are in a table");
    let chart = Chart {
        title: &title,
        description: &description,
        across: unit.axis(),
        up: "share of the calls",
        x,
        y,
        reference: None,
        shaded: None,
        lines: &lines,
    };
    let legend = legend(group.iter().map(|latency| (styles.style(&latency.contender), &*latency.contender)))?;
    let bytes = (group[0].bytes > 0).then(|| format!("{} each", Unit::Bytes.text(group[0].bytes.into())));
    let note = bytes.into_iter().chain([percentiles(group)]).collect::<Vec<_>>().join(". ");
    let chart = chart.svg()?;
    Ok(Some(Card { title, note, chart, legend }))
}

/// The shares of the calls of each bin. An empty bin interrupts the line.
fn lines(latency: &Latency, style: usize) -> Vec<Line> {
    let share = |calls: u64| 100.0 * calls as f64 / (latency.distribution.calls as f64).max(1.0);
    let parts = latency.distribution.histogram.split(|bin| bin.calls == 0).filter(|part| !part.is_empty());
    let line = |part: &[Bin]| {
        let points = part.iter().map(|bin| (bin.upto as f64, share(bin.calls)));
        Line { style, points: points.map(|(x, y)| Point { x, y, range: (STEM, y) }).collect() }
    };
    parts.map(line).collect()
}

/// `heap: p50 900, p99.9 9,000, longest 20,000, 3 calls failed`
fn percentiles(group: &[&Latency]) -> String {
    let text = |latency: &&Latency| {
        let unit = Unit::named(&latency.unit);
        let of = &latency.distribution;
        let [half, most, longest] = [of.p50, of.p999, of.max].map(|value| unit.text(value as f64));
        let failed = match latency.failed {
            0 => String::new(),
            failed => format!(", {} calls failed", Count(failed)),
        };
        format!("{}: p50 {half}, p99.9 {most}, longest {longest}{failed}", latency.contender)
    };
    group.iter().map(text).collect::<Vec<_>>().join("; ")
}
