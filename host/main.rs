//! warpheap, the command line.

#[cfg(not(loom))]
mod cli;
#[cfg(not(loom))]
mod report;

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    cli::main()
}

/// A model checker explores the device crate; the host crate is not built for it.
#[cfg(loom)]
fn main() {}
