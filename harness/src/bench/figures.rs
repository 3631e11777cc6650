//! Figures of the arena, the free list and the heap, each next to its floor or another baseline,
//! and with a target.
//!
//! | names begin with | what |
//! |---|---|
//! | `bump alloc`, `free list alloc`, `free list free` | one block per thread |
//! | `free list exhausted` | a pool with half of the requested blocks |
//! | `free list churn`, `free list tight churn` | repeated pairs |
//! | `heap alloc`, `heap free` | one block per thread |
//! | `heap churn` | repeated pairs |
//! | `heap alloc, 8192 B, exactly the heap`, `full heap` | near the end of the memory |
//! | `heap reuse`, `heap whole` | near the end of the memory |
//! | `heap init`, `heap metadata` | fixed costs |
//! | `heap churn through the block cache`, `heap alloc for whole blocks` | group functions |

use super::engine::{self, Bench, GIB, Load, Subject, check_addresses, one_size};
use super::results::Operation::{self, Alloc, Churn, Free};
use super::results::{Bar, Figure, percent};
use super::subjects::{Floor, Groups, MixedFloor, Pairs, Reset, Sparse};
use crate::kernels::bench::{
    Places, Sizes, bench_alloc_floor, bench_bump_alloc, bench_churn_floor, bench_churn_mixed_floor,
    bench_free_floor, bench_freelist_alloc, bench_freelist_churn, bench_freelist_free, bench_heap_alloc,
    bench_heap_alloc_each, bench_heap_alloc_sparse, bench_heap_churn, bench_heap_churn_cached,
    bench_heap_churn_mixed, bench_heap_free, bench_heap_free_each, bench_heap_free_half,
    bench_heap_free_sparse,
};
use crate::kernels::stress::take_whole_heap;
use crate::summary::Timing;
use crate::{Error, Result};
use std::time::Instant;
use warpheap::device_pools::Bump;
use warpheap::driver::DeviceInfo;
use warpheap::kernel_names;
use warpheap_device::kernel::DevicePtr;

const THREADS: u32 = 1 << 20;
const MIXED: Sizes = Sizes { min: 16, max: 8192 };
const WITHOUT_ALLOCATING: &str = "the same without allocating";
/// Pairs per thread of a churn.
const TURNS: u32 = 64;

type Measure = Box<dyn Fn(&Bench, &str) -> Result<Figure>>;

/// A measurable figure.
pub(super) struct Plan {
    pub name: String,
    /// Kernels that it launches, in addition to those of the timing. A launch of any other kernel
    /// is rejected.
    launched: &'static [&'static str],
    measure: Measure,
}

impl Plan {
    fn new(
        name: impl Into<String>,
        launched: &'static [&'static str],
        measure: impl Fn(&Bench, &str) -> Result<Figure> + 'static,
    ) -> Plan {
        Plan { name: name.into(), launched, measure: Box::new(measure) }
    }

    /// All kernels that it launches.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.launched.iter().chain(&engine::LAUNCHED).copied()
    }

    pub fn measure(&self, bench: &Bench) -> Result<Figure> {
        (self.measure)(bench, &self.name)
    }
}

/// The figures with names that contain `part`. The heap's are many and may miss their targets: they
/// are measured only if no other name contains it.
pub(super) fn plans(part: Option<&str>) -> Vec<Plan> {
    let others = [allocs_of_pools(), churns_of_freelist()].into_iter().flatten();
    let Some(part) = part else { return others.collect() };
    let is_named = |plan: &Plan| plan.name.contains(part);
    let others: Vec<_> = others.filter(is_named).collect();
    if !others.is_empty() {
        return others;
    }
    let heap = [allocs(), churns(), limits(), fixed_costs(), groups()];
    heap.into_iter().flatten().filter(is_named).collect()
}

