//! The engine of all benchmarks: it times rounds, launches what is measured, checks the results,
//! and records what failed.
//!
//! [`Bench`] has the device and the number of rounds. A [`Load`] is the threads of a kernel with
//! their blocks. A [`Subject`] is what is measured: an allocator or a floor. A floor is a kernel
//! that does the same work except for the allocation or the free. A [`Run`] announces each
//! measurement, and keeps the reasons of those without a result.
//!
//! A kernel that spins for 40 µs precedes every timed kernel. The host's launch latency has thus
//! passed when the timed kernel starts.

use super::results::{Operation, SuiteReport};
use crate::kernels::bench::{Counter, Order, Sizes, bench_spin};
use crate::summary::Timing;
use crate::{Error, Result};
use std::time::{Duration, Instant};
use warpheap::device_pools::{FreeList, Heap};
use warpheap::driver::{Device, DeviceBuffer, LaunchConfig, Module, Stream};
use warpheap::error::OutOfMemory;
use warpheap::kernel_names;
use warpheap_device::kernel::{DevicePtr, Kernel};

/// Kernels that every timing launches.
pub(super) const LAUNCHED: [&str; 1] = kernel_names![bench_spin];

/// Threads in a block of the timed kernels.
pub(super) const BLOCK: u32 = 256;
pub(super) const GIB: u64 = 1 << 30;
/// Duration of the spin kernel before each timed kernel.
const SPIN_NANOS: u64 = 40_000;

/// The rounds of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// Rounds without a result before the others.
    pub warm_up: u32,
    /// Rounds with a result.
    pub timed: u32,
    /// Rounds with a result even if they take longer than the budget.
    pub least: u32,
    /// Time for all rounds. When it is over, the warm-up ends after one round, and the others after
    /// `least`.
    pub budget: Duration,
}

impl Rounds {
    /// So many rounds after three untimed ones.
    pub fn of(timed: u32) -> Rounds {
        Rounds { warm_up: 3, timed: timed.max(1), least: 2, budget: Duration::MAX }
    }

    /// Number of rounds, including the warm-up.
    pub fn all(&self) -> u32 {
        self.warm_up + self.timed
    }

    /// Calls `round` for each round, and returns the results of those after the warm-up.
    pub fn run<T, E>(&self, mut round: impl FnMut() -> Result<T, E>) -> Result<Vec<T>, E> {
        let (started, mut results) = (Instant::now(), Vec::new());
        for i in 0..self.all() {
            let is_over = i > 0 && started.elapsed() > self.budget;
            if is_over && results.len() >= self.least as usize {
                break;
            }
            let result = round()?;
            if i >= self.warm_up || is_over {
                results.push(result);
            }
        }
        Ok(results)
    }
}

/// A device with its kernels, and how kernels are timed on it.
pub(super) struct Bench {
    pub device: Device,
    pub module: Module,
    pub stream: Stream,
    pub rounds: Rounds,
    /// Figures are measured with a fraction 1/2^`shrink` of the threads and memory. 0 except in
    /// tests.
    pub shrink: u32,
}

impl Bench {
    pub fn new(device: &Device, module: &Module, rounds: Rounds, shrink: u32) -> Result<Self> {
        let stream = device.stream()?;
        Ok(Bench { device: device.clone(), module: module.clone(), stream, rounds, shrink })
    }

