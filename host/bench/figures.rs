//! The figures one by one.

use super::timing::{Timer, Timing};
use super::{BenchConfig, BenchReport, Figure};
use crate::driver::{Device, DeviceBuffer, LaunchConfig, Module};
use crate::error::{Error, Result};
use crate::pool::{Bump, FreeList};
use warpheap_kernels::bench::{
    Counter, Order, Sizes, bench_bump_alloc, bench_freelist_alloc, bench_freelist_free,
};

const THREADS_LOG2: u32 = 20;
pub(super) const THREADS: u32 = 1 << THREADS_LOG2;
pub(super) const BLOCK: u32 = 256;
const IN_ORDER: Order = Order { log2: THREADS_LOG2, permuted: 0 };
const PERMUTED: Order = Order { log2: THREADS_LOG2, permuted: 1 };

pub(super) struct Bench<'a> {
    pub timer: Timer,
    config: &'a BenchConfig,
    /// Where the threads store their addresses.
    pub out: DeviceBuffer<u64>,
    /// Failed allocations.
    pub failures: DeviceBuffer<u64>,
    report: BenchReport,
    /// The heap's figures are measured with a 2^`shrink`-th of threads and memory: 0 but in tests.
    pub shrink: u32,
}

impl<'a> Bench<'a> {
    pub fn new(device: &Device, module: &Module, config: &'a BenchConfig) -> Result<Self> {
        let (device, module) = (device.clone(), module.clone());
        let stream = device.stream()?;
        Ok(Bench {
            out: device.zeroed(THREADS as usize)?,
            failures: device.zeroed(1)?,
            timer: Timer { device, module, stream, rounds: config.rounds },
            config,
            shrink: 0,
            report: BenchReport {
                block: BLOCK,
                rounds: config.rounds,
                figures: Vec::new(),
                left_out: Vec::new(),
                wrong: Vec::new(),
            },
        })
    }

    pub fn run(mut self, progress: &mut dyn FnMut(&str)) -> Result<BenchReport> {
        for (name, sizes, pool_bytes) in [
            ("bump alloc, 16 B", Sizes { min: 16, max: 16 }, 1 << 30),
            ("bump alloc, mixed 16-8192 B", Sizes { min: 16, max: 8192 }, 16 << 30),
        ] {
            self.figure(name, progress, |bench| bench.bump(name, sizes, pool_bytes))?;
        }
        for size in [64, 4096] {
            let named = |what: &str| format!("free list {what}, {size} B");
            self.figure(&named("alloc"), progress, |b| b.freelist_alloc(&named("alloc"), size))?;
            for (what, order, bar) in [("free", IN_ORDER, 2.0), ("free, permuted", PERMUTED, 6.0)] {
                self.figure(&named(what), progress, |b| b.freelist_free(&named(what), size, order, bar))?;
            }
            let name = named("exhausted");
            self.figure(&name, progress, |b| b.freelist_exhausted(&name, size))?;
        }
        let name = "free list churn, 64 B";
        self.figure(name, progress, |b| b.freelist_churn(name))?;
        let name = "free list tight churn, 64 B";
        self.figure(name, progress, |b| b.freelist_tight_churn(name))?;
        // The heap is being built: it is measured for who asks for it.
        if self.config.only.as_ref().is_some_and(|only| only.starts_with("heap")) {
            self.heap_figures(progress)?;
        }
        Ok(self.report)
    }

