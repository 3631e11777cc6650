//! The tables of heaps over their load, and of drifts.

use crate::cli::console::Console;
use crate::report::human::{BinaryBytes, Count};
use crate::report::table::Summary;
use warpheap_harness::bench::suite::{Drift, HeapLoad, SuiteReport};

const LOAD: [&str; 9] =
    ["load", "blocks", "fill: first kernel", "all", "failed", "turn: first", "median", "worst", "failed"];
const DRIFT: [&str; 8] =
    ["size", "requests", "granted", "failed", "of these wrongly", "", "never granted", "of the goal"];

/// Prints a table for each heap and range of sizes, and for each drift.
pub fn print(report: &SuiteReport, console: &Console) {
    let simulated = if report.simulated { "simulated times" } else { "times" };
    for group in report.load.chunk_by(|a, b| key(a) == key(b)) {
        let (heap, of) = (BinaryBytes(group[0].heap_bytes), sizes(&group[0]));
        console.say(format_args!("\n{simulated} over the load of a heap of {heap}, {of}, ns per thread"));
        console.say(over_load(group, console.is_terminal()));
        say_contended(group.iter().map(|load| load.contended).sum(), console);
    }
    let run = |drift: &Drift| (drift.heap_bytes, drift.survivors, drift.threads);
    for group in report.drift.chunk_by(|a, b| run(a) == run(b)) {
        let Drift { heap_bytes, survivors, threads, .. } = group[0];
        let (heap, threads) = (BinaryBytes(heap_bytes), Count(threads.into()));
        let survivors = survivors.name();
        console.say(format_args!("\ndrift in a heap of {heap}, {survivors} survives, {threads} threads"));
        console.say(drift(group, console.is_terminal()));
        // The last one is the sum of all sizes.
        say_contended(group.last().map_or(0, |total| total.contended), console);
    }
}

fn say_contended(contended: u64, console: &Console) {
    if contended > 0 {
        let contended = Count(contended);
        console.say(format_args!(
            "{contended} failed allocations gave up without a proof that there was no memory"
        ));
    }
}

fn key(load: &HeapLoad) -> (u64, u32, u32) {
    (load.heap_bytes, load.min_bytes, load.max_bytes)
}

fn sizes(load: &HeapLoad) -> String {
    match (load.min_bytes, load.max_bytes) {
        (min, max) if min == max => format!("{min} B"),
        (min, max) => format!("{min}-{max} B"),
    }
}

fn over_load(group: &[HeapLoad], for_terminal: bool) -> String {
    let headings: Vec<_> = LOAD.into_iter().chain(["floor"]).collect();
    let mut table = Summary::new(&headings, for_terminal);
    for load in group {
        let (fill, turn) = (load.fill, load.turn);
        table.row(vec![
            format!("{} %", load.percent),
            Count(fill.requests).to_string(),
            nanos(fill.first_ns),
            nanos(fill.mean_ns),
            percent(fill.failed_percent),
            nanos(turn.first_ns),
            nanos(turn.median_ns),
            nanos(turn.worst_ns),
            percent(turn.failed_percent),
            nanos(load.floor_ns),
        ]);
    }
    table.render()
}

fn drift(group: &[Drift], for_terminal: bool) -> String {
    let mut table = Summary::new(&DRIFT, for_terminal);
    for drift in group {
        table.row(vec![
            drift.bytes.map_or("all".into(), |bytes| format!("{bytes} B")),
            Count(drift.requests).to_string(),
            Count(drift.granted).to_string(),
            Count(drift.failed).to_string(),
            Count(drift.wrong).to_string(),
            percent(drift.wrong_percent),
            BinaryBytes(drift.persistent_bytes).to_string(),
            percent(drift.persistent_percent),
        ]);
    }
    table.render()
}

fn nanos(time: f64) -> String {
    format!("{time:.2}")
}

fn percent(share: f64) -> String {
    format!("{share:.2} %")
}
