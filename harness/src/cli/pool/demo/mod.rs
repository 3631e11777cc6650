//! `warpheap pool demo`: shows the behaviour of the pools step by step, and checks every step.
//!
//! A demonstration is a [`Demo`]: a name, a purpose, and steps that run on a [`Stage`]. An entry in
//! [`DEMOS`] adds it to the program. `calls` makes the calls of pools, with the `fault` that a test
//! injects.

mod arena;
mod blocks;
mod caching;
mod calls;
mod checks;
mod driver;
mod fault;
mod growable;
mod out_of_memory;
mod overrun;
mod owners;
mod region;
mod reports;
mod stage;

use super::super::args::PoolDemoArgs;
use super::super::backend::{Chosen, choose};
use super::super::console::Console;
use super::super::named::choose_named;
use super::super::results::{watchdog, write_results};
use super::super::status::{Failure, Status};
use crate::report::human::Seconds;
use serde::Serialize;
use stage::{Check, Demo, KERNELS, Stage};
use std::time::Instant;
use warpheap::Result;

/// All demonstrations, in the order in which they run.
static DEMOS: &[Demo] = &[
    blocks::DEMO,
    growable::DEMO,
    region::DEMO,
    arena::DEMO,
    driver::DEMO,
    caching::DEMO,
    reports::DEMO,
    overrun::DEMO,
];

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
    let demos = named(&args.which)?;
    let chosen = choose(args.device, None, &KERNELS)?;
    console.say("warpheap pool demo");
    chosen.say(None, console)?;
    let mut reports = Vec::new();
    for demo in demos {
        let _watchdog = watchdog(args.output.watchdog, format!("the demonstration {}", demo.name), ADVICE);
        reports.push(show(demo, &chosen, console)?);
    }
    let status = conclude(&reports, console);
    let info = chosen.device.info().ok();
    write_results(
        args.output.json.as_ref(),
        "pool-demo",
        info.as_ref(),
        chosen.kernels(),
        &reports,
        console,
    )?;
    Ok(status)
}

fn named(which: &str) -> Result<Vec<&'static Demo>, Failure> {
    choose_named(DEMOS.iter().map(|demo| (demo.name, demo)), which, "demonstration", |name| name == which)
}

fn show(demo: &Demo, chosen: &Chosen, console: &Console) -> Result<DemoReport, Failure> {
    console.say(format_args!("\n{}: {}", demo.name, demo.shows));
    let start = Instant::now();
    let mut stage = Stage::new(&chosen.device, chosen.module(), console)?;
    let outcome = demo.steps.iter().try_for_each(|step| step(&mut stage));
    let checks = stage.finish()?;
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
mod tests;
