//! Figures with targets: values beside targets, and times beside those that they are compared with.

use super::parts::{Styles, legend, rows_cards, table};
use crate::report::human::{Unit, short};
use crate::view::chart::Error;
use crate::view::chart::picture::Card;
use crate::view::chart::rows::{Dot, Row};
use maud::{Markup, html};
use warpheap_harness::bench::suite::{Collection, SuiteReport};
use warpheap_harness::bench::{Bar, BenchReport, Figure, Timing};

/// Styles of a value, and of what it is compared with.
const VALUE: usize = 0;
const BASE: usize = 5;

/// Figures of one kind: with the same start of their names, the same unit and the same meaning.
struct Group<'a> {
    name: &'a str,
    unit: Unit,
    is_speedup: bool,
    figures: Vec<&'a Figure>,
}

/// The values of all figures. Empty without figures.
pub fn section(bench: &BenchReport) -> Result<Markup, Error> {
    if bench.figures.is_empty() {
        return Ok(html! {});
    }
    let met = bench.figures.iter().filter(|figure| figure.passed).count();
    Ok(html! {
        h2 { "Figures and targets" }
        p { (met) " of " (bench.figures.len()) " figures meet their targets. A vertical line is a target; ✓ met, ✗ missed." }
        div.rows { @for card in value_cards(bench)? { (card) } }
    })
}

/// The times of all figures, and the table of the figures.
pub fn times_section(bench: &BenchReport) -> Result<Markup, Error> {
    if bench.figures.is_empty() {
        return Ok(html! {});
    }
    Ok(html! {
        h2 { "Times of the figures" }
        div.rows { @for card in time_cards(bench)? { (card) } }
        (table("Values: all figures", &bench.figures, &COLUMNS))
    })
}

/// The values of all figures beside their targets.
pub fn value_cards(bench: &BenchReport) -> Result<Vec<Card>, Error> {
    Ok(groups(&bench.figures).iter().map(values).collect::<Result<Vec<_>, _>>()?.concat())
}

/// The times of all figures.
pub fn time_cards(bench: &BenchReport) -> Result<Vec<Card>, Error> {
    Ok(groups(&bench.figures).iter().map(times).collect::<Result<Vec<_>, _>>()?.concat())
}

const COLUMNS: [(&str, &str); 15] = [
    ("figure", "/name"),
    ("threads", "/threads"),
    ("time, median (µs)", "/time/median_us"),
    ("fastest", "/time/min_us"),
    ("slowest", "/time/max_us"),
    ("against", "/against"),
    ("its median (µs)", "/base/median_us"),
    ("fastest", "/base/min_us"),
    ("slowest", "/base/max_us"),
    ("value", "/value"),
    ("unit", "/unit"),
    ("holds", "/holds"),
    ("target", "/bar"),
    ("met", "/passed"),
    ("checked", "/checked"),
];

fn groups(figures: &[Figure]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for figure in figures {
        let name = figure.name.split(',').next().unwrap_or_default();
        let (unit, is_speedup) = (Unit::named(&figure.unit), is_speedup(figure));
        let is_same =
            |group: &&mut Group<'_>| (group.name, group.unit, group.is_speedup) == (name, unit, is_speedup);
        match groups.iter_mut().find(is_same) {
            Some(group) => group.figures.push(figure),
            None => groups.push(Group { name, unit, is_speedup, figures: vec![figure] }),
        }
    }
    groups
}

/// Whether a figure divides the time that it is compared with by its own. Other ratios do the
/// inverse.
fn is_speedup(figure: &Figure) -> bool {
    Unit::named(&figure.unit) == Unit::Ratio && figure.holds == Bar::AtLeast
}

/// The name of a figure below the name of its group.
fn short_name<'a>(group: &Group<'a>, figure: &'a Figure) -> &'a str {
    let rest = figure.name.strip_prefix(group.name).and_then(|rest| rest.strip_prefix(','));
    rest.map(str::trim).filter(|rest| !rest.is_empty()).unwrap_or(&figure.name)
}

/// The value of a figure with the range that its own times give it. Rates and speedups are inverse
/// to the time.
fn dot(figure: &Figure, unit: Unit) -> Option<Dot> {
    let value = figure.value?;
    let is_inverse = unit == Unit::GigaPairsPerSecond || is_speedup(figure);
    let range = match (unit, figure.time.filter(|time| time.min_us > 0.0)) {
        (_, Some(time)) if is_inverse => {
            (value * time.median_us / time.max_us, value * time.median_us / time.min_us)
        }
        (Unit::Ratio | Unit::Micros, Some(time)) => {
            (value * time.min_us / time.median_us, value * time.max_us / time.median_us)
        }
        _ => (value, value),
    };
    Some(Dot { style: VALUE, value, range })
}

