//! The sections of stress runs, and of benchmarks of host pools.

use super::chart::{Row, Value};
use super::section::{Section, grouped, rows_cards, table};
use crate::report::human::{Count, Unit};
use crate::report::results::{StressResults, StressRun};
use maud::{Markup, html};
use warpheap_harness::pool_tools::bench::{Comparison, PairFigure, PoolBenchReport, RandomFigure};

/// Stress runs: their rates, their ends and their findings.
pub fn stress(stress: &StressResults) -> Section {
    const COLUMNS: &str = "allocator /allocator; status /status; threads /report/threads; streams /report/streams; \
        workload /report/workload; rounds /report/rounds; pairs /report/pairs; pairs per second \
        /report/pairs_per_second; failed allocations /report/failed_allocations; blocks checked \
        /report/blocks_checked; blocks sorted /report/blocks_sorted; peak live blocks \
        /report/peak_live_blocks; kernel seconds /report/kernel_seconds; findings \
        /report/findings_total";
    let row = |run: &StressRun| {
        let rate = run.report.as_ref()?.pairs_per_second;
        Some(Row {
            name: format!("{}: {}", run.allocator, run.status),
            dots: vec![(0, Value::exact(rate))],
            target: None,
            text: Unit::PairsPerSecond.text(rate),
            is_marked: run.status != "clean",
        })
    };
    let rows: Vec<Row> = stress.runs.iter().filter_map(row).collect();
    let note = "checked pairs of an allocation and a free per second";
    Section {
        group: "stress",
        heading: "Runs",
        intro: html! {},
        cards: rows_cards("Rates", note, Unit::PairsPerSecond, &rows, &[]),
        tables: html! {
            (table("Values: all runs", &stress.runs, COLUMNS))
            @for run in &stress.runs { (details(run)) }
        },
    }
}

/// The end of a run, its findings, its checks, and the command that repeats it.
fn details(run: &StressRun) -> Markup {
    /// The most findings of a run in the page; the JSON has more.
    const LISTED: usize = 20;
    html! {
        h3 { (run.allocator.name()) ": " (run.status) }
        @if let Some(error) = &run.error { p.notice { (error) } }
        @if let Some(report) = &run.report {
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

/// Pools of the host: the time of a pair and of random allocations, for each pool.
pub fn pools(pools: &PoolBenchReport) -> Section {
    const PAIRS: &str = "figure /name; pool /pool; host threads /threads; pairs /pairs; median (ns) /ns/median; \
        fastest /ns/min; slowest /ns/max; slowest thread, median (ns) /slowest_ns/median; × driver \
        /driver_ratio; × driver's pool /driver_pool_ratio";
    const RANDOM: &str = "figure /name; pool /pool; allocations /allocations; seconds /seconds; a call (ns) \
        /call_ns; peak live bytes /peak_live_bytes; peak reserved bytes /peak_reserved_bytes; \
        failed /failed_allocations; × driver /driver_ratio; × driver's pool /driver_pool_ratio";
    const TARGETS: &str = "what /what; value /value; unit /unit; holds /holds; target /bar; met /met";
    let judged: Vec<_> = pools.judged().map(|(_, _, judged)| judged).collect();
    let of_pairs = pools.pairs.iter().map(|pair: &PairFigure| {
        let threads = if pair.threads == 1 {
            "one host thread".into()
        } else {
            format!("{} host threads", pair.threads)
        };
        let value = Value { value: pair.ns.median, range: (pair.ns.min, pair.ns.max) };
        (format!("{}, {threads}", pair.name), row(&pair.pool, value, &pair.comparison))
    });
    let of_random = pools.random.iter().map(|random: &RandomFigure| {
        (random.name.clone(), row(&random.pool, Value::exact(random.call_ns), &random.comparison))
    });
    let note = "time of a pair or a call; speedup over the driver's memory; ✗ a target is missed";
    let cards = grouped(of_pairs.chain(of_random), |(title, _)| title.clone()).into_iter().flat_map(
        |(title, rows)| {
            let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
            rows_cards(&title, note, Unit::Nanos, &rows, &[])
        },
    );
    Section {
        group: "pool",
        heading: "Times of pools",
        intro: html! {},
        cards: cards.collect(),
        tables: html! {
            (table("Values: pairs", &pools.pairs, PAIRS))
            (table("Values: random allocations", &pools.random, RANDOM))
            (table("Values: targets", &judged, TARGETS))
        },
    }
}

fn row(pool: &str, value: Value, comparison: &Comparison) -> Row {
    // The driver's memory, which pools are compared with, has another style.
    let style = if pool.starts_with("driver") { 5 } else { 0 };
    let is_missed = comparison.bars.iter().any(|bar| !bar.met);
    let ratio = comparison.driver_ratio.map(|ratio| format!(", {}", Unit::Ratio.text(ratio)));
    let met = if is_missed { " ✗" } else { "" };
    Row {
        name: pool.to_owned(),
        dots: vec![(style, value)],
        target: None,
        text: format!("{}{}{met}", Unit::Nanos.text(value.value), ratio.unwrap_or_default()),
        is_marked: is_missed,
    }
}
