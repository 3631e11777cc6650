//! Runs a suite.

use super::calls::Timed;
use super::contenders::{self, Setup};
use super::extent::Extent;
use super::malloc::Malloc;
use super::results::Results;
use super::{aging, collections, series, situations, targets};
use crate::bench::context::Bench;
use crate::bench::results::Over;
use crate::bench::results::{Suite, SuiteReport};
use crate::bench::timing;
use crate::kernels::bench::{bench_freelist_alloc, bench_freelist_free, bench_heap_alloc, bench_heap_free};
use crate::kernels::collections::{collect_map, collect_string, collect_vec};
use crate::{OwnModule, Result};
use warpheap::driver::Device;
use warpheap::kernel_names;

/// Settings of a suite.
#[derive(Clone, Debug)]
pub struct SuiteConfig {
    /// Its extent.
    pub suite: Suite,
    /// Timed rounds of each point. `None` for those of the suite.
    pub rounds: Option<u32>,
    /// Sizes of the heaps that are measured over their load. `None` for those of the suite.
    pub heaps: Option<Vec<u64>>,
}

const LAUNCHED: [&str; 7] = kernel_names![
    bench_freelist_alloc,
    bench_freelist_free,
    bench_heap_alloc,
    bench_heap_free,
    collect_vec,
    collect_map,
    collect_string
];

/// The kernels that a suite launches, except for those that it loads itself.
pub fn kernels(suite: Suite) -> Vec<&'static str> {
    let of_all = timing::LAUNCHED.into_iter().chain(aging::LAUNCHED);
    match suite {
        Suite::Load => of_all.collect(),
        Suite::Quick | Suite::Full => of_all.chain(contenders::LAUNCHED).chain(LAUNCHED).collect(),
    }
}

/// Runs a suite. `kernels` contains the kernels that [`kernels()`](kernels()) names. Calls
/// `progress` with the name of each measurement before it begins.
///
/// # Errors
/// An error of the device. Measurements that do not fit into its memory are left out. Those with
/// wrong results, and targets that were not measured on a GPU, are named in the report as wrong.
pub fn run(
    device: &Device,
    kernels: &OwnModule,
    config: SuiteConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<SuiteReport> {
    let mut extent = Extent::of(config.suite, device.backend());
    extent.rounds = config.rounds.unwrap_or(extent.rounds);
    extent.load.heaps = config.heaps.unwrap_or(extent.load.heaps);
    run_extent(device, kernels, config.suite, &extent, progress)
}

/// Runs a suite of this extent. The measurements with targets come first.
pub(super) fn run_extent(
    device: &Device,
    kernels: &OwnModule,
    suite: Suite,
    extent: &Extent,
    progress: &mut dyn FnMut(&str),
) -> Result<SuiteReport> {
    let mut bench = Bench::new(device, kernels.module(), extent.rounds, 0)?;
    bench.timer.budget = extent.point;
    let mut results = Results::begin(suite, device.backend(), extent, progress);
    if suite == Suite::Load {
        let setup = Setup { bench: &bench, extent, malloc: None };
        aging::measure(&setup, &mut results)?;
    } else {
        measure_all(kernels, &bench, extent, &mut results)?;
    }
    let mut report = results.end();
    if !report.simulated {
        if suite != Suite::Load {
            targets::judge(&mut report, extent);
        }
        report.bench.figures.extend(aging::figures(&report.drift));
    }
    Ok(report)
}

/// Measures all but collections on the CPU, which need CUDA's `malloc`.
fn measure_all(kernels: &OwnModule, bench: &Bench, extent: &Extent, results: &mut Results<'_>) -> Result<()> {
    let malloc = Malloc::load(&bench.timer.device, kernels, &mut results.report.notes)?;
    let timed = Timed::load(kernels)?;
    let setup = Setup { bench, extent, malloc: malloc.as_ref() };
    series::measure(&setup, Over::Threads, results)?;
    situations::measure(&setup, &timed, results)?;
    if let Some(malloc) = &malloc {
        collections::measure(&setup, malloc, results)?;
    }
    aging::measure(&setup, results)?;
    series::measure(&setup, Over::Bytes, results)
}
