//! The sections of a benchmark: figures with targets, series, latencies, collections, and heaps
//! over their load.

use super::chart::{Axis, Card, DECIMAL_TICKS, LINE_TICKS, Line, Lines, Row, Value};
use super::section::{Section, grouped, legend_of, rows_cards, table};
use crate::report::human::{Count, Unit, short};
use maud::html;
use warpheap_harness::bench::suite::{self, Bin, Collection, Drift, HeapLoad, Latency, Series, SuiteReport};
use warpheap_harness::bench::{Bar, BenchReport, Figure, Timing};

/// Styles of the main value, of one beside it, and of what it is compared with.
const VALUE: usize = 0;
const OTHER: usize = 1;
const BASE: usize = 5;

/// The sections of what was measured.
pub fn sections(bench: &SuiteReport, is_simulated: bool) -> Vec<Section> {
    let names = names(bench);
    let sections = [
        figures(&bench.bench),
        ratios(bench, &names, is_simulated),
        times(bench, &names),
        latencies(bench, &names),
        collections(bench, &names),
        loads(bench),
        drifts(bench),
        figure_times(&bench.bench),
    ];
    sections.into_iter().flatten().collect()
}

/// The allocators of a benchmark, those of its series first. The place of a name is the number of
/// its style in all charts.
fn names(bench: &SuiteReport) -> Vec<&str> {
    let series = bench.series.iter().map(|one| &*one.contender);
    let latency = bench.latency.iter().map(|one| &*one.contender);
    once(series.chain(latency).chain(["heap", "CUDA malloc"]))
}

fn style(names: &[&str], name: &str) -> usize {
    names.iter().position(|one| *one == name).unwrap_or(0)
}

/// Each name once, in the order of their first occurrence.
fn once<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    grouped(names, |name| *name).into_iter().map(|(name, _)| name).collect()
}

/// Figures with the same start of their names, the same unit and the same meaning.
type Figures<'a> = ((&'a str, Unit, bool), Vec<&'a Figure>);

fn groups(bench: &BenchReport) -> Vec<Figures<'_>> {
    grouped(&bench.figures, |figure| {
        (figure.name.split(',').next().unwrap_or_default(), Unit::named(&figure.unit), is_speedup(figure))
    })
}

/// Whether a figure is the ratio of the base to its own time. Other ratios are the inverse.
fn is_speedup(figure: &Figure) -> bool {
    Unit::named(&figure.unit) == Unit::Ratio && figure.holds == Bar::AtLeast
}

/// The name of a figure below the name of its group.
fn short_name<'a>(group: &str, figure: &'a Figure) -> &'a str {
    let rest = figure.name.strip_prefix(group).and_then(|rest| rest.strip_prefix(','));
    rest.map(str::trim).filter(|rest| !rest.is_empty()).unwrap_or(&figure.name)
}

/// The values of all figures beside their targets.
fn figures(bench: &BenchReport) -> Option<Section> {
    let met = bench.figures.iter().filter(|figure| figure.passed).count();
    (!bench.figures.is_empty()).then(|| Section {
        group: "figure",
        heading: "Figures and targets",
        intro: html! { p { (met) " of " (bench.figures.len()) " figures meet their targets. A vertical line is a target; ✓ met, ✗ missed." } },
        cards: groups(bench).iter().flat_map(value_cards).collect(),
        tables: html! {},
    })
}

fn value_cards(((name, unit, is_speedup), figures): &Figures<'_>) -> Vec<Card> {
    let row = |figure: &&Figure| {
        let sign = if figure.holds == Bar::AtLeast { "≥" } else { "≤" };
        let bar = if *unit == Unit::Micros { unit.text(figure.bar) } else { short(figure.bar) };
        let met = if figure.passed { "✓" } else { "✗" };
        let text = figure.value.map(|value| format!("{} {sign} {bar} {met}", unit.text(value)));
        Row {
            name: short_name(name, figure).to_owned(),
            dots: value(figure).map(|value| (VALUE, value)).into_iter().collect(),
            target: Some(figure.bar),
            text: text.unwrap_or_else(|| "not measured".into()),
            is_marked: !figure.passed,
        }
    };
    let rows: Vec<Row> = figures.iter().map(row).collect();
    let against = once(figures.iter().map(|figure| &*figure.against));
    let note = match unit {
        Unit::Ratio if *is_speedup => {
            format!("speedup over {}: its time divided by that of the figure", against.join(", or over "))
        }
        Unit::Ratio => format!("ratio to {}", against.join(", or to ")),
        unit => unit.axis().to_owned(),
    };
    rows_cards(name, &note, *unit, &rows, &[])
}

