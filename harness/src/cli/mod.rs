//! The command line: what is asked, on which device, and with which status it ends.
//!
//! `args` (with `parse`) says what can be asked; `stress`, `bench`, `examples`, `pool` and `doctor` do it; `status` says how it
//! can end. What is printed for people goes through `console`, what is kept goes through `report`.

mod args;
mod backend;
mod bench;
mod console;
mod doctor;
mod examples;
mod parse;
mod pool;
mod status;
mod stress;

use args::{Cli, Command};
use clap::Parser;
use console::Console;
use status::Failure;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Reads the command line, does what it asks and answers with the exit status.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    let console = Console::new(cli.command.json());
    let result = match cli.command {
        Command::Stress(args) => stress::run(args, &console),
        Command::Doctor(args) => doctor::run(args, &console),
        Command::Bench(args) => bench::run(args, &console),
        Command::Examples(args) => examples::run(args, &console),
        Command::Pool(args) => pool::run(args, &console),
    };
    let status = result.unwrap_or_else(|Failure { status, message }| {
        console.warn(format_args!("error: {message}"));
        status
    });
    ExitCode::from(status as u8)
}

/// `RUST_LOG` decides where it is set, otherwise the number of `-v`.
fn log_to_stderr(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
}
