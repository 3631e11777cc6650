//! `warpheap stress`: configures the harness, watches it, and reports the result.
//!
//! `session` turns arguments into runs, `watch` monitors them, `narrate` prints them.

mod narrate;
mod session;
mod watch;

use super::args::StressArgs;
use super::backend::after_a_hang;
use super::console::Console;
use super::parse::JsonTarget;
use super::status::{Failure, Status};
use crate::report;
use crate::report::provenance::ResultFile;
use serde::Serialize;
use session::Session;
use warpheap_harness::stress::{AllocatorKind, StressConfig, StressReport, stress};
use watch::Watch;

/// Result of one run.
#[derive(Debug, Serialize)]
struct Outcome {
    allocator: AllocatorKind,
    /// `clean`, `fault`, or another end.
    status: &'static str,
    /// Why the run has no report.
    error: Option<String>,
    report: Option<StressReport>,
    /// The command that repeats the run, up to the first fault.
    reproduce: String,
    #[serde(skip)]
    exit: Status,
}

/// The kept results of all runs.
#[derive(Debug, Serialize)]
struct StressResults<'a> {
    /// The worst status of the runs, which is the exit status.
    exit_status: u8,
    /// Whether the seed determined the interleaving, too.
    replay: bool,
    seed: u64,
    runs: &'a [Outcome],
}

/// Runs the selected stress runs and returns their worst status.
pub fn run(args: StressArgs, console: &Console) -> Result<Status, Failure> {
    check_target(args.json.as_ref())?;
    let session = Session::new(&args)?;
    let advice = after_a_hang(session.chosen.device.backend(), session.replay);
    let mut watch = Watch::new(*console, args.watchdog, advice, session.seed);
    narrate::opening(&session, console)?;
    let mut outcomes = Vec::new();
    for config in &session.configs {
        outcomes.push(one_run(&session, config, &mut watch));
        // After a kernel fault the device runs nothing more.
        if outcomes.last().is_some_and(|outcome| outcome.report.is_none()) {
            break;
        }
    }
    watch.finish();
    let exit = narrate::closing(&session, &outcomes, console);
    if let Some(target) = &args.json {
        let results = StressResults {
            exit_status: exit as u8,
            replay: session.replay,
            seed: session.seed,
            runs: &outcomes,
        };
        let info = session.chosen.device.info();
        let file = ResultFile::new("stress", info.as_ref().ok(), session.chosen.kernels(), results);
        write_results(target, &file, console)?;
    }
    Ok(exit)
}

fn one_run(session: &Session, config: &StressConfig, watch: &mut Watch) -> Outcome {
    let allocator = config.allocator;
    watch.start(config, &session.reproduce(config, None));
    let chosen = &session.chosen;
    let result = stress(&chosen.device, &chosen.own, config, &mut |progress| watch.update(progress));
    watch.stop();
    match result {
        Ok(report) => {
            let (status, exit) = match (report.is_clean(), config.plant) {
                (true, None) => ("clean", Status::Clean),
                (true, Some(_)) => ("planted fault missed", Status::Failed),
                (false, _) => ("fault", Status::Fault),
            };
            let reproduce = session.reproduce(config, Some(&report));
            Outcome { allocator, status, error: None, report: Some(report), reproduce, exit }
        }
        Err(error) => {
            let Failure { status: exit, message } = error.into();
            let status = match exit {
                Status::Hung => "hung",
                Status::Fault => "crashed",
                _ => "failed",
            };
            let reproduce = session.reproduce(config, None);
            Outcome { allocator, status, error: Some(message), report: None, reproduce, exit }
        }
    }
}

/// Fails before the run if its results cannot be written after it.
pub(super) fn check_target(target: Option<&JsonTarget>) -> Result<(), Failure> {
    match target {
        Some(JsonTarget::File(path)) => report::file::check(path).map_err(Failure::usage),
        _ => Ok(()),
    }
}

/// Writes results to the requested target.
pub(super) fn write_results(
    target: &JsonTarget,
    results: &impl Serialize,
    console: &Console,
) -> Result<(), Failure> {
    let failed = |message| Failure { status: Status::Failed, message };
    match target {
        JsonTarget::Stdout => report::file::print(&mut std::io::stdout().lock(), results)
            .map_err(|error| failed(format!("cannot write results to standard output: {error}"))),
        JsonTarget::File(path) => {
            report::file::write(path, results).map_err(|error| failed(error.to_string()))?;
            console.say(format_args!("results: {}", path.display()));
            Ok(())
        }
    }
}
