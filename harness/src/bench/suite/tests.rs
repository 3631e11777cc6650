//! Suites on the CPU: every contender is measured, and limits leave out the rest. Times mean
//! nothing there. CUDA's `malloc` is replaced by that of the C library.

mod failures;

use super::contenders::{KINDS, Setup};
use super::extent::{Extent, LoadExtent};
use super::malloc::{CUDA_MALLOC, Malloc};
use super::results::Results;
use super::run::run_extent;
use super::{calls, collections, kernels, series, situations, targets};
use crate::OwnModule;
use crate::bench::context::Bench;
use crate::bench::results::Latency;
use crate::bench::results::{Operation, Over};
use crate::bench::results::{Series, Suite, SuiteReport};
use std::time::Duration;
use warpheap::driver::{Backend, Device};
use warpheap::simt::{Executor, Mode};

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

#[test]
fn a_simulated_suite_has_every_point_and_no_target() {
    let report = run_small(&Device::cpu(), &small());
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
    let json = serde_json::to_value(run_small(&Device::cpu(), &small())).unwrap();
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

/// The results of all measurements, with the `malloc` of the C library.
fn with_malloc(extent: &Extent) -> SuiteReport {
    let device = Device::cpu();
    let own = own(&device);
    let mut bench = Bench::new(&device, own.module(), extent.rounds, 0).unwrap();
    bench.timer.budget = extent.point;
    let malloc = Malloc::of(&own, 1 << 30).unwrap();
    let setup = Setup { bench: &bench, extent, malloc: Some(&malloc) };
    let mut ignored = |_: &str| ();
    let mut results = Results::begin(Suite::Quick, Backend::Cpu, extent, &mut ignored);
    series::measure(&setup, Over::Threads, &mut results).unwrap();
    situations::measure(&setup, &calls::Timed::load(&own).unwrap(), &mut results).unwrap();
    collections::measure(&setup, &malloc, &mut results).unwrap();
    results.report
}

#[test]
fn malloc_is_measured_beside_the_heap_and_has_targets() {
    let mut report = with_malloc(&small());
    assert_eq!((&report.bench.left_out, &report.bench.wrong), (&vec![], &vec![]));
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
    let own = own(&device);
    let (bench, extent) = (Bench::new(&device, own.module(), 1, 0).unwrap(), small());
    let malloc = Malloc::of(&own, 1 << 20).unwrap();
    let setup = Setup { bench: &bench, extent: &extent, malloc: Some(&malloc) };
    let kind = KINDS.iter().find(|kind| kind.name == CUDA_MALLOC).unwrap();
    let limit = |threads, bytes| (kind.limit)(&setup, threads, bytes);
    assert_eq!(limit(1 << 10, 512), None);
    assert!(limit(1 << 10, 1024).unwrap().contains("half of its heap"));
    assert!(limit(1 << 21, 16).unwrap().contains("take too long"));
}
