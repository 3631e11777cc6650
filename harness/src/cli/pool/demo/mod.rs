//! `warpheap pool demo`: shows the behaviour of the pools step by step, and checks every step.
//!
//! A demonstration is a file with its name, its purpose, the kernels that it launches and a
//! function that runs the steps on a [`Stage`]. An entry in [`DEMOS`] adds it to the program.

#[cfg(test)]
#[path = "../../../../tests/support/gate.rs"]
mod gate;
#[cfg(test)]
#[path = "../../../../tests/support/planted.rs"]
mod planted;
mod s1;
mod s2;
mod s3;
mod s4;
mod s5;
mod s6;
mod stage;

use super::super::args::{BackendChoice, PoolDemoArgs};
use super::super::backend::{Chosen, choose};
use super::super::console::Console;
use super::super::status::{Failure, Status};
use super::super::stress::{check_target, write_results};
use crate::report::human::Seconds;
use crate::report::provenance::ResultFile;
use serde::Serialize;
use stage::{Check, Stage};
use std::time::Instant;
use warpheap::Result;

/// A demonstration.
struct Demo {
    /// Its name on the command line.
    name: &'static str,
    /// Its purpose.
    shows: &'static str,
    /// The kernels that it launches. Any other launch is rejected.
    launched: &'static [&'static str],
    /// Runs the steps. An error ends the demonstration; a failed check does not.
    run: fn(&mut Stage<'_>) -> Result<()>,
}

/// All demonstrations, in the order in which they run.
static DEMOS: &[Demo] = &[s1::DEMO, s2::DEMO, s3::DEMO, s4::DEMO, s5::DEMO, s6::DEMO];

/// The kept result of one demonstration.
#[derive(Serialize)]
struct DemoReport {
    name: &'static str,
    shows: &'static str,
    checks: Vec<Check>,
    /// The error that ended it before its last step.
    error: Option<String>,
    /// Host time, including all checks.
    seconds: f64,
}

impl DemoReport {
    /// Number of failed checks.
    fn failed(&self) -> usize {
        self.checks.iter().filter(|check| !check.holds).count()
    }
}

const ADVICE: &str = "If it was only slow, allow more time with --watchdog.";

/// Runs the selected demonstrations. A failed check is a fault.
pub fn run(args: PoolDemoArgs, console: &Console) -> Result<Status, Failure> {
    check_target(args.run.json.as_ref())?;
    let demos = named(&args.which)?;
    if args.run.backend == BackendChoice::Cpu && (args.gpu.device.is_some() || args.gpu.kernels.is_some()) {
        let message = "--device and --kernels are for a GPU, but the run is to be on the CPU; leave them out";
        return Err(Failure::usage(message));
    }
    let kernels: Vec<_> = demos.iter().flat_map(|demo| demo.launched).copied().collect();
    let chosen = choose(args.run.backend, args.gpu, None, &kernels)?;
    console.say("warpheap pool demo");
    console.say(format_args!("  device   {}", chosen.describe(None)?));
    if let Some(why) = &chosen.why_not_cuda {
        console.say(format_args!("  not on a GPU: {why}"));
    }
    let mut reports = Vec::new();
    for demo in demos {
        let watchdog = super::arm(args.run.watchdog, &format!("the demonstration {}", demo.name), ADVICE);
        reports.push(show(demo, &chosen, console)?);
        drop(watchdog);
    }
    let status = conclude(&reports, console);
    if let Some(target) = &args.run.json {
        let info = chosen.device.info().ok();
        let file = ResultFile::new("pool-demo", info.as_ref(), chosen.kernels(), &reports);
        write_results(target, &file, console)?;
    }
    Ok(status)
}

fn named(which: &str) -> Result<Vec<&'static Demo>, Failure> {
    let is_meant = |demo: &&Demo| which == "all" || demo.name.eq_ignore_ascii_case(which);
    let demos: Vec<_> = DEMOS.iter().filter(is_meant).collect();
    if demos.is_empty() {
        let names: Vec<_> = DEMOS.iter().map(|demo| demo.name).collect();
        let message = format!("there is no demonstration `{which}`; there are {}", names.join(", "));
        return Err(Failure::usage(message));
    }
    Ok(demos)
}

