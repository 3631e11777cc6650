//! Suites: times over the number of threads and over sizes, durations of single calls, and Rust's
//! collections, each beside CUDA's own `malloc` in the same run, and the heap over its load.
//!
//! A suite has a fixed extent and a time limit. What does not fit into memory or time is left out,
//! and the report says so. On the CPU the threads are simulated, and CUDA's `malloc` is left out.
//!
//! | file | what |
//! |---|---|
//! | `extent` | numbers of threads, sizes and limits of each suite |
//! | `series` | times over the number of threads and over sizes |
//! | `latency` | durations of single calls |
//! | `collections` | Rust's collections over both allocators |
//! | `load`, `drift` | fills and turns of a heap over its load; drift from size to size |
//! | `targets` | figures with targets, from the other results |

mod collections;
mod drift;
mod extent;
mod latency;
mod load;
#[cfg(test)]
mod load_tests;
mod series;
mod targets;
#[cfg(test)]
mod tests;

pub use super::results::{
    Bin, Collection, Distribution, Drift, Fill, HeapLoad, Latency, Operation, Over, Point, Series, Suite,
    SuiteReport, Survivors, Turn,
};
pub use load::MOST_HEAP_BYTES;

use super::BenchConfig;
use super::engine::{self, BLOCK, Bench, Rounds, Run, is_out_of_memory};
use super::subjects::Malloc;
use crate::{OwnModule, Result};
use extent::Extent;
use warpheap::driver::{Backend, Device};

/// What measurements are made with.
struct Setup<'a> {
    bench: &'a Bench,
    extent: &'a Extent,
    /// CUDA's `malloc`; `None` if it is left out.
    malloc: Option<&'a Malloc>,
}

/// The kernels that a suite launches, except for those that it loads itself.
pub(super) fn kernels(suite: Suite) -> Vec<&'static str> {
    let of_all = engine::LAUNCHED.into_iter().chain(load::LAUNCHED);
    match suite {
        Suite::Load => of_all.collect(),
        Suite::Quick | Suite::Full => of_all.chain(series::LAUNCHED).chain(collections::LAUNCHED).collect(),
    }
}

/// Runs a suite: see [`bench::run`](super::run).
pub(super) fn run(
    device: &Device,
    kernels: &OwnModule,
    suite: Suite,
    config: &BenchConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<SuiteReport> {
    let mut extent = Extent::of(suite, device.backend());
    extent.rounds = config.rounds.unwrap_or(extent.rounds);
    if let Some(heaps) = &config.heaps {
        extent.load.heaps.clone_from(heaps);
    }
    run_extent(device, kernels, suite, &extent, progress)
}

/// Runs a suite of this extent. The measurements with targets come first.
fn run_extent(
    device: &Device,
    kernels: &OwnModule,
    suite: Suite,
    extent: &Extent,
    progress: &mut dyn FnMut(&str),
) -> Result<SuiteReport> {
    let rounds = Rounds { budget: extent.point, ..Rounds::of(extent.rounds) };
    let bench = Bench::new(device, kernels.module(), rounds, 0)?;
    let mut report = SuiteReport::of(Some(suite), BLOCK, extent.rounds);
    if device.backend() == Backend::Cpu {
        report.simulated = true;
        report.notes.push("the CPU simulates the threads: these times say nothing about a GPU".into());
    }
    let mut run = Run::new(progress, extent.total, is_out_of_memory);
    let has_all = suite != Suite::Load;
    let malloc = if has_all { Malloc::load(device, kernels, &mut report.notes)? } else { None };
    let setup = Setup { bench: &bench, extent, malloc: malloc.as_ref() };
    if has_all {
        report.series = series::measure(&setup, Over::Threads, &mut run)?;
        report.latency = latency::measure(&setup, kernels, &mut run)?;
        report.collections = collections::measure(&setup, &mut run)?;
    }
    for bytes in &extent.load.heaps {
        let Some(mut heap) = load::heap(&setup, *bytes, &mut run)? else { continue };
        report.load.extend(load::measure_all(&setup, &mut heap, &mut run)?);
        report.drift.extend(drift::measure_all(&setup, &mut heap, &mut run)?);
    }
    if has_all {
        report.series.extend(series::measure(&setup, Over::Bytes, &mut run)?);
    }
    let mut report = run.end(report);
    if !report.simulated {
        if has_all {
            targets::judge(&mut report, extent);
        }
        report.bench.figures.extend(drift::figures(&report.drift));
    }
    Ok(report)
}
