//! The result of one run.

use super::super::status::{Failure, Status};
use super::session::Session;
use super::watch::Watch;
use serde::Serialize;
use warpheap_harness::stress::{AllocatorKind, StressConfig, StressReport, stress};

/// The status of a run without a finding in which no delay took place.
pub const UNDELAYED: &str = "no thread was delayed";

/// Result of one run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub allocator: AllocatorKind,
    /// `clean`, `fault`, or another end.
    pub status: &'static str,
    /// Why the run has no report.
    pub error: Option<String>,
    pub report: Option<StressReport>,
    /// The command that repeats the run, up to the first fault.
    pub reproduce: String,
    #[serde(skip)]
    pub exit: Status,
}

/// Runs `config`.
pub fn outcome_of(session: &Session, config: &StressConfig, watch: &mut Watch) -> Outcome {
    let allocator = config.allocator;
    watch.start(config, &session.reproduce(config, None));
    let chosen = &session.chosen;
    let result = stress(&chosen.device, &chosen.own, config, &mut |progress| watch.update(progress));
    watch.stop();
    match result {
        Ok(report) => {
            let delayed = report.delays.as_ref().is_none_or(|delays| delays.total > 0);
            let (status, exit) = match (report.is_clean(), config.plant) {
                (true, None) if delayed => ("clean", Status::Clean),
                (true, None) => (UNDELAYED, Status::Failed),
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
