//! `warpheap examples`: runs data structures that kernels build, and prints the checks.

use super::args::ExamplesArgs;
use super::backend::{Chosen, choose};
use super::console::Console;
use super::named::choose_named;
use super::results::{watchdog, write_results};
use super::status::{Failure, Status};
use crate::report::human::{Count, Seconds};
use warpheap_harness::examples::{self, ExampleReport, ExamplesConfig};

/// The reports that are kept.
type Reports = Vec<ExampleReport>;

/// Runs the selected examples. A result that differs from the host's is a fault.
pub fn run(args: ExamplesArgs, console: &Console) -> Result<Status, Failure> {
    let names = examples::names().map(|name| (name, name));
    choose_named(names, &args.only, "example", |name| name.contains(&args.only))?;
    let chosen = choose(args.device, None, &examples::kernels(only(&args)))?;
    let reports = run_on(&chosen, &args, console)?;
    console.say(format_args!("\nall {} examples agree with the host", reports.len()));
    let info = chosen.device.info()?;
    write_results(args.output.json.as_ref(), "examples", Some(&info), chosen.kernels(), &reports, console)?;
    Ok(Status::Clean)
}

fn only(args: &ExamplesArgs) -> Option<&str> {
    (args.only != "all").then_some(args.only.as_str())
}

fn run_on(chosen: &Chosen, args: &ExamplesArgs, console: &Console) -> Result<Reports, Failure> {
    let defaults = ExamplesConfig::for_backend(chosen.device.backend());
    let config = ExamplesConfig { threads: args.threads.unwrap_or(defaults.threads), ..defaults };
    console.say(format_args!("warpheap examples, {} GPU threads each", Count(config.threads.into())));
    chosen.say(None, console)?;
    let advice = "If it was only slow, allow more time with --watchdog, or use fewer --threads.";
    let watchdog = watchdog(args.output.watchdog, "running the examples", advice);
    let mut told = |report: &ExampleReport| tell(report, console);
    let outcome = examples::run(&chosen.device, &chosen.own, config, only(args), &mut told);
    drop(watchdog);
    Ok(outcome?)
}

fn tell(report: &ExampleReport, console: &Console) {
    console.say(format_args!("\n{} ({})", report.name, Seconds(report.seconds)));
    console.say(format_args!("  {}", report.does));
    console.say(format_args!("  {}", report.sample));
    report.checked.iter().for_each(|line| console.say(format_args!("  - {line}")));
}
