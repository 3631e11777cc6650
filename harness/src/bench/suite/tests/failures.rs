//! Planted failures: each removes a result, and the report says why.

use super::*;
use crate::bench::load::Pool;
use crate::bench::results::Latency;
use crate::bench::suite::contenders::{Kind, Setup};
use crate::kernels::collections::{collect_vec, sum_of_map, sum_of_vec};
use std::sync::atomic::{AtomicUsize, Ordering};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// A planted change of a measurement.
type Change = fn(&mut Latency);

/// The entries of `wrong` with the targets of a changed report. The others are figures.
fn wrong(report: &SuiteReport, change: impl FnOnce(&mut SuiteReport)) -> Vec<String> {
    let mut report = report.clone();
    change(&mut report);
    targets::judge(&mut report, &small());
    assert_eq!(report.bench.figures.len() + report.bench.wrong.len(), 7, "each target has a result");
    report.bench.wrong
}

#[test]
fn a_target_without_a_clean_measurement_is_wrong() {
    let report = with_malloc(&small());
    let of = |contender: &str, operation: Operation| {
        let meant =
            |series: &Series| (&*series.contender, &*series.operation) == (contender, operation.name());
        report.series.iter().position(meant).unwrap()
    };
    let expect = |what: &str, change: &dyn Fn(&mut SuiteReport)| {
        assert_eq!(wrong(&report, change), [what], "one target is affected");
    };
    for (contender, operation) in [("heap", Operation::Alloc), (CUDA_MALLOC, Operation::Churn)] {
        let (name, at) = (operation.name(), of(contender, operation));
        let prefix = format!("CUDA's malloc over the heap, {name}, 64 B: not measured: ");
        expect(&format!("{prefix}1 operations of {contender} failed"), &|report| {
            report.series[at].points.last_mut().unwrap().failed = 1;
        });
        // The next smaller point does not count.
        let left_out = format!("{contender} {name} over threads, from 512: it took too long");
        expect(&format!("{prefix}{left_out}"), &|report| {
            report.series[at].points.pop();
            report.bench.left_out.push(left_out.clone());
        });
    }
    expect(
        "CUDA's malloc over the heap, String push: not measured: String push has no such result",
        &|report| {
            report.collections.pop();
        },
    );
}

#[test]
fn a_tail_of_no_or_failed_calls_is_wrong() {
    let report = with_malloc(&small());
    let tails: [(&str, Change); 3] = [
        ("2 calls failed", |one| one.failed = 2),
        ("the median of 0 calls is 0 ns", |one| one.distribution = Default::default()),
        ("the median of 1280 calls is 0 ns", |one| one.distribution.p50 = 0),
    ];
    for (why, change) in tails {
        let found = wrong(&report, |report| change(&mut report.latency[0]));
        assert_eq!(found, [format!("heap alloc, one size, p99.9: not measured: {why}")]);
    }
    let found = wrong(&report, |report| {
        // The heap with the threads of `malloc` is not meant.
        report.latency.remove(0);
        report.bench.left_out.push("latency of the heap: the suite ends after 45 s".into());
    });
    let why = "latency of the heap: the suite ends after 45 s";
    assert_eq!(found, [format!("heap alloc, one size, p99.9: not measured: {why}")]);
}

#[test]
fn targets_without_malloc_are_wrong() {
    let report = run_small(&Device::cpu(), &small());
    let found = wrong(&report, |_| ());
    assert_eq!(found.len(), 6);
    let why = ": not measured: CUDA's malloc and Rust's collections are left out: they need a GPU";
    assert!(found.iter().all(|entry| entry.ends_with(why)), "{found:?}");
}

/// Calls `run` with a setup and no results.
fn with_setup<T>(run: impl FnOnce(&Setup<'_>, &OwnModule, &mut Results<'_>) -> T) -> T {
    let (device, extent) = (Device::cpu(), Extent { threads: vec![1, 32, 1 << 15], ..small() });
    let own = own(&device);
    let bench = Bench::new(&device, own.module(), 2, 0).unwrap();
    let setup = Setup { bench: &bench, extent: &extent, malloc: None };
    let mut ignored = |_: &str| ();
    run(&setup, &own, &mut Results::begin(Suite::Quick, Backend::Cpu, &extent, &mut ignored))
}

/// The heap, with room for fewer blocks than the largest number of threads.
const TIGHT: Kind = Kind {
    name: "heap",
    operations: &[Operation::Alloc, Operation::Free],
    limit: |_, _, _| None,
    build: |setup, _, _| Ok(Box::new(setup.bench.heap(1 << 20)?)),
};

