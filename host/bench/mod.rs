//! The figures: how long the pools take on a GPU, each beside its floor, the same kernel without the pool.
//!
//! A kernel that spins for 40 µs goes before every timed one, so that the host's launch delay is over when the
//! timed one begins. A figure is the median of its rounds, after warm-up, and its results are checked.

mod churn;
mod figures;
mod heap;
mod heap_groups;
mod timing;

use crate::driver::{Backend, Device, Module};
use crate::error::{Error, Result};
use serde::Serialize;
pub use timing::Timing;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// Timed rounds of each figure, after 3 that are not counted; at least 1.
    pub rounds: u32,
    /// Only figures whose name contains this.
    pub only: Option<String>,
}

/// Which way a bar is to be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// The figure must not be above it.
    AtMost,
    /// The figure must not be below it.
    AtLeast,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// GPU threads.
    pub threads: u32,
    /// The kernel with the pool.
    pub time: Timing,
    /// What it is compared with.
    pub against: String,
    /// That kernel's time.
    pub base: Timing,
    /// The figure itself.
    pub value: f64,
    /// Its unit: `x` for a ratio of medians, `G pairs/s` for allocations with their frees, `ppm` for refusals
    /// in a million allocations.
    pub unit: &'static str,
    /// How it is held to `bar`.
    pub holds: Bar,
    /// The bar.
    pub bar: f64,
    /// Whether it is passed.
    pub passed: bool,
    /// What the results were checked for.
    pub checked: String,
}

impl Figure {
    /// The same with another value than the ratio of its times.
    fn measured_by(self, value: f64, unit: &'static str, holds: Bar, bar: f64) -> Figure {
        let passed = match holds {
            Bar::AtMost => value <= bar,
            Bar::AtLeast => value >= bar,
        };
        Figure { value, unit, holds, bar, passed, ..self }
    }
}

/// All figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Threads in a block.
    pub block: u32,
    /// Timed rounds of each figure.
    pub rounds: u32,
    /// In the order of measuring.
    pub figures: Vec<Figure>,
    /// Figures left out, and why.
    pub left_out: Vec<String>,
}

/// Measures. `progress` is told the name of each figure before it is measured.
pub fn run(
    device: &Device,
    module: &Module,
    config: &BenchConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport> {
    if device.backend() != Backend::Cuda {
        return Err(Error::NotSupported {
            what: "measuring kernels",
            backend: "CPU",
            advice: "its threads are simulated; `warpheap stress --backend cpu` reports their rate",
        });
    }
    figures::Bench::new(device, module, config)?.run(progress)
}
