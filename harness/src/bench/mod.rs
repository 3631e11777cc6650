//! Benchmarks of the pools' operations on a GPU: figures, each next to its floor and with a target,
//! and suites of times over the number of threads, over sizes and over the load of a heap.
//!
//! A figure is the median of its rounds after warm-up, and its results are checked.
//!
//! | module | what |
//! |---|---|
//! | `results` | the results, as they are written and read |
//! | `engine` | times rounds, launches what is measured, records what failed |
//! | `subjects` | what is measured: floors, the device pools, CUDA's `malloc` |
//! | `figures` | all figures |
//! | `suite` | the suites |

pub(crate) mod engine;
mod figures;
mod results;
mod subjects;
pub mod suite;
#[cfg(test)]
mod tests;

pub use crate::summary::Timing;
pub use results::{Bar, BenchReport, Comparison, Figure};

use crate::{OwnModule, Result};
use engine::{BLOCK, Bench, Rounds, Run, is_out_of_memory};
use figures::Plan;
use std::time::Duration;
use suite::{Suite, SuiteReport};
use warpheap::driver::{Backend, Device};
use warpheap::error::NotSupported;

/// Timed rounds of each figure by default.
pub const ROUNDS: u32 = 20;

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct BenchConfig {
    /// A suite instead of figures.
    pub suite: Option<Suite>,
    /// Only figures whose name contains this. The heap's figures are measured only if no other
    /// figure has such a name.
    pub figure: Option<String>,
    /// Timed rounds of each figure or point. `None` for 20, or those of the suite.
    pub rounds: Option<u32>,
    /// Sizes of the heaps that a suite measures over their load. `None` for those of the suite.
    pub heaps: Option<Vec<u64>>,
}

/// The kernels that are launched, except for those that a suite loads itself. Empty if no figure
/// has the name.
pub fn kernels(config: &BenchConfig) -> Vec<&'static str> {
    match config.suite {
        Some(suite) => suite::kernels(suite),
        None => figures::plans(config.figure.as_deref()).iter().flat_map(Plan::kernels).collect(),
    }
}

/// Measures the figures or runs the suite. `kernels` contains the kernels that
/// [`kernels()`](kernels()) names. Calls `progress` with the name of each measurement before it
/// begins.
///
/// # Errors
/// An error of the device; figures are measured on a GPU only. Measurements that do not fit into
/// its memory are left out. Those with wrong results, and targets of a suite that were not measured
/// on a GPU, are named in the report as wrong.
pub fn run(
    device: &Device,
    kernels: &OwnModule,
    config: &BenchConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<SuiteReport> {
    if let Some(suite) = config.suite {
        return suite::run(device, kernels, suite, config, progress);
    }
    if device.backend() != Backend::Cuda {
        let error = NotSupported::Backend {
            what: "measuring kernels",
            backend: "CPU",
            advice: "its threads are simulated; `warpheap stress --backend cpu` reports their rate",
        };
        return Err(warpheap::Error::from(error).into());
    }
    let bench = Bench::new(device, kernels.module(), Rounds::of(config.rounds.unwrap_or(ROUNDS)), 0)?;
    measure(&bench, figures::plans(config.figure.as_deref()), progress)
}

/// Measures the figures that the device has enough memory for.
fn measure(bench: &Bench, plans: Vec<Plan>, progress: &mut dyn FnMut(&str)) -> Result<SuiteReport> {
    let mut report = SuiteReport::of(None, BLOCK, bench.rounds.timed);
    let mut run = Run::new(progress, Duration::MAX, is_out_of_memory);
    for plan in plans {
        report.bench.figures.extend(run.measure(&plan.name, || plan.measure(bench))?);
    }
    Ok(run.end(report))
}
