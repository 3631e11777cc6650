//! The figures: how long the pools take on a GPU, each beside its floor, the same kernel without the pool.
//!
//! A kernel that spins for 40 µs goes before every timed one, so that the host's launch delay is over when the
//! timed one begins. A figure is the median of its rounds, after warm-up, and its results are checked.

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

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// Timed rounds of each figure, after 3 that are not counted; at least 1.
    pub rounds: u32,
    /// Only figures whose name contains this.
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
    /// In the order of measuring.
    pub figures: Vec<Figure>,
    /// Figures left out, and why.
    pub left_out: Vec<String>,
    /// Figures that have no value because what was measured did something wrong, and what.
    pub wrong: Vec<String>,
}

/// The kernels that the figures of `config` launch.
pub fn kernels(config: &BenchConfig) -> Vec<&'static str> {
    let plans = figures::plans(config);
    plans.iter().flat_map(Plan::kernels).collect()
}

/// Measures, by its [`kernels()`](kernels()) in `kernels`. `progress` is told the name of each
/// figure before it is measured.
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