    /// Measures one figure, if it is asked for and the device has the memory.
    pub fn figure(
        &mut self,
        name: &str,
        progress: &mut dyn FnMut(&str),
        measure: impl FnOnce(&mut Self) -> Result<Figure>,
    ) -> Result<()> {
        if self.config.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return Ok(());
        }
        progress(name);
        match measure(self) {
            Ok(figure) => self.report.figures.push(figure),
            Err(error @ Error::OutOfMemory { .. }) => self.report.left_out.push(format!("{name}: {error}")),
            // The device is as good as before: the other figures can be measured.
            Err(error @ Error::WrongResult { .. }) => self.report.wrong.push(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub fn grid() -> LaunchConfig {
        LaunchConfig::linear(THREADS, BLOCK)
    }

    pub fn counter(&self) -> Counter {
        Counter(self.failures.address() as *const _)
    }

    fn bump(&mut self, name: &str, sizes: Sizes, pool_bytes: u64) -> Result<Figure> {
        let mut pool = Bump::builder(pool_bytes).build(&self.timer.device)?;
        let base = self.timer.alloc_floor(&self.out, sizes)?;
        let args = (pool.handle(), self.out.slice(), sizes);
        let Timer { module, stream, .. } = &self.timer;
        let time = self.timer.time(
            || pool.reset(),
            // SAFETY: pool and `out` live, and this stream alone uses them.
            || unsafe { stream.launch(module, bench_bump_alloc, &Self::grid(), args) },
        )?;
        let checked = check_addresses(name, &self.out, THREADS)?;
        Ok(Figure::ratio(name, THREADS, time, "the same without allocating", base, 1.5).checked(checked))
    }

    pub fn freelist(&self, blocks: u32, size: u64) -> Result<FreeList> {
        FreeList::builder(blocks.into(), size).build(&self.timer.device)
    }

    fn launch_alloc(&self, pool: &FreeList) -> Result<()> {
        let Timer { module, stream, .. } = &self.timer;
        let args = (pool.handle(), self.out.slice());
        // SAFETY: pool and `out` live, and this stream alone uses them.
        unsafe { stream.launch(module, bench_freelist_alloc, &Self::grid(), args) }
    }

    /// Allocations from a pool that is full of free blocks before each.
    fn time_alloc(&self, pool: &mut FreeList) -> Result<Timing> {
        let handle = pool.handle();
        let Timer { module, stream, .. } = &self.timer;
        let args = (handle, self.out.slice());
        self.timer.time(
            || pool.reset(),
            // SAFETY: pool and `out` live, and this stream alone uses them.
            || unsafe { stream.launch(module, bench_freelist_alloc, &Self::grid(), args) },
        )
    }

    fn freelist_alloc(&mut self, name: &str, size: u64) -> Result<Figure> {
        let mut pool = self.freelist(2 * THREADS, size)?;
        let base = self.timer.alloc_floor(&self.out, Sizes { min: 16, max: 16 })?;
        let time = self.time_alloc(&mut pool)?;
        let checked = check_addresses(name, &self.out, THREADS)?;
        Ok(Figure::ratio(name, THREADS, time, "the same without allocating", base, 2.0).checked(checked))
    }

    fn freelist_free(&mut self, name: &str, size: u64, order: Order, bar: f64) -> Result<Figure> {
        let pool = self.freelist(2 * THREADS, size)?;
        let Timer { module, stream, .. } = &self.timer;
        self.launch_alloc(&pool)?;
        let base = self.timer.free_floor(&self.out, order, self.counter())?;
        let args = (pool.handle(), self.out.slice(), order, self.counter());
        // The blocks of the round before are free; those of the first round are the launch's above.
        let mut first = true;
        let time = self.timer.time(
            || if std::mem::take(&mut first) { Ok(()) } else { self.launch_alloc(&pool) },
            // SAFETY: every block in `out` was allocated and is freed once.
            || unsafe { stream.launch(module, bench_freelist_free, &Self::grid(), args) },
        )?;
        let checked = self.check_all_free(name, &pool)?;
        Ok(Figure::ratio(name, THREADS, time, "the same without freeing", base, bar).checked(checked))
    }

    fn freelist_exhausted(&mut self, name: &str, size: u64) -> Result<Figure> {
        let base = self.time_alloc(&mut self.freelist(2 * THREADS, size)?)?;
        let mut pool = self.freelist(THREADS / 2, size)?;
        let time = self.time_alloc(&mut pool)?;
        let checked = check_addresses(name, &self.out, THREADS / 2)?;
        Ok(Figure::ratio(name, THREADS, time, "the same with room for all", base, 5.0).checked(checked))
    }

    /// Every block is free again, and no allocation or free failed.
    pub fn check_all_free(&self, name: &str, pool: &FreeList) -> Result<String> {
        let checked = self.check_blocks_free(name, pool)?;
        match self.failed()? {
            0 => Ok(format!("{checked}, no failure")),
            count => Err(Error::WrongResult { what: name.into(), found: format!("{count} failures") }),
        }
    }

    /// Every block is free again and nothing went wrong.
    pub fn check_blocks_free(&self, name: &str, pool: &FreeList) -> Result<String> {
        let (stats, faults, broken) = (pool.stats()?, pool.faults()?, pool.check()?);
        if stats.taken != 0 || stats.free != stats.capacity || faults.count != 0 || !broken.is_empty() {
            let found = format!("{stats:?}, {} faults, {broken:?}", faults.count);
            return Err(Error::WrongResult { what: name.into(), found });
        }
        Ok(format!("all {} blocks free afterwards, no fault", stats.capacity))
    }

    /// Allocations that failed since the counter was cleared.
    pub fn failed(&self) -> Result<u64> {
        Ok(self.failures.copy_to_vec()?[0])
    }
}

/// Exactly `granted` different addresses were stored, and nulls else.
pub(super) fn check_addresses(name: &str, out: &DeviceBuffer<u64>, granted: u32) -> Result<String> {
    check_different(name, out.copy_to_vec()?, granted)
}

/// The same of addresses that were copied from there.
pub(super) fn check_different(name: &str, mut addresses: Vec<u64>, granted: u32) -> Result<String> {
    addresses.retain(|&address| address != 0);
    addresses.sort_unstable();
    let found = addresses.len();
    addresses.dedup();
    if (found, addresses.len()) != (granted as usize, granted as usize) {
        let found = format!("{found} of {granted} allocations granted, {} different", addresses.len());
        return Err(Error::WrongResult { what: name.into(), found });
    }
    Ok(format!("exactly {granted} granted, all different"))
}
