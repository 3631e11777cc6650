//! Figures on the CPU, with a 256th of the threads and memory: each is measured, finds no fault,
//! and launches only its own kernels. Their times mean nothing.

use super::*;
use warpheap::Device;

/// A 256th: a single thread block in the smallest figure.
const SHRINK: u32 = 8;

/// Measures the figures with names that contain `part`, each with a module of the kernels in its
/// plan.
fn measured(part: &str) -> BenchReport {
    let mut all = SuiteReport::of(None, BLOCK, 1).bench;
    for plan in figures::plans(Some(part)) {
        let device = Device::cpu();
        let module = device.native_kernels(&plan.kernels().collect::<Vec<_>>()).unwrap();
        let bench = Bench::new(&device, &module, Rounds::of(1), SHRINK).unwrap();
        let name = plan.name.clone();
        let report = super::measure(&bench, vec![plan], &mut |_| ());
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}")).bench;
        assert_eq!((&report.left_out, &report.wrong), (&Vec::new(), &Vec::new()));
        all.figures.extend(report.figures);
    }
    all
}

#[test]
fn the_pools_are_measured() {
    assert_eq!(measured("bump").figures.len(), 2);
    assert_eq!(measured("free list").figures.len(), 10);
}

#[test]
fn a_module_is_asked_for_what_its_figures_launch() {
    let of = |part: &str| {
        let config = BenchConfig { figure: Some(part.into()), ..BenchConfig::default() };
        let mut kernels = kernels(&config);
        kernels.sort_unstable();
        kernels.dedup();
        kernels
    };
    assert_eq!(of("bump alloc, 16 B"), ["bench_alloc_floor", "bench_bump_alloc", "bench_spin"]);
    assert_eq!(of("heap churn, 64 B"), ["bench_churn_floor", "bench_heap_churn", "bench_spin"]);
    assert_eq!(of("no such figure"), [""; 0]);
    // Named by no other figure.
    assert_eq!(of("whole blocks"), of("heap alloc for whole blocks"));
    assert!(of("churn").iter().all(|kernel| !kernel.contains("heap")));
    assert!(kernels(&BenchConfig::default()).iter().all(|kernel| !kernel.contains("heap")));
}

fn names(report: &BenchReport) -> Vec<&str> {
    report.figures.iter().map(|figure| figure.name.as_str()).collect()
}

#[test]
fn every_size_is_allocated_and_some_are_freed() {
    let report = measured("heap alloc, ");
    assert!(names(&report).contains(&"heap alloc, 8192 B") && report.figures.len() >= 20);
    assert_eq!(measured("heap free, ").figures.len(), 13);
}

#[test]
fn a_churn_stands_beside_two_floors() {
    assert_eq!(names(&measured("heap churn, 1")), ["heap churn, 16 B", "heap churn, 128 B"]);
    let report = measured("heap churn, mixed");
    assert_eq!(names(&report), ["heap churn, mixed 16-512 B, 2^17", "heap churn, mixed 16-512 B, 2^20"]);
    for figure in &report.figures {
        let (base, also) = (figure.base.unwrap(), figure.also.as_ref().unwrap());
        assert!(base.median_us <= also.base.median_us && figure.against != also.against, "{figure:?}");
    }
}

#[test]
fn freed_blocks_are_allocated_again() {
    for figure in measured("heap reuse").figures {
        assert!(figure.value.is_some_and(|value| value > 50.0 && value < 120.0), "{figure:?}");
    }
    for figure in measured("heap whole").figures {
        assert_eq!((figure.value, figure.passed), (Some(100.0), true), "{figure:?}");
    }
}

#[test]
fn a_heap_is_set_up_and_has_metadata() {
    let report = measured("heap init");
    assert_eq!(names(&report), ["heap init, 8 GiB", "heap init, 100 GiB"]);
    assert!(report.figures.iter().all(|figure| figure.time.is_some() && figure.base.is_none()));
    for figure in measured("heap metadata").figures {
        assert!(figure.value.is_some_and(|value| value > 0.78 && value < 5.0), "{figure:?}");
    }
}

#[test]
fn groups_allocate_and_free() {
    assert_eq!(measured("heap churn through").figures.len(), 2);
    assert_eq!(measured("heap alloc for whole blocks").figures.len(), 2);
}
