//! Series of a suite: the ratio to the floor and the time, over threads and over sizes.

use super::parts::{Styles, legend, table};
use crate::report::human::{Count, Unit};
use crate::report::results::Results;
use crate::view::chart::Error;
use crate::view::chart::lines::{Chart, Line, Point, X_TICKS, Y_TICKS};
use crate::view::chart::picture::Card;
use crate::view::chart::scale::Axis;
use maud::{Markup, html};
use warpheap_harness::bench::suite::{self, Series, SuiteReport};

/// The value that a chart shows.
#[derive(Clone, Copy, PartialEq)]
pub enum View {
    /// Median time over that of the floor.
    Ratio,
    /// Time.
    Time,
}

/// Series with the same operation, the same axis and the same fixed values share a chart.
struct Group<'a> {
    series: Vec<&'a Series>,
    /// What was left out, for the title.
    without: Vec<&'a str>,
}

/// The largest ratio to the floor in a close-up: a contender beyond it flattens the others.
const CLOSE: f64 = 100.0;
/// With fewer threads, the time of the floor on a GPU is mostly that of a launch.
const LAUNCH_BOUND: f64 = 4096.0;

/// All charts, the ratios first. Empty without series.
pub fn section(one: &Results, bench: &SuiteReport) -> Result<Markup, Error> {
    if bench.series.is_empty() {
        return Ok(html! {});
    }
    let (ratios, times) = (cards(one, bench, View::Ratio)?, cards(one, bench, View::Time)?);
    Ok(html! {
        h2 { "Ratio to the floor" }
        p {
            "The floor is a similar kernel without the allocator: at a ratio of 1, an operation adds no time that can be measured."
            @if !one.is_simulated() {
                " With fewer than about 2¹² threads (shaded), the time of the floor is mostly that of the launch: there a ratio near 1 says little about the operation."
            }
        }
        div.cards { @for card in ratios { (card) } }
        h2 { "Times" }
        div.cards { @for card in times { (card) } }
        details {
            summary { "Values: all series" }
            @for series in &bench.series { (values(series)) }
        }
    })
}

/// The charts of a view.
pub fn cards(one: &Results, bench: &SuiteReport, view: View) -> Result<Vec<Card>, Error> {
    let styles = Styles::of_bench(bench);
    let shaded = (view == View::Ratio && !one.is_simulated()).then_some(LAUNCH_BOUND);
    let charts = groups(&bench.series).into_iter().map(|group| chart(&group, view, shaded, &styles));
    charts.filter_map(Result::transpose).collect()
}

fn groups(series: &[Series]) -> Vec<Group<'_>> {
    let mut groups: Vec<Vec<&Series>> = Vec::new();
    let shared =
        |one: &Series| (one.over.clone(), one.operation.clone(), one.fixed.clone(), one.unit.clone());
    for one in series {
        match groups.iter_mut().find(|group| shared(group[0]) == shared(one)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.into_iter().flat_map(with_close_up).collect()
}

/// A close-up of the contenders that are near the floor, if others are not, and the whole group.
fn with_close_up(series: Vec<&Series>) -> impl Iterator<Item = Group<'_>> {
    let is_near = |one: &&Series| points(one, View::Ratio).iter().all(|point| point.y <= CLOSE);
    let (near, far): (Vec<_>, Vec<_>) = series.iter().copied().partition(is_near);
    let without: Vec<_> = far.iter().map(|one| &*one.contender).collect();
    // A close-up of a minority compares nothing.
    let has_floor = |one: &&&Series| one.points.iter().any(|point| point.floor.is_some());
    let is_useful = !far.is_empty() && near.iter().filter(has_floor).count() >= far.len();
    let close_up = is_useful.then_some(Group { series: near, without });
    close_up.into_iter().chain([Group { series, without: Vec::new() }])
}

/// The points of one series in a chart. The floor has no ratio, and a failed operation no time.
fn points(series: &Series, view: View) -> Vec<Point> {
    let point = |point: &suite::Point| {
        let base = match view {
            View::Time => 1.0,
            View::Ratio => point.floor.filter(|floor| *floor > 0.0)?,
        };
        let range = (point.min / base, point.max / base);
        Some(Point { x: point.x as f64, y: point.median / base, range })
    };
    series.points.iter().filter(|point| point.failed == 0).filter_map(point).collect()
}

