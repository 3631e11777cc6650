//! Allocations, and frees of the allocated blocks: one per thread.

use crate::bench::context::{Bench, GIB, Plan, THREADS};
use crate::bench::load::{Pool, WITHOUT_ALLOCATING, one_size};
use crate::bench::results::Figure;
use crate::kernels::bench::{
    Sizes, bench_alloc_floor, bench_free_floor, bench_heap_alloc, bench_heap_alloc_sparse, bench_heap_free,
    bench_heap_free_sparse,
};
use crate::{Error, Result};
use warpheap::kernel_names;

/// Allocated sizes in bytes: all powers of two, and some of the size classes between them.
const SIZES: [u32; 14] = [16, 32, 48, 64, 96, 128, 256, 512, 768, 1024, 2048, 3072, 4096, 8192];
/// Sizes that are also freed.
const FREED: [u32; 4] = [16, 64, 512, 4096];
/// Sizes that are also measured with sixteen times as many threads.
const BY_MANY: [u32; 3] = [16, 64, 512];
const MANY: u32 = 1 << 24;
const MIXED: Sizes = Sizes { min: 16, max: 8192 };
/// Mixed allocations: sizes, threads, and the maximum ratio to the floor.
const MIXED_ALLOCS: [(Sizes, u32, f64); 3] =
    [(MIXED, THREADS, 8.0), (MIXED, 1 << 17, 3.5), (Sizes { min: 16, max: 512 }, THREADS, 4.0)];

/// Untimed kernels in which a heap grows its rings to what mixed sizes need.
const SETTLING: u32 = 200;

/// Maximum ratio to the floor: of a free in order, and of a free in permuted order.
const FREE_BARS: [f64; 2] = [2.2, 3.6];
const MIXED_FREE_BARS: [f64; 2] = [3.0, 3.8];
const ALLOC_BAR: f64 = 2.3;
const SPARSE_BAR: f64 = 2.5;
/// The same with [`MANY`] threads.
const MANY_BARS: [f64; 2] = [2.4, 2.8];

const ALLOC: [&str; 3] = kernel_names![bench_alloc_floor, bench_heap_alloc, bench_heap_free];
const FREE: [&str; 3] = kernel_names![bench_free_floor, bench_heap_alloc, bench_heap_free];
const SPARSE: [&str; 3] = kernel_names![bench_alloc_floor, bench_heap_alloc_sparse, bench_heap_free_sparse];

pub(super) fn plans() -> Vec<Plan> {
    let mut all = Vec::new();
    for size in SIZES {
        all.push(alloc(format!("heap alloc, {size} B"), THREADS, one_size(size), ALLOC_BAR));
        if FREED.contains(&size) {
            all.extend(frees(&format!("{size} B"), one_size(size), FREE_BARS));
        }
    }
    for (sizes, threads, bar) in MIXED_ALLOCS {
        let many = if threads == THREADS { "" } else { ", 2^17" };
        let name = format!("heap alloc, mixed {}-{} B{many}", sizes.min, sizes.max);
        all.push(alloc(name.clone(), threads, sizes, bar));
        all.push(settled(name, threads, sizes, room_for(threads, sizes), bar));
        if sizes == MIXED && threads == THREADS {
            let name = format!("heap alloc, mixed {}-{} B, 16 GiB", sizes.min, sizes.max);
            all.push(settled(name, threads, sizes, 16 * GIB, bar));
        }
    }
    all.extend(frees("mixed 16-8192 B", MIXED, MIXED_FREE_BARS));
    for size in BY_MANY {
        let named = |what: &str| format!("heap {what}, {size} B, 2^24");
        all.push(alloc(named("alloc"), MANY, one_size(size), MANY_BARS[0]));
        all.push(free(named("free"), MANY, one_size(size), false, MANY_BARS[1]));
    }
    all.push(Plan::new("heap alloc, one lane in 32, 4096 B", &SPARSE, |b, name| b.heap_sparse(name)));
    all
}

