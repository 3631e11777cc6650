//! `warpheap bench --suite`: a table of times for each operation, durations of calls, collections.

use super::{conclude, load};
use crate::cli::args::{BackendChoice, BenchArgs};
use crate::cli::backend::{Chosen, choose};
use crate::cli::console::Console;
use crate::cli::report::{old, report_run};
use crate::cli::results::{watchdog, write_results};
use crate::cli::status::{Failure, Status};
use crate::report::human::{BinaryBytes, Count, Seconds, Si};
use crate::report::table::Summary;
use warpheap_harness::bench::suite::{self, Point, Series, Suite, SuiteConfig, SuiteReport};

const ADVICE: &str = "If it was only slow, allow more time with --watchdog, or use fewer --rounds.";

/// Runs a suite. A missed target is a fault; a target that was not measured is a failure.
pub fn run(suite: Suite, args: &BenchArgs, console: &Console) -> Result<Status, Failure> {
    let old = old(&args.compare, "bench")?;
    let chosen = device(suite, args)?;
    let name = chosen.device.info()?.name;
    old.iter().try_for_each(|old| old.check_device(&name)).map_err(Failure::usage)?;
    console.say(format_args!("warpheap bench, the suite `{}`", suite.name()));
    chosen.say(None, console)?;
    let arm = |what: &str| watchdog(args.output.watchdog, format!("measuring ({what})"), ADVICE);
    let mut armed = arm("setting up");
    let config = SuiteConfig { suite, rounds: args.rounds, heaps: args.heap.clone() };
    let report = suite::run(&chosen.device, &chosen.own, config, &mut |what| {
        tracing::info!(what, "measuring");
        armed = arm(what);
    })?;
    drop(armed);
    print(&report, console);
    let status = conclude(&report.bench, console);
    let info = chosen.device.info()?;
    let json = args.output.json.as_ref();
    let results = write_results(json, "bench", Some(&info), chosen.kernels(), report, console)?;
    report_run(results, status, args.page.html.as_ref(), old.as_ref(), console)
}

/// The device with the kernels. The CPU does not run the full suite.
fn device(suite: Suite, args: &BenchArgs) -> Result<Chosen, Failure> {
    let kernels = suite::kernels(suite);
    match (suite, args.launch.device.backend) {
        (Suite::Full, BackendChoice::Cpu) => {
            Err(Failure::usage("the full suite requires a GPU; use --suite quick on the CPU"))
        }
        (Suite::Full, _) => Chosen::cuda(args.launch, &kernels),
        (Suite::Quick | Suite::Load, _) => choose(args.launch, None, &kernels),
    }
}

fn print(report: &SuiteReport, console: &Console) {
    report.notes.iter().for_each(|note| console.say(format_args!("  note     {note}")));
    let times = if report.simulated { "simulated times" } else { "times" };
    // The series of one operation over one variable are adjacent.
    for group in report.series.chunk_by(|a, b| (&a.operation, &a.over) == (&b.operation, &b.over)) {
        let first = &group[0];
        let fixed = first.fixed.iter().map(|(name, value)| match &**name {
            "bytes" => format!(", {value} B"),
            _ => format!(", {} {name}", Count(*value)),
        });
        let fixed = fixed.collect::<String>();
        let Series { operation, over, .. } = first;
        let turns = if first.turns == 1 { String::new() } else { format!(", {} pairs each", first.turns) };
        console.say(format_args!("\n{times} of {operation} over {over}{fixed}{turns}"));
        console.say(times_of(group, console.is_terminal()));
    }
    if !report.latency.is_empty() {
        console.say(format_args!("\ndurations of single calls"));
        console.say(durations(report, console.is_terminal()));
    }
    if !report.collections.is_empty() {
        console.say(format_args!("\nRust's collections, one for each thread"));
        console.say(collections(report, console.is_terminal()));
    }
    load::print(report, console);
    console.say("");
}

/// A row for each value of the variable, and a column for each contender.
fn times_of(group: &[Series], for_terminal: bool) -> String {
    let headings: Vec<_> = std::iter::once("").chain(group.iter().map(|series| &*series.contender)).collect();
    let mut table = Summary::new(&headings, for_terminal);
    let mut values: Vec<u64> =
        group.iter().flat_map(|series| series.points.iter().map(|point| point.x)).collect();
    values.sort_unstable();
    values.dedup();
    for x in values {
        let name = match &*group[0].over {
            "bytes" => BinaryBytes(x).to_string(),
            _ => Count(x).to_string(),
        };
        let at =
            |series: &Series| series.points.iter().find(|point| point.x == x).map_or_else(String::new, time);
        table.row(std::iter::once(name).chain(group.iter().map(at)).collect());
    }
    table.render()
}

fn time(point: &Point) -> String {
    let failed = if point.failed == 0 { String::new() } else { format!(" ({} failed)", Count(point.failed)) };
    format!("{}{failed}", Seconds(point.median / 1e6))
}

fn durations(report: &SuiteReport, for_terminal: bool) -> String {
    let headings = ["", "threads", "calls", "failed", "p50", "p99", "p99.9", "max", "unit"];
    let mut table = Summary::new(&headings, for_terminal);
    for latency in &report.latency {
        let of = &latency.distribution;
        let numbers = [latency.threads.into(), of.calls, latency.failed, of.p50, of.p99, of.p999, of.max];
        let numbers = numbers.map(|number| Count(number).to_string());
        let row = std::iter::once(latency.name.clone()).chain(numbers).chain([latency.unit.to_string()]);
        table.row(row.collect());
    }
    table.render()
}

fn collections(report: &SuiteReport, for_terminal: bool) -> String {
    let mut table = Summary::new(&["", "threads", "heap", "CUDA malloc", "ratio"], for_terminal);
    for collection in &report.collections {
        table.row(vec![
            collection.name.to_string(),
            Count(collection.threads.into()).to_string(),
            Seconds(collection.heap_us / 1e6).to_string(),
            Seconds(collection.cuda_malloc_us / 1e6).to_string(),
            collection.ratio.map_or("not measured".into(), |ratio| format!("{} x", Si(ratio))),
        ]);
    }
    table.render()
}
