//! Benchmark figures: the time of the pools' operations on a GPU, each next to its floor: the same
//! kernel without the pool.
//!
//! A kernel that spins for 40 µs precedes every timed kernel. The host's launch latency has thus
//! passed when the timed kernel starts. A figure is the median of its rounds after warm-up, and its
//! results are checked.

mod churn;
mod figure;
mod figures;
mod floors;
mod heap;
mod plan;
#[cfg(test)]
mod tests;
mod timing;

use crate::{OwnModule, Result};
pub use figure::{Bar, Comparison, Figure};
use plan::Plan;
use serde::Serialize;
pub use timing::Timing;
use warpheap::driver::{Backend, Device};
use warpheap::error::NotSupported;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// Timed rounds of each figure, after 3 warm-up rounds. At least 1.
    pub rounds: u32,
    /// Measure only figures whose name contains this.
    pub only: Option<String>,
}

/// All figures of a run.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BenchReport {
    /// Threads in a block.
    pub block: u32,
    /// Timed rounds of each figure.
    pub rounds: u32,
    /// The figures, in measurement order.
    pub figures: Vec<Figure>,
    /// Skipped figures, and the reasons.
    pub left_out: Vec<String>,
    /// Figures without a value because the measured code failed its checks, and what was wrong.
    pub wrong: Vec<String>,
}

/// The kernels that the figures of `config` launch.
pub fn kernels(config: &BenchConfig) -> Vec<&'static str> {
    let plans = figures::plans(config);
    plans.iter().flat_map(Plan::kernels).collect()
}

/// Measures the figures. `kernels` contains the kernels that [`kernels()`](kernels()) names. Calls
/// `progress` with the name of each figure before it is measured.
pub fn run(
    device: &Device,
    kernels: &OwnModule,
    config: &BenchConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport> {
    if device.backend() != Backend::Cuda {
        let refused = NotSupported::Backend {
            what: "measuring kernels",
            backend: "CPU",
            advice: "its threads are simulated; `warpheap stress --backend cpu` reports their rate",
        };
        return Err(warpheap::Error::from(refused).into());
    }
    figures::Bench::new(device, kernels.module(), config.rounds)?.run(figures::plans(config), progress)
}
