//! Stress runs of third-party allocators.

use crate::failing::{DROPPED_IDLE, FailingPool};
use crate::slots::{OVERLAPS, SOUND, SlotPool};
use crate::{config, parallel, run};
use std::sync::atomic::Ordering;
use warpheap::Device;
use warpheap::simt::Mode;
use warpheap_harness::stress::{
    AllocatorKind, FindingKind, Limit, Plant, StressConfig, StressReport, Subject, Workload, stress_allocator,
};

/// A stress run of a third-party allocator.
fn run_third_party<S: Subject>(mode: Mode, config: &StressConfig) -> warpheap_harness::Result<StressReport> {
    let device = Device::cpu_with(mode);
    stress_allocator::<S>(&device, config, &mut |_| ())
}

fn third_party_config() -> StressConfig {
    StressConfig::new().threads(256).sizes(16..=64).streams(2).limit(Limit::Rounds(9))
}

fn modes() -> [Mode; 2] {
    [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 5 }]
}

#[test]
fn a_third_party_allocator_is_stressed() {
    for (mode, workload, min) in
        modes().into_iter().flat_map(|mode| [(mode, Workload::Churn, 5000), (mode, Workload::Storm, 1000)])
    {
        let report =
            run_third_party::<SlotPool<SOUND>>(mode, &third_party_config().workload(workload)).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert_eq!((&*report.allocator, report.allocations), ("slots", report.frees));
        let (allocations, exhaustions) = (report.allocations, report.exhaustions);
        assert!(allocations > min && exhaustions > 1, "{workload:?}: {allocations} {exhaustions}");
    }
}

#[test]
fn a_third_party_allocator_that_allocates_a_slot_twice_is_found() {
    for mode in modes() {
        let report = run_third_party::<SlotPool<OVERLAPS>>(mode, &third_party_config()).unwrap();
        let overlaps: Vec<_> =
            report.findings.iter().filter(|finding| finding.kind == FindingKind::Overlap).collect();
        let [finding, ..] = &overlaps[..] else { panic!("{:#?}", report.findings) };
        assert!(finding.message.contains("(block "), "the slot is named: {}", finding.message);
        assert!(report.rounds < 9, "the run ends with the round of the fault");
        let mut kinds = report.findings.iter().map(|finding| finding.kind);
        assert!(kinds.all(|kind| kind != FindingKind::ChecksDisagree), "{:#?}", report.findings);
    }
}

/// Faults that need no kernels of the allocator are injected and found.
#[test]
fn faults_are_injected_into_a_third_party_allocator() {
    let found = |plant| {
        let report =
            run_third_party::<SlotPool<SOUND>>(modes()[0], &third_party_config().plant(Some(plant))).unwrap();
        report.findings.into_iter().map(|finding| finding.kind).collect::<Vec<_>>()
    };
    assert_eq!(found(Plant::TornWrite), [FindingKind::Torn]);
    assert_eq!(found(Plant::LostBlock), [FindingKind::CountMismatch]);
}

#[test]
fn features_that_a_third_party_allocator_lacks_are_errors() {
    let cases = [
        (third_party_config().workload(Workload::Exchange), "use churn or storm"),
        (third_party_config().plant(Some(Plant::Overlap)), "use lost-block or torn-write"),
        (third_party_config().plant(Some(Plant::DoubleFree)), "use lost-block or torn-write"),
        (third_party_config().threads(0), "at least one thread"),
    ];
    for (config, advice) in cases {
        let error = run_third_party::<SlotPool<SOUND>>(modes()[0], &config).unwrap_err().to_string();
        assert!(error.contains(advice), "{config:?}: {error}");
    }
}

#[test]
fn a_subject_is_dropped_after_its_kernels_have_ended() {
    let config = third_party_config().workload(Workload::Exchange);
    let error = run_third_party::<FailingPool>(modes()[0], &config).unwrap_err().to_string();
    assert!(error.contains("the second launch"), "{error}");
    assert!(DROPPED_IDLE.load(Ordering::Relaxed), "the subject was dropped while its kernel ran");
}

/// Reports list the checks that a subject supports, and no others.
#[test]
fn a_report_lists_the_checks_that_were_made() {
    let slots = run_third_party::<SlotPool<SOUND>>(modes()[0], &third_party_config()).unwrap();
    let heap = run(&parallel(), &config(AllocatorKind::Heap));
    for (report, expected) in [(slots, [1, 0, 1, 0, 0]), (heap, [1, 1, 0, 1, 1])] {
        let found = ["overlaps: every", "misuse", "count", "metadata", "all memory"]
            .map(|what| report.verified.iter().filter(|verified| verified.contains(what)).count());
        assert_eq!(found, expected, "{:?}", report.verified);
    }
}
