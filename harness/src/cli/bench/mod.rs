//! `warpheap bench`: measures each figure and prints it next to its floor and its target, or runs a
//! suite.

mod load;
mod suite;

use super::args::{BackendChoice, BenchArgs};
use super::backend::Chosen;
use super::console::Console;
use super::report::{old, report_run};
use super::results::{watchdog, write_results};
use super::status::{Failure, Status};
use crate::report::human::{Count, Seconds, Si};
use crate::report::table::Summary;
use warpheap_harness::bench::{self, Bar, BenchConfig, BenchReport, Comparison, Figure, Timing};

const ADVICE: &str = "If it was only slow, allow more time with --watchdog, or use fewer --rounds.";

/// Timed rounds of each figure.
const ROUNDS: u32 = 20;

/// Measures the selected figures, or runs a suite. A missed target is a fault.
pub fn run(args: BenchArgs, console: &Console) -> Result<Status, Failure> {
    if let Some(suite) = args.suite {
        return suite::run(suite, &args, console);
    }
    if args.launch.device.backend == BackendChoice::Cpu {
        return Err(Failure::usage(
            "figures are measured on a GPU; use --backend cuda, or --suite quick on the CPU",
        ));
    }
    let only = (args.figure != "all").then(|| args.figure.clone());
    let config = BenchConfig { rounds: args.rounds.unwrap_or(ROUNDS), only };
    let kernels = bench::kernels(&config);
    if kernels.is_empty() {
        let figure = &args.figure;
        return Err(Failure::usage(format_args!(
            "there is no figure `{figure}`; leave --figure out to measure all but the heap's, or use --figure heap"
        )));
    }
    let old = old(&args.compare, "bench")?;
    let chosen = Chosen::cuda(args.launch, &kernels)?;
    let name = chosen.device.info()?.name;
    old.iter().try_for_each(|old| old.check_device(&name)).map_err(Failure::usage)?;
    console.say(format_args!("warpheap bench, the median of {} rounds of each figure", config.rounds));
    console.say(format_args!("  device   {}\n", chosen.describe(None)?));
    let arm = |figure: &str| watchdog(args.output.watchdog, format!("measuring ({figure})"), ADVICE);
    let mut armed = arm("setting up");
    let report = bench::run(&chosen.device, &chosen.own, &config, &mut |figure| {
        tracing::info!(figure, "measuring");
        armed = arm(figure);
    })?;
    drop(armed);
    let status = conclude(&report, console);
    let info = chosen.device.info()?;
    let json = args.output.json.as_ref();
    let results = write_results(json, "bench", Some(&info), chosen.kernels(), report, console)?;
    report_run(results, status, args.page.html.as_ref(), old.as_ref(), console)
}

const HEADINGS: [&str; 8] = ["figure", "threads", "time", "against", "its time", "value", "target", ""];

/// Prints the figures, what was left out, and what was wrong.
fn conclude(report: &BenchReport, console: &Console) -> Status {
    if !report.figures.is_empty() {
        console.say(format_args!("{}\n", figures(report, console.is_terminal())));
    }
    for name in &report.left_out {
        console.say(format_args!("left out: {name}"));
    }
    for what in &report.wrong {
        console.say(format_args!("WRONG: {what}"));
    }
    let passed = report.figures.iter().filter(|figure| figure.passed).count();
    if !report.figures.is_empty() {
        console.say(format_args!("{passed} of {} figures meet their targets", report.figures.len()));
    }
    match passed == report.figures.len() {
        _ if !report.wrong.is_empty() => Status::Failed,
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
