//! Figures on the CPU, with a 256th of the threads and memory: each is measured, finds no fault,
//! and launches only its own kernels. Their times mean nothing.

use super::figures::{Bench, plans};
use super::*;

/// A 256th: a single thread block in the smallest figure.
const SHRINK: u32 = 8;

/// Measures the figures with names that contain `only`, each with a module of the kernels in its
/// plan.
pub(super) fn measured(only: &str) -> BenchReport {
    let config = BenchConfig { rounds: 1, only: Some(only.into()) };
    let (figures, left_out, wrong) = Default::default();
    let mut all = BenchReport { block: 0, rounds: 1, figures, left_out, wrong };
    for plan in plans(&config) {
        let device = Device::cpu();
        let module = device.native_kernels(&plan.kernels().collect::<Vec<_>>()).unwrap();
        let bench = Bench::shrunk(&device, &module, 1, SHRINK).unwrap();
        let name = plan.name.clone();
        let report = bench.run(vec![plan], &mut |_| ()).unwrap_or_else(|error| panic!("{name}: {error}"));
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
    let of = |only: &str| {
        let mut kernels = kernels(&BenchConfig { rounds: 1, only: Some(only.into()) });
        kernels.sort_unstable();
        kernels.dedup();
        kernels
    };
    assert_eq!(of("bump alloc, 16 B"), ["bench_alloc_floor", "bench_bump_alloc", "bench_spin"]);
    assert_eq!(of("heap churn, 64 B"), ["bench_churn_floor", "bench_heap_churn", "bench_spin"]);
    assert_eq!(of("no such figure"), [""; 0]);
    assert!(kernels(&BenchConfig { rounds: 1, only: None }).iter().all(|kernel| !kernel.contains("heap")));
}
