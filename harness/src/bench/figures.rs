//! Measurement of each figure.

use super::floors::grid_of;
use super::plan::Plan;
use super::timing::{Timer, Timing};
use super::{BenchConfig, BenchReport, Figure};
use crate::kernels::bench::{
    Counter, Order, Sizes, bench_alloc_floor, bench_bump_alloc, bench_free_floor, bench_freelist_alloc,
    bench_freelist_free,
};
use crate::{Error, Result};
use warpheap::device_pools::{Bump, FreeList};
use warpheap::driver::{Device, DeviceBuffer, LaunchConfig, Module};
use warpheap::error::OutOfMemory;
use warpheap::kernel_names;
use warpheap_device::kernel::DevicePtr;

const THREADS_LOG2: u32 = 20;
pub(super) const THREADS: u32 = 1 << THREADS_LOG2;
pub(super) const BLOCK: u32 = 256;

const BUMP: [&str; 2] = kernel_names![bench_alloc_floor, bench_bump_alloc];
const ALLOC: [&str; 2] = kernel_names![bench_alloc_floor, bench_freelist_alloc];
const FREE: [&str; 3] = kernel_names![bench_free_floor, bench_freelist_alloc, bench_freelist_free];
const EXHAUSTED: [&str; 1] = kernel_names![bench_freelist_alloc];

/// The figures that `config` selects.
pub(super) fn plans(config: &BenchConfig) -> Vec<Plan> {
    let only = config.only.as_deref();
    let mut all = pool_plans();
    all.extend(super::churn::plans());
    // The heap is still being built, so its figures are measured on request only.
    if only.is_some_and(|only| only.starts_with("heap")) {
        all.extend(super::heap::plans());
    }
    all.retain(|plan| only.is_none_or(|only| plan.name.contains(only)));
    all
}

fn pool_plans() -> Vec<Plan> {
    let mut all = Vec::new();
    for (name, sizes, pool_bytes) in [
        ("bump alloc, 16 B", Sizes { min: 16, max: 16 }, 1 << 30),
        ("bump alloc, mixed 16-8192 B", Sizes { min: 16, max: 8192 }, 16 << 30),
    ] {
        all.push(Plan::new(name, &BUMP, move |b, name| b.bump(name, sizes, pool_bytes)));
    }
    for size in [64, 4096] {
        let named = |what: &str| format!("free list {what}, {size} B");
        all.push(Plan::new(named("alloc"), &ALLOC, move |b, name| b.freelist_alloc(name, size)));
        for (what, permuted, bar) in [("free", false, 2.0), ("free, permuted", true, 6.0)] {
            let measure = move |b: &mut Bench, name: &str| b.freelist_free(name, size, permuted, bar);
            all.push(Plan::new(named(what), &FREE, measure));
        }
        all.push(Plan::new(named("exhausted"), &EXHAUSTED, move |b, name| b.freelist_exhausted(name, size)));
    }
    all
}

pub(super) struct Bench {
    pub timer: Timer,
    /// The addresses that the threads store.
    pub out: DeviceBuffer<u64>,
    /// Failed allocations.
    pub failures: DeviceBuffer<u64>,
    report: BenchReport,
    /// Figures are measured with a fraction 1/2^`shrink` of the threads and memory. 0 except in
    /// tests.
    pub shrink: u32,
}

impl Bench {
    pub fn new(device: &Device, module: &Module, rounds: u32) -> Result<Self> {
        Bench::shrunk(device, module, rounds, 0)
    }

    pub fn shrunk(device: &Device, module: &Module, rounds: u32, shrink: u32) -> Result<Self> {
        let (device, module) = (device.clone(), module.clone());
        let stream = device.stream()?;
        let (figures, left_out, wrong) = Default::default();
        Ok(Bench {
            out: device.zeroed((THREADS >> shrink) as usize)?,
            failures: device.zeroed(1)?,
            timer: Timer { device, module, stream, rounds },
            shrink,
            report: BenchReport { block: BLOCK, rounds, figures, left_out, wrong },
        })
    }

