//! Small heaps on the CPU, and planted faults: each changes what is counted, or is an error.

use super::drift::figures;
use super::extent::LoadExtent;
use super::load::{class_bytes, fits};
use super::*;
use crate::bench::results::percent;
use crate::kernels::bench::{Draw, LOAD_FAILED, Stripe, alloc_at, bench_load_fill, bench_load_turn};
use std::mem::offset_of;
use std::time::Duration;
use warpheap::device_pools::Heap;
use warpheap::simt::{Executor, Mode};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::{AtomicU32, AtomicU64};
use warpheap_device::{heap, kernel, thread};

fn small() -> LoadExtent {
    LoadExtent {
        threads: 1 << 9,
        percents: vec![25, 90],
        turns: 3,
        drift_threads: vec![1 << 6],
        ..LoadExtent::simulated()
    }
}

const MIXED: Draw = Draw { min: 16, max: 512, seed: 0 };
const ONE_SIZE: Draw = Draw { min: 64, max: 64, seed: 0 };

/// Calls `run` with a heap of 1 MiB.
fn with_heap<T>(run: impl FnOnce(&Bench, &mut Heap) -> T) -> T {
    let device = Device::cpu();
    let bench = Bench::new(&device, &device.native_module().unwrap(), Rounds::of(1), 0).unwrap();
    run(&bench, &mut bench.heap(1 << 20).unwrap())
}

fn report(load: LoadExtent) -> SuiteReport {
    report_of(&Device::cpu(), &Extent { load, ..Extent::of(Suite::Load, Backend::Cpu) })
}

fn report_of(device: &Device, extent: &Extent) -> SuiteReport {
    let own = OwnModule::load(device, &kernels(Suite::Load)).unwrap();
    run_extent(device, &own, Suite::Load, extent, &mut |_| ()).unwrap()
}

#[test]
fn all_sizes_are_measured_at_all_loads() {
    let found = report(small());
    assert_eq!((&found.bench.wrong, &found.bench.left_out), (&vec![], &vec![]));
    assert_eq!(found.load.len(), 3 * 2);
    for load in &found.load {
        let sizes = Draw { min: load.min_bytes, max: load.max_bytes, seed: 0 };
        assert_eq!(load.fits, fits(1 << 20, sizes), "{load:?}");
        let (fill, turn) = (load.fill, load.turn);
        let blocks = load.fits * u64::from(load.percent) / 100;
        assert_eq!((fill.requests, fill.failed_percent), (blocks, percent(fill.failed, blocks)));
        assert_eq!((turn.turns, turn.requests), (3, 3 * blocks.min(1 << 9)));
        assert_eq!(turn.failed_percent, percent(turn.failed, turn.requests));
        assert!(load.percent > 25 || (fill.failed, turn.failed) == (0, 0), "there is room: {load:?}");
        assert!(fill.first_ns > 0.0 && fill.mean_ns > 0.0 && load.floor_ns > 0.0, "{load:?}");
        assert!(turn.min_ns <= turn.median_ns && turn.median_ns <= turn.worst_ns, "{load:?}");
        assert!(turn.min_ns <= turn.first_ns && turn.first_ns <= turn.worst_ns, "{load:?}");
    }
    check_drifts(&found.drift);
}

/// The sizes of both drifts, and their sums.
fn check_drifts(drifts: &[Drift]) {
    assert_eq!(drifts.len(), 2 * 13);
    for (of, survivors) in drifts.chunks(13).zip([Survivors::Oldest, Survivors::Random]) {
        let (total, sizes) = of.split_last().unwrap();
        assert_eq!(sizes.iter().map(|one| one.bytes.unwrap()).collect::<Vec<_>>(), drift::SIZES);
        assert_eq!(total.bytes, None);
        for one in of {
            assert_eq!((one.survivors, one.threads, one.heap_bytes), (survivors, 64, 1 << 20));
            assert_eq!(one.requests, one.granted + one.failed, "{one:?}");
            assert!(one.failed > 0 && one.wrong <= one.failed, "{one:?}");
            assert_eq!(one.wrong_percent, percent(one.wrong, one.requests));
            assert_eq!(one.persistent_percent, percent(one.persistent_bytes, one.goal_bytes));
        }
        for one in sizes {
            let bytes = class_bytes(one.bytes.unwrap());
            let granted = (one.granted + one.served_again + one.served_later) * bytes;
            assert!(one.failed <= 64 && one.wrong >= one.served_again.min(one.failed), "{one:?}");
            assert_eq!(one.persistent_bytes, one.goal_bytes.saturating_sub(granted), "{one:?}");
        }
        let sum = |of: fn(&Drift) -> u64| sizes.iter().map(of).sum::<u64>();
        assert_eq!(sum(|one| one.requests), total.requests);
        assert_eq!(sum(|one| one.wrong), total.wrong);
        assert_eq!(sum(|one| one.goal_bytes), total.goal_bytes);
        assert_eq!(sum(|one| one.persistent_bytes), total.persistent_bytes);
        // Nothing lives before the first size, and a tenth of its blocks after it.
        assert_eq!(sizes[0].goal_bytes, 1 << 20);
        let live = (sizes[0].granted + sizes[0].served_again + sizes[0].served_later).div_ceil(10) * 64;
        let is_exact = survivors == Survivors::Oldest;
        assert!(!is_exact || sizes[1].goal_bytes == ((1 << 20) - live) / 48 * 48, "{sizes:?}");
    }
}

