//! Suites on the CPU: every allocator is measured, and limits leave out the rest. Times mean
//! nothing there. CUDA's `malloc` is replaced by that of the C library.

use super::extent::LoadExtent;
use super::series::{KINDS, Kind};
use super::*;
use crate::bench::engine::{Subject, one_size};
use crate::bench::subjects::CUDA_MALLOC;
use crate::kernels::collections::{collect_vec, sum_of_map, sum_of_vec};
use latency::Calls;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use warpheap::simt::{Executor, Mode};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// A few threads and sizes.
fn small() -> Extent {
    Extent {
        rounds: 2,
        threads: vec![1, 32, 512],
        threads_of_targets: 512,
        bytes: vec![16, 4096],
        threads_over_bytes: 64,
        callers: 256,
        callers_of_malloc: 64,
        collections: 64,
        exhausted_bytes: 1 << 20,
        spare_bytes: 4 << 20,
        load: LoadExtent { heaps: vec![], ..LoadExtent::simulated() },
        ..Extent::of(Suite::Quick, Backend::Cpu)
    }
}

fn own(device: &Device) -> OwnModule {
    OwnModule::load(device, &kernels(Suite::Quick)).unwrap()
}

fn run_small(device: &Device, extent: &Extent) -> SuiteReport {
    run_extent(device, &own(device), Suite::Quick, extent, &mut |_| ()).unwrap()
}

/// The results of a small suite on the CPU.
static SIMULATED: LazyLock<SuiteReport> = LazyLock::new(|| run_small(&Device::cpu(), &small()));

#[test]
fn a_simulated_suite_has_every_point_and_no_target() {
    let report = &*SIMULATED;
    assert!(report.simulated && report.notes.len() == 2, "{:?}", report.notes);
    assert_eq!((&report.bench.left_out, &report.bench.wrong), (&vec![], &vec![]));
    assert!(report.bench.figures.is_empty() && report.collections.is_empty());
    let operations = KINDS.iter().filter(|kind| kind.name != CUDA_MALLOC).map(|kind| kind.operations.len());
    assert_eq!(report.series.len(), 2 * operations.sum::<usize>());
    for series in &report.series {
        let points = if series.over == "threads" { 3 } else { 2 };
        assert_eq!(series.points.len(), points, "{series:?}");
        let is_floor = series.contender == "floor";
        assert!(series.points.iter().all(|point| point.floor.is_none() == is_floor), "{series:?}");
        assert!(series.points.iter().all(|point| point.failed == 0 && point.min > 0.0), "{series:?}");
        assert!(series.points.is_sorted_by(|a, b| a.x < b.x), "{series:?}");
    }
    let names: Vec<_> = report.latency.iter().map(|latency| latency.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "heap alloc, one size",
            "heap free, one size",
            "heap alloc, contention",
            "heap free, contention",
            "heap alloc, near exhaustion",
            "heap free, near exhaustion",
            "heap alloc, refill",
        ]
    );
    report.latency.iter().for_each(check_calls);
}

/// Checks the number of threads and of calls.
fn check_calls(latency: &Latency) {
    let extent = small();
    let callers = if latency.contender == CUDA_MALLOC { extent.callers_of_malloc } else { extent.callers };
    // A thread makes as many calls in each launch.
    let (threads, turns) = match &*latency.situation {
        "one size" | "refill" => (vec![callers, extent.callers_of_malloc], 1),
        "contention" => (vec![callers / 4, extent.callers_of_malloc / 4], 4),
        // A quarter of a 32nd of the blocks.
        "near exhaustion" => (vec![(1 << 20) / 64 / 32 / 4], 4),
        other => panic!("unknown situation {other}"),
    };
    assert!(threads.contains(&latency.threads), "{latency:?}");
    let of = &latency.distribution;
    assert_eq!((of.launches, latency.failed), (5, 0), "{latency:?}");
    assert_eq!(of.calls, 5 * u64::from(latency.threads) * turns, "{latency:?}");
    assert!(of.p999_min <= of.p999 && of.p999 <= of.p999_max && of.p999_max <= of.max, "{latency:?}");
}

