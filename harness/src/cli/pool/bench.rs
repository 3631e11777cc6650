//! `warpheap pool bench`: measures pools, and prints each next to the driver and its targets.

use super::super::args::PoolBenchArgs;
use super::super::backend::choose_bare;
use super::super::bench::end;
use super::super::console::Console;
use super::super::report::{old, report_run};
use super::super::results::{watchdog, write_results};
use super::super::status::{Failure, Status};
use super::{choose_named, pools};
use crate::report::human::{BinaryBytes, Count, Seconds, Si};
use crate::report::table::Summary;
use warpheap::{Backend, DeviceInfo};
use warpheap_harness::bench::Bar;
use warpheap_harness::pool_tools::bench::{
    self, Judged, PairFigure, PoolBenchConfig, PoolBenchReport, RandomFigure,
};
use warpheap_harness::pool_tools::{DRIVER, PoolKind};

const ADVICE: &str =
    "If it was only slow, allow more time with --watchdog, or use fewer --rounds or --allocations.";

/// Measures the selected pools. A missed target is a fault if it applies to the pool.
pub fn run(args: PoolBenchArgs, console: &Console) -> Result<Status, Failure> {
    let pools = with_driver(pools(&args.pool)?);
    let figures = bench::names().map(|name| (name, ()));
    choose_named(figures, &args.figure, "figure", |name| name.contains(&args.figure))?;
    let old = old(&args.compare, "pool-bench")?;
    let chosen = choose_bare(args.device)?;
    let info = chosen.device.info()?;
    old.iter().try_for_each(|old| old.check_device(&info.name)).map_err(Failure::usage)?;
    let config = config(&args, pools, &info)?;
    console.say(format_args!("warpheap pool bench, the median of {} rounds of each pair", config.rounds));
    chosen.say(console)?;
    tell_limits(&config, &info, console);
    let arm = |what: String| watchdog(args.output.watchdog, what, ADVICE);
    let mut armed = arm("setting up".into());
    let report = bench::run(&chosen.device, &config, &mut |figure| {
        tracing::info!(figure, "measuring");
        armed = arm(format!("measuring ({figure})"));
    })?;
    drop(armed);
    let status = conclude(&report, console);
    let json = args.output.json.as_ref();
    let results = write_results(json, "pool-bench", Some(&info), None, report, console)?;
    report_run(results, status, args.page.html.as_ref(), old.as_ref(), console)
}

