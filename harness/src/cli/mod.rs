//! The command line: what to do, on which device, and the exit status.
//!
//! `args` (with `parse`) defines the options; `stress`, `bench`, `map`, `pool`, `report` and
//! `doctor` run the commands; `status` lists the ways a run can end. Text for people goes through
//! `console`, results that are kept go through `results`.

mod args;
mod backend;
mod bench;
mod console;
mod doctor;
mod map;
mod named;
mod parse;
mod pool;
mod report;
mod results;
mod status;
mod stress;

use args::{Cli, Command};
use clap::Parser;
use console::Console;
use parse::JsonTarget;
use results::{check_page, check_target, reject_overwrite};
use status::Failure;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Parses the command line, runs the command and returns the exit status.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    let console = Console::new(cli.command.json());
    let result = check_files(&cli.command).and_then(|()| match cli.command {
        Command::Stress(args) => stress::run(args, &console),
        Command::Doctor(args) => doctor::run(args, &console),
        Command::Bench(args) => bench::run(args, &console),
        Command::Map(args) => map::run(args, &console),
        Command::Pool(args) => pool::run(args, &console),
        Command::Report(args) => report::run(args, &console),
    });
    let status = result.unwrap_or_else(|Failure { status, message }| {
        console.warn(format_args!("error: {message}"));
        status
    });
    ExitCode::from(status as u8)
}

/// Fails before the run if a file cannot be written after it, or would replace another.
fn check_files(command: &Command) -> Result<(), Failure> {
    let (json, page) = (command.json(), command.page());
    check_target(json)?;
    check_page(page, json)?;
    let outputs = [json.and_then(JsonTarget::file), page];
    outputs.into_iter().try_for_each(|output| reject_overwrite(command.inputs(), output))
}

/// Logs to standard error. `RUST_LOG` overrides the number of `-v`.
fn log_to_stderr(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
}