#[test]
fn the_layout_of_the_results_is_the_documented_one() {
    let json = serde_json::to_value(&*SIMULATED).unwrap();
    assert_eq!((&json["suite"], &json["simulated"]), (&"quick".into(), &true.into()));
    assert!(json["figures"].is_array() && json["left_out"].is_array() && json["wrong"].is_array());
    let series = json["series"].as_array().unwrap();
    let over = |variable: &str| series.iter().find(|one| one["over"] == variable).unwrap();
    assert_eq!(over("threads")["fixed"], serde_json::json!({ "bytes": 64 }));
    assert_eq!(over("bytes")["fixed"], serde_json::json!({ "threads": 64 }));
    assert!(series.iter().all(|one| one["unit"] == "us" && one["turns"].is_u64()));
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&series[0]["points"][0]), ["failed", "floor", "max", "median", "min", "rounds", "x"]);
    assert_eq!(json["latency"][0]["unit"], "ns");
    let of = ["launches", "p999_min", "p999_max"].map(|name| json["latency"][0][name].is_u64());
    assert!(of == [true; 3] && json["seconds"].as_f64().unwrap() > 0.0, "{json}");
    assert!(json["latency"][0]["histogram"][0]["upto"].is_u64() && json["latency"][0]["p999"].is_u64());
}

/// Calls `run` with a setup, which has the `malloc` of the C library if `has_malloc`.
fn with_setup<T>(
    extent: &Extent,
    has_malloc: bool,
    run: impl FnOnce(&Setup<'_>, &OwnModule, &mut Run<'_>) -> T,
) -> T {
    let device = Device::cpu();
    let own = own(&device);
    let bench = Bench::new(&device, own.module(), Rounds::of(extent.rounds), 0).unwrap();
    let malloc = has_malloc.then(|| Malloc::of(&own, 1 << 30).unwrap());
    let setup = Setup { bench: &bench, extent, malloc: malloc.as_ref() };
    let mut ignored = |_: &str| ();
    run(&setup, &own, &mut Run::new(&mut ignored, extent.total, is_out_of_memory))
}

/// The results of all measurements with the `malloc` of the C library.
static WITH_MALLOC: LazyLock<SuiteReport> = LazyLock::new(|| {
    with_setup(&small(), true, |setup, own, run| {
        let mut report = SuiteReport::of(Some(Suite::Quick), BLOCK, setup.extent.rounds);
        report.series = series::measure(setup, Over::Threads, run).unwrap();
        report.latency = latency::measure(setup, own, run).unwrap();
        report.collections = collections::measure(setup, run).unwrap();
        assert_eq!((&run.left_out, &run.wrong), (&vec![], &vec![]));
        report
    })
});

#[test]
fn malloc_is_measured_beside_the_heap_and_has_targets() {
    let mut report = WITH_MALLOC.clone();
    let of_malloc: Vec<_> = report.series.iter().filter(|series| series.contender == CUDA_MALLOC).collect();
    assert_eq!(
        of_malloc.iter().map(|series| &*series.operation).collect::<Vec<_>>(),
        ["alloc", "free", "churn"]
    );
    assert!(of_malloc.iter().all(|series| series.points.len() == 3));
    assert_eq!(report.latency.iter().filter(|latency| latency.contender == CUDA_MALLOC).count(), 4);
    let with_equal_threads = report.latency.iter().filter(|one| one.contender == "heap" && one.threads <= 64);
    let with_equal_threads: Vec<_> = with_equal_threads.map(|one| (one.name.as_str(), one.threads)).collect();
    let [of_one_size, of_contention] = [("heap alloc, one size", 64), ("heap alloc, contention", 16)];
    assert!(with_equal_threads.contains(&of_one_size) && with_equal_threads.contains(&of_contention));
    report.latency.iter().for_each(check_calls);
    let names: Vec<_> = report.collections.iter().map(|collection| &*collection.name).collect();
    assert_eq!(names, ["Vec push", "BTreeMap insert", "String push"]);
    for collection in &report.collections {
        assert_eq!(collection.ratio, Some(collection.cuda_malloc_us / collection.heap_us));
    }
    targets::judge(&mut report, &small());
    let figures = &report.bench.figures;
    assert_eq!((figures.len(), &report.bench.wrong), (3 + 3 + 1, &vec![]), "{figures:?}");
    let alloc = &figures[0];
    assert_eq!(alloc.name, "CUDA's malloc over the heap, alloc, 64 B");
    let (heap, malloc) = (alloc.time.unwrap(), alloc.base.unwrap());
    assert_eq!((alloc.threads, alloc.value), (512, Some(malloc.median_us / heap.median_us)));
    assert_eq!(figures[6].name, "heap alloc, one size, p99.9");
}

