//! Runs a suite.

use super::calls::Timed;
use super::contenders::{self, Setup};
use super::extent::Extent;
use super::malloc::Malloc;
use super::report::{Over, Suite, SuiteReport};
use super::{aging, collections, series, situations, targets};
use crate::bench::context::Bench;
use crate::bench::run::BenchReport;
use crate::bench::timing::{self, BLOCK};
use crate::kernels::bench::{bench_freelist_alloc, bench_freelist_free, bench_heap_alloc, bench_heap_free};
use crate::kernels::collections::{collect_map, collect_string, collect_vec};
use crate::{Error, OwnModule, Result};
use std::time::{Duration, Instant};
use warpheap::driver::{Backend, Device};
use warpheap::error::OutOfMemory;
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

/// The results so far.
pub(super) struct Results<'a> {
    pub report: SuiteReport,
    pub progress: &'a mut dyn FnMut(&str),
    started: Instant,
    total: Duration,
}

impl<'a> Results<'a> {
    /// No results yet. The time begins.
    pub fn begin(suite: Suite, backend: Backend, extent: &Extent, progress: &'a mut dyn FnMut(&str)) -> Self {
        let report = empty(suite, backend, extent);
        Results { report, progress, started: Instant::now(), total: extent.total }
    }

    /// Why no measurement may begin any more.
    pub fn out_of_time(&self) -> Option<String> {
        (self.started.elapsed() > self.total)
            .then(|| format!("the suite ends after {} s", self.total.as_secs()))
    }

    pub fn leave_out(&mut self, what: String) {
        self.report.bench.left_out.push(what);
    }
}

/// The result of a measurement. `None` if it did not fit into memory or was wrong: the report says
/// which.
pub(super) fn outcome<T>(
    measured: Result<T>,
    what: impl FnOnce() -> String,
    results: &mut Results<'_>,
) -> Result<Option<T>> {
    match measured {
        Ok(value) => return Ok(Some(value)),
        Err(Error::Library(error @ warpheap::Error::OutOfMemory(OutOfMemory::Device { .. }))) => {
            results.leave_out(format!("{}: {error}", what()));
        }
        Err(error @ Error::WrongResult { .. }) => results.report.bench.wrong.push(error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(None)
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
    let seconds = results.started.elapsed().as_secs_f64();
    let mut report = SuiteReport { seconds, ..results.report };
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

fn empty(suite: Suite, backend: Backend, extent: &Extent) -> SuiteReport {
    let (figures, left_out, wrong) = Default::default();
    let bench = BenchReport { block: BLOCK, rounds: extent.rounds, figures, left_out, wrong };
    let simulated = backend == Backend::Cpu;
    let note = "the CPU simulates the threads: these times say nothing about a GPU";
    let notes = simulated.then(|| note.to_owned()).into_iter().collect();
    SuiteReport { suite: Some(suite), simulated, notes, ..bench.into() }
}
