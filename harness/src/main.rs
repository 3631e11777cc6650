//! The warpheap command line.

mod cli;
mod report;

fn main() -> std::process::ExitCode {
    cli::main()
}