impl Load<'_> {
    fn floor(&self, operation: Operation) -> Result<Timing> {
        self.time_alone(&Floor, operation)
    }

    /// The figure of timed allocations of which `granted` succeeded, relative to `base`.
    fn alloc_figure(
        &self,
        name: &str,
        time: Timing,
        against: (&str, Timing),
        bar: f64,
        granted: u32,
    ) -> Result<Figure> {
        let checked = self.check_addresses(name, granted)?;
        Ok(Figure::ratio(name, self.threads(), time, against.0, against.1, bar).checked(checked))
    }

    /// The figure of allocations of one block by each thread, relative to the floor. `granted` of
    /// them succeed.
    fn allocs(&self, name: &str, subject: &dyn Subject, bar: f64, granted: u32) -> Result<Figure> {
        let base = self.floor(Alloc)?;
        let time = self.time(subject, Alloc)?;
        self.alloc_figure(name, time, (WITHOUT_ALLOCATING, base), bar, granted)
    }

    /// The figure of frees of all blocks, in order or permuted.
    fn frees(self, name: &str, subject: &dyn Subject, permuted: bool, bar: f64) -> Result<Figure> {
        subject.launch(Alloc, &self)?;
        let mut load = Load { permuted, ..self };
        let base = load.floor(Free)?;
        load.permuted = false;
        subject.launch(Free, &load)?;
        load.failures.fill(0)?;
        load.permuted = permuted;
        let time = load.time(subject, Free)?;
        let checked = load.check(name, subject)?;
        let figure = Figure::ratio(name, load.threads(), time, "the same without freeing", base, bar);
        Ok(figure.checked(checked))
    }

    /// The figure of a churn: pairs per second.
    fn churns(&self, name: &str, subject: &dyn Subject, against: (&str, Timing), bar: f64) -> Result<Figure> {
        let time = self.time(subject, Churn)?;
        let checked = self.check(name, subject)?;
        let figure = Figure::ratio(name, self.threads(), time, against.0, against.1, 0.0).checked(checked);
        Ok(figure.measured_by(self.pair_rate(time), "G pairs/s", Bar::AtLeast, bar))
    }
}

/// Allocations and frees of the arena and the free list.
fn allocs_of_pools() -> Vec<Plan> {
    const BUMP: [&str; 2] = kernel_names![bench_alloc_floor, bench_bump_alloc];
    const ALLOC: [&str; 2] = kernel_names![bench_alloc_floor, bench_freelist_alloc];
    const FREE: [&str; 3] = kernel_names![bench_free_floor, bench_freelist_alloc, bench_freelist_free];
    const EXHAUSTED: [&str; 1] = kernel_names![bench_freelist_alloc];
    let mut all = Vec::new();
    for (name, sizes, bytes) in
        [("bump alloc, 16 B", one_size(16), GIB), ("bump alloc, mixed 16-8192 B", MIXED, 16 * GIB)]
    {
        all.push(Plan::new(name, &BUMP, move |b, name| {
            let load = b.load(THREADS, sizes)?;
            let pool = Reset::of(Bump::builder(bytes >> b.shrink).build(&b.device)?);
            load.allocs(name, &pool, 1.5, load.threads())
        }));
    }
    for size in [64, 4096] {
        let named = |what: &str| format!("free list {what}, {size} B");
        all.push(Plan::new(named("alloc"), &ALLOC, move |b, name| {
            let load = freelist_load(b)?;
            let pool = Reset::of(b.freelist(2 * load.threads(), size)?);
            load.allocs(name, &pool, 2.0, load.threads())
        }));
        for (what, permuted, bar) in [("free", false, 2.0), ("free, permuted", true, 6.0)] {
            all.push(Plan::new(named(what), &FREE, move |b, name| {
                let load = freelist_load(b)?;
                let pool = b.freelist(2 * load.threads(), size)?;
                load.frees(name, &pool, permuted, bar)
            }));
        }
        all.push(Plan::new(named("exhausted"), &EXHAUSTED, move |b, name| {
            let load = freelist_load(b)?;
            let time = |blocks| load.time(&Reset::of(b.freelist(blocks, size)?), Alloc);
            let base = time(2 * load.threads())?;
            let time = time(load.threads() / 2)?;
            load.alloc_figure(name, time, ("the same with room for all", base), 5.0, load.threads() / 2)
        }));
    }
    all
}