/// The value of a figure with the range that its own times give it. Rates and speedups are inverse
/// to the time.
fn value(figure: &Figure) -> Option<Value> {
    let (value, unit) = (figure.value?, Unit::named(&figure.unit));
    let Some(time) = figure.time.filter(|time| time.min_us > 0.0) else { return Some(Value::exact(value)) };
    let range = match unit {
        Unit::GigaPairsPerSecond => (time.median_us / time.max_us, time.median_us / time.min_us),
        Unit::Ratio if is_speedup(figure) => (time.median_us / time.max_us, time.median_us / time.min_us),
        Unit::Ratio | Unit::Micros => (time.min_us / time.median_us, time.max_us / time.median_us),
        _ => (1.0, 1.0),
    };
    Some(Value { value, range: (value * range.0, value * range.1) })
}

/// The times of all figures, and the table of the figures.
fn figure_times(bench: &BenchReport) -> Option<Section> {
    const COLUMNS: &str = "figure /name; threads /threads; time, median (µs) /time/median_us; fastest /time/min_us; \
        slowest /time/max_us; against /against; its median (µs) /base/median_us; fastest \
        /base/min_us; slowest /base/max_us; value /value; unit /unit; holds /holds; target /bar; \
        met /passed; checked /checked";
    (!bench.figures.is_empty()).then(|| Section {
        group: "time of figure",
        heading: "Times of the figures",
        intro: html! {},
        cards: groups(bench).iter().flat_map(time_cards).collect(),
        tables: table("Values: all figures", &bench.figures, COLUMNS),
    })
}

/// The times of a group; none if nothing was timed.
fn time_cards(((name, ..), figures): &Figures<'_>) -> Vec<Card> {
    let value = |time: Timing| Value { value: time.median_us, range: (time.min_us, time.max_us) };
    let text = |time: Timing| Unit::Micros.text(time.median_us);
    let row = |figure: &&Figure| {
        let (time, base) = (figure.time?, figure.base);
        Some(Row {
            name: short_name(name, figure).to_owned(),
            dots: base.map(|base| (BASE, value(base))).into_iter().chain([(VALUE, value(time))]).collect(),
            target: None,
            text: base.map_or(text(time), |base| format!("{} / {}", text(time), text(base))),
            is_marked: false,
        })
    };
    let rows: Vec<Row> = figures.iter().filter_map(row).collect();
    let has_base = figures.iter().any(|figure| figure.base.is_some());
    let legend = &[(VALUE, "the figure"), (BASE, "compared with")][..if has_base { 2 } else { 1 }];
    rows_cards(name, "median time of the kernel / of what it is compared with", Unit::Micros, &rows, legend)
}

/// With fewer threads, the time of the floor on a GPU is mostly that of a launch.
const LAUNCH_BOUND: f64 = 4096.0;

/// Median times over those of the floor.
fn ratios(bench: &SuiteReport, names: &[&str], is_simulated: bool) -> Option<Section> {
    let shaded = (!is_simulated).then_some(LAUNCH_BOUND);
    (!bench.series.is_empty()).then(|| Section {
        group: "ratio",
        heading: "Ratio to the floor",
        intro: html! {
            p {
                "The floor is a similar kernel without the allocator: at a ratio of 1, an operation adds no time that can be measured."
                @if !is_simulated {
                    " With fewer than about 2¹² threads (shaded), the time of the floor is mostly that of the launch: there a ratio near 1 says little about the operation."
                }
            }
        },
        cards: series_cards(bench, names, true, shaded),
        tables: html! {},
    })
}

fn times(bench: &SuiteReport, names: &[&str]) -> Option<Section> {
    const COLUMNS: &str = "x /x; median /median; fastest /min; slowest /max; floor /floor; rounds /rounds; failed \
        /failed";
    let summary = |Series { contender, operation, over, unit, .. }: &Series| {
        format!("{contender}, {operation} over {over} ({unit})")
    };
    (!bench.series.is_empty()).then(|| Section {
        group: "time",
        heading: "Times",
        intro: html! {},
        cards: series_cards(bench, names, false, None),
        tables: html! {
            details {
                summary { "Values: all series" }
                @for one in &bench.series { (table(&summary(one), &one.points, COLUMNS)) }
            }
        },
    })
}