#[test]
fn frees_of_failed_allocations_are_not_timed() {
    with_setup(|setup, _, results| {
        let mut points =
            |operation| series::points(setup, &TIGHT, operation, Over::Threads, &[], results).unwrap();
        let (allocs, frees) = (points(Operation::Alloc), points(Operation::Free));
        let failed = allocs.last().unwrap().failed;
        assert!(allocs.len() == 3 && allocs[0].failed == 0 && failed > 0, "{allocs:?}");
        assert!(frees.len() == 2 && frees.iter().all(|point| point.failed == 0), "{frees:?}");
        let [left_out] = &*results.report.bench.left_out else { panic!("one point is left out") };
        assert!(left_out.starts_with("heap free over threads, from 32768: "), "{left_out}");
        assert!(left_out.ends_with(" allocations before the frees failed"), "{left_out}");
    });
}

/// Launched threads of [`sums_of_the_first_launch`].
static LAUNCHED: AtomicUsize = AtomicUsize::new(0);

kernel! {
    /// As [`collect_vec`], except that only 64 threads ever store a sum.
    ///
    /// # Safety
    /// `sums` is live and nothing else accesses it.
    unsafe fn sums_of_the_first_launch(count: u32, sums: DeviceSlice<u64>) {
        let i = thread::index_1d();
        if LAUNCHED.fetch_add(1, Ordering::Relaxed) < 64 {
            // SAFETY: each thread writes its own sum, in live memory by the kernel's caller.
            unsafe { sums.set(i.into(), sum_of_vec(i, count)) };
        }
    }
}

#[test]
fn sums_of_an_earlier_round_do_not_count() {
    with_setup(|setup, _, _| {
        let sums: Vec<u64> = (0..64).map(|i| sum_of_vec(i, collections::ITEMS)).collect();
        let module = setup.bench.timer.device.native_module().unwrap();
        let time = |kernel, sums: &[u64]| collections::time(setup.bench, &module, "Vec push", kernel, sums);
        time(collect_vec, &sums).unwrap();
        let other: Vec<u64> = (0..64).map(|i| sum_of_map(i, collections::ITEMS)).collect();
        let error = time(collect_vec, &other).unwrap_err().to_string();
        assert_eq!(error, format!("Vec push: the results are wrong: the sum of thread 0 is {}", sums[0]));
        let error =
            collections::time(setup.bench, &module, "Vec push", sums_of_the_first_launch, &sums).unwrap_err();
        assert!(error.to_string().contains("stored no sum, as after a failed allocation"), "{error}");
    });
}

#[test]
fn a_block_too_many_near_exhaustion_is_wrong() {
    with_setup(|setup, _, _| {
        let heap = setup.bench.heap(1 << 20).unwrap();
        let filled = situations::fill(setup, &heap).unwrap();
        assert_eq!((filled.granted, filled.freed), (1 << 14, 1 << 9));
        let load = setup.bench.load(1, crate::bench::load::one_size(64)).unwrap();
        heap.alloc(&load).unwrap();
        let error = filled.check(&heap).unwrap_err().to_string();
        let found = format!("{} blocks are live after {} were allocated", (1 << 14) - (1 << 9) + 1, 1 << 14);
        assert!(
            error.starts_with("latency of the heap near exhaustion: ") && error.contains(&found),
            "{error}"
        );
        // Some of its blocks are taken, so it cannot be filled.
        let error = situations::fill(setup, &heap).unwrap_err().to_string();
        assert!(error.contains(" blocks were allocated before the heap was full"), "{error}");
    });
}

#[test]
fn calls_that_fail_have_durations_of_their_own() {
    with_setup(|setup, own, _| {
        let timed = calls::Timed::load(own).unwrap();
        let heap = setup.bench.heap(1 << 20).unwrap();
        let full = setup.bench.load(1 << 14, crate::bench::load::one_size(64)).unwrap();
        heap.alloc(&full).unwrap();
        let all = situations::churn(setup, "heap", "near exhaustion", &timed.calls(&heap), 32).unwrap();
        let [allocs, frees] = &*all else { panic!("allocations and frees") };
        assert_eq!((allocs.failed, allocs.distribution.calls), (5 * 32 * 4, 0));
        assert!(allocs.failed_p50 <= allocs.failed_max && allocs.failed_p50.is_some(), "{allocs:?}");
        assert_eq!((frees.failed, frees.distribution.calls, frees.failed_p50), (0, 0, None));
    });
}
