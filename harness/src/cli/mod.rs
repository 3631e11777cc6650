//! The command line: what to do, on which device, and the exit status.
//!
//! `args` (with `parse`) defines the options; `stress`, `bench`, `map`, `pool`, `report` and
//! `doctor` run the commands; `status` lists the ways a run can end. Text for people goes through
//! `console`, results that are kept go through `results`, and files are read through `input`.

mod args;
mod backend;
mod bench;
mod console;
mod doctor;
#[cfg(all(test, unix))]
mod fuzz;
mod input;
mod map;
mod parse;
mod pool;
mod report;
mod results;
mod status;
mod stress;

use args::{Cli, Command};
use clap::Parser;
use console::Console;
use parse::Target;
use results::check_files;
use status::{Failure, Status};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Parses the command line, runs the command and returns the exit status.
pub fn main() -> ExitCode {
    console::end_with_closed_pipes();
    let status = match Cli::try_parse() {
        Ok(cli) => run(cli),
        // Help, the version, or what is wrong with the arguments.
        Err(text) => {
            console::keep(text.print());
            if text.use_stderr() { Status::Usage } else { Status::Clean }
        }
    };
    ExitCode::from(finish(status) as u8)
}

/// Runs the command.
fn run(cli: Cli) -> Status {
    log_to_stderr(cli.verbose);
    let console = Console::new(cli.command.outputs().iter().map(|(_, target)| *target));
    execute(cli.command, &console).unwrap_or_else(|Failure { status, message }| {
        console.warn(format_args!("error: {message}"));
        status
    })
}

fn execute(command: Command, console: &Console) -> Result<Status, Failure> {
    check_drawings(cfg!(feature = "view"), &command.outputs())?;
    check_files(&command.inputs(), &command.outputs())?;
    match command {
        Command::Stress(args) => stress::run(args, console),
        Command::Doctor(args) => doctor::run(args, console),
        Command::Bench(args) => bench::run(args, console),
        Command::Map(args) => map::run(args, console),
        Command::Pool(args) => pool::run(args, console),
        Command::Report(args) => report::run(args, console),
    }
}

/// Fails if one of the outputs, each given with its option, is drawn, but the program does not
/// draw.
fn check_drawings(draws: bool, outputs: &[(&str, &Target)]) -> Result<(), Failure> {
    const DRAWN: [&str; 4] = ["--html", "--svg", "--perfetto", "--out"];
    match outputs.iter().find(|(option, _)| !draws && DRAWN.contains(option)) {
        Some((option, _)) => Err(Failure::usage(format_args!(
            "{option} needs a program with the feature `view`; build it with the feature `cli`"
        ))),
        None => Ok(()),
    }
}

/// The status of a run, or that of its text if some of that was lost.
fn finish(status: Status) -> Status {
    let Err(error) = console::finish() else { return status };
    Console::new([]).warn(format_args!("error: text of this run was lost: {error}"));
    status.worse(Status::Failed)
}

/// Logs to standard error. `RUST_LOG` overrides the number of `-v`.
fn log_to_stderr(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_drawings_the_options_that_draw_are_rejected() {
        let check = |line: &[&str], draws| {
            let command = Cli::parse_from([&["warpheap"], line].concat()).command;
            check_drawings(draws, &command.outputs()).map_err(|failure| failure.message)
        };
        for (line, option) in [
            (["report", "a.json", "--html", "b"].as_slice(), "--html"),
            (&["report", "a.json", "--chart", "x", "--svg", "b"], "--svg"),
            (&["map", "a.json", "--svg", "b"], "--svg"),
            (&["map", "a.json", "--perfetto", "b"], "--perfetto"),
            (&["pool", "export", "--trace", "a", "--out", "b", "--format", "perfetto"], "--out"),
        ] {
            let message = check(line, false).unwrap_err();
            assert!(message.starts_with(option) && message.contains("the feature `cli`"), "{message}");
            assert_eq!(check(line, true), Ok(()));
        }
        assert_eq!(check(&["map", "a.json", "--json", "b"], false), Ok(()));
    }
}