fn show(demo: &Demo, chosen: &Chosen, console: &Console) -> Result<DemoReport, Failure> {
    console.say(format_args!("\n{}: {}", demo.name, demo.shows));
    let start = Instant::now();
    let mut stage = Stage::new(&chosen.device, chosen.module(), console)?;
    let outcome = (demo.run)(&mut stage);
    let checks = stage.finish();
    let (name, shows, seconds) = (demo.name, demo.shows, start.elapsed().as_secs_f64());
    let error = match outcome {
        Err(error) if error.is_fatal() => return Err(error.into()),
        outcome => outcome.err().map(|error| error.to_string()),
    };
    if let Some(error) = &error {
        console.say(format_args!("  FAILED: {error}"));
    }
    Ok(DemoReport { name, shows, checks, error, seconds })
}

fn conclude(reports: &[DemoReport], console: &Console) -> Status {
    let checks: usize = reports.iter().map(|report| report.checks.len()).sum();
    let failed: usize = reports.iter().map(DemoReport::failed).sum();
    let ended = reports.iter().filter(|report| report.error.is_some()).count();
    let seconds = Seconds(reports.iter().map(|report| report.seconds).sum());
    if failed + ended == 0 {
        console.say(format_args!("\nall {checks} checks hold ({seconds})"));
        return Status::Clean;
    }
    console.say(format_args!("\nFAILED: {failed} of {checks} checks do not hold ({seconds})"));
    if ended > 0 {
        console.say(format_args!("FAILED: {ended} of {} demonstrations ended too early", reports.len()));
    }
    Status::Fault
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap::Error;
    use warpheap::error::InvalidConfig;

    fn run_on_cpu(demo: &Demo) -> DemoReport {
        let chosen = Chosen::cpu(None, demo.launched).unwrap_or_else(|error| panic!("{}", error.message));
        show(demo, &chosen, &Console::new(None)).unwrap_or_else(|error| panic!("{}", error.message))
    }

    #[test]
    fn every_demonstration_is_found_and_holds_with_the_kernels_that_it_names() {
        for demo in DEMOS {
            let found = named(&demo.name.to_lowercase()).unwrap_or_else(|error| panic!("{}", error.message));
            assert!(found.len() == 1 && std::ptr::eq(found[0], demo), "two are called {}", demo.name);
            let report = run_on_cpu(demo);
            assert!(report.checks.len() > 5, "{}", demo.name);
            assert_eq!(conclude(&[report], &Console::new(None)), Status::Clean, "{}", demo.name);
        }
        assert!(named("S99").is_err_and(|error| error.status == Status::Usage));
    }

    #[test]
    fn what_does_not_hold_is_a_fault_and_the_rest_is_still_shown() {
        const FALSE: Demo = Demo {
            name: "F",
            shows: "a check that does not hold",
            launched: &[],
            run: |stage| {
                stage.check_is("one and one", 3, 2);
                stage.check_is("two and two", 4, 4);
                let other = Error::InvalidConfig(InvalidConfig::Pool {
                    setting: "x",
                    given: "1".into(),
                    why: "it is".into(),
                });
                stage.check_refused("what is granted", Ok(()), |_| true);
                stage.check_refused("another error", Err::<(), _>(other), |error| error.is_fatal());
                stage.device().alloc_memory(1 << 60, 1).map(drop)
            },
        };
        let report = run_on_cpu(&FALSE);
        let holds: Vec<_> = report.checks.iter().map(|check| check.holds).collect();
        assert_eq!((holds, report.failed()), (vec![false, true, false, false], 3));
        assert!(report.error.as_ref().is_some_and(|error| error.contains("cannot allocate")));
        assert_eq!(conclude(&[report], &Console::new(None)), Status::Fault);
    }
}