/// A chart of the series with the same operation, the same axis and the same fixed values. If some
/// contenders flatten the others, a close-up of these comes first.
fn series_cards(bench: &SuiteReport, names: &[&str], is_ratio: bool, shaded: Option<f64>) -> Vec<Card> {
    /// The largest ratio to the floor in a close-up.
    const CLOSE: f64 = 100.0;
    let key = |one: &&Series| (one.over.clone(), one.operation.clone(), one.fixed.clone(), one.unit.clone());
    let mut cards = Vec::new();
    for (_, series) in grouped(&bench.series, key) {
        let is_near = |one: &&Series| points(one, true).iter().all(|(_, value)| value.value <= CLOSE);
        let (near, far): (Vec<_>, Vec<_>) = series.iter().copied().partition(is_near);
        let without: Vec<_> = far.iter().map(|one| &*one.contender).collect();
        // A close-up of a minority compares nothing.
        let has_floor = |one: &&&Series| one.points.iter().any(|point| point.floor.is_some());
        if !far.is_empty() && near.iter().filter(has_floor).count() >= far.len() {
            cards.extend(series_card(&near, &without, names, is_ratio, shaded));
        }
        cards.extend(series_card(&series, &[], names, is_ratio, shaded));
    }
    cards
}

/// The points of one series in a chart. The floor has no ratio, and a failed operation no time.
fn points(series: &Series, is_ratio: bool) -> Vec<(f64, Value)> {
    let point = |point: &suite::Point| {
        let base = if is_ratio { point.floor.filter(|floor| *floor > 0.0)? } else { 1.0 };
        let range = (point.min / base, point.max / base);
        Some((point.x as f64, Value { value: point.median / base, range }))
    };
    series.points.iter().filter(|point| point.failed == 0).filter_map(point).collect()
}

/// The card of some series; `None` if they have no points. `without`: those that a close-up leaves
/// out.
fn series_card(
    series: &[&Series],
    without: &[&str],
    names: &[&str],
    is_ratio: bool,
    shaded: Option<f64>,
) -> Option<Card> {
    let drawn = series.iter().map(|one| (points(one, is_ratio), &*one.contender));
    let (points, drawn): (Vec<_>, Vec<_>) = drawn.filter(|(points, _)| !points.is_empty()).unzip();
    let styles: Vec<usize> = drawn.iter().map(|name| style(names, name)).collect();
    let lines: Vec<Line> =
        styles.iter().zip(points).map(|(style, points)| Line { style: *style, points }).collect();
    let Series { operation, over, unit, .. } = series[0];
    let over_unit = Unit::named(over);
    let (unit, reference, up) = match is_ratio {
        true => (Unit::Ratio, Some(1.0), "ratio to the floor"),
        false => (Unit::named(unit), None, "time of the kernel"),
    };
    let all = || lines.iter().flat_map(|line| &line.points);
    let values = all().flat_map(|(_, value)| [value.value, value.range.0, value.range.1]).chain(reference);
    let close_up = if without.is_empty() { "" } else { ", close-up" };
    let title = format!("{operation} over {over}{close_up}");
    let chart = Lines {
        title: &title,
        description: &format!(
            "{up} of {} over {over}; both axes are logarithmic, the values are in tables",
            drawn.join(", ")
        ),
        x: Axis::powers_of_two(all().map(|(x, _)| *x), over_unit)?,
        across: over_unit.axis(),
        y: Axis::decimal(values, unit, LINE_TICKS)?,
        up,
        reference,
        shaded: shaded.filter(|_| over_unit == Unit::Threads),
        lines: &lines,
    }
    .draw();
    Some(Card {
        title,
        note: series_note(series, without),
        chart,
        legend: legend_of(styles.into_iter().zip(drawn)),
    })
}

/// What does not vary in a chart, what is left out, and the points that are not drawn: `64 B each,
/// 32 pairs per thread; heap: 2 points left out, 12 operations failed`.
fn series_note(series: &[&Series], without: &[&str]) -> String {
    let first = series[0];
    let texts = first.fixed.iter().map(|(name, value)| match &**name {
        "bytes" => format!("{} each", Unit::Bytes.text(*value as f64)),
        "threads" => format!("{} threads", Unit::Threads.tick(*value as f64)),
        _ => format!("{name} {value}"),
    });
    let turns = (first.turns > 1).then(|| format!("{} pairs per thread", first.turns));
    let left_out = (!without.is_empty()).then(|| format!("without {}", without.join(", ")));
    let what = texts.chain(turns).chain(left_out).collect::<Vec<_>>().join(", ");
    let failed = series.iter().filter_map(|one| {
        let failed: Vec<u64> =
            one.points.iter().map(|point| point.failed).filter(|failed| *failed > 0).collect();
        let points = if failed.len() == 1 { "point" } else { "points" };
        let sum = Count(failed.iter().fold(0, |sum: u64, failed| sum.saturating_add(*failed)));
        let text =
            || format!("{}: {} {points} left out, {sum} operations failed", one.contender, failed.len());
        (!failed.is_empty()).then(text)
    });
    [what].into_iter().chain(failed).collect::<Vec<_>>().join("; ")
}

