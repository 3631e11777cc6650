//! Allocations and frees of the arena and the free list: one block per thread.

use super::context::{Bench, Plan, THREADS};
use super::load::{Load, WITHOUT_ALLOCATING, one_size};
use super::results::Figure;
use crate::Result;
use crate::kernels::bench::{
    Sizes, bench_alloc_floor, bench_bump_alloc, bench_free_floor, bench_freelist_alloc, bench_freelist_free,
};
use crate::summary::Timing;
use warpheap::device_pools::{Bump, FreeList};
use warpheap::kernel_names;

const BUMP: [&str; 2] = kernel_names![bench_alloc_floor, bench_bump_alloc];
const ALLOC: [&str; 2] = kernel_names![bench_alloc_floor, bench_freelist_alloc];
const FREE: [&str; 3] = kernel_names![bench_free_floor, bench_freelist_alloc, bench_freelist_free];
const EXHAUSTED: [&str; 1] = kernel_names![bench_freelist_alloc];

pub(super) fn plans() -> Vec<Plan> {
    let mut all = Vec::new();
    for (name, sizes, pool_bytes) in [
        ("bump alloc, 16 B", one_size(16), 1 << 30),
        ("bump alloc, mixed 16-8192 B", Sizes { min: 16, max: 8192 }, 16 << 30),
    ] {
        all.push(Plan::new(name, &BUMP, move |b, name| b.bump(name, sizes, pool_bytes)));
    }
    for size in [64, 4096] {
        let named = |what: &str| format!("free list {what}, {size} B");
        all.push(Plan::new(named("alloc"), &ALLOC, move |b, name| b.freelist_alloc(name, size)));
        for (what, permuted, bar) in [("free", false, 2.0), ("free, permuted", true, 6.0)] {
            let measure = move |b: &Bench, name: &str| b.freelist_free(name, size, permuted, bar);
            all.push(Plan::new(named(what), &FREE, measure));
        }
        all.push(Plan::new(named("exhausted"), &EXHAUSTED, move |b, name| b.freelist_exhausted(name, size)));
    }
    all
}

impl Bench {
    fn bump(&self, name: &str, sizes: Sizes, pool_bytes: u64) -> Result<Figure> {
        let load = self.load(THREADS, sizes)?;
        let mut pool = Bump::builder(pool_bytes >> self.shrink).build(&self.timer.device)?;
        let base = load.alloc_floor()?;
        let args = (pool.handle(), load.out.slice(), sizes);
        // SAFETY: the pool and `out` are live, and only this stream uses them.
        let launch = || unsafe { load.launch(bench_bump_alloc, args) };
        let time = self.timer.time(|| pool.reset(), launch)?;
        load.alloc_figure(name, time, (WITHOUT_ALLOCATING, base), 1.5, load.threads())
    }

    /// The load of a free list. The size matters only to the floor.
    fn freelist_load(&self) -> Result<Load<'_>> {
        self.load(THREADS, one_size(16))
    }

    fn freelist_alloc(&self, name: &str, size: u64) -> Result<Figure> {
        let load = self.freelist_load()?;
        let base = load.alloc_floor()?;
        let time = time_alloc(&load, self.freelist(2 * load.threads(), size)?)?;
        load.alloc_figure(name, time, (WITHOUT_ALLOCATING, base), 2.0, load.threads())
    }

    fn freelist_free(&self, name: &str, size: u64, permuted: bool, bar: f64) -> Result<Figure> {
        let mut load = self.freelist_load()?;
        let pool = self.freelist(2 * load.threads(), size)?;
        load.free_figure(name, &pool, permuted, bar)
    }

    fn freelist_exhausted(&self, name: &str, size: u64) -> Result<Figure> {
        let load = self.freelist_load()?;
        let base = time_alloc(&load, self.freelist(2 * load.threads(), size)?)?;
        let time = time_alloc(&load, self.freelist(load.threads() / 2, size)?)?;
        load.alloc_figure(name, time, ("the same with room for all", base), 5.0, load.threads() / 2)
    }
}

/// Times allocations from a pool. All its blocks are free before each round.
fn time_alloc(load: &Load<'_>, mut pool: FreeList) -> Result<Timing> {
    let args = (pool.handle(), load.out.slice());
    // SAFETY: the pool and `out` are live, and only this stream uses them.
    load.timer.time(|| pool.reset(), || unsafe { load.launch(bench_freelist_alloc, args) })
}