#[test]
fn limits_leave_out_the_rest_and_say_so() {
    let over = run_small(&Device::cpu(), &Extent { total: Duration::ZERO, ..small() });
    assert!(over.series.iter().all(|series| series.points.is_empty()) && over.latency.is_empty());
    assert_eq!(over.bench.left_out.len(), over.series.len() + 3);
    assert_eq!(over.bench.left_out[0], "floor alloc over threads, from 1: the suite ends after 0 s");

    let slow = run_small(&Device::cpu(), &Extent { slowest: Duration::ZERO, ..small() });
    assert!(slow.series.iter().all(|series| series.points.len() == 1));
    assert!(slow.bench.left_out[0].starts_with("floor alloc over threads, from 32: 1 took "));

    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 2 }), 8 << 20);
    let tight = run_small(&device, &Extent { spare_bytes: 16 << 20, ..small() });
    let heaps = tight.series.iter().filter(|series| series.contender == "heap");
    assert!(heaps.into_iter().all(|series| series.points.is_empty()));
    let says = |name: &str| tight.bench.left_out.iter().any(|left_out| left_out.starts_with(name));
    assert!(says("heap alloc over threads, from 1: cannot allocate "), "{:?}", tight.bench.left_out);
    assert!(says("latency of the heap: cannot allocate "), "{:?}", tight.bench.left_out);
}

#[test]
fn malloc_is_limited_in_threads_and_bytes() {
    let device = Device::cpu();
    let malloc = Malloc::of(&own(&device), 1 << 20).unwrap();
    assert_eq!(malloc.limit(1 << 10, 512), None);
    assert!(malloc.limit(1 << 10, 1024).unwrap().contains("half of its heap"));
    assert!(malloc.limit(1 << 21, 16).unwrap().contains("take too long"));
    with_setup(&small(), true, |setup, _, _| {
        let limits = KINDS.map(|kind| kind.limit(setup, 1 << 21, 16).is_some());
        assert_eq!(limits, KINDS.map(|kind| kind.name == CUDA_MALLOC));
    });
}

// Planted failures: each removes a result, and the report says why.

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
    let report = &*WITH_MALLOC;
    let of = |contender: &str, operation: Operation| {
        let meant =
            |series: &Series| (&*series.contender, &*series.operation) == (contender, operation.name());
        report.series.iter().position(meant).unwrap()
    };
    let expect = |what: &str, change: &dyn Fn(&mut SuiteReport)| {
        assert_eq!(wrong(report, change), [what], "one target is affected");
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
    let report = &*WITH_MALLOC;
    let tails: [(&str, Change); 3] = [
        ("2 calls failed", |one| one.failed = 2),
        ("the median of 0 calls is 0 ns", |one| one.distribution = Default::default()),
        ("the median of 1280 calls is 0 ns", |one| one.distribution.p50 = 0),
    ];
    for (why, change) in tails {
        let found = wrong(report, |report| change(&mut report.latency[0]));
        assert_eq!(found, [format!("heap alloc, one size, p99.9: not measured: {why}")]);
    }
    let found = wrong(report, |report| {
        // The heap with the threads of `malloc` is not meant.
        report.latency.remove(0);
        report.bench.left_out.push("latency of the heap: the suite ends after 45 s".into());
    });
    let why = "latency of the heap: the suite ends after 45 s";
    assert_eq!(found, [format!("heap alloc, one size, p99.9: not measured: {why}")]);
}