/// Latencies of single calls: a histogram for each operation and situation, and percentiles.
fn latencies(bench: &SuiteReport, names: &[&str]) -> Option<Section> {
    const COLUMNS: &str = "latency of /name; threads /threads; bytes /bytes; calls /calls; failed /failed; p50 /p50; \
        p99 /p99; p99.9 /p999; longest /max; unit /unit";
    // Calls of different numbers of threads meet different contention: they share no chart.
    let key = |one: &&Latency| {
        (one.operation.clone(), one.situation.clone(), one.unit.clone(), one.threads, one.bytes)
    };
    let cards =
        || grouped(&bench.latency, key).into_iter().filter_map(|(_, group)| latency_card(&group, names));
    (!bench.latency.is_empty()).then(|| Section {
        group: "latency",
        heading: "Latency of single calls",
        intro: html! { p { "The share of the calls that took up to a time, and longer than the previous one. Both axes are logarithmic. A chart compares allocators only with equal numbers of threads. Failed calls have no latency." } },
        cards: cards().collect(),
        tables: table("Values: percentiles", &bench.latency, COLUMNS),
    })
}

fn latency_card(group: &[&Latency], names: &[&str]) -> Option<Card> {
    let legend = group.iter().map(|latency| (style(names, &latency.contender), &*latency.contender));
    let lines = group.iter().flat_map(|latency| histogram(latency, style(names, &latency.contender)));
    let lines: Vec<Line> = lines.collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    let Latency { operation, situation, unit, threads, bytes, .. } = group[0];
    let unit = Unit::named(unit);
    let threads = match threads {
        0 => String::new(),
        threads => format!(", {} threads", Unit::Threads.tick((*threads).into())),
    };
    let title = format!("{operation}: {situation}{threads}");
    let chart = Lines {
        title: &title,
        description: &format!("distribution of the latency of {title}; percentiles are in a table"),
        x: match unit {
            Unit::Cycles => Axis::powers_of_two(all().map(|(x, _)| *x), unit)?,
            _ => Axis::decimal(all().map(|(x, _)| *x), unit, DECIMAL_TICKS)?,
        },
        across: unit.axis(),
        y: Axis::decimal(all().map(|(_, share)| share.value), Unit::Percent, LINE_TICKS)?,
        up: "share of the calls",
        reference: None,
        shaded: None,
        lines: &lines,
    }
    .draw();
    let bytes = (*bytes > 0).then(|| format!("{} each", Unit::Bytes.text((*bytes).into())));
    let percentiles = group.iter().map(|latency| percentiles(latency)).collect::<Vec<_>>().join("; ");
    let note = bytes.into_iter().chain([percentiles]).collect::<Vec<_>>().join(". ");
    Some(Card { title, note, chart, legend: legend_of(legend) })
}

/// The shares of the calls of each bin. An empty bin interrupts the line.
fn histogram(latency: &Latency, style: usize) -> Vec<Line> {
    /// The lower end of the stem of a bin: that of any axis.
    const STEM: f64 = 1e-9;
    let point = |bin: &Bin| {
        let share = 100.0 * bin.calls as f64 / (latency.distribution.calls as f64).max(1.0);
        (bin.upto as f64, Value { value: share, range: (STEM, share) })
    };
    let parts = latency.distribution.histogram.split(|bin| bin.calls == 0).filter(|part| !part.is_empty());
    parts.map(|part| Line { style, points: part.iter().map(point).collect() }).collect()
}

/// `heap: p50 900, p99.9 9,000, longest 20,000, 3 calls failed`
fn percentiles(latency: &Latency) -> String {
    let (unit, of) = (Unit::named(&latency.unit), &latency.distribution);
    let [half, most, longest] = [of.p50, of.p999, of.max].map(|value| unit.text(value as f64));
    let failed = match latency.failed {
        0 => String::new(),
        failed => format!(", {} calls failed", Count(failed)),
    };
    format!("{}: p50 {half}, p99.9 {most}, longest {longest}{failed}", latency.contender)
}

