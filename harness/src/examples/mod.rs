//! Data structures that kernels build, use and free. Each is checked against a simple computation
//! on the host.
//!
//! The kernels are in `harness/kernels/examples`. After each example the heap must be empty: no
//! misuse was recorded, no allocation failed, and one allocation of all its memory succeeds.

mod graph;
mod octree;
mod table;
mod vectors;

use crate::kernels::examples::example_take_all;
use crate::{Error, OwnModule, Result};
use serde::Serialize;
use std::time::{Duration, Instant};
use warpheap::device_pools::Heap;
use warpheap::driver::{Backend, Device, DeviceBuffer, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap_device::kernel::Kernel;

/// Threads in a block.
const BLOCK: u32 = 256;

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

/// The result of an example: what was checked, and a sample.
type Told = (Vec<String>, String);

struct Example {
    name: &'static str,
    does: &'static str,
    /// The kernels that it launches. Launching any other kernel is an error.
    launched: &'static [&'static str],
    run: fn(&Workshop<'_>) -> Result<Told>,
}

const EXAMPLES: [Example; 4] = [
    Example { name: vectors::NAME, does: vectors::DOES, launched: &vectors::LAUNCHED, run: vectors::run },
    Example { name: table::NAME, does: table::DOES, launched: &table::LAUNCHED, run: table::run },
    Example { name: graph::NAME, does: graph::DOES, launched: &graph::LAUNCHED, run: graph::run },
    Example { name: octree::NAME, does: octree::DOES, launched: &octree::LAUNCHED, run: octree::run },
];

/// The kernels that run after each example.
const LAUNCHED: [&str; 1] = kernel_names![example_take_all];

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
/// the kernels that [`kernels()`](kernels()) names. Calls `told` with each report.
///
/// # Errors
/// [`Error::WrongResult`] for the first example that computes a result other than the host's or
/// leaves memory allocated in the heap. Otherwise, an error of the device.
pub fn run(
    device: &Device,
    kernels: &OwnModule,
    config: ExamplesConfig,
    only: Option<&str>,
    told: &mut dyn FnMut(&ExampleReport),
) -> Result<Vec<ExampleReport>> {
    let heap = Heap::builder(config.heap_bytes).build(device)?;
    let workshop = Workshop {
        device,
        module: kernels.module(),
        stream: device.stream()?,
        refused: device.zeroed(1)?,
        heap,
        threads: config.threads,
    };
    let mut reports = Vec::new();
    for Example { name, does, run, .. } in chosen(only) {
        let start = Instant::now();
        let (mut checked, sample) = run(&workshop)?;
        checked.push(workshop.check_empty(name)?);
        let report = ExampleReport { name, does, checked, sample, seconds: seconds(start.elapsed()) };
        told(&report);
        reports.push(report);
    }
    Ok(reports)
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// The shared state of the examples.
struct Workshop<'a> {
    device: &'a Device,
    module: &'a Module,
    stream: Stream,
    /// Threads that failed to allocate.
    refused: DeviceBuffer<u64>,
    heap: Heap,
    threads: u32,
}

impl Workshop<'_> {
    /// Runs a kernel with one thread per item, `count` threads in all, and waits for it.
    ///
    /// # Safety
    /// The requirements of the kernel, for as long as it runs.
    unsafe fn run<K: Kernel>(&self, kernel: K, count: usize, args: K::Args) -> warpheap::Result<()> {
        let grid = LaunchConfig::linear(count.max(1) as u32, BLOCK);
        // SAFETY: the caller of this function meets the requirements of the kernel.
        unsafe { self.stream.launch(self.module, kernel, &grid, args) }?;
        self.stream.synchronize()
    }

    /// Checks that no misuse was recorded, no allocation failed, and the heap can allocate all its
    /// memory at once.
    fn check_empty(&self, name: &str) -> Result<String> {
        let mut faults = self.heap.faults()?;
        let unset = self.module.global_heap_faults()?;
        faults.count += unset.count;
        faults.first.extend(unset.first);
        let refused: u64 = self.refused.copy_to_vec()?.iter().sum();
        if faults.count + refused != 0 {
            let found =
                format!("{} faults ({:?} first), {refused} refusals", faults.count, faults.first.first());
            return Err(wrong(name, found));
        }
        let taken = self.device.zeroed::<u64>(1)?;
        // SAFETY: heap and word live until the kernel has ended.
        unsafe { self.run(example_take_all, 1, (self.heap.handle(), taken.ptr())) }?;
        if taken.copy_to_vec()? != [1] || self.heap.faults()?.count != 0 {
            return Err(wrong(
                name,
                "something is left in the heap: its whole memory cannot be allocated".into(),
            ));
        }
        Ok(format!(
            "the heap is empty: one allocation of all {} succeeds",
            warpheap::Bytes(self.heap.capacity())
        ))
    }

    /// Fails at the first unexpected value. Otherwise returns a message that all are as expected.
    fn compare<T: PartialEq + std::fmt::Debug>(
        &self,
        name: &str,
        what: &str,
        found: &[T],
        expected: &[T],
    ) -> Result<String> {
        if found.len() != expected.len() {
            return Err(wrong(name, format!("{} {what} instead of {}", found.len(), expected.len())));
        }
        let pairs = found.iter().zip(expected).enumerate();
        match pairs.into_iter().find(|(_, (found, expected))| found != expected) {
            Some((i, (found, expected))) => {
                Err(wrong(name, format!("{what}: number {i} is {found:?} instead of {expected:?}")))
            }
            None => Ok(format!("{} {what} are as the host computes them", found.len())),
        }
    }
}

fn wrong(name: &str, found: String) -> Error {
    Error::WrongResult { what: format!("the example `{name}`"), found }
}

/// A pseudo-random number, equal on every machine (SplitMix64's finalizer).
fn scrambled(i: u64) -> u64 {
    let a = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ a >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ b >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ c >> 31
}