/// The card of a group; `None` if it has no points.
fn chart(
    group: &Group<'_>,
    view: View,
    shaded: Option<f64>,
    styles: &Styles<'_>,
) -> Result<Option<Card>, Error> {
    let line =
        |series: &&Series| Line { style: styles.style(&series.contender), points: points(series, view) };
    let drawn: Vec<(Line, &str)> = group
        .series
        .iter()
        .map(|series| (line(series), &*series.contender))
        .filter(|(line, _)| !line.points.is_empty())
        .collect();
    let (lines, names): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
    let first = group.series[0];
    let over = Unit::named(&first.over);
    let (unit, reference) = match view {
        View::Ratio => (Unit::Ratio, Some(1.0)),
        View::Time => (Unit::named(&first.unit), None),
    };
    let Some((x, y)) = axes(&lines, (over, unit), reference) else { return Ok(None) };
    let up = if view == View::Ratio { "ratio to the floor" } else { "time of the kernel" };
    let close_up = if group.without.is_empty() { "" } else { ", close-up" };
    let title = format!("{} over {}{close_up}", first.operation, first.over);
    let description = format!(
        "{up} of {} over {}; both axes are logarithmic, the values are in tables",
        names.join(", "),
        first.over
    );
    let note = note(group);
    let chart = Chart {
        title: &title,
        description: &description,
        across: over.axis(),
        up,
        x,
        y,
        reference,
        shaded: shaded.filter(|_| over == Unit::Threads),
        lines: &lines,
    };
    let legend = legend(lines.iter().map(|line| line.style).zip(names))?;
    let chart = chart.svg()?;
    Ok(Some(Card { title, note, chart, legend }))
}

/// The axes of all points; `None` without points.
fn axes(lines: &[Line], units: (Unit, Unit), reference: Option<f64>) -> Option<(Axis, Axis)> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::powers_of_two(all().map(|point| point.x), units.0, X_TICKS)?;
    let values = all().flat_map(|point| [point.y, point.range.0, point.range.1]).chain(reference);
    Some((x, Axis::decimal(values, units.1, Y_TICKS)?))
}

/// What does not vary in a group, and what is left out: `64 B each, 32 pairs per thread`.
fn note(group: &Group<'_>) -> String {
    let Group { series, without } = group;
    let failed = series.iter().filter_map(|series| failed(series));
    let series = series[0];
    let texts = series.fixed.iter().map(|(name, value)| match &**name {
        "bytes" => format!("{} each", Unit::Bytes.text(*value as f64)),
        "threads" => format!("{} threads", Unit::Threads.tick(*value as f64)),
        _ => format!("{name} {value}"),
    });
    let turns = (series.turns > 1).then(|| format!("{} pairs per thread", series.turns));
    let left_out = (!without.is_empty()).then(|| format!("without {}", without.join(", ")));
    let what = texts.chain(turns).chain(left_out).collect::<Vec<_>>().join(", ");
    std::iter::once(what).chain(failed).collect::<Vec<_>>().join("; ")
}

/// The points that are not drawn: `heap: 2 points left out, 12 operations failed`.
fn failed(series: &Series) -> Option<String> {
    let points = series.points.iter().filter(|point| point.failed > 0);
    let (count, failed) =
        points.fold((0, 0_u64), |(count, sum), point| (count + 1, sum.saturating_add(point.failed)));
    let points = if count == 1 { "point" } else { "points" };
    (count > 0).then(|| {
        format!("{}: {count} {points} left out, {} operations failed", series.contender, Count(failed))
    })
}

/// The table of a series.
fn values(series: &Series) -> Markup {
    let Series { contender, operation, over, unit, .. } = series;
    let summary = format!("{contender}, {operation} over {over} ({unit})");
    let columns = [
        ("x", "/x"),
        ("median", "/median"),
        ("fastest", "/min"),
        ("slowest", "/max"),
        ("floor", "/floor"),
        ("rounds", "/rounds"),
        ("failed", "/failed"),
    ];
    table(&summary, &series.points, &columns)
}
