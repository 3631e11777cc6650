//! The warpheap command line.

// All text goes through `cli::console`, which keeps the errors of its outputs.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod cli;
mod report;
mod view;

fn main() -> std::process::ExitCode {
    cli::main()
}
