//! Data structures that kernels build, use and take down, each checked against a plain computation on the host.
//!
//! The kernels are in `harness/kernels/examples`. After each example the heap has to be empty again:
//! no thread was recorded for misuse or for want of memory, and one allocation of all its memory
//! succeeds.

mod graph;
mod octree;
mod table;
mod vectors;

use crate::kernels::examples::example_take_all;
use crate::{Error, OwnModule, Result};
use serde::Serialize;
use std::time::{Duration, Instant};
use warpheap::driver::{Backend, Device, DeviceBuffer, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap::pool::Heap;
use warpheap_device::kernel::Kernel;

/// Threads in a block.
const BLOCK: u32 = 256;

/// How large the examples shall be.
#[derive(Clone, Copy, Debug)]
pub struct ExamplesConfig {
    /// GPU threads of each kernel that builds something, 1 or more.
    pub threads: u32,
    /// Bytes of the heap.
    pub heap_bytes: u64,
}

impl ExamplesConfig {
    /// A size that takes seconds at most.
    pub fn for_backend(backend: Backend) -> ExamplesConfig {
        match backend {
            Backend::Cpu => ExamplesConfig { threads: 1 << 12, heap_bytes: 64 << 20 },
            _ => ExamplesConfig { threads: 1 << 18, heap_bytes: 2 << 30 },
        }
    }
}

/// What one example did.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExampleReport {
    /// Its name.
    pub name: &'static str,
    /// What its kernels do.
    pub does: &'static str,
    /// What was compared with what, with numbers.
    pub checked: Vec<String>,
    /// A result to look at.
    pub sample: String,
    /// Host time for everything, checks included.
    pub seconds: f64,
}

/// What an example says at its end: what was checked, and a sample.
type Told = (Vec<String>, String);

struct Example {
    name: &'static str,
    does: &'static str,
    /// The kernels that it launches. Any other is refused.
    launched: &'static [&'static str],
    run: fn(&Workshop<'_>) -> Result<Told>,
}

const EXAMPLES: [Example; 4] = [
    Example { name: vectors::NAME, does: vectors::DOES, launched: &vectors::LAUNCHED, run: vectors::run },
    Example { name: table::NAME, does: table::DOES, launched: &table::LAUNCHED, run: table::run },
    Example { name: graph::NAME, does: graph::DOES, launched: &graph::LAUNCHED, run: graph::run },
    Example { name: octree::NAME, does: octree::DOES, launched: &octree::LAUNCHED, run: octree::run },
];

/// What is launched after each example.
const LAUNCHED: [&str; 1] = kernel_names![example_take_all];

/// The names of the examples, in the order in which they run.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().map(|example| example.name)
}

/// The kernels that the examples whose name contains `only` launch; those of all without it.
pub fn kernels(only: Option<&str>) -> Vec<&'static str> {
    chosen(only).flat_map(|example| example.launched).chain(&LAUNCHED).copied().collect()
}

fn chosen(only: Option<&str>) -> impl Iterator<Item = &'static Example> {
    EXAMPLES.iter().filter(move |example| only.is_none_or(|only| example.name.contains(only)))
}

/// Runs the examples whose name contains `only`, all without it; `kernels` holds their
/// [`kernels()`](kernels()). `told` gets each report at its end.
///
/// # Errors
/// [`Error::WrongResult`] for the first example that computed something else than the host, or left something in
/// the heap; or what the device answers.
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

/// What the examples work with.
struct Workshop<'a> {
    device: &'a Device,
    module: &'a Module,
    stream: Stream,
    /// Threads that had to do without memory.
    refused: DeviceBuffer<u64>,
    heap: Heap,
    threads: u32,
}

impl Workshop<'_> {
    /// Runs a kernel with a thread for each of `count` things, and waits for it.
    ///
    /// # Safety
    /// What the kernel asks of its caller, for as long as it runs.
    unsafe fn run<K: Kernel>(&self, kernel: K, count: usize, args: K::Args) -> warpheap::Result<()> {
        let grid = LaunchConfig::linear(count.max(1) as u32, BLOCK);
        // SAFETY: the caller's promise.
        unsafe { self.stream.launch(self.module, kernel, &grid, args) }?;
        self.stream.synchronize()
    }

    /// Nothing went wrong, no one was refused, and the heap has all its memory in one piece.
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

    /// Fails on the first thing that is not as expected; says otherwise that all are.
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

/// A number that looks random, the same on every machine (SplitMix64's finalizer).
fn scrambled(i: u64) -> u64 {
    let a = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ a >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ b >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ c >> 31
}
