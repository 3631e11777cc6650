//! The text of a run: its settings, figures and result.

use super::super::console::Console;
use super::super::parse::Sizes;
use super::super::status::{Failure, Status};
use super::session::{Outcome, Session, UNDELAYED};
use crate::report::human::{BinaryBytes, Count, Seconds, Si};
use crate::report::results::StressRun;
use crate::report::table::Summary;
use clap::ValueEnum;
use warpheap::simt::Mode;
use warpheap_harness::stress::{AllocatorKind, DelayReport, Limit, SizeMix, StressReport};

/// Maximum number of printed findings per run.
const PRINTED: usize = 5;

/// Prints the points at which threads can be delayed.
pub fn points(console: &Console) {
    for kind in AllocatorKind::ALL {
        let points: Vec<_> = kind.points().collect();
        console.say(format_args!("{kind}: {}", points.join(", ")));
    }
}

/// Prints the settings before the first run.
pub fn opening(session: &Session, console: &Console) -> Result<(), Failure> {
    let Some(config) = session.configs.first() else { return Ok(()) };
    let names: Vec<_> = session.configs.iter().map(|config| config.allocator.name()).collect();
    let mode = session.replay.then_some(Mode::Replay { seed: session.seed });
    console.say(format_args!("warpheap stress of {}, seed {}", joined(&names), session.seed));
    session.chosen.say(mode, console)?;
    let (threads, streams) = (Count(config.threads.into()), config.streams);
    let shared = if streams == 1 { "" } else { "; all share one pool" };
    console.say(format_args!("  threads  {threads} GPU threads in each of {streams} streams{shared}"));
    console.say(format_args!("  work     {}", described(config.workload)));
    let mix = match config.mix {
        SizeMix::Powers => ", powers of two",
        SizeMix::MostlySmall => ", most of them from the lowest sixteenth",
        _ => "",
    };
    console.say(format_args!("  sizes    {} bytes{mix}", Sizes(config.sizes.clone())));
    console.say(match config.limit {
        Limit::Rounds(rounds) => format!("  length   {rounds} rounds of each allocator"),
        Limit::Time(time) => format!("  length   {} s of each allocator", time.as_secs_f64()),
        Limit::Pairs(pairs) => {
            format!("  length   {} pairs of alloc and free of each allocator", Count(pairs))
        }
    });
    if let Some(plant) = config.plant {
        console.say(format_args!("  planted  {}", described(plant)));
    }
    for (kind, why) in &session.left_out {
        console.say(format_args!("           {kind} is left out: {why}"));
    }
    if let Some(delays) = &config.delays {
        let points: Vec<_> = session.points.iter().map(String::as_str).collect();
        let time = if session.replay { "2,000 to 20,000 steps" } else { "20 to 200 us" };
        console.say(format_args!(
            "  delays   {}: one thread in {} waits {time}",
            joined(&points),
            delays.one_in
        ));
    }
    console.say(
        "Each thread allocates in a kernel, fills its block with a pattern, reads it again and frees it. Each\n\
         allocation claims its memory on the device; a claim of memory that is already claimed is an overlap.\n",
    );
    Ok(())
}

/// A value and its help text: `name: what it is`.
fn described(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("every value has a name");
    let help = value.get_help().map(ToString::to_string).unwrap_or_default();
    format!("{}: {help}", value.get_name())
}

/// `a`, `a and b`, `a, b and c`.
fn joined(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Prints the figures and the result. Returns the worst status.
pub fn closing(session: &Session, outcomes: &[Outcome], console: &Console) -> Status {
    let reports: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.run.report.as_ref()).collect();
    if !reports.is_empty() {
        console.say(format_args!("{}\n", summary(&reports, console.is_terminal())));
    }
    for report in &reports {
        if let Some(delays) = &report.delays {
            console.say(format_args!("{}\n", delays_by_point(&report.allocator, delays)));
        }
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.exit != Status::Clean) {
        complain(session, &outcome.run, console);
    }
    let worst = outcomes.iter().map(|outcome| outcome.exit).max_by_key(|status| *status as u8);
    let worst = worst.unwrap_or(Status::Clean);
    match session.configs.first().and_then(|config| config.plant) {
        None if worst == Status::Clean => console.say(clean_result(&reports)),
        Some(plant) if worst == Status::Fault => {
            console.say(format_args!("detected: the injected fault {plant}, as expected; exit status 1"));
        }
        _ => {}
    }
    worst
}

