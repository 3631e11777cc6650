//! The warpheap command line.

// All text goes through `cli::console`, which keeps the errors of its outputs.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(feature = "view"), allow(dead_code, reason = "some parts only serve drawings"))]

mod cli;
mod report;
#[cfg_attr(feature = "view", path = "view/mod.rs")]
#[cfg_attr(not(feature = "view"), path = "view/absent.rs")]
mod view;

fn main() -> std::process::ExitCode {
    cli::main()
}