/// Kernels with Rust's collections over the heap and over CUDA's `malloc`.
fn collections(bench: &SuiteReport, names: &[&str]) -> Option<Section> {
    const COLUMNS: &str = "kernel /name; threads /threads; heap (µs) /heap_us; CUDA malloc (µs) /cuda_malloc_us; \
        speedup /ratio";
    let (heap, cuda) = (style(names, "heap"), style(names, "CUDA malloc"));
    let row = |one: &Collection| Row {
        name: one.name.to_string(),
        dots: vec![(cuda, Value::exact(one.cuda_malloc_us)), (heap, Value::exact(one.heap_us))],
        target: None,
        text: one.ratio.map_or("not measured".into(), |ratio| Unit::Ratio.text(ratio)),
        is_marked: false,
    };
    let rows: Vec<Row> = bench.collections.iter().map(row).collect();
    let note = "time of the kernel; speedup of the heap over CUDA's malloc";
    let legend = [(heap, "heap"), (cuda, "CUDA malloc")];
    (!bench.collections.is_empty()).then(|| Section {
        group: "collections",
        heading: "Rust's collections in kernels",
        intro: html! {},
        cards: rows_cards("Rust's collections", note, Unit::Micros, &rows, &legend),
        tables: table("Values: collections", &bench.collections, COLUMNS),
    })
}

/// A heap over its load: times beside the shares of failed allocations.
fn loads(bench: &SuiteReport) -> Option<Section> {
    const COLUMNS: &str = "heap (bytes) /heap_bytes; smallest /min_bytes; largest /max_bytes; load (%) /percent; \
        threads /threads; fill: first kernel (ns) /fill/first_ns; all /fill/mean_ns; requests \
        /fill/requests; failed /fill/failed; % /fill/failed_percent; turn: first (ns) \
        /turn/first_ns; median /turn/median_ns; fastest /turn/min_ns; slowest /turn/worst_ns; \
        requests /turn/requests; failed /turn/failed; % /turn/failed_percent; contended \
        /contended; floor (ns) /floor_ns";
    let key = |load: &HeapLoad| (load.heap_bytes, load.min_bytes, load.max_bytes);
    (!bench.load.is_empty()).then(|| Section {
        group: "load",
        heading: "A heap over its load",
        intro: html! { p { "The load is the share of the blocks that fit. Times are per thread, failed allocations included; their share is beside the times. A fill allocates from a new heap up to the load. In a turn each thread frees one of the live blocks and allocates another; the line is from the fastest to the slowest kernel. The floor reads and writes as a turn does, without the allocator." } },
        cards: bench.load.chunk_by(|a, b| key(a) == key(b)).flat_map(load_cards).collect(),
        tables: table("Values: heaps over their load", &bench.load, COLUMNS),
    })
}

/// A card of fills and one of turns, of a heap and a range of sizes.
fn load_cards(group: &[HeapLoad]) -> Vec<Card> {
    let row = |load: &HeapLoad, dots, nanos, failed_percent| Row {
        name: format!("{} % of the blocks that fit", load.percent),
        dots,
        target: None,
        text: format!("{} ({} %)", Unit::Nanos.text(nanos), short(failed_percent)),
        is_marked: failed_percent > 0.0,
    };
    let fill = |load: &HeapLoad| {
        let dots = vec![(OTHER, Value::exact(load.fill.first_ns)), (VALUE, Value::exact(load.fill.mean_ns))];
        row(load, dots, load.fill.mean_ns, load.fill.failed_percent)
    };
    let turn = |load: &HeapLoad| {
        let turn = Value { value: load.turn.median_ns, range: (load.turn.min_ns, load.turn.worst_ns) };
        let (floor, first) = (Value::exact(load.floor_ns), Value::exact(load.turn.first_ns));
        let dots = vec![(BASE, floor), (OTHER, first), (VALUE, turn)];
        row(load, dots, load.turn.median_ns, load.turn.failed_percent)
    };
    let HeapLoad { heap_bytes, min_bytes: min, max_bytes: max, .. } = &group[0];
    let range = if min == max { format!("{min} B") } else { format!("{min}-{max} B") };
    let of = format!("of {range} in {}", Unit::Bytes.text(*heap_bytes as f64));
    let cards = |what: &str, rows: Vec<Row>, legend: &[(usize, &str)]| {
        let note = "time per thread (share of failed allocations)";
        rows_cards(&format!("{what} {of}"), note, Unit::Nanos, &rows, legend)
    };
    let of_fills = [(VALUE, "all kernels"), (OTHER, "the first kernel")];
    let of_turns = [(VALUE, "the median turn"), (OTHER, "the first turn"), (BASE, "floor")];
    let fills = cards("fill", group.iter().map(fill).collect(), &of_fills);
    [fills, cards("turn", group.iter().map(turn).collect(), &of_turns)].concat()
}

