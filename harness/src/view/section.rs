//! A section of a page: cards with charts, legends, and tables of JSON values.

use super::chart::{self, Axis, Card, ROW_TICKS, Row};
use crate::report::human::{Count, Unit, short};
use maud::{Markup, Render, html};
use serde::Serialize;
use serde_json::{Number, Value as Json};

/// Charts with a heading, and the tables of their values.
pub struct Section {
    /// The group of its charts, with which their names begin.
    pub group: &'static str,
    /// The heading.
    pub heading: &'static str,
    /// How the charts are to be read.
    pub intro: Markup,
    /// The charts.
    pub cards: Vec<Card>,
    /// Tables and texts below the charts.
    pub tables: Markup,
}

impl Render for Section {
    fn render(&self) -> Markup {
        html! {
            h2 { (self.heading) }
            (self.intro)
            div.cards { @for card in &self.cards { (card) } }
            (self.tables)
        }
    }
}

impl Render for Card {
    fn render(&self) -> Markup {
        html! {
            figure {
                figcaption { h3 { (self.title) } p { (self.note) } }
                (self.chart.svg)
                @if !self.legend.is_empty() {
                    ul.legend { @for (style, name) in &self.legend { li { (chart::sample(*style, name)) span { (name) } } } }
                }
            }
        }
    }
}

/// Groups of the items with the same key, in the order of their first items.
pub fn grouped<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Cards of rows, with one axis for all. Many rows take several cards.
pub fn rows_cards(title: &str, note: &str, unit: Unit, rows: &[Row], legend: &[(usize, &str)]) -> Vec<Card> {
    /// The most rows of a card: half a printed page.
    const MOST: usize = 14;
    let dots = rows.iter().flat_map(|row| &row.dots);
    let dots = dots.flat_map(|(_, dot)| [dot.value, dot.range.0, dot.range.1]);
    let values = dots.chain(rows.iter().filter_map(|row| row.target));
    let Some(axis) = Axis::decimal(values, unit, ROW_TICKS) else { return Vec::new() };
    let description = format!("{note}, one row for each; the axis is logarithmic, the values are in a table");
    let parts = rows.len().div_ceil(MOST);
    let part = |(number, rows): (usize, &[Row])| {
        let title = if parts == 1 { title.to_owned() } else { format!("{title} ({number} of {parts})") };
        let chart = chart::rows(&title, &description, &axis, rows);
        Card { title, note: note.to_owned(), chart, legend: legend_of(legend.iter().copied()) }
    };
    (1..).zip(rows.chunks(rows.len().div_ceil(parts))).map(part).collect()
}

/// A legend of styles and their names.
pub fn legend_of<'a>(entries: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    entries.map(|(style, name)| (style, name.to_owned())).collect()
}

/// A table of all values of some results, which opens on request. Nothing without rows. Columns are
/// separated by `; `. Each has a heading, and the JSON pointer of its values in a row.
pub fn table<T: Serialize>(summary: &str, rows: &[T], columns: &str) -> Markup {
    let rows: Vec<Json> = rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
    let is_number = |pointer: &str| {
        let values = || rows.iter().filter_map(|row| row.pointer(pointer)).filter(|value| !value.is_null());
        (values().next().is_some() && values().all(Json::is_number)).then_some("number")
    };
    let columns = columns.split("; ").filter_map(|column| column.rsplit_once(' '));
    let columns: Vec<_> = columns.map(|(name, pointer)| (name, pointer, is_number(pointer))).collect();
    html! {
        @if !rows.is_empty() {
            details {
                summary { (summary) }
                div.wide {
                    table {
                        thead { tr { @for (name, _, class) in &columns { th class=[class] { (name) } } } }
                        tbody {
                            @for row in &rows {
                                tr { @for (_, pointer, class) in &columns { td class=[class] { (cell(row.pointer(pointer))) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A JSON value in a table. Numbers have all their digits in an attribute.
fn cell(value: Option<&Json>) -> Markup {
    match value {
        None | Some(Json::Null) => html! {},
        Some(Json::Number(number)) => html! { data value=(number) { (readable(number)) } },
        Some(Json::Bool(is)) => html! { (if *is { "yes" } else { "no" }) },
        Some(Json::String(text)) => html! { (text) },
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