    /// Measures the figures that the device has enough memory for.
    pub fn run(mut self, plans: Vec<Plan>, progress: &mut dyn FnMut(&str)) -> Result<BenchReport> {
        for plan in plans {
            progress(&plan.name);
            let name = &plan.name;
            match plan.measure(&mut self) {
                Ok(figure) => self.report.figures.push(figure),
                Err(Error::Library(error @ warpheap::Error::OutOfMemory(OutOfMemory::Device { .. }))) => {
                    self.report.left_out.push(format!("{name}: {error}"));
                }
                // The device is still usable, so the other figures can be measured.
                Err(error @ Error::WrongResult { .. }) => self.report.wrong.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(self.report)
    }

    /// Number of threads of the kernels for the pools.
    pub fn threads(&self) -> u32 {
        self.out.len() as u32
    }

    pub fn grid(&self) -> LaunchConfig {
        grid_of(&self.out)
    }

    /// The order in which the threads free: each its own block, or one far from those of its
    /// neighbours.
    fn order(&self, permuted: bool) -> Order {
        Order { log2: THREADS_LOG2 - self.shrink, permuted: permuted.into() }
    }

    pub fn counter(&self) -> Counter {
        DevicePtr(self.failures.address() as *mut _)
    }

    fn bump(&mut self, name: &str, sizes: Sizes, pool_bytes: u64) -> Result<Figure> {
        let mut pool = Bump::builder(pool_bytes >> self.shrink).build(&self.timer.device)?;
        let base = self.timer.alloc_floor(&self.out, sizes)?;
        let args = (pool.handle(), self.out.slice(), sizes);
        let Timer { module, stream, .. } = &self.timer;
        let time = self.timer.time(
            || pool.reset(),
            // SAFETY: the pool and `out` are live, and only this stream uses them.
            || unsafe { stream.launch(module, bench_bump_alloc, &self.grid(), args) },
        )?;
        let checked = check_addresses(name, &self.out, self.threads())?;
        Ok(Figure::ratio(name, self.threads(), time, "the same without allocating", base, 1.5)
            .checked(checked))
    }

    pub fn freelist(&self, blocks: u32, size: u64) -> warpheap::Result<FreeList> {
        FreeList::builder(blocks.into(), size).build(&self.timer.device)
    }

    fn launch_alloc(&self, pool: &FreeList) -> warpheap::Result<()> {
        let Timer { module, stream, .. } = &self.timer;
        let args = (pool.handle(), self.out.slice());
        // SAFETY: the pool and `out` are live, and only this stream uses them.
        unsafe { stream.launch(module, bench_freelist_alloc, &self.grid(), args) }
    }

    /// Times allocations from a pool. All its blocks are free before each round.
    fn time_alloc(&self, pool: &mut FreeList) -> Result<Timing> {
        let handle = pool.handle();
        let Timer { module, stream, .. } = &self.timer;
        let args = (handle, self.out.slice());
        self.timer.time(
            || pool.reset(),
            // SAFETY: the pool and `out` are live, and only this stream uses them.
            || unsafe { stream.launch(module, bench_freelist_alloc, &self.grid(), args) },
        )
    }

    fn freelist_alloc(&mut self, name: &str, size: u64) -> Result<Figure> {
        let mut pool = self.freelist(2 * self.threads(), size)?;
        let base = self.timer.alloc_floor(&self.out, Sizes { min: 16, max: 16 })?;
        let time = self.time_alloc(&mut pool)?;
        let checked = check_addresses(name, &self.out, self.threads())?;
        Ok(Figure::ratio(name, self.threads(), time, "the same without allocating", base, 2.0)
            .checked(checked))
    }

    fn freelist_free(&mut self, name: &str, size: u64, permuted: bool, bar: f64) -> Result<Figure> {
        let pool = self.freelist(2 * self.threads(), size)?;
        let Timer { module, stream, .. } = &self.timer;
        let order = self.order(permuted);
        self.launch_alloc(&pool)?;
        let base = self.timer.free_floor(&self.out, order, self.counter())?;
        let args = (pool.handle(), self.out.slice(), order, self.counter());
        // The blocks of the previous round are free; the launch above allocated those of the first
        // round.
        let mut first = true;
        let time = self.timer.time(
            || if std::mem::take(&mut first) { Ok(()) } else { self.launch_alloc(&pool) },
            // SAFETY: every block in `out` was allocated and is freed once.
            || unsafe { stream.launch(module, bench_freelist_free, &self.grid(), args) },
        )?;
        let checked = self.check_all_free(name, &pool)?;
        Ok(Figure::ratio(name, self.threads(), time, "the same without freeing", base, bar).checked(checked))
    }

    fn freelist_exhausted(&mut self, name: &str, size: u64) -> Result<Figure> {
        let base = self.time_alloc(&mut self.freelist(2 * self.threads(), size)?)?;
        let mut pool = self.freelist(self.threads() / 2, size)?;
        let time = self.time_alloc(&mut pool)?;
        let checked = check_addresses(name, &self.out, self.threads() / 2)?;
        Ok(Figure::ratio(name, self.threads(), time, "the same with room for all", base, 5.0)
            .checked(checked))
    }

    /// Checks that every block is free again, and that no allocation or free failed.
    pub fn check_all_free(&self, name: &str, pool: &FreeList) -> Result<String> {
        let checked = self.check_blocks_free(name, pool)?;
        match self.failed()? {
            0 => Ok(format!("{checked}, no failure")),
            count => Err(Error::WrongResult { what: name.into(), found: format!("{count} failures") }),
        }
    }

    /// Checks that every block is free again, and that the pool recorded no fault.
    pub fn check_blocks_free(&self, name: &str, pool: &FreeList) -> Result<String> {
        let (stats, faults, broken) = (pool.stats()?, pool.faults()?, pool.check()?);
        if stats.live_blocks != 0
            || stats.free_blocks != stats.blocks
            || faults.count != 0
            || !broken.is_empty()
        {
            let found = format!("{stats:?}, {} faults, {broken:?}", faults.count);
            return Err(Error::WrongResult { what: name.into(), found });
        }
        Ok(format!("all {} blocks free afterwards, no fault", stats.blocks))
    }

    /// Allocations that failed since the counter was reset.
    pub fn failed(&self) -> Result<u64> {
        Ok(self.failures.copy_to_vec()?[0])
    }
}

/// Checks that exactly `granted` distinct addresses were stored, and null elsewhere.
pub(super) fn check_addresses(name: &str, out: &DeviceBuffer<u64>, granted: u32) -> Result<String> {
    check_different(name, out.copy_to_vec()?, granted)
}

/// As [`check_addresses`], for addresses that were already copied to the host.
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