fn alloc(name: String, threads: u32, sizes: Sizes, bar: f64) -> Plan {
    Plan::new(name, &ALLOC, move |b, name| {
        b.heap_alloc(name, threads, sizes, room_for(threads, sizes), 0, bar)
    })
}

/// The same after [`SETTLING`] kernels, in a heap of `bytes`.
fn settled(name: String, threads: u32, sizes: Sizes, bytes: u64, bar: f64) -> Plan {
    let name = format!("{name}, after {SETTLING} kernels");
    Plan::new(name, &ALLOC, move |b, name| b.heap_alloc(name, threads, sizes, bytes, SETTLING, bar))
}

fn free(name: String, threads: u32, sizes: Sizes, permuted: bool, bar: f64) -> Plan {
    Plan::new(name, &FREE, move |b, name| b.heap_free(name, threads, sizes, permuted, bar))
}

/// Frees in order and permuted.
fn frees(what: &str, sizes: Sizes, bars: [f64; 2]) -> [Plan; 2] {
    [("free", false, bars[0]), ("free, permuted", true, bars[1])]
        .map(|(how, permuted, bar)| free(format!("heap {how}, {what}"), THREADS, sizes, permuted, bar))
}

/// Size of a heap with room for `threads` allocations: 8 GiB, or 16 GiB if they request as much as
/// 8.
fn room_for(threads: u32, sizes: Sizes) -> u64 {
    let mean = u64::from(sizes.min + sizes.max) / 2;
    if u64::from(threads) * mean < 8 * GIB { 8 * GIB } else { 16 * GIB }
}

impl Bench {
    /// Times allocations, after `before` untimed rounds of the same.
    fn heap_alloc(
        &self,
        name: &str,
        threads: u32,
        sizes: Sizes,
        bytes: u64,
        before: u32,
        bar: f64,
    ) -> Result<Figure> {
        let load = self.load(threads, sizes)?;
        let base = load.alloc_floor()?;
        let heap = self.heap(bytes)?;
        for _ in 0..before {
            heap.alloc(&load)?;
            heap.free(&load, false)?;
        }
        let rounds = load.time_alloc(&heap)?;
        if rounds.min != load.threads() {
            let found = format!("only {} of {} allocations succeeded in a round", rounds.min, load.threads());
            return Err(Error::wrong(name, found));
        }
        load.alloc_figure(name, rounds.time, (WITHOUT_ALLOCATING, base), bar, load.threads())
    }

    fn heap_free(&self, name: &str, threads: u32, sizes: Sizes, permuted: bool, bar: f64) -> Result<Figure> {
        let mut load = self.load(threads, sizes)?;
        let heap = self.heap(room_for(threads, sizes))?;
        load.free_figure(name, &heap, permuted, bar)
    }

    fn heap_sparse(&self, name: &str) -> Result<Figure> {
        let load = self.load(1 << 17, one_size(4096))?;
        let base = load.alloc_floor()?;
        let heap = self.heap(8 * GIB)?;
        let args = (heap.handle(), load.out.slice(), load.sizes);
        let free_args = (heap.handle(), load.out.slice());
        let time = load.time_alternating(
            // SAFETY: the heap and `out` are live, and only this stream uses them.
            || unsafe { load.launch(bench_heap_alloc_sparse, args) },
            // SAFETY: the blocks in `out` were allocated, and are freed once before the next
            // allocations.
            || unsafe { load.launch(bench_heap_free_sparse, free_args) },
        )?;
        load.alloc_figure(name, time, (WITHOUT_ALLOCATING, base), SPARSE_BAR, load.threads() / 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_has_room_for_all_threads() {
        assert_eq!(room_for(1 << 20, one_size(4096)), 8 * GIB);
        assert_eq!(room_for(1 << 20, one_size(8192)), 16 * GIB);
        assert_eq!(room_for(1 << 24, one_size(512)), 16 * GIB);
        assert_eq!(room_for(1 << 20, MIXED), 8 * GIB);
    }
}
