//! Stress runs: their ends, their rates and their findings.

use super::parts::{rows_cards, table};
use crate::report::human::{Count, Unit};
use crate::report::results::{StressResults, StressRun};
use crate::view::chart::Error;
use crate::view::chart::picture::Card;
use crate::view::chart::rows::{Dot, Row};
use maud::{Markup, html};

const COLUMNS: [(&str, &str); 14] = [
    ("allocator", "/allocator"),
    ("status", "/status"),
    ("threads", "/report/threads"),
    ("streams", "/report/streams"),
    ("workload", "/report/workload"),
    ("rounds", "/report/rounds"),
    ("pairs", "/report/pairs"),
    ("pairs per second", "/report/pairs_per_second"),
    ("failed allocations", "/report/failed_allocations"),
    ("blocks checked", "/report/blocks_checked"),
    ("blocks sorted", "/report/blocks_sorted"),
    ("peak live blocks", "/report/peak_live_blocks"),
    ("kernel seconds", "/report/kernel_seconds"),
    ("findings", "/report/findings_total"),
];

/// All runs.
pub fn section(stress: &StressResults) -> Result<Markup, Error> {
    Ok(html! {
        h2 { "Runs" }
        div.rows { @for card in cards(stress)? { (card) } }
        (table("Values: all runs", &stress.runs, &COLUMNS))
        @for run in &stress.runs { (details(run)) }
    })
}

/// The rates of the runs.
pub fn cards(stress: &StressResults) -> Result<Vec<Card>, Error> {
    let row = |run: &StressRun| {
        let rate = run.report.as_ref()?.pairs_per_second;
        Some(Row {
            name: format!("{}: {}", run.allocator, run.status),
            dots: vec![Dot { style: 0, value: rate, range: (rate, rate) }],
            target: None,
            text: Unit::PairsPerSecond.text(rate),
            is_marked: run.status != "clean",
        })
    };
    let rows: Vec<Row> = stress.runs.iter().filter_map(row).collect();
    rows_cards(
        "Rates",
        "checked pairs of an allocation and a free per second",
        Unit::PairsPerSecond,
        &rows,
        &Vec::new(),
    )
}

/// The end of a run, its findings, its checks, and the command that repeats it.
fn details(run: &StressRun) -> Markup {
    let report = run.report.as_ref();
    html! {
        h3 { (run.allocator.name()) ": " (run.status) }
        @if let Some(error) = &run.error { p.notice { (error) } }
        @if let Some(report) = report {
            @if report.findings_total > 0 {
                p { (Count(report.findings_total)) " findings. The first of them:" }
                ul { @for finding in report.findings.iter().take(LISTED) { li { strong { (finding.kind.to_string()) } ": " (finding.message) } } }
            }
            @if !report.verified.is_empty() {
                details {
                    summary { "What was checked" }
                    ul { @for check in &report.verified { li { (check) } } }
                }
            }
        }
        @if !run.reproduce.is_empty() { p { "To repeat: " code { (run.reproduce) } } }
    }
}

/// The most findings of a run in the page; the JSON has more.
const LISTED: usize = 20;
