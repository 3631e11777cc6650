//! The result of one run.

use super::super::status::{Failure, Status};
use super::session::Session;
use super::watch::Watch;
use crate::report::results::StressRun;
use warpheap_harness::stress::{StressConfig, stress};

/// The status of a run without a finding in which no delay took place.
pub const UNDELAYED: &str = "no thread was delayed";

/// Result of one run.
#[derive(Debug)]
pub struct Outcome {
    pub run: StressRun,
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
            let (status, report) = (status.into(), Some(report));
            Outcome { run: StressRun { allocator, status, error: None, report, reproduce }, exit }
        }
        Err(error) => {
            let Failure { status: exit, message } = error.into();
            let status = match exit {
                Status::Hung => "hung",
                Status::Fault => "crashed",
                _ => "failed",
            };
            let reproduce = session.reproduce(config, None);
            let (status, error) = (status.into(), Some(message));
            Outcome { run: StressRun { allocator, status, error, report: None, reproduce }, exit }
        }
    }
}