fn drifts(bench: &SuiteReport) -> Option<Section> {
    const COLUMNS: &str = "heap (bytes) /heap_bytes; survivors /survivors; threads /threads; size /bytes; goal \
        (bytes) /goal_bytes; requests /requests; granted /granted; failed /failed; a second kernel \
        /served_again; later kernels /served_later; free blocks /free_blocks; free slabs \
        /free_slabs; free runs /free_runs; wrong /wrong; % /wrong_percent; contended /contended; \
        persistent (bytes) /persistent_bytes; % /persistent_percent";
    let key = |drift: &Drift| (drift.heap_bytes, drift.survivors, drift.threads);
    (!bench.drift.is_empty()).then(|| Section {
        group: "drift",
        heading: "Drift from size to size",
        intro: html! { p { "A heap is filled with one size after the other, and a tenth of its blocks survives each. An allocation failed wrongly if there was memory for it. What no kernel was granted although it fits beside the survivors is the rest. Zero is not on the logarithmic axis." } },
        cards: bench.drift.chunk_by(|a, b| key(a) == key(b)).flat_map(drift_cards).collect(),
        tables: table("Values: drift", &bench.drift, COLUMNS),
    })
}

/// The card of a drift. None for a drift without failures.
fn drift_cards(group: &[Drift]) -> Vec<Card> {
    let row = |drift: &Drift| {
        let (wrong, rest) = (drift.wrong_percent, drift.persistent_percent);
        Row {
            name: drift.bytes.map_or("all sizes".into(), |bytes| Unit::Bytes.text(bytes.into())),
            dots: vec![(OTHER, Value::exact(rest)), (VALUE, Value::exact(wrong))],
            target: None,
            text: format!("{} % / {} %", short(wrong), short(rest)),
            is_marked: wrong > 0.0,
        }
    };
    let rows: Vec<_> = group.iter().map(row).collect();
    let Drift { heap_bytes, survivors, threads, .. } = &group[0];
    let (heap, threads) = (Unit::Bytes.text(*heap_bytes as f64), Unit::Threads.tick((*threads).into()));
    let title = format!("{heap}, {} survives, {threads} threads", survivors.name());
    let note = "requests that failed wrongly / share of the goal that no kernel was granted";
    rows_cards(&title, note, Unit::Percent, &rows, &[(VALUE, "failed wrongly"), (OTHER, "never granted")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(unit: &str, holds: &str) -> Figure {
        let time =
            |median: f64, min: f64, max: f64| json!({"median_us": median, "min_us": min, "max_us": max});
        let figure = json!({
            "name": "CUDA's malloc over the heap, alloc, 64 B", "threads": 1 << 20, "time": time(10.0, 8.0, 20.0),
            "against": "CUDA's malloc", "base": time(2500.0, 2400.0, 2600.0), "value": 250.0, "unit": unit,
            "holds": holds, "bar": 100.0, "passed": true,
        });
        serde_json::from_value(figure).unwrap()
    }

    #[test]
    fn the_range_of_a_speedup_is_inverse_to_the_time() {
        for (unit, holds, range) in [
            ("x", "at_least", (125.0, 312.5)),
            ("G pairs/s", "at_least", (125.0, 312.5)),
            ("x", "at_most", (200.0, 500.0)),
            ("us", "at_most", (200.0, 500.0)),
            ("%", "at_least", (250.0, 250.0)),
        ] {
            assert_eq!(value(&figure(unit, holds)).unwrap().range, range, "{unit}, {holds}");
        }
    }

    #[test]
    fn speedups_and_ratios_are_different_groups() {
        let figures = [figure("x", "at_least"), figure("x", "at_most")];
        let bench: BenchReport = serde_json::from_value(json!({"rounds": 1, "figures": figures})).unwrap();
        let notes: Vec<_> = groups(&bench).iter().flat_map(value_cards).map(|card| card.note).collect();
        let speedup = "speedup over CUDA's malloc: its time divided by that of the figure";
        assert_eq!(notes, [speedup, "ratio to CUDA's malloc"]);
    }
}
