//! Measures the selected figures.

use super::context::{Bench, Plan};
use super::results::BenchReport;
use super::timing::BLOCK;
use super::{churn, heap, pools};
use crate::{Error, OwnModule, Result};
use warpheap::driver::{Backend, Device};
use warpheap::error::{NotSupported, OutOfMemory};

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// Timed rounds of each figure, after 3 warm-up rounds. At least 1.
    pub rounds: u32,
    /// Measure only figures whose name contains this. The heap's figures are measured only if no
    /// other figure has such a name.
    pub only: Option<String>,
}

impl BenchReport {
    /// Nothing measured yet.
    pub(super) fn empty(rounds: u32) -> BenchReport {
        let (figures, left_out, wrong) = Default::default();
        BenchReport { block: BLOCK, rounds, figures, left_out, wrong }
    }

    /// The result of the measurement `what`. `None` if it did not fit into memory or was wrong: the
    /// report says which, and the device is still usable.
    pub(super) fn keep<T>(&mut self, what: &str, measured: Result<T>) -> Result<Option<T>> {
        match measured {
            Ok(value) => return Ok(Some(value)),
            Err(Error::Library(error @ warpheap::Error::OutOfMemory(OutOfMemory::Device { .. }))) => {
                self.left_out.push(format!("{what}: {error}"));
            }
            Err(error @ Error::WrongResult { .. }) => self.wrong.push(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}

/// The kernels that the figures of `config` launch.
pub fn kernels(config: &BenchConfig) -> Vec<&'static str> {
    plans(config).iter().flat_map(Plan::kernels).collect()
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
        let error = NotSupported::Backend {
            what: "measuring kernels",
            backend: "CPU",
            advice: "its threads are simulated; `warpheap stress --backend cpu` reports their rate",
        };
        return Err(warpheap::Error::from(error).into());
    }
    measure(&Bench::new(device, kernels.module(), config.rounds, 0)?, plans(config), progress)
}

/// The figures that `config` selects.
pub(super) fn plans(config: &BenchConfig) -> Vec<Plan> {
    let Some(only) = config.only.as_deref() else { return others() };
    let named = |mut plans: Vec<Plan>| {
        plans.retain(|plan| plan.name.contains(only));
        plans
    };
    let others = named(others());
    if others.is_empty() { named(heap::plans().collect()) } else { others }
}

/// All figures but those of the heap, which are many and may miss their targets.
fn others() -> Vec<Plan> {
    pools::plans().into_iter().chain(churn::plans()).collect()
}

/// Measures the figures that the device has enough memory for.
pub(super) fn measure(
    bench: &Bench,
    plans: Vec<Plan>,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport> {
    let mut report = BenchReport::empty(bench.timer.rounds);
    for plan in plans {
        progress(&plan.name);
        let figure = report.keep(&plan.name, plan.measure(bench))?;
        report.figures.extend(figure);
    }
    Ok(report)
}
