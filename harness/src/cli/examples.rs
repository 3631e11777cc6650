//! `warpheap examples`: runs data structures that kernels build, and prints the checks.

use super::args::{BackendChoice, ExamplesArgs};
use super::backend::{Chosen, choose};
use super::console::Console;
use super::status::{Failure, Status};
use super::stress::{check_target, write_results};
use crate::report::human::{Count, Seconds};
use crate::report::provenance::ResultFile;
use warpheap::Watchdog;
use warpheap_harness::examples::{self, ExampleReport, ExamplesConfig};

/// The reports that are kept.
type Reports = Vec<ExampleReport>;

/// Runs the selected examples. A result that differs from the host's is a fault.
pub fn run(args: ExamplesArgs, console: &Console) -> Result<Status, Failure> {
    check_target(args.json.as_ref())?;
    check_combination(&args)?;
    let chosen = choose(args.backend, args.gpu, None, &examples::kernels(only(&args)))?;
    let reports = run_on(&chosen, &args, console)?;
    console.say(format_args!("\nall {} examples computed what the host computes", reports.len()));
    if let Some(target) = &args.json {
        let info = chosen.device.info()?;
        write_results(
            target,
            &ResultFile::new("examples", Some(&info), chosen.kernels(), &reports),
            console,
        )?;
    }
    Ok(Status::Clean)
}

/// Rejects contradictory options and names that select nothing.
fn check_combination(args: &ExamplesArgs) -> Result<(), Failure> {
    if args.backend == BackendChoice::Cpu && args.gpu.device.is_some() {
        return Err(Failure::usage("--device is for a GPU, but the run is to be on the CPU; leave one out"));
    }
    if args.backend == BackendChoice::Cpu && args.gpu.kernels.is_some() {
        return Err(Failure::usage("--kernels is for a GPU, but the run is to be on the CPU; leave one out"));
    }
    if only(args).is_some_and(|only| !examples::names().any(|name| name.contains(only))) {
        let names: Vec<_> = examples::names().collect();
        let message = format!("no example has `{}` in its name; there are {}", args.only, names.join(", "));
        return Err(Failure::usage(message));
    }
    Ok(())
}

fn only(args: &ExamplesArgs) -> Option<&str> {
    (args.only != "all").then_some(args.only.as_str())
}

fn run_on(chosen: &Chosen, args: &ExamplesArgs, console: &Console) -> Result<Reports, Failure> {
    let defaults = ExamplesConfig::for_backend(chosen.device.backend());
    let config = ExamplesConfig { threads: args.threads.unwrap_or(defaults.threads), ..defaults };
    console.say(format_args!("warpheap examples, {} GPU threads each", Count(config.threads.into())));
    console.say(format_args!("  device   {}", chosen.describe(None)?));
    if let Some(why) = &chosen.why_not_cuda {
        console.say(format_args!("  not on a GPU: {why}"));
    }
    let advice = "If it was only slow, allow more time with --watchdog, or ask for fewer --threads.";
    let limit = args.watchdog;
    let watchdog = (!limit.is_zero())
        .then(|| Watchdog::start(limit, "running the examples", advice, Status::Hung as i32));
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
