//! `warpheap pool replay`: replays a log against pools, and prints them side by side.

use super::super::args::PoolReplayArgs;
use super::super::backend::choose_bare;
use super::super::console::Console;
use super::super::input;
use super::super::results::{watchdog, write_results};
use super::super::status::{Failure, Status};
use super::pools;
use crate::report::human::{BinaryBytes, Count, Seconds};
use crate::report::table::Summary;
use serde::Serialize;
use std::path::Path;
use warpheap_harness::pool_tools::replay::{
    Findings, Hosts, ReplayConfig, ReplayReport, Trace, TraceSummary, replay,
};

/// The kept results of a run.
#[derive(Serialize)]
struct Results<'a> {
    trace: &'a TraceSummary,
    bytes: Option<u64>,
    threads: usize,
    pools: &'a [ReplayReport],
}

const ADVICE: &str = "If it was only slow, allow more time with --watchdog, or replay a part of the log.";

/// Replays the log against the selected pools. A misbehaving pool is a fault.
pub fn run(args: PoolReplayArgs, console: &Console) -> Result<Status, Failure> {
    let pools = pools(&args.pool)?;
    let trace = read(&args.trace)?;
    let chosen = choose_bare(args.device)?;
    console.say(format_args!("warpheap pool replay of {}", input::name(&args.trace)));
    chosen.say(console)?;
    tell_trace(trace.summary(), console);
    let config = ReplayConfig { bytes: args.bytes, hosts: args.threads.into() };
    let mut reports = Vec::new();
    for kind in pools {
        let what = format!("replaying against the pool {}", kind.name);
        let _watchdog = watchdog(args.output.watchdog, what, ADVICE);
        reports.push(replay(&chosen.device, kind, &trace, config)?);
    }
    let status = conclude(&reports, console);
    let threads = if config.hosts == Hosts::One { 1 } else { trace.summary().threads };
    let data = Results { trace: trace.summary(), bytes: args.bytes, threads, pools: &reports };
    let info = chosen.device.info()?;
    write_results(args.output.json.as_ref(), "pool-replay", Some(&info), None, data, console)?;
    Ok(status)
}

fn read(path: &Path) -> Result<Trace, Failure> {
    let named = |why| Failure::usage(format_args!("{}: {why}", input::name(path)));
    Trace::read(input::log(path)?).map_err(named)
}

fn tell_trace(trace: &TraceSummary, console: &Console) {
    console.say(format_args!(
        "  log      {} rows in {}: {} allocations and {} frees by {} threads on {} streams, {} live at most",
        Count(trace.rows),
        Seconds(trace.seconds),
        Count(trace.allocations),
        Count(trace.frees),
        trace.threads,
        trace.streams,
        BinaryBytes(trace.peak_live_bytes)
    ));
    if trace.failures + trace.empty > 0 {
        console.say(format_args!(
            "  not replayed: {} calls that failed, {} of zero bytes",
            Count(trace.failures),
            Count(trace.empty)
        ));
    }
    tell("frees of blocks that are not live, not replayed", &trace.unmatched_frees, console);
    tell("frees with another size, replayed with the allocated size", &trace.other_sizes, console);
    tell("allocations of an address that is live, replayed", &trace.allocated_twice, console);
    tell("leaks, freed after the last call", &trace.leaks, console);
}

fn tell(what: &str, findings: &Findings, console: &Console) {
    if findings.count == 0 {
        return;
    }
    let (count, bytes) = (Count(findings.count), BinaryBytes(findings.bytes));
    console.say(format_args!("  {what}: {count}, of {bytes}"));
    findings
        .first
        .iter()
        .for_each(|found| console.say(format_args!("    line {}: {}", found.line, found.what)));
    if findings.count > findings.first.len() as u64 {
        console.say(format_args!("    and {} more", Count(findings.count - findings.first.len() as u64)));
    }
}

const HEADINGS: [&str; 10] = [
    "pool",
    "calls",
    "in the pool",
    "median",
    "p99",
    "peak live",
    "peak used",
    "peak reserved",
    "fragmentation",
    "failed",
];

fn conclude(reports: &[ReplayReport], console: &Console) -> Status {
    let mut table = Summary::new(&HEADINGS, console.is_terminal());
    reports.iter().filter(|report| report.error.is_none()).for_each(|report| table.row(row(report)));
    console.say(format_args!("\n{}\n", table.render()));
    if let Some(report) = reports.first() {
        console.say(format_args!("each time includes {:.0} ns for the clock", report.clock_ns));
    }
    for report in reports {
        tell_failures(report, console);
    }
    if reports.iter().all(ReplayReport::is_clean) { Status::Clean } else { Status::Fault }
}

fn tell_failures(report: &ReplayReport, console: &Console) {
    let pool = report.pool;
    if let Some(error) = &report.error {
        console.say(format_args!("WRONG: {pool}: {error}"));
    }
    if let Some(first) = &report.failed_allocations.first {
        let (count, left_out) = (Count(report.failed_allocations.count), Count(report.frees_left_out));
        console.say(format_args!(
            "{pool}: {count} allocations failed, and {left_out} frees left out; the first: {first}"
        ));
    }
    if let Some(first) = &report.failed_frees.first {
        let count = Count(report.failed_frees.count);
        console.say(format_args!("WRONG: {pool}: {count} frees failed; the first: {first}"));
    }
    if report.used_at_end_bytes > 0 {
        let bytes = BinaryBytes(report.used_at_end_bytes);
        console.say(format_args!("WRONG: {pool}: {bytes} are in use after all blocks were freed"));
    }
}

fn row(report: &ReplayReport) -> Vec<String> {
    let bytes = |bytes| BinaryBytes(bytes).to_string();
    vec![
        report.pool.into(),
        Count(report.operations).to_string(),
        Seconds(report.seconds).to_string(),
        format!("{:.0} ns", report.call_ns.median),
        format!("{:.0} ns", report.call_ns.p99),
        bytes(report.peak_live_bytes),
        bytes(report.peak_used_bytes),
        bytes(report.peak_reserved_bytes),
        format!("{:.1} %", 100.0 * report.fragmentation),
        Count(report.failed_allocations.count).to_string(),
    ]
}