/// The load of a free list. The size matters only to the floor.
fn freelist_load(b: &Bench) -> Result<Load<'_>> {
    b.load(THREADS, one_size(16))
}

/// Maximum failures of the tight churn per million allocations. In 3 + 20 rounds of 2^24
/// allocations that is 385; one group of 32 that fails once is 0.08.
const MAX_FAILED_PPM: f64 = 1.0;

/// Pairs of the free list. A pool with two blocks per thread is timed. In a *tight* pool, with one
/// block per resident thread, failed allocations are counted. A thread holds no block while it
/// allocates, so a block is always free; a failure means that the retry limit was reached.
fn churns_of_freelist() -> Vec<Plan> {
    const LAUNCHED: [&str; 2] = kernel_names![bench_churn_floor, bench_freelist_churn];
    const BYTES: u32 = 64;
    let plain = |b: &Bench, name: &str| {
        let load = Load { turns: TURNS, ..b.load(THREADS, one_size(BYTES))? };
        let base = load.floor(Churn)?;
        let pool = b.freelist(2 * load.threads(), BYTES.into())?;
        load.churns(name, &pool, ("stores alone", base), 40.0)
    };
    let tight = |b: &Bench, name: &str| {
        let load = Load { turns: 16, ..b.load(THREADS, one_size(BYTES))? };
        let base = load.floor(Churn)?;
        // 0 on the CPU, which does not report resident threads.
        let blocks = match resident_threads(&b.device.info()?) {
            0 => load.threads(),
            resident => resident,
        };
        let pool = b.freelist(blocks, BYTES.into())?;
        let time = load.time(&pool, Churn)?;
        let requested = u64::from(b.rounds.all()) * u64::from(load.threads()) * u64::from(load.turns);
        let failed = load.failed()?;
        let checked = format!("{}, {failed} of {requested} allocations failed", pool.check_freed(name)?);
        let figure = Figure::ratio(name, load.threads(), time, "stores alone", base, 0.0).checked(checked);
        Ok(figure.measured_by(per_million(failed, requested), "ppm", Bar::AtMost, MAX_FAILED_PPM))
    };
    vec![
        Plan::new("free list churn, 64 B", &LAUNCHED, plain),
        Plan::new("free list tight churn, 64 B", &LAUNCHED, tight),
    ]
}

/// Maximum number of threads that the device runs at once.
fn resident_threads(device: &DeviceInfo) -> u32 {
    device.multiprocessors * device.max_threads_per_multiprocessor
}

fn per_million(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64 * 1e6
}

/// Allocated sizes in bytes: all powers of two, and some of the size classes between them.
const SIZES: [u32; 14] = [16, 32, 48, 64, 96, 128, 256, 512, 768, 1024, 2048, 3072, 4096, 8192];
/// Sizes that are also freed.
const FREED: [u32; 4] = [16, 64, 512, 4096];
/// Sizes that are also measured with sixteen times as many threads.
const BY_MANY: [u32; 3] = [16, 64, 512];
const MANY: u32 = 1 << 24;
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
/// Bars of figures with [`MANY`] threads.
const MANY_BARS: [f64; 2] = [2.4, 2.8];

/// Allocations of a heap, and frees of the allocated blocks: one per thread.
fn allocs() -> Vec<Plan> {
    const SPARSE: [&str; 3] =
        kernel_names![bench_alloc_floor, bench_heap_alloc_sparse, bench_heap_free_sparse];
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
    all.push(Plan::new("heap alloc, one lane in 32, 4096 B", &SPARSE, |b, name| {
        let load = b.load(1 << 17, one_size(4096))?;
        load.allocs(name, &Sparse(b.heap(8 * GIB)?), SPARSE_BAR, load.threads() / 32)
    }));
    all
}

fn alloc(name: String, threads: u32, sizes: Sizes, bar: f64) -> Plan {
    alloc_after(0, name, threads, sizes, room_for(threads, sizes), bar)
}

