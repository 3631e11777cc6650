//! Allocations, and frees of what was allocated: every thread one.

use super::super::Figure;
use super::super::figures::{Bench, THREADS};
use super::load::Load;
use super::{GIB, WITHOUT_ALLOCATING, one_size, room_for, wrong};
use crate::error::Result;
use warpheap_kernels::bench::{Sizes, bench_heap_alloc_sparse, bench_heap_free_sparse};

/// Sizes that are allocated, in bytes: all powers of two, and some of the classes between them.
const SIZES: [u32; 14] = [16, 32, 48, 64, 96, 128, 256, 512, 768, 1024, 2048, 3072, 4096, 8192];
/// Sizes of those that are also freed.
const FREED: [u32; 4] = [16, 64, 512, 4096];
/// Sizes that sixteen times as many threads allocate and free.
const BY_MANY: [u32; 3] = [16, 64, 512];
const MANY: u32 = 1 << 24;
const MIXED: Sizes = Sizes { min: 16, max: 8192 };

/// How many times its floor an allocation may take, and a free, in order and permuted.
const BARS: [f64; 3] = [2.0, 2.0, 6.0];
const MIXED_BARS: [f64; 3] = [4.0, 4.0, 6.0];
const MANY_BAR: f64 = 2.2;

impl Bench<'_> {
    pub fn heap_alloc_free_figures(&mut self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        for size in SIZES {
            let name = format!("heap alloc, {size} B");
            self.figure(&name, progress, |b| b.heap_alloc(&name, THREADS, one_size(size), BARS[0]))?;
            if FREED.contains(&size) {
                self.heap_free_figures(progress, &format!("{size} B"), one_size(size), BARS)?;
            }
        }
        let name = "heap alloc, mixed 16-8192 B";
        self.figure(name, progress, |b| b.heap_alloc(name, THREADS, MIXED, MIXED_BARS[0]))?;
        self.heap_free_figures(progress, "mixed 16-8192 B", MIXED, MIXED_BARS)?;
        for size in BY_MANY {
            let named = |what: &str| format!("heap {what}, {size} B, 2^24");
            let (alloc, free, sizes) = (named("alloc"), named("free"), one_size(size));
            self.figure(&alloc, progress, |b| b.heap_alloc(&alloc, MANY, sizes, MANY_BAR))?;
            self.figure(&free, progress, |b| b.heap_free(&free, MANY, sizes, false, MANY_BAR))?;
        }
        let name = "heap alloc, one lane in 32, 4096 B";
        self.figure(name, progress, |b| b.heap_sparse(name))
    }

    fn heap_free_figures(
        &mut self,
        progress: &mut dyn FnMut(&str),
        what: &str,
        sizes: Sizes,
        bars: [f64; 3],
    ) -> Result<()> {
        for (how, permuted, bar) in [("free", false, bars[1]), ("free, permuted", true, bars[2])] {
            let name = format!("heap {how}, {what}");
            self.figure(&name, progress, |b| b.heap_free(&name, THREADS, sizes, permuted, bar))?;
        }
        Ok(())
    }

    fn heap_alloc(&self, name: &str, threads: u32, sizes: Sizes, bar: f64) -> Result<Figure> {
        let load = self.load(threads, sizes)?;
        let base = self.timer.alloc_floor(&load.out, sizes)?;
        let heap = self.heap(room_for(threads, sizes))?;
        let rounds = load.time_alloc(&heap)?;
        all_granted(name, &load, rounds.least)?;
        let checked = load.check_addresses(name, load.threads())?;
        Ok(Figure::ratio(name, load.threads(), rounds.time, WITHOUT_ALLOCATING, base, bar).checked(checked))
    }

    fn heap_free(&self, name: &str, threads: u32, sizes: Sizes, permuted: bool, bar: f64) -> Result<Figure> {
        let mut load = self.load(threads, sizes)?;
        let heap = self.heap(room_for(threads, sizes))?;
        load.alloc(&heap)?;
        let base = self.timer.free_floor(&load.out, load.order(permuted), load.counter())?;
        load.free(&heap, false)?;
        load.clear_failures()?;
        let time = load.time_free(&heap, permuted)?;
        let checked = load.check(name, &heap)?;
        let against = "the same without freeing";
        Ok(Figure::ratio(name, load.threads(), time, against, base, bar).checked(checked))
    }

    fn heap_sparse(&self, name: &str) -> Result<Figure> {
        let load = self.load(1 << 17, one_size(4096))?;
        let base = self.timer.alloc_floor(&load.out, load.sizes)?;
        let heap = self.heap(8 * GIB)?;
        let args = (heap.handle(), load.out.slice(), load.sizes);
        // SAFETY: heap and `out` live, and this stream alone uses them.
        let launch = || unsafe { load.launch(bench_heap_alloc_sparse, args) };
        let free_args = (heap.handle(), load.out.slice());
        let mut first = true;
        let give_back = || match std::mem::take(&mut first) {
            true => Ok(()),
            // SAFETY: what `out` names was allocated, and is freed once before the next allocations.
            false => unsafe { load.launch(bench_heap_free_sparse, free_args) },
        };
        let time = self.timer.time(give_back, launch)?;
        let checked = load.check_addresses(name, load.threads() / 32)?;
        Ok(Figure::ratio(name, load.threads(), time, WITHOUT_ALLOCATING, base, BARS[0]).checked(checked))
    }
}

/// Every thread was granted its request in every round.
fn all_granted(name: &str, load: &Load<'_>, least: u32) -> Result<()> {
    if least == load.threads() {
        return Ok(());
    }
    Err(wrong(name, format!("only {least} of {} were granted in some round", load.threads())))
}