/// Puts the driver's memory, the baseline of all comparisons, first.
fn with_driver(pools: Vec<&'static PoolKind>) -> Vec<&'static PoolKind> {
    let others = pools.into_iter().filter(|kind| kind.name != DRIVER);
    PoolKind::find(DRIVER).into_iter().chain(others).collect()
}

fn config(
    args: &PoolBenchArgs,
    pools: Vec<&'static PoolKind>,
    info: &DeviceInfo,
) -> Result<PoolBenchConfig, Failure> {
    let only = (args.figure != "all").then(|| args.figure.clone());
    let defaults = PoolBenchConfig::for_device(info);
    let config = PoolBenchConfig {
        pools,
        only,
        rounds: args.rounds,
        threads: args.threads,
        allocations: args.allocations.unwrap_or(defaults.allocations),
        cap_bytes: args.cap.unwrap_or(defaults.cap_bytes),
        seed: args.seed,
    };
    config.check()?;
    Ok(config)
}

fn tell_limits(config: &PoolBenchConfig, info: &DeviceInfo, console: &Console) {
    let told = |allocations: u32, cap| {
        format!("{} allocations, at most {} live", Count(allocations.into()), BinaryBytes(cap))
    };
    let (ours, rmms) = (told(config.allocations, config.cap_bytes), told(bench::ALLOCATIONS, bench::CAP));
    let differs = if ours == rmms { String::new() } else { format!("; RMM's benchmark has {rmms}") };
    console.say(format_args!("  random   {ours}{differs}"));
    if info.backend == Backend::Cpu {
        console.say("  on the CPU the driver's memory is the program's own heap: the targets do not apply");
    }
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    if config.threads as usize > processors {
        let threads = config.threads;
        console.say(format_args!(
            "  {threads} host threads on {processors} processors: times include waits for a processor"
        ));
    }
}

const PAIRS: [&str; 8] = [
    "figure",
    "pool",
    "host threads",
    "a pair",
    "slowest thread",
    "against the driver",
    "its pool",
    "targets",
];
const RANDOM: [&str; 10] = [
    "figure",
    "pool",
    "time",
    "a call",
    "against the driver",
    "its pool",
    "peak live",
    "peak reserved",
    "failed",
    "targets",
];

fn conclude(report: &PoolBenchReport, console: &Console) -> Status {
    let mut pairs = Summary::new(&PAIRS, console.is_terminal());
    report.pairs.iter().for_each(|figure| pairs.row(pair(figure)));
    if !report.pairs.is_empty() {
        console.say(format_args!("\n{}", pairs.render()));
    }
    let mut table = Summary::new(&RANDOM, console.is_terminal());
    report.random.iter().for_each(|figure| table.row(random(figure)));
    if !report.random.is_empty() {
        console.say(format_args!("\n{}", table.render()));
    }
    console.say("");
    let held: Vec<_> = report.judged().filter(|(_, counts, _)| *counts).collect();
    let met = held.iter().filter(|(_, _, judged)| judged.met).count();
    let summary = match held.len() {
        0 => "no target applies to these pools".to_owned(),
        all => format!("{met} of {all} targets are met"),
    };
    end(&report.left_out, &report.wrong, Some(summary), met == held.len(), console)
}

fn pair(figure: &PairFigure) -> Vec<String> {
    vec![
        figure.name.to_string(),
        figure.pool.to_string(),
        figure.threads.to_string(),
        nanos(figure.ns.median),
        nanos(figure.slowest_ns.median),
        times(figure.comparison.driver_ratio),
        times(figure.comparison.driver_pool_ratio),
        bars(&figure.comparison.bars),
    ]
}

fn random(figure: &RandomFigure) -> Vec<String> {
    vec![
        figure.name.clone(),
        figure.pool.to_string(),
        Seconds(figure.seconds).to_string(),
        nanos(figure.call_ns),
        times(figure.comparison.driver_ratio),
        times(figure.comparison.driver_pool_ratio),
        BinaryBytes(figure.peak_live_bytes).to_string(),
        format!("{} ({:.2} x)", BinaryBytes(figure.peak_reserved_bytes), figure.reserved_ratio),
        Count(figure.failed_allocations).to_string(),
        bars(&figure.comparison.bars),
    ]
}

fn nanos(nanos: f64) -> String {
    if nanos < 10_000.0 { format!("{nanos:.0} ns") } else { Seconds(nanos / 1e9).to_string() }
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{} x", Si(ratio)))
}

/// `<= 100 ns met, >= 1.00 k x MISSED`
fn bars(bars: &[Judged]) -> String {
    let word = |judged: &Judged| {
        let sign = if judged.holds == Bar::AtMost { "<=" } else { ">=" };
        let met = if judged.met { "met" } else { "MISSED" };
        format!("{sign} {} {} {met}", judged.bar, judged.unit)
    };
    bars.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_comes_first_and_once() {
        for name in ["all", "driver", "blocks"] {
            let pools = with_driver(pools(name).unwrap_or_else(|error| panic!("{}", error.message)));
            assert_eq!(pools[0].name, DRIVER);
            assert_eq!(pools.iter().filter(|kind| kind.name == DRIVER).count(), 1);
            assert!(name == "all" || name == "driver" || pools[1].name == name && pools.len() == 2);
        }
    }

    #[test]
    fn bars_say_whether_they_are_met() {
        let judged = Judged::at_most("a pair", 90.0, "ns", 100.0);
        let ratio = Judged::at_least("a pair", 1.0, "x", 1.15);
        assert_eq!(bars(&[judged, ratio]), "<= 100 ns met, >= 1.15 x MISSED");
        assert_eq!((nanos(99.6), nanos(123_456.0)), ("100 ns".into(), "123.46 us".into()));
    }
}