/// A figure after [`SETTLING`] kernels, in a heap of `bytes`.
fn settled(name: String, threads: u32, sizes: Sizes, bytes: u64, bar: f64) -> Plan {
    alloc_after(SETTLING, format!("{name}, after {SETTLING} kernels"), threads, sizes, bytes, bar)
}

/// Allocations after `before` untimed rounds of the same.
fn alloc_after(before: u32, name: String, threads: u32, sizes: Sizes, bytes: u64, bar: f64) -> Plan {
    const ALLOC: [&str; 3] = kernel_names![bench_alloc_floor, bench_heap_alloc, bench_heap_free];
    Plan::new(name, &ALLOC, move |b, name| {
        let load = b.load(threads, sizes)?;
        let base = load.floor(Alloc)?;
        let heap = b.heap(bytes)?;
        for _ in 0..before {
            heap.launch(Alloc, &load)?;
            heap.launch(Free, &load)?;
        }
        let (time, least) = load.time_allocs(&heap)?;
        if least != load.threads() {
            let found = format!("only {least} of {} allocations succeeded in a round", load.threads());
            return Err(Error::wrong(name, found));
        }
        load.alloc_figure(name, time, (WITHOUT_ALLOCATING, base), bar, load.threads())
    })
}

fn free(name: String, threads: u32, sizes: Sizes, permuted: bool, bar: f64) -> Plan {
    const FREE: [&str; 3] = kernel_names![bench_free_floor, bench_heap_alloc, bench_heap_free];
    Plan::new(name, &FREE, move |b, name| {
        b.load(threads, sizes)?.frees(name, &b.heap(room_for(threads, sizes))?, permuted, bar)
    })
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

/// Pairs of a heap: of one size, and of many.
fn churns() -> Vec<Plan> {
    const ONE_SIZE: [&str; 2] = kernel_names![bench_churn_floor, bench_heap_churn];
    const MANY_SIZES: [&str; 2] = kernel_names![bench_churn_mixed_floor, bench_heap_churn_mixed];
    const MIXED_BAR: f64 = 4.0;
    let mut all = Vec::new();
    for (size, bar) in [(16, 65.0), (64, 45.0), (128, 35.0)] {
        all.push(Plan::new(format!("heap churn, {size} B"), &ONE_SIZE, move |b, name| {
            let load = Load { turns: TURNS, ..b.load(THREADS, one_size(size))? };
            let base = load.floor(Churn)?;
            load.churns(name, &b.heap(8 * GIB)?, ("stores alone", base), bar)
        }));
    }
    for log2 in [17, 20] {
        let name = format!("heap churn, mixed 16-512 B, 2^{log2}");
        all.push(Plan::new(name, &MANY_SIZES, move |b, name| {
            let load = Load { turns: 32, ..b.load(1 << log2, Sizes { min: 16, max: 512 })? };
            let [(against, base), (other, other_base)] = mixed_floors(&load)?;
            let pairs = Pairs(b.heap(8 * GIB)?, bench_heap_churn_mixed);
            let time = load.time(&pairs, Churn)?;
            let checked = load.check(name, &pairs)?;
            let figure = Figure::ratio(name, load.threads(), time, against, base, MIXED_BAR);
            Ok(figure.beside(other, other_base).checked(checked))
        }));
    }
    all
}

/// Both floors of the churn of many sizes, the faster one first. They do everything but allocate
/// and free: in one each thread uses a fixed place for all turns, in the other a new place in each
/// turn, over as many blocks as a heap might allocate.
fn mixed_floors(load: &Load<'_>) -> Result<[(&'static str, Timing); 2]> {
    // Distances in words: the largest block of the churn, and about the mean one.
    const OWN_STRIDE: u32 = 512 / 8;
    const NEW_STRIDE: u32 = 256 / 8;
    let floor = |places: Places| {
        let [threads, stride, step] = [load.threads(), places.stride, places.step].map(u64::from);
        let words = threads * stride + u64::from(load.turns - 1) * step;
        let memory = load.bench.device.zeroed::<u64>(words as usize)?;
        load.time_alone(&MixedFloor { memory, places }, Churn)
    };
    let own = floor(Places { stride: OWN_STRIDE, step: 0 })?;
    let new = floor(Places { stride: NEW_STRIDE, step: load.threads() * NEW_STRIDE })?;
    let own = ("the same, each thread in its own 512 B", own);
    let new = ("the same, each turn in a new 256 B", new);
    Ok(if own.1.median_us <= new.1.median_us { [own, new] } else { [new, own] })
}