    /// A load of `threads` that make one pair each, and free the blocks that they allocated.
    pub fn load(&self, threads: u32, sizes: Sizes) -> Result<Load<'_>> {
        let threads = threads >> self.shrink;
        let (out, failures) = (self.device.zeroed(threads as usize)?, self.device.zeroed(1)?);
        Ok(Load { bench: self, sizes, turns: 1, permuted: false, out, failures })
    }

    /// A heap of `bytes`.
    pub fn heap(&self, bytes: u64) -> warpheap::Result<Heap> {
        Heap::builder(bytes >> self.shrink).build(&self.device)
    }

    /// A free list of `blocks` blocks.
    pub fn freelist(&self, blocks: u32, size: u64) -> warpheap::Result<FreeList> {
        FreeList::builder(blocks.into(), size).build(&self.device)
    }

    /// The times of the rounds in microseconds: of the kernels that `timed` launches after an
    /// untimed `prepare`, and before an untimed `look` at the results.
    pub fn times(
        &self,
        mut prepare: impl FnMut() -> warpheap::Result<()>,
        mut timed: impl FnMut() -> warpheap::Result<()>,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<Vec<f64>> {
        self.rounds.run(|| {
            prepare()?;
            let micros = self.once(&mut timed)?;
            look()?;
            Ok(micros)
        })
    }

    /// The time of the kernels that `timed` launches on the idle device, in microseconds.
    pub fn once(&self, timed: impl FnOnce() -> warpheap::Result<()>) -> Result<f64> {
        self.device.synchronize()?;
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: the kernel accesses no memory.
        unsafe { self.stream.launch(&self.module, bench_spin, &one, (SPIN_NANOS,)) }?;
        let before = self.stream.record()?;
        timed()?;
        let after = self.stream.record()?;
        self.stream.synchronize()?;
        Ok(after.elapsed(&before)?.as_secs_f64() * 1e6)
    }

    /// Launches a kernel of `module` for so many threads.
    ///
    /// # Safety
    /// The requirements of the kernel hold.
    pub unsafe fn launch<K: Kernel>(
        &self,
        module: &Module,
        kernel: K,
        threads: u32,
        args: K::Args,
    ) -> warpheap::Result<()> {
        let grid = LaunchConfig::linear(threads, BLOCK.min(threads));
        // SAFETY: `launch` requires what the kernel requires.
        unsafe { self.stream.launch(module, kernel, &grid, args) }
    }
}

/// What is measured: an allocator in kernels, or a floor.
pub(super) trait Subject {
    /// Launches the kernel of an operation for all threads of a load. An allocation overwrites the
    /// addresses of earlier ones. A free releases the blocks that the last allocation stored.
    fn launch(&self, operation: Operation, load: &Load<'_>) -> warpheap::Result<()>;

    /// Checks the allocator after all blocks were freed, and says what was checked.
    fn check_freed(&self, _name: &str) -> Result<String> {
        Ok(String::new())
    }
}

/// Threads, what they request, and their blocks.
pub(super) struct Load<'a> {
    pub bench: &'a Bench,
    pub sizes: Sizes,
    /// Pairs of an allocation and a free of each thread in a churn.
    pub turns: u32,
    /// Whether each thread frees a block that is far from those of its neighbours.
    pub permuted: bool,
    /// The address of each thread's block, or null.
    pub out: DeviceBuffer<u64>,
    pub failures: DeviceBuffer<u64>,
}