#[test]
fn memory_and_time_limit_what_is_measured() {
    let small = LoadExtent { heaps: vec![2 << 20], percents: vec![50], drift_most: 1 << 20, ..small() };
    let found = report(small.clone());
    assert_eq!((found.load.len(), found.drift.len()), (3, 0));
    assert_eq!(found.load[0].heap_bytes, 2 << 20);

    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 2 }), 8 << 20);
    let of = |load| Extent { load, ..Extent::of(Suite::Load, Backend::Cpu) };
    let none = report_of(&device, &of(LoadExtent { heaps: vec![64 << 20], ..small.clone() }));
    assert!(none.load.is_empty() && none.bench.wrong.is_empty(), "{none:?}");
    let [left_out] = &*none.bench.left_out else { panic!("{none:?}") };
    assert!(left_out.starts_with("load in 64 MiB: cannot allocate "), "{left_out}");

    let heaps = vec![129 << 30];
    let none = report_of(&device, &of(LoadExtent { heaps, ..small.clone() }));
    assert_eq!(none.bench.left_out, ["load in 129 GiB: it has more places than 4294967295"]);

    let none = report_of(&Device::cpu(), &Extent { total: Duration::ZERO, ..of(small) });
    assert!(none.load.is_empty(), "{none:?}");
    assert_eq!(none.bench.left_out[0], "load, 64 B in 2 MiB, 50 %, and more: the suite ends after 0 s");
}

#[test]
fn the_figure_of_a_drift_permits_no_wrong_failure() {
    let found = report(LoadExtent { percents: vec![], ..small() });
    let change = |wrong| {
        let mut totals = found.drift.clone();
        totals.iter_mut().for_each(|drift| drift.wrong = wrong);
        let totals: Vec<_> = totals.into_iter().map(Drift::with_shares).collect();
        figures(&totals).collect::<Vec<_>>()
    };
    let (clean, planted) = (change(0), change(1));
    assert_eq!((clean.len(), planted.len()), (2, 2));
    assert!(clean.iter().all(|figure| figure.passed) && planted.iter().all(|figure| !figure.passed));
    assert_eq!(clean[0].name, "heap drift, wrong failures, 1 MiB, the oldest tenth, 64 threads");
}

kernel! {
    /// Does what [`bench_load_fill`] does, except that each eighth place gets no block.
    ///
    /// # Safety
    /// See [`bench_load_fill`].
    unsafe fn fill_without_some(
        heap: heap::Heap,
        slots: DeviceSlice<u64>,
        results: DeviceSlice<u8>,
        stripe: Stripe,
        draw: Draw,
    ) {
        let place = stripe.place(thread::index_1d());
        // SAFETY: the caller's promises.
        unsafe { fill_if(!place.is_multiple_of(8), heap, slots, results, stripe, draw) };
    }

    /// Does what [`bench_load_fill`] does, except that the first kernel of a size serves only 3 of
    /// 4 threads.
    ///
    /// # Safety
    /// See [`bench_load_fill`].
    unsafe fn fill_with_spurious_failures(
        heap: heap::Heap,
        slots: DeviceSlice<u64>,
        results: DeviceSlice<u8>,
        stripe: Stripe,
        draw: Draw,
    ) {
        let is_served = stripe.first > 0 || !thread::index_1d().is_multiple_of(4);
        // SAFETY: the caller's promises.
        unsafe { fill_if(is_served, heap, slots, results, stripe, draw) };
    }

    /// Does what [`bench_load_fill`] does, except that thread 3 also counts a failure without a
    /// proof.
    ///
    /// # Safety
    /// See [`bench_load_fill`].
    unsafe fn fill_with_contention(
        heap: heap::Heap,
        slots: DeviceSlice<u64>,
        results: DeviceSlice<u8>,
        stripe: Stripe,
        draw: Draw,
    ) {
        // SAFETY: the caller's promises.
        unsafe { fill_if(true, heap, slots, results, stripe, draw) };
        if thread::index_1d() == 3 {
            // SAFETY: the handle begins with its parts.
            let hints = unsafe { (&raw const heap).byte_add(offset_of!(heap::Parts, hints)) };
            // SAFETY: as above.
            let words = unsafe { hints.cast::<*const AtomicU32>().read() };
            // The third word of a shard counts failures without a proof.
            // SAFETY: a shard has more words.
            let contended = unsafe { words.add(2) };
            // SAFETY: live, as the heap is.
            unsafe { &*contended }.add_relaxed(1);
        }
    }

    /// Does what [`bench_load_fill`] does, except that the block of place 5 has a wrong content.
    ///
    /// # Safety
    /// See [`bench_load_fill`].
    unsafe fn fill_with_a_torn_block(
        heap: heap::Heap,
        slots: DeviceSlice<u64>,
        results: DeviceSlice<u8>,
        stripe: Stripe,
        draw: Draw,
    ) {
        // SAFETY: the caller's promises.
        unsafe { fill_if(true, heap, slots, results, stripe, draw) };
        let i = thread::index_1d();
        if i < stripe.threads && stripe.place(i) == 5 {
            // SAFETY: this thread has written the entry.
            let block = unsafe { slots.get(5) }.unwrap_or(0) as *const AtomicU64;
            // SAFETY: a live block, which only this thread uses.
            unsafe { &*block }.store_relaxed(6);
        }
    }
}