/// A heap at its limits: exactly full, over full, half freed, and all freed.
fn limits() -> Vec<Plan> {
    const LARGE: u32 = 8192;
    const EXACT: [&str; 2] = kernel_names![bench_heap_alloc, bench_heap_free];
    const FULL: [&str; 2] = kernel_names![bench_alloc_floor, bench_heap_alloc];
    const REUSE: [&str; 3] = kernel_names![bench_heap_alloc, bench_heap_free, bench_heap_free_half];
    const WHOLE: [&str; 3] = kernel_names![bench_heap_alloc, bench_heap_free, take_whole_heap];
    let exact = |b: &Bench| b.heap(u64::from(THREADS) * u64::from(LARGE));
    let mut all = vec![
        Plan::new("heap alloc, 8192 B, exactly the heap", &EXACT, move |b, name| {
            let (load, heap) = (b.load(THREADS, one_size(LARGE))?, exact(b)?);
            let (base, _) = load.time_allocs(&b.heap(16 * GIB)?)?;
            let (time, _) = load.time_allocs(&heap)?;
            load.alloc_figure(name, time, ("the same with room", base), 4.0, load.granted()?)
        }),
        Plan::new("heap alloc, 8192 B, exactly the heap, granted", &EXACT, move |b, name| {
            let (load, heap) = (b.load(THREADS, one_size(LARGE))?, exact(b)?);
            let (time, least) = load.time_allocs(&heap)?;
            let checked = load.check_addresses(name, load.granted()?)?;
            let checked = format!("the fewest of all rounds, {least}; of the last: {checked}");
            let share = percent(least.into(), load.threads().into());
            let figure = Figure::plain(name, load.threads(), "all requests").timed(time).checked(checked);
            Ok(figure.measured_by(share, "%", Bar::AtLeast, 98.0))
        }),
        Plan::new("heap alloc, 8192 B, full heap", &FULL, |b, name| {
            let load = b.load(THREADS, one_size(LARGE))?;
            let base = load.floor(Alloc)?;
            let heap = b.heap(GIB)?;
            heap.launch(Alloc, &load)?;
            let time = load.time_alone(&heap, Alloc)?;
            let figure = load.alloc_figure(name, time, (WITHOUT_ALLOCATING, base), 0.0, 0)?;
            Ok(figure.measured_by(time.median_us, "us", Bar::AtMost, 500.0))
        }),
    ];
    for size in [64, 4096] {
        let name = format!("heap reuse, half freed, {size} B");
        all.push(Plan::new(name, &REUSE, move |b, name| reuse(b, name, size)));
    }
    // The first request about half of the heap, the others four times its capacity.
    for (what, threads) in [("a mixed fill", 1 << 17), ("exhaustion", THREADS)] {
        let name = format!("heap whole, after {what}");
        all.push(Plan::new(name, &WHOLE, move |b, name| whole(b, name, threads)));
    }
    all
}

