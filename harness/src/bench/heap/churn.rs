//! Churn: every thread repeatedly allocates, writes and frees.
//!
//! The churn of many sizes reads back and compares what it wrote. It has two floors, kernels that
//! do everything but allocate and free. In one floor each thread uses a fixed place for all turns.
//! In the other it uses a new place in each turn, over as many blocks as a heap might allocate. The
//! bar refers to the faster floor.

use crate::Result;
use crate::bench::context::{Bench, GIB, Plan, THREADS};
use crate::bench::load::{Load, one_size};
use crate::bench::results::Figure;
use crate::kernels::bench::{
    Places, Sizes, bench_churn_floor, bench_churn_mixed_floor, bench_heap_churn, bench_heap_churn_mixed,
};
use crate::summary::Timing;
use warpheap::kernel_names;

/// Pairs per thread in the churn of one size.
const TURNS: u32 = 64;
/// Pairs per thread in the churn of many sizes.
const MIXED_TURNS: u32 = 32;
const MIXED: Sizes = Sizes { min: 16, max: 512 };
const MIXED_BAR: f64 = 4.0;
/// Distance between the fixed places of two threads, in words: the largest block of the churn.
const OWN_STRIDE: u32 = 512 / 8;
/// Distance between two new places, in words: about the mean block of the churn.
const NEW_STRIDE: u32 = 256 / 8;

/// A floor and its name.
type Floor = (&'static str, Timing);

const ONE_SIZE: [&str; 2] = kernel_names![bench_churn_floor, bench_heap_churn];
const MANY_SIZES: [&str; 2] = kernel_names![bench_churn_mixed_floor, bench_heap_churn_mixed];

pub(super) fn plans() -> Vec<Plan> {
    let mut all = Vec::new();
    for (size, bar) in [(16, 65.0), (64, 45.0), (128, 35.0)] {
        let name = format!("heap churn, {size} B");
        all.push(Plan::new(name, &ONE_SIZE, move |b, name| b.heap_churn(name, one_size(size), bar)));
    }
    for log2 in [17, 20] {
        let name = format!("heap churn, mixed 16-512 B, 2^{log2}");
        all.push(Plan::new(name, &MANY_SIZES, move |b, name| b.heap_churn_mixed(name, 1 << log2)));
    }
    all
}

impl Bench {
    fn heap_churn(&self, name: &str, sizes: Sizes, bar: f64) -> Result<Figure> {
        let load = self.load(THREADS, sizes)?;
        let base = load.churn_floor(TURNS)?;
        let heap = self.heap(8 * GIB)?;
        let args = (heap.handle(), sizes, TURNS, load.counter());
        // SAFETY: the heap and the counter are live, and only this stream uses them.
        let time = unsafe { load.time(bench_heap_churn, args) }?;
        let checked = load.check(name, &heap)?;
        Ok(load.churn_figure(name, TURNS, time, ("stores alone", base), bar).checked(checked))
    }

    fn heap_churn_mixed(&self, name: &str, threads: u32) -> Result<Figure> {
        let load = self.load(threads, MIXED)?;
        let [(against, base), (other, other_base)] = mixed_floors(&load)?;
        let heap = self.heap(8 * GIB)?;
        let args = (heap.handle(), MIXED, MIXED_TURNS, load.counter());
        // SAFETY: the heap and the counter are live, and only this stream uses them.
        let time = unsafe { load.time(bench_heap_churn_mixed, args) }?;
        let checked = load.check(name, &heap)?;
        let figure = Figure::ratio(name, load.threads(), time, against, base, MIXED_BAR);
        Ok(figure.beside(other, other_base).checked(checked))
    }
}

/// Both floors, the faster one first.
fn mixed_floors(load: &Load<'_>) -> Result<[Floor; 2]> {
    let own = Places { stride: OWN_STRIDE, step: 0 };
    let new = Places { stride: NEW_STRIDE, step: load.threads() * NEW_STRIDE };
    let own = ("the same, each thread in its own 512 B", mixed_floor(load, own)?);
    let new = ("the same, each turn in a new 256 B", mixed_floor(load, new)?);
    Ok(if own.1.median_us <= new.1.median_us { [own, new] } else { [new, own] })
}

fn mixed_floor(load: &Load<'_>, places: Places) -> Result<Timing> {
    let [threads, stride, step] = [load.threads(), places.stride, places.step].map(u64::from);
    let words = threads * stride + u64::from(MIXED_TURNS - 1) * step;
    let memory = load.timer.device.zeroed::<u64>(words as usize)?;
    let args = (memory.slice(), places, MIXED, MIXED_TURNS, load.counter());
    // SAFETY: the memory is live, contains all places, and only this stream uses it.
    unsafe { load.time(bench_churn_mixed_floor, args) }
}
