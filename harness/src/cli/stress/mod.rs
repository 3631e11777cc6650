//! `warpheap stress`: configures the harness, watches it, and reports the result.
//!
//! `session` turns arguments into runs and makes them, `watch` monitors them, `text` prints their
//! results.

mod session;
mod text;
mod watch;

use super::args::StressArgs;
use super::backend::after_a_hang;
use super::console::Console;
use super::parse::Target;
use super::report::report_run;
use super::results::{write_results, write_target};
use super::status::{Failure, Status};
use crate::report::file;
use crate::report::results::StressResults;
use session::{Outcome, Session};
use watch::Watch;

/// Runs the selected stress runs and returns their worst status.
pub fn run(args: StressArgs, console: &Console) -> Result<Status, Failure> {
    if args.delays.as_ref().is_some_and(|points| *points == ["list"]) {
        text::points(console);
        return Ok(Status::Clean);
    }
    let session = Session::new(&args)?;
    let advice = after_a_hang(session.chosen.device.backend(), session.replay);
    let mut watch = Watch::new(*console, args.output.watchdog, advice, session.seed);
    text::opening(&session, console)?;
    let mut outcomes = Vec::new();
    for config in &session.configs {
        outcomes.push(session.run(config, &mut watch));
        // After a kernel fault the device runs nothing more.
        if outcomes.last().is_some_and(|outcome| outcome.run.report.is_none()) {
            break;
        }
    }
    watch.finish();
    let exit = text::closing(&session, &outcomes, console);
    if let Some(target) = &args.map {
        save_map(target, &outcomes, console)?;
    }
    let (replay, seed) = (session.replay, session.seed);
    let runs = outcomes.into_iter().map(|outcome| outcome.run).collect();
    let results = StressResults { exit_status: exit as u8, replay, seed, runs };
    let (info, kernels) = (session.chosen.device.info().ok(), session.chosen.kernels());
    let json = args.output.json.as_ref();
    let results = write_results(json, "stress", info.as_ref(), kernels, results, console)?;
    report_run(results, exit, args.page.html.as_ref(), None, console)
}

/// Fails if the arguments cannot be run.
#[cfg(test)]
pub fn validate(args: &StressArgs) -> Result<(), Failure> {
    Session::new(args).map(drop)
}

/// Writes the map of the heap. A run that crashed has none.
fn save_map(target: &Target, outcomes: &[Outcome], console: &Console) -> Result<(), Failure> {
    let reports = outcomes.iter().filter_map(|outcome| outcome.run.report.as_ref());
    let Some(map) = reports.into_iter().find_map(|report| report.map.as_ref()) else {
        console.warn("no map is saved: the run of the heap has no report");
        return Ok(());
    };
    write_target(target, "map", console, |mut to| file::print(&mut to, map))
}