/// Fills a heap with blocks of one size, frees a random half, and lets as many threads as there
/// were blocks allocate once. The figure is the ratio of allocated to freed blocks.
fn reuse(b: &Bench, name: &str, size: u32) -> Result<Figure> {
    let blocks = (GIB / u64::from(size)) as u32;
    let [full, again] = [b.load(blocks, one_size(size))?, b.load(blocks, one_size(size))?];
    let heap = b.heap(GIB)?;
    let freed = b.device.zeroed::<u64>(1)?;
    let counter = DevicePtr(freed.address() as *mut _);
    let (mut round, mut freed_before) = (0, 0);
    let (mut min, mut what) = (f64::MAX, String::new());
    let times = b.times(
        || {
            heap.launch(Free, &again)?;
            heap.launch(Free, &full)?;
            heap.launch(Alloc, &full)?;
            round += 1;
            let args = (heap.handle(), full.out.slice(), round, counter);
            // SAFETY: the blocks in `out` are allocated, and only this stream uses them.
            unsafe { full.launch(bench_heap_free_half, args) }
        },
        || heap.launch(Alloc, &again),
        || {
            let total = freed.copy_to_vec()?[0];
            let (now, got) = (total - freed_before, u64::from(again.granted()?));
            freed_before = total;
            if percent(got, now) < min {
                (min, what) = (percent(got, now), format!("{got} blocks after {now} were freed"));
            }
            Ok(())
        },
    )?;
    let held = [full.out.copy_to_vec()?, again.out.copy_to_vec()?].concat();
    let different = check_addresses(name, held, full.granted()? + again.granted()?)?;
    let faults = heap.check_freed(name)?;
    let checked = format!("{what}, the least of all rounds; of the last: {different}; {faults}");
    let figure = Figure::plain(name, again.threads(), "the bytes freed").timed(Timing::of(times));
    Ok(figure.checked(checked).measured_by(min, "%", Bar::AtLeast, 95.0))
}

/// Allocates and frees blocks of many sizes; then one thread allocates the whole heap as one block,
/// and frees it. The figure is the share of the rounds in which it succeeded.
fn whole(b: &Bench, name: &str, threads: u32) -> Result<Figure> {
    let load = Load { permuted: true, ..b.load(threads, MIXED)? };
    let heap = b.heap(GIB)?;
    let answer = b.device.zeroed::<u64>(1)?;
    let args = (heap.handle(), answer.ptr());
    let (mut granted, mut whole) = (Vec::new(), 0);
    let times = b.times(
        || {
            heap.launch(Alloc, &load)?;
            granted.push(load.granted()?);
            heap.launch(Free, &load)
        },
        // SAFETY: nothing else uses the heap and the result.
        || unsafe { b.launch(&b.module, take_whole_heap, 1, args) },
        || {
            whole += answer.copy_to_vec()?[0];
            Ok(())
        },
    )?;
    let rounds = granted.len() as u64;
    let fewest = granted.into_iter().min().unwrap_or(0);
    let faults = heap.check_freed(name)?;
    let checked = format!("{whole} of {rounds} rounds, each after {fewest} blocks or more; {faults}");
    let figure = Figure::plain(name, load.threads(), "all rounds").timed(Timing::of(times)).checked(checked);
    Ok(figure.measured_by(percent(whole, rounds), "%", Bar::AtLeast, 100.0))
}

/// The fixed costs of a heap: set-up time in microseconds, and metadata in percent of the heap.
fn fixed_costs() -> Vec<Plan> {
    const INIT_BAR: f64 = 1000.0;
    const METADATA_BAR: f64 = 1.0;
    let mut all = Vec::new();
    for gib in [8, 100] {
        // Host time of a call of `reset` on an idle device, which returns when the device has
        // written all metadata. In addition, `build` only allocates memory from the driver.
        all.push(Plan::new(format!("heap init, {gib} GiB"), &[], move |b, name| {
            let mut heap = b.heap(gib * GIB)?;
            let time = Timing::of(b.rounds.run(|| {
                b.device.synchronize()?;
                let started = Instant::now();
                heap.reset()?;
                Ok::<_, Error>(started.elapsed().as_secs_f64() * 1e6)
            })?);
            if let Some(violation) = heap.check()?.first() {
                return Err(Error::wrong(name, format!("{violation:?}")));
            }
            let figure = Figure::plain(name, 0, "the host's clock, without the driver's allocation");
            let figure = figure.timed(time).checked("all metadata as of a new heap".to_owned());
            Ok(figure.measured_by(time.median_us, "us", Bar::AtMost, INIT_BAR))
        }));
    }
    for gib in [1, 8, 100] {
        all.push(Plan::new(format!("heap metadata, {gib} GiB"), &[], move |b, name| {
            let heap = b.heap(gib * GIB)?;
            let (metadata, capacity) = (heap.metadata_bytes(), heap.capacity());
            let checked = format!("{metadata} B beside {capacity} B");
            let figure = Figure::plain(name, 0, "the memory for blocks").checked(checked);
            Ok(figure.measured_by(percent(metadata, capacity), "%", Bar::AtMost, METADATA_BAR))
        }));
    }
    all
}