impl Load<'_> {
    pub fn threads(&self) -> u32 {
        self.out.len() as u32
    }

    /// Counter of failures in the kernels.
    pub fn counter(&self) -> Counter {
        DevicePtr(self.failures.address() as *mut _)
    }

    /// The order in which the threads free.
    pub fn order(&self) -> Order {
        Order { log2: self.threads().ilog2(), permuted: self.permuted.into() }
    }

    /// Launches a kernel for all threads.
    ///
    /// # Safety
    /// The requirements of the kernel hold.
    pub unsafe fn launch<K: Kernel>(&self, kernel: K, args: K::Args) -> warpheap::Result<()> {
        // SAFETY: `launch` requires what the kernel requires.
        unsafe { self.launch_in(&self.bench.module, kernel, args) }
    }

    /// Launches a kernel of another module as [`launch`](Self::launch) does.
    ///
    /// # Safety
    /// The requirements of the kernel hold.
    pub unsafe fn launch_in<K: Kernel>(
        &self,
        module: &Module,
        kernel: K,
        args: K::Args,
    ) -> warpheap::Result<()> {
        // SAFETY: `launch_in` requires what the kernel requires.
        unsafe { self.bench.launch(module, kernel, self.threads(), args) }
    }

    /// The times of an operation in microseconds, with an untimed `look` at the results of every
    /// round. Before each allocation but the first, the blocks are freed, and before each free they
    /// are allocated. The last allocations are kept.
    pub fn times(
        &self,
        subject: &dyn Subject,
        operation: Operation,
        look: impl FnMut() -> Result<()>,
    ) -> Result<Vec<f64>> {
        let mut is_first = true;
        let prepare = || match operation {
            Operation::Alloc if std::mem::take(&mut is_first) => Ok(()),
            Operation::Alloc => subject.launch(Operation::Free, self),
            Operation::Free => subject.launch(Operation::Alloc, self),
            Operation::Churn => Ok(()),
        };
        self.bench.times(prepare, || subject.launch(operation, self), look)
    }

    /// Times an operation.
    pub fn time(&self, subject: &dyn Subject, operation: Operation) -> Result<Timing> {
        Ok(Timing::of(self.times(subject, operation, || Ok(()))?))
    }

    /// Times an operation that needs no preparation.
    pub fn time_alone(&self, subject: &dyn Subject, operation: Operation) -> Result<Timing> {
        let times = self.bench.times(|| Ok(()), || subject.launch(operation, self), || Ok(()))?;
        Ok(Timing::of(times))
    }

    /// Times allocations. Also returns the smallest number of successful ones in a round.
    pub fn time_allocs(&self, subject: &dyn Subject) -> Result<(Timing, u32)> {
        let mut least = u32::MAX;
        let times = self.times(subject, Operation::Alloc, || {
            least = least.min(self.granted()?);
            Ok(())
        })?;
        Ok((Timing::of(times), least))
    }

    /// 10^9 pairs per second.
    pub fn pair_rate(&self, time: Timing) -> f64 {
        f64::from(self.threads()) * f64::from(self.turns) / time.median_us / 1e3
    }

    /// Number of threads that hold a block.
    pub fn granted(&self) -> warpheap::Result<u32> {
        Ok(self.out.copy_to_vec()?.iter().filter(|address| **address != 0).count() as u32)
    }

    /// Failures in the kernels.
    pub fn failed(&self) -> Result<u64> {
        Ok(self.failures.copy_to_vec()?[0])
    }

    /// Checks that exactly `granted` threads hold a block, and that all addresses differ.
    pub fn check_addresses(&self, name: &str, granted: u32) -> Result<String> {
        check_addresses(name, self.out.copy_to_vec()?, granted)
    }

    /// Checks the allocator, and that the threads observed no failure.
    pub fn check(&self, name: &str, subject: &dyn Subject) -> Result<String> {
        match self.failed()? {
            0 => Ok(format!("{}, no failure", subject.check_freed(name)?)),
            failures => Err(Error::wrong(name, format!("{failures} failures"))),
        }
    }
}

/// One size for all threads.
pub(super) fn one_size(bytes: u32) -> Sizes {
    Sizes { min: bytes, max: bytes }
}

/// Checks that exactly `granted` distinct addresses were stored, and null elsewhere.
pub(super) fn check_addresses(name: &str, mut addresses: Vec<u64>, granted: u32) -> Result<String> {
    addresses.retain(|&address| address != 0);
    addresses.sort_unstable();
    let found = addresses.len();
    addresses.dedup();
    if (found, addresses.len()) != (granted as usize, granted as usize) {
        let found = format!(
            "{found} instead of {granted} allocations succeeded, at {} different addresses",
            addresses.len()
        );
        return Err(Error::wrong(name, found));
    }
    Ok(format!("exactly {granted} allocations succeeded, at different addresses"))
}

/// The measurements of a run. Those without a result have an entry in `left_out` or in `wrong`.
pub(crate) struct Run<'a> {
    progress: &'a mut dyn FnMut(&str),
    started: Instant,
    limit: Duration,
    is_left_out: fn(&warpheap::Error) -> bool,
    /// Measurements that were left out, and the reasons.
    pub left_out: Vec<String>,
    /// Measurements without a result because the measured code failed its checks.
    pub wrong: Vec<String>,
}

