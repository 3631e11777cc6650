//! Elements of all sections: cards with charts, legends, and tables of JSON values.

use crate::report::human::{Count, Unit, short};
use crate::view::chart::picture::{Card, Legend};
use crate::view::chart::rows::{Chart, Row, TICKS};
use crate::view::chart::scale::Axis;
use crate::view::chart::{Error, marks};
use maud::{Markup, Render, html};
use serde::Serialize;
use serde_json::{Number, Value};
use warpheap_harness::bench::suite::SuiteReport;

/// The most rows of a card: half a printed page.
const MOST_ROWS: usize = 14;

/// The styles of series, by name: a name has the same style in all charts of a section.
#[derive(Debug)]
pub struct Styles<'a>(Vec<&'a str>);

impl<'a> Styles<'a> {
    /// Styles for these names, each once, in the order of their first occurrence.
    pub fn of(names: impl Iterator<Item = &'a str>) -> Styles<'a> {
        let mut once = Vec::new();
        names.for_each(|name| {
            if !once.contains(&name) {
                once.push(name);
            }
        });
        Styles(once)
    }

    /// Styles of all allocators of a benchmark: those of its series first.
    pub fn of_bench(bench: &'a SuiteReport) -> Styles<'a> {
        let series = bench.series.iter().map(|one| &*one.contender);
        let latency = bench.latency.iter().map(|one| &*one.contender);
        Styles::of(series.chain(latency).chain(["heap", "CUDA malloc"]))
    }

    /// The number of the style of `name`.
    pub fn style(&self, name: &str) -> usize {
        self.0.iter().position(|one| *one == name).unwrap_or(0)
    }
}

/// A card in a page.
impl Render for Card {
    fn render(&self) -> Markup {
        html! {
            figure {
                figcaption { h3 { (self.title) } p { (self.note) } }
                (self.chart.svg)
                @if !self.legend.is_empty() {
                    ul.legend { @for (sample, name) in &self.legend { li { (sample.svg) span { (name) } } } }
                }
            }
        }
    }
}

/// Cards of rows, with one axis for all. Many rows take several cards.
pub fn rows_cards(
    title: &str,
    note: &str,
    unit: Unit,
    rows: &[Row],
    legend: &Legend,
) -> Result<Vec<Card>, Error> {
    let dots = rows.iter().flat_map(|row| &row.dots).flat_map(|dot| [dot.value, dot.range.0, dot.range.1]);
    let values = dots.chain(rows.iter().filter_map(|row| row.target));
    let Some(axis) = Axis::decimal(values, unit, TICKS) else { return Ok(Vec::new()) };
    let description = format!("{note}, one row for each; the axis is logarithmic, the values are in a table");
    let parts = rows.len().div_ceil(MOST_ROWS);
    let part = |(number, rows): (usize, &[Row])| {
        let title = if parts == 1 { title.to_owned() } else { format!("{title} ({number} of {parts})") };
        let chart = Chart { title: &title, description: &description, axis: axis.clone(), rows };
        let chart = chart.svg()?;
        Ok(Card { title, note: note.to_owned(), chart, legend: legend.clone() })
    };
    (1..).zip(rows.chunks(rows.len().div_ceil(parts))).map(part).collect()
}

/// A legend of styles and their names.
pub fn legend<'a>(entries: impl Iterator<Item = (usize, &'a str)>) -> Result<Legend, Error> {
    entries.map(|(style, name)| Ok((marks::sample(style, name)?, name.to_owned()))).collect()
}

/// A column of a table: its heading, and the JSON pointer of its values in a row as JSON.
pub type Column = (&'static str, &'static str);

/// A table of all values of some results, which opens on request. Nothing without rows.
pub fn table<T: Serialize>(summary: &str, rows: &[T], columns: &[Column]) -> Markup {
    if rows.is_empty() {
        return html! {};
    }
    let rows: Vec<Value> = rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
    let is_number = |pointer: &str| {
        let values = || rows.iter().filter_map(|row| row.pointer(pointer)).filter(|value| !value.is_null());
        values().next().is_some() && values().all(Value::is_number)
    };
    let columns: Vec<_> = columns.iter().map(|(name, pointer)| (name, pointer, is_number(pointer))).collect();
    html! {
        details {
            summary { (summary) }
            div.wide {
                table {
                    thead { tr { @for (name, _, is_number) in &columns { th class=[is_number.then_some("number")] { (name) } } } }
                    tbody {
                        @for row in &rows {
                            tr {
                                @for (_, pointer, is_number) in &columns {
                                    td class=[is_number.then_some("number")] { (cell(row.pointer(pointer))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A JSON value in a table. Numbers have all their digits in an attribute.
fn cell(value: Option<&Value>) -> Markup {
    match value {
        None | Some(Value::Null) => html! {},
        Some(Value::Number(number)) => html! { data value=(number) { (readable(number)) } },
        Some(Value::Bool(true)) => html! { "yes" },
        Some(Value::Bool(false)) => html! { "no" },
        Some(Value::String(text)) => html! { (text) },
        Some(other) => html! { code { (other) } },
    }
}

/// `1,048,576` for whole numbers, four digits for others.
fn readable(number: &Number) -> String {
    match (number.as_u64(), number.as_f64()) {
        (Some(whole), _) => Count(whole).to_string(),
        (None, Some(value)) if (1.0..1e6).contains(&value.abs()) => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        (None, Some(value)) => short(value),
        _ => number.to_string(),
    }
}
