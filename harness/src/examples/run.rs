//! Runs the selected examples.

use super::context::{Context, Example, LAUNCHED};
use super::{graph, octree, table, vectors};
use crate::{OwnModule, Result};
use serde::Serialize;
use std::time::Instant;
use warpheap::device_pools::Heap;
use warpheap::driver::{Backend, Device};

/// In the order in which they run.
const EXAMPLES: [Example; 4] = [vectors::EXAMPLE, table::EXAMPLE, graph::EXAMPLE, octree::EXAMPLE];

/// Sizes of the examples.
#[derive(Clone, Copy, Debug)]
pub struct ExamplesConfig {
    /// GPU threads of each kernel that builds a data structure, at least 1.
    pub threads: u32,
    /// Size of the heap in bytes.
    pub heap_bytes: u64,
}

impl ExamplesConfig {
    /// Sizes for which a run takes seconds at most.
    pub fn for_backend(backend: Backend) -> ExamplesConfig {
        match backend {
            Backend::Cpu => ExamplesConfig { threads: 1 << 12, heap_bytes: 64 << 20 },
            _ => ExamplesConfig { threads: 1 << 18, heap_bytes: 2 << 30 },
        }
    }
}

/// The report of one example.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExampleReport {
    /// Its name.
    pub name: &'static str,
    /// What its kernels do.
    pub does: &'static str,
    /// What was compared, with numbers.
    pub checked: Vec<String>,
    /// A sample result.
    pub sample: String,
    /// Host time in seconds, including checks.
    pub seconds: f64,
}

/// The names of the examples, in the order in which they run.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().map(|example| example.name)
}

/// The kernels of the examples with `only` in their name, or of all examples if it is `None`.
pub fn kernels(only: Option<&str>) -> Vec<&'static str> {
    chosen(only).flat_map(|example| example.launched).chain(&LAUNCHED).copied().collect()
}

fn chosen(only: Option<&str>) -> impl Iterator<Item = &'static Example> {
    EXAMPLES.iter().filter(move |example| only.is_none_or(|only| example.name.contains(only)))
}

/// Runs the examples with `only` in their name, or all examples if it is `None`. `kernels` contains
/// the kernels that [`kernels()`](kernels()) names. Calls `on_report` with each report.
///
/// # Errors
/// [`Error::WrongResult`](crate::Error::WrongResult) for the first example that computes a result
/// other than the host's or leaves memory allocated in the heap. Otherwise, an error of the device.
pub fn run(
    device: &Device,
    kernels: &OwnModule,
    config: ExamplesConfig,
    only: Option<&str>,
    on_report: &mut dyn FnMut(&ExampleReport),
) -> Result<Vec<ExampleReport>> {
    let heap = Heap::builder(config.heap_bytes).build(device)?;
    let context = Context {
        device,
        module: kernels.module(),
        stream: device.stream()?,
        failures: device.zeroed(1)?,
        heap,
        threads: config.threads,
    };
    let mut reports = Vec::new();
    for Example { name, does, run, .. } in chosen(only) {
        let start = Instant::now();
        let (mut checked, sample) = run(&context)?;
        checked.push(context.check_empty(name)?);
        let report = ExampleReport { name, does, checked, sample, seconds: start.elapsed().as_secs_f64() };
        on_report(&report);
        reports.push(report);
    }
    Ok(reports)
}