impl<'a> Run<'a> {
    /// A run that begins now. No measurement begins after `limit`. A measurement that fails with an
    /// error for which `is_left_out` returns true is left out; other errors end the run.
    pub fn new(
        progress: &'a mut dyn FnMut(&str),
        limit: Duration,
        is_left_out: fn(&warpheap::Error) -> bool,
    ) -> Run<'a> {
        let (left_out, wrong) = Default::default();
        Run { progress, started: Instant::now(), limit, is_left_out, left_out, wrong }
    }

    /// The report, with the duration of the run and what has no result.
    pub fn end(self, mut report: SuiteReport) -> SuiteReport {
        report.seconds = self.started.elapsed().as_secs_f64();
        report.bench.left_out.extend(self.left_out);
        report.bench.wrong.extend(self.wrong);
        report
    }

    /// Announces the measurement `name`.
    pub fn announce(&mut self, name: &str) {
        (self.progress)(name);
    }

    /// Why no measurement may begin any more.
    pub fn out_of_time(&self) -> Option<String> {
        let is_over = self.started.elapsed() > self.limit;
        is_over.then(|| format!("the suite ends after {} s", self.limit.as_secs()))
    }

    /// Whether the run is out of time. Then `what` is left out.
    pub fn is_over(&mut self, what: &str) -> bool {
        let why = self.out_of_time();
        self.left_out.extend(why.iter().map(|why| format!("{what}: {why}")));
        why.is_some()
    }

    /// Announces and measures `name`, unless the run is out of time: see [`keep`](Self::keep).
    pub fn measure<T>(&mut self, name: &str, measure: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        self.announce(name);
        if self.is_over(name) { Ok(None) } else { self.keep(name, measure()) }
    }

    /// The result of the measurement `what`. `None` if it was left out or wrong: the device is
    /// still usable.
    pub fn keep<T>(&mut self, what: &str, measured: Result<T>) -> Result<Option<T>> {
        match measured {
            Ok(value) => return Ok(Some(value)),
            Err(Error::Library(error)) if (self.is_left_out)(&error) => {
                self.left_out.push(format!("{what}: {error}"));
            }
            Err(error @ Error::WrongResult { .. }) => self.wrong.push(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}

/// Whether the device has too little memory.
pub(super) fn is_out_of_memory(error: &warpheap::Error) -> bool {
    matches!(error, warpheap::Error::OutOfMemory(OutOfMemory::Device { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_ends_the_rounds() {
        let mut rounds = Rounds::of(9);
        let run = |rounds: &Rounds| {
            let mut launches = 0;
            let count = || {
                launches += 1;
                Ok::<_, Error>(launches)
            };
            (rounds.run(count).unwrap(), launches)
        };
        assert_eq!(run(&rounds), (Vec::from_iter(4..=12), 12));
        rounds.budget = Duration::ZERO;
        assert_eq!(run(&rounds), (vec![2, 3], 3));
    }

    #[test]
    fn an_error_leaves_out_a_measurement_or_ends_the_run() {
        let mut told = Vec::new();
        let mut progress = |name: &str| told.push(name.to_owned());
        let mut run = Run::new(&mut progress, Duration::MAX, is_out_of_memory);
        let device = Device::cpu();
        let large = || Ok(device.zeroed::<u64>(1 << 40)?);
        assert!(run.measure("large", large).unwrap().is_none());
        let wrong = || Err::<(), _>(Error::wrong("wrong", "2 blocks".into()));
        assert!(run.measure("wrong", wrong).unwrap().is_none());
        let forked = || Err::<(), _>(warpheap::Error::Forked.into());
        assert!(run.measure("forked", forked).is_err());
        assert!(run.left_out[0].starts_with("large: cannot allocate "), "{:?}", run.left_out);
        assert_eq!((run.left_out.len(), &*run.wrong[0]), (1, "wrong: the results are wrong: 2 blocks"));
        assert_eq!(told, ["large", "wrong", "forked"]);
    }
}