/// What a thread of [`bench_load_fill`] does, or a failure.
///
/// # Safety
/// See [`bench_load_fill`].
unsafe fn fill_if(
    is_served: bool,
    heap: heap::Heap,
    slots: DeviceSlice<u64>,
    results: DeviceSlice<u8>,
    stripe: Stripe,
    draw: Draw,
) {
    let i = thread::index_1d();
    if i < stripe.threads {
        // SAFETY: the caller's promises.
        let alloc = || unsafe { alloc_at(heap, slots, stripe.place(i), draw) };
        let result = if is_served { alloc() } else { LOAD_FAILED };
        // SAFETY: each thread writes its own entry.
        unsafe { results.set(i.into(), result) };
    }
}

#[test]
fn planted_failures_are_counted() {
    let kernels = (fill_without_some, bench_load_turn);
    let found =
        with_heap(|bench, heap| load::measure(bench, &small(), heap, MIXED, 25, "planted", kernels).unwrap());
    assert_eq!(found.fill.failed, found.fill.requests.div_ceil(8), "{found:?}");
    assert!((found.fill.failed_percent - 12.5).abs() < 0.2, "{found:?}");
    assert_eq!(found.turn.failed, 0, "turns fill the places");
}

#[test]
fn planted_failures_without_a_proof_are_counted() {
    let kernels = (fill_with_contention, bench_load_turn);
    let (load, drift) = with_heap(|bench, heap| {
        let load = load::measure(bench, &small(), heap, ONE_SIZE, 25, "planted", kernels).unwrap();
        let oldest = Survivors::Oldest;
        let drift = drift::measure(bench, heap, &[64, 256], oldest, 64, "planted", fill_with_contention);
        (load, drift.unwrap())
    });
    // One for each kernel.
    assert_eq!(load.contended, load.fill.requests.div_ceil(1 << 9), "{load:?}");
    let counted: Vec<_> = drift.iter().map(|one| (one.contended, one.requests.div_ceil(64))).collect();
    assert_eq!(counted[0].0, counted[0].1);
    assert!(counted[1].0 == counted[1].1 && counted[2].0 == counted[0].0 + counted[1].0, "{counted:?}");
    let text = figures(&drift).next().unwrap().checked;
    assert!(text.contains(&format!(", {} without a proof,", counted[2].0)), "{text}");
}

#[test]
fn a_changed_block_is_an_error() {
    let kernels = (fill_with_a_torn_block, bench_load_turn);
    let error = with_heap(|bench, heap| {
        load::measure(bench, &small(), heap, ONE_SIZE, 1, "planted", kernels).unwrap_err()
    });
    let error = error.to_string();
    assert!(error.contains("1 of 163 blocks did not have the content"), "{error}");
}

#[test]
fn planted_spurious_failures_are_wrong() {
    let found = with_heap(|bench, heap| {
        let kernel = fill_with_spurious_failures;
        let oldest = Survivors::Oldest;
        drift::measure(bench, heap, &[64, 256], oldest, 64, "planted", kernel).unwrap()
    });
    let [of_64, of_256, total] = &*found else { panic!("two sizes and their sum") };
    for of in [of_64, of_256] {
        assert_eq!((of.requests, of.granted, of.failed), (64, 48, 16), "{of:?}");
        assert_eq!((of.served_again, of.wrong, of.wrong_percent), (64, 16, 25.0), "{of:?}");
        assert!(of.persistent_percent > 0.0, "few kernels are repeated: {of:?}");
    }
    assert_eq!((total.requests, total.wrong, total.wrong_percent), (128, 32, 25.0));
}

#[test]
fn failures_of_a_full_heap_are_right() {
    let of = with_heap(|bench, heap| {
        drift::measure(bench, heap, &[64], Survivors::Oldest, 32, "one warp", bench_load_fill).unwrap()[0]
    });
    assert_eq!((of.granted, of.served_again, of.free_blocks, of.free_slabs), (1 << 14, 0, 0, 0), "{of:?}");
    assert_eq!((of.failed, of.wrong, of.persistent_bytes), (32, 0, 0), "{of:?}");
}
