//! `warpheap bench`: measures each figure and prints it next to its floor and its target, or runs a
//! suite and prints its tables.

use super::args::{BackendChoice, BenchArgs};
use super::backend::{Chosen, choose};
use super::console::Console;
use super::report::{old, report_run};
use super::results::{watchdog, write_results};
use super::status::{Failure, Status};
use crate::report::human::{BinaryBytes, Count, Seconds, Si};
use crate::report::table::Summary;
use warpheap_harness::bench::suite::{Drift, HeapLoad, Point, Series, Suite, SuiteReport};
use warpheap_harness::bench::{self, Bar, BenchReport, Comparison, Figure, Timing};

const ADVICE: &str = "If it was only slow, allow more time with --watchdog, or use fewer --rounds.";

/// Measures the selected figures, or runs a suite. A missed target is a fault; a target of a suite
/// that was not measured is a failure.
pub fn run(args: BenchArgs, console: &Console) -> Result<Status, Failure> {
    let config = args.config();
    let kernels = bench::kernels(&config);
    if args.launch.device.backend == BackendChoice::Cpu {
        reject_cpu(config.suite)?;
    }
    if kernels.is_empty() {
        let figure = &args.figure;
        return Err(Failure::usage(format_args!(
            "there is no figure `{figure}`; leave --figure out to measure all but the heap's, or use --figure heap"
        )));
    }
    let old = old(&args.compare, "bench")?;
    let chosen = match config.suite {
        Some(Suite::Quick | Suite::Load) => choose(args.launch, None, &kernels)?,
        Some(Suite::Full) | None => Chosen::cuda(args.launch, &kernels)?,
    };
    let info = chosen.device.info()?;
    old.iter().try_for_each(|old| old.check_device(&info.name)).map_err(Failure::usage)?;
    match config.suite {
        Some(suite) => console.say(format_args!("warpheap bench, the suite `{}`", suite.name())),
        None => {
            let rounds = config.rounds.unwrap_or(bench::ROUNDS);
            console.say(format_args!("warpheap bench, the median of {rounds} rounds of each figure"));
        }
    }
    chosen.say(None, console)?;
    let arm = |what: &str| watchdog(args.output.watchdog, format!("measuring ({what})"), ADVICE);
    let mut armed = arm("setting up");
    let report = bench::run(&chosen.device, &chosen.own, &config, &mut |what| {
        tracing::info!(what, "measuring");
        armed = arm(what);
    })?;
    drop(armed);
    print(&report, console);
    let status = conclude(&report.bench, console);
    let json = args.output.json.as_ref();
    // Asked again: the free memory is that when the result is written.
    let info = chosen.device.info()?;
    let results = write_results(json, "bench", Some(&info), chosen.kernels(), report, console)?;
    report_run(results, status, args.page.html.as_ref(), old.as_ref(), console)
}

/// The CPU measures no figures, and does not run the full suite.
fn reject_cpu(suite: Option<Suite>) -> Result<(), Failure> {
    match suite {
        None => Err(Failure::usage(
            "figures are measured on a GPU; use --backend cuda, or --suite quick on the CPU",
        )),
        Some(Suite::Full) => {
            Err(Failure::usage("the full suite requires a GPU; use --suite quick on the CPU"))
        }
        Some(Suite::Quick | Suite::Load) => Ok(()),
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
    loads(report, console);
    console.say("");
}

/// A row for each value of the variable, and a column for each allocator.
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

/// Prints a table for each heap and range of sizes, and for each drift.
fn loads(report: &SuiteReport, console: &Console) {
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

const LOAD: [&str; 9] =
    ["load", "blocks", "fill: first kernel", "all", "failed", "turn: first", "median", "worst", "failed"];

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
    let headings =
        ["size", "requests", "granted", "failed", "of these wrongly", "", "never granted", "of the goal"];
    let mut table = Summary::new(&headings, for_terminal);
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

const HEADINGS: [&str; 8] = ["figure", "threads", "time", "against", "its time", "value", "target", ""];

/// Prints the figures, what was left out, and what was wrong.
fn conclude(report: &BenchReport, console: &Console) -> Status {
    let (all, mut summary) = (report.figures.len(), None);
    let passed = report.figures.iter().filter(|figure| figure.passed).count();
    if all > 0 {
        console.say(format_args!("{}\n", figures(report, console.is_terminal())));
        summary = Some(format!("{passed} of {all} figures meet their targets"));
    }
    end(&report.left_out, &report.wrong, summary, passed == all, console)
}

/// Prints what was left out, what was wrong, and the summary. Returns the status of the run.
pub fn end(
    left_out: &[String],
    wrong: &[String],
    summary: Option<String>,
    is_met: bool,
    console: &Console,
) -> Status {
    left_out.iter().for_each(|what| console.say(format_args!("left out: {what}")));
    wrong.iter().for_each(|what| console.say(format_args!("WRONG: {what}")));
    summary.iter().for_each(|summary| console.say(summary));
    match is_met {
        _ if !wrong.is_empty() => Status::Failed,
        true => Status::Clean,
        false => Status::Fault,
    }
}

fn figures(report: &BenchReport, for_terminal: bool) -> String {
    let mut table = Summary::new(&HEADINGS, for_terminal);
    for figure in &report.figures {
        table.row(row(figure));
        figure.also.iter().for_each(|also| table.row(row_beside(also)));
    }
    table.render()
}

fn row(figure: &Figure) -> Vec<String> {
    let sign = match figure.holds {
        Bar::AtMost => "<=",
        Bar::AtLeast => ">=",
    };
    vec![
        figure.name.clone(),
        if figure.threads == 0 { String::new() } else { Count(figure.threads.into()).to_string() },
        figure.time.map_or_else(String::new, seconds),
        figure.against.clone(),
        figure.base.map_or_else(String::new, seconds),
        figure.value.map_or("not measured".into(), |value| format!("{} {}", Si(value), figure.unit)),
        format!("{sign} {}", Si(figure.bar)),
        if figure.passed { "pass" } else { "MISS" }.into(),
    ]
}

/// The row below a figure: its additional comparison.
fn row_beside(also: &Comparison) -> Vec<String> {
    let value = format!("{} x", Si(also.value));
    let [name, threads, time] = ["  also", "", ""].map(String::from);
    vec![name, threads, time, also.against.clone(), seconds(also.base), value, String::new(), String::new()]
}

fn seconds(time: Timing) -> String {
    Seconds(time.median_us / 1e6).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_heading() {
        let base = Timing { median_us: 95.0, min_us: 90.0, max_us: 99.0 };
        let also = Comparison { against: "another".into(), base, value: 2.0 };
        let mut figure = Figure::ratio("heap init", 0, base, "the host's clock", base, 2.0);
        figure.base = None;
        let cells = row(&figure);
        assert_eq!((cells.len(), row_beside(&also).len()), (HEADINGS.len(), HEADINGS.len()));
        assert_eq!([&cells[1], &cells[4], &cells[7]], ["", "", "pass"]);
    }
}