#[test]
fn targets_without_malloc_are_wrong() {
    let found = wrong(&SIMULATED, |_| ());
    assert_eq!(found.len(), 6);
    let why = ": not measured: CUDA's malloc and Rust's collections are left out: they need a GPU";
    assert!(found.iter().all(|entry| entry.ends_with(why)), "{found:?}");
}

/// The heap, with room for fewer blocks than the largest number of threads.
const TIGHT: Kind = Kind {
    name: "heap",
    operations: &[Operation::Alloc, Operation::Free],
    build: |setup, _, _| Ok(Box::new(setup.bench.heap(1 << 20)?)),
};

#[test]
fn frees_of_failed_allocations_are_not_timed() {
    with_setup(&Extent { threads: vec![1, 32, 1 << 15], ..small() }, false, |setup, _, run| {
        let mut points =
            |operation| series::points(setup, &TIGHT, operation, Over::Threads, &[], run).unwrap();
        let (allocs, frees) = (points(Operation::Alloc), points(Operation::Free));
        let failed = allocs.last().unwrap().failed;
        assert!(allocs.len() == 3 && allocs[0].failed == 0 && failed > 0, "{allocs:?}");
        assert!(frees.len() == 2 && frees.iter().all(|point| point.failed == 0), "{frees:?}");
        let [left_out] = &*run.left_out else { panic!("one point is left out") };
        assert!(left_out.starts_with("heap free over threads, from 32768: "), "{left_out}");
        assert!(left_out.ends_with(" allocations before the frees failed"), "{left_out}");
    });
}

/// Launched threads of [`sums_of_the_first_launch`].
static LAUNCHED: AtomicUsize = AtomicUsize::new(0);

kernel! {
    /// Does what [`collect_vec`] does, except that only 64 threads ever store a sum.
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
    with_setup(&small(), false, |setup, _, _| {
        let sums: Vec<u64> = (0..64).map(|i| sum_of_vec(i, collections::ITEMS)).collect();
        let module = setup.bench.device.native_module().unwrap();
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
    with_setup(&small(), false, |setup, _, _| {
        let heap = setup.bench.heap(1 << 20).unwrap();
        let filled = latency::fill(setup, &heap).unwrap();
        assert_eq!((filled.granted, filled.freed), (1 << 14, 1 << 9));
        let load = setup.bench.load(1, one_size(64)).unwrap();
        heap.launch(Operation::Alloc, &load).unwrap();
        let error = filled.check(&heap).unwrap_err().to_string();
        let found = format!("{} blocks are live after {} were allocated", (1 << 14) - (1 << 9) + 1, 1 << 14);
        assert!(
            error.starts_with("latency of the heap near exhaustion: ") && error.contains(&found),
            "{error}"
        );
        // Some of its blocks are taken, so it cannot be filled.
        let error = latency::fill(setup, &heap).unwrap_err().to_string();
        assert!(error.contains(" blocks were allocated before the heap was full"), "{error}");
    });
}

#[test]
fn calls_that_fail_have_durations_of_their_own() {
    with_setup(&small(), false, |setup, own, _| {
        let module = &latency::timed_kernels(own).unwrap();
        let heap = setup.bench.heap(1 << 20).unwrap();
        let full = setup.bench.load(1 << 14, one_size(64)).unwrap();
        heap.launch(Operation::Alloc, &full).unwrap();
        let calls = Calls { module, heap: Some(&heap) };
        let [allocs, frees] = latency::churn(setup, "near exhaustion", calls, 32).unwrap();
        assert_eq!((allocs.failed, allocs.distribution.calls), (5 * 32 * 4, 0));
        assert!(allocs.failed_p50 <= allocs.failed_max && allocs.failed_p50.is_some(), "{allocs:?}");
        assert_eq!((frees.failed, frees.distribution.calls, frees.failed_p50), (0, 0, None));
    });
}