/// The table of figures, with one column per run.
fn summary(reports: &[&StressReport], for_terminal: bool) -> String {
    let names = reports.iter().map(|report| &*report.allocator);
    let headings: Vec<_> = [""].into_iter().chain(names).collect();
    let mut table = Summary::new(&headings, for_terminal);
    let mut row = |name: &str, value: &dyn Fn(&StressReport) -> String| {
        table.row([name.to_owned()].into_iter().chain(reports.iter().map(|report| value(report))).collect());
    };
    row("rounds", &|r| Count(r.rounds).to_string());
    row("pool", &|r| BinaryBytes(r.pool_bytes).to_string());
    row("allocations, each checked on the device", &|r| Count(r.allocations).to_string());
    row("frees", &|r| Count(r.frees).to_string());
    if reports.iter().any(|report| report.crossed_warps > 0) {
        row("of those, by another running warp", &|r| Count(r.crossed_warps).to_string());
        row("of those, by a kernel of another stream", &|r| Count(r.crossed_kernels).to_string());
    }
    row("failed allocations (out of memory)", &|r| Count(r.failed_allocations).to_string());
    if reports.iter().any(|report| report.contended_failures.is_some()) {
        row("contended failures", &|r| r.contended_failures.map_or("-".into(), |n| Count(n).to_string()));
    }
    row("times the pool was exhausted", &|r| Count(r.exhaustions).to_string());
    row("peak live blocks at the end of a round", &|r| Count(r.peak_live_blocks).to_string());
    row("live blocks compared on the device", &|r| Count(r.blocks_checked).to_string());
    row("live blocks compared on the host", &|r| Count(r.blocks_sorted).to_string());
    row("bytes written and read again", &|r| BinaryBytes(r.bytes_written).to_string());
    row("pairs of alloc and free per second", &|r| Si(r.pairs_per_second).to_string());
    row("compared on the device per second", &|r| Si(r.checked_per_second).to_string());
    row("time in kernels", &|r| Seconds(r.kernel_seconds).to_string());
    row("total time", &|r| Seconds(r.elapsed_seconds).to_string());
    row("blocks lost", &|r| Count(r.lost_blocks).to_string());
    if reports.iter().any(|report| report.delays.is_some()) {
        row("delays of threads", &|r| Count(r.delays.as_ref().map_or(0, |delays| delays.total)).to_string());
    }
    row("faults", &|r| Count(r.findings_total).to_string());
    table.render()
}

/// The delays of a run at each point, and the points without any.
fn delays_by_point(allocator: &str, delays: &DelayReport) -> String {
    let (some, none): (Vec<_>, Vec<_>) = delays.points.iter().partition(|(_, count)| **count > 0);
    let some: Vec<_> = some.iter().map(|(name, count)| format!("{name} {}", Count(**count))).collect();
    let none: Vec<_> = none.iter().map(|(name, _)| &***name).collect();
    let none = if none.is_empty() { String::new() } else { format!("; none at {}", none.join(", ")) };
    format!("Delays of {allocator}: {}{none}", if some.is_empty() { "0".into() } else { some.join(", ") })
}

/// Prints the findings of a run, and how to reproduce them.
fn complain(session: &Session, run: &StressRun, console: &Console) {
    let allocator = run.allocator;
    if let Some(error) = &run.error {
        console.say(format_args!("{}: {allocator}: {error}", run.status.to_uppercase()));
    }
    if let Some(report) = &run.report {
        if run.status == UNDELAYED {
            console.say(format_args!(
                "NOT DELAYED: {allocator}: no thread was delayed; use more threads or rounds, a smaller pool, other \
                 points, or a smaller --delay-one-in"
            ));
        } else if report.is_clean() {
            console.say(format_args!(
                "MISSED: {allocator}: the injected fault was not detected; run more rounds: if it \
                 is still not detected, the checks are broken"
            ));
        }
        for finding in report.findings.iter().take(PRINTED) {
            let stream = finding.stream.map(|stream| format!(", stream {stream}")).unwrap_or_default();
            let (kind, round) = (finding.kind, finding.round);
            console
                .say(format_args!("FAULT: {allocator}: {kind}, round {round}{stream}: {}", finding.message));
        }
        let more = report.findings_total.saturating_sub(PRINTED as u64);
        if more > 0 {
            console.say(format_args!("and {} more; --json FILE keeps up to 256", Count(more)));
        }
    }
    console.say(format_args!("  seed {}; to reproduce:\n    {}", session.seed, run.reproduce));
    if !session.replay {
        console.say(
            "  The seed determines the operations of the threads, but not their interleaving. Repeat the run if the\n  \
             fault does not recur, or use --replay, where the seed determines both.",
        );
    }
    console.say("");
}

/// What a clean run has checked.
fn clean_result(reports: &[&StressReport]) -> String {
    let sum = |part: fn(&StressReport) -> u64| Count(reports.iter().map(|report| part(report)).sum());
    let emptied = reports.iter().filter(|report| report.exhaustions > 0).map(emptied);
    let emptied: String = emptied.map(|what| format!("\nExhausted: {what}.")).collect();
    format!(
        "clean: 0 overlaps, 0 torn writes and 0 lost blocks in {} pairs of alloc and free.\n\
         Each of {} allocations was checked on the device. Between rounds, {} live blocks\n\
         were compared on the device, and {} on the host by sorting; both agreed. Every block held\n\
         what its owner had written, and none was lost.{emptied}",
        sum(|report| report.pairs),
        sum(|report| report.allocations),
        sum(|report| report.blocks_checked),
        sum(|report| report.blocks_sorted),
    )
}

/// What holds for a pool that was exhausted.
fn emptied(report: &&StressReport) -> &'static str {
    match &*report.allocator {
        "freelist" => "the free list had exactly its capacity",
        "heap" => "the heap had as many blocks of the largest size as when it was new",
        _ => "the arena had less than three of the largest blocks per multiprocessor left",
    }
}