/// The cards of the values of a group.
fn values(group: &Group<'_>) -> Result<Vec<Card>, Error> {
    let row = |figure: &&Figure| {
        let sign = if figure.holds == Bar::AtLeast { "≥" } else { "≤" };
        let bar = if group.unit == Unit::Micros { group.unit.text(figure.bar) } else { short(figure.bar) };
        let met = if figure.passed { "✓" } else { "✗" };
        Row {
            name: short_name(group, figure).to_owned(),
            dots: dot(figure, group.unit).into_iter().collect(),
            target: Some(figure.bar),
            text: figure.value.map_or("not measured".into(), |value| {
                format!("{} {sign} {bar} {met}", group.unit.text(value))
            }),
            is_marked: !figure.passed,
        }
    };
    let rows: Vec<Row> = group.figures.iter().map(row).collect();
    let note = match group.unit {
        Unit::Ratio => against(group),
        unit => unit.axis().to_owned(),
    };
    rows_cards(group.name, &note, group.unit, &rows, &Vec::new())
}

/// What the figures are compared with, each once.
fn against(group: &Group<'_>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for figure in &group.figures {
        if !names.contains(&&*figure.against) {
            names.push(&figure.against);
        }
    }
    match group.is_speedup {
        true => format!("speedup over {}: its time divided by that of the figure", names.join(", or over ")),
        false => format!("ratio to {}", names.join(", or to ")),
    }
}

/// The cards of the times of a group; none if nothing was timed.
fn times(group: &Group<'_>) -> Result<Vec<Card>, Error> {
    let dot = |style, time: Timing| Dot { style, value: time.median_us, range: (time.min_us, time.max_us) };
    let row = |figure: &&Figure| {
        let time = figure.time?;
        let base = figure.base;
        let text = Unit::Micros.text(time.median_us);
        Some(Row {
            name: short_name(group, figure).to_owned(),
            dots: base.map(|base| dot(BASE, base)).into_iter().chain([dot(VALUE, time)]).collect(),
            target: None,
            text: base.map_or(text.clone(), |base| format!("{text} / {}", Unit::Micros.text(base.median_us))),
            is_marked: false,
        })
    };
    let rows: Vec<Row> = group.figures.iter().filter_map(row).collect();
    let entries = [(VALUE, "the figure"), (BASE, "compared with")];
    let has_base = group.figures.iter().any(|figure| figure.base.is_some());
    let legend = legend(entries.into_iter().take(if has_base { 2 } else { 1 }))?;
    rows_cards(
        group.name,
        "median time of the kernel / of what it is compared with",
        Unit::Micros,
        &rows,
        &legend,
    )
}

/// Kernels with Rust's collections over the heap and over CUDA's `malloc`.
pub fn collections(bench: &SuiteReport) -> Result<Markup, Error> {
    let columns = [
        ("kernel", "/name"),
        ("threads", "/threads"),
        ("heap (µs)", "/heap_us"),
        ("CUDA malloc (µs)", "/cuda_malloc_us"),
        ("speedup", "/ratio"),
    ];
    let cards = collection_cards(bench)?;
    Ok(html! {
        @if !cards.is_empty() {
            h2 { "Rust's collections in kernels" }
            div.rows { @for card in cards { (card) } }
            (table("Values: collections", &bench.collections, &columns))
        }
    })
}

/// The times of the collections.
pub fn collection_cards(bench: &SuiteReport) -> Result<Vec<Card>, Error> {
    let styles = Styles::of_bench(bench);
    let (heap, cuda) = (styles.style("heap"), styles.style("CUDA malloc"));
    let dot = |style, value| Dot { style, value, range: (value, value) };
    let row = |one: &Collection| Row {
        name: one.name.to_string(),
        dots: vec![dot(cuda, one.cuda_malloc_us), dot(heap, one.heap_us)],
        target: None,
        text: one.ratio.map_or("not measured".into(), |ratio| Unit::Ratio.text(ratio)),
        is_marked: false,
    };
    let rows: Vec<Row> = bench.collections.iter().map(row).collect();
    let legend = legend([(heap, "heap"), (cuda, "CUDA malloc")].into_iter())?;
    rows_cards(
        "Rust's collections",
        "time of the kernel; speedup of the heap over CUDA's malloc",
        Unit::Micros,
        &rows,
        &legend,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(unit: &str, holds: &str, value: f64) -> Figure {
        let time =
            |median: f64, min: f64, max: f64| json!({"median_us": median, "min_us": min, "max_us": max});
        let figure = json!({
            "name": "CUDA's malloc over the heap, alloc, 64 B", "threads": 1 << 20, "time": time(10.0, 8.0, 20.0),
            "against": "CUDA's malloc", "base": time(2500.0, 2400.0, 2600.0), "value": value, "unit": unit,
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
            let figure = figure(unit, holds, 250.0);
            assert_eq!(dot(&figure, Unit::named(unit)).unwrap().range, range, "{unit}, {holds}");
        }
    }

    #[test]
    fn speedups_and_ratios_are_different_groups() {
        let figures = [figure("x", "at_least", 250.0), figure("x", "at_most", 2.0)];
        let notes: Vec<_> = groups(&figures).iter().map(against).collect();
        let speedup = "speedup over CUDA's malloc: its time divided by that of the figure";
        assert_eq!(notes, [speedup, "ratio to CUDA's malloc"]);
    }
}
