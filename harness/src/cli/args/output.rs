//! The results and the time limit of a run.

use super::super::parse::{self, Target};
use clap::Args;
use std::time::Duration;

/// The options of all commands that run kernels or pools.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Write the results, and how to reproduce them, to this file; `-` is standard output.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub json: Option<Target>,
    /// Exit with status 4 if a step (a round, a figure, a pool) takes longer than
    /// this many seconds; 0 disables the limit. A hung kernel cannot be cancelled, so such a run
    /// writes no results.
    ///
    /// Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero, default_value = "300", hide_default_value = true)]
    pub watchdog: Duration,
}
