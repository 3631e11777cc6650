//! What changed since older results.

use super::parts::rows_cards;
use crate::report::compare::{Change, Comparison, FEWEST_ROUNDS, Verdict};
use crate::report::human::Unit;
use crate::view::chart::Error;
use crate::view::chart::rows::{Dot, Row};
use maud::{Markup, html};

/// The most rows of the chart. The table has all measurements.
const MOST_ROWS: usize = 20;
/// Styles of a value that became worse (red), and of one that became better (green).
const WORSE: usize = 7;
const BETTER: usize = 2;

/// The changes as a chart and a table.
pub fn section(comparison: &Comparison) -> Result<Markup, Error> {
    let changed = comparison.changed();
    let rows: Vec<Row> = changed.iter().take(MOST_ROWS).filter_map(|change| row(change)).collect();
    let note = "newer over older value, the worst first; the line is no change";
    let cards = rows_cards("Changes", note, Unit::Ratio, &rows, &Vec::new())?;
    let (commit, date) = &comparison.old;
    Ok(html! {
        section {
            h1 { "Changes since " (comparison.file) }
            p { "Older results: commit " (commit) ", " (date) ". " (comparison.summary()) "." }
            @for one in &comparison.differences {
                p.notice { strong { "Different " (one.what) ": " } (one.old) " before, " (one.new) " now." }
            }
            @for what in &comparison.wrong { p.notice { strong { "Now wrong: " } (what) } }
            p.dim {
                "A measurement changed if the ranges of its rounds do not overlap and its median differs by more than "
                (format!("{:.1} %", 100.0 * comparison.threshold)) "; it is also worse if more operations failed. "
                "Not judged are floors, the driver's allocators, and times of fewer than " (FEWEST_ROUNDS) " rounds. "
                @if comparison.only_new > 0 { (comparison.only_new) " newer measurements have no counterpart." }
            }
            @if !comparison.only_old.is_empty() {
                details {
                    summary { (comparison.only_old.len()) " older measurements have no counterpart" }
                    ul { @for name in &comparison.only_old { li { (name) } } }
                }
            }
            div.rows { @for card in cards { (card) } }
            (table(comparison))
        }
    })
}

fn row(change: &Change) -> Option<Row> {
    let (value, old) = (change.ratio()?, change.old.value);
    let style = if change.verdict == Verdict::Worse { WORSE } else { BETTER };
    let range = (change.new.range.0 / old, change.new.range.1 / old);
    Some(Row {
        name: change.new.name.clone(),
        dots: vec![Dot { style, value, range }],
        target: Some(1.0),
        text: match change.has_more_failures() {
            true => change.word().into(),
            false => format!("{} {}", change.percent(), change.word()),
        },
        is_marked: change.is_worse(),
    })
}

fn table(comparison: &Comparison) -> Markup {
    html! {
        details {
            summary { "Values: all compared measurements" }
            div.wide {
                table {
                    thead { tr { th { "measurement" } th.number { "before" } th.number { "after" } th.number { "change" } th { "verdict" } } }
                    tbody {
                        @for change in &comparison.changes {
                            @let [old, new] = change.texts();
                            tr {
                                td { (change.new.name) }
                                td.number { data value=(change.old.value) { (old) } }
                                td.number { data value=(change.new.value) { (new) } }
                                td.number { (change.percent()) }
                                td { (change.word()) }
                            }
                        }
                    }
                }
            }
        }
    }
}