/// The heap's group functions, compared with its plain ones.
fn groups() -> Vec<Plan> {
    /// Minimum speedup of the block cache over plain calls.
    const CACHE_GAIN: f64 = 2.0;
    const CACHED: [&str; 2] = kernel_names![bench_heap_churn, bench_heap_churn_cached];
    const EACH: [&str; 3] = kernel_names![bench_alloc_floor, bench_heap_alloc_each, bench_heap_free_each];
    let cached = [16, 64].map(|size| {
        Plan::new(format!("heap churn through the block cache, {size} B"), &CACHED, move |b, name| {
            let load = Load { turns: TURNS, ..b.load(THREADS, one_size(size))? };
            let heap = b.heap(8 * GIB)?;
            let base = load.time(&heap, Churn)?;
            let bar = CACHE_GAIN * load.pair_rate(base);
            let pairs = Pairs(heap, bench_heap_churn_cached);
            load.churns(name, &pairs, ("the heap's plain calls", base), bar)
        })
    });
    let each = [16, 64].map(|size| {
        Plan::new(format!("heap alloc for whole blocks, {size} B"), &EACH, move |b, name| {
            let load = b.load(THREADS, one_size(size))?;
            let groups = Groups(b.heap(8 * GIB)?);
            let figure = load.allocs(name, &groups, 2.0, load.threads())?;
            let checked = format!("{}, {}", figure.checked, load.check(name, &groups)?);
            Ok(figure.checked(checked))
        })
    });
    cached.into_iter().chain(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap::driver::Device;

    #[test]
    fn the_heap_has_room_for_all_threads() {
        assert_eq!(room_for(1 << 20, one_size(4096)), 8 * GIB);
        assert_eq!(room_for(1 << 20, one_size(8192)), 16 * GIB);
        assert_eq!(room_for(1 << 24, one_size(512)), 16 * GIB);
        assert_eq!(room_for(1 << 20, MIXED), 8 * GIB);
    }

    #[test]
    fn a_tight_pool_has_a_block_for_each_resident_thread() {
        let mut h200 = Device::cpu().info().unwrap();
        (h200.multiprocessors, h200.max_threads_per_multiprocessor) = (132, 2048);
        assert_eq!(resident_threads(&h200), 270_336);
        assert!(resident_threads(&h200) < THREADS, "nothing would be tight");
    }

    #[test]
    fn failures_are_compared_with_the_bar() {
        let time = Timing { median_us: 8.0, min_us: 7.0, max_us: 9.0 };
        let base = Timing { median_us: 2.0, ..time };
        let figure = Figure::ratio("x", THREADS, time, "stores alone", base, 0.0);
        assert_eq!((figure.value, &*figure.unit, figure.passed), (Some(4.0), "x", false));
        let failed = |count| {
            figure.clone().measured_by(per_million(count, 1 << 24), "ppm", Bar::AtMost, MAX_FAILED_PPM)
        };
        assert_eq!((failed(0).value, failed(0).passed), (Some(0.0), true));
        assert_eq!((failed(16).value, failed(16).passed), (Some(16e6 / f64::from(1 << 24)), true));
        assert!(!failed(17).passed);
        let unknown = figure.clone().measured_by(f64::NAN, "ppm", Bar::AtMost, MAX_FAILED_PPM);
        assert_eq!((unknown.value, unknown.passed), (None, false));
        assert!(figure.clone().measured_by(41.0, "G pairs/s", Bar::AtLeast, 40.0).passed);
        assert!(!figure.measured_by(39.0, "G pairs/s", Bar::AtLeast, 40.0).passed);
    }
}
