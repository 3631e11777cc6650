//! Every injected fault is detected by the check that is meant for it. Without a fault, nothing is
//! found.

use warpheap::Device;
use warpheap::simt::Mode;
use warpheap_harness::OwnModule;
use warpheap_harness::stress::{
    AllocatorKind, FindingKind, Limit, Plant, StressConfig, StressReport, Workload, stress,
};

fn config(allocator: AllocatorKind, plant: Option<Plant>, seed: u64) -> StressConfig {
    // The smallest heap has 1 MiB, and a planted overlap shows when it runs out of memory.
    let largest = if allocator == AllocatorKind::Heap { 2048 } else { 64 };
    StressConfig::new()
        .allocator(allocator)
        .threads(256)
        .sizes(24..=largest)
        .limit(Limit::Rounds(5))
        .streams(2)
        .seed(seed)
        .plant(plant)
}

fn run(mode: Mode, config: &StressConfig) -> StressReport {
    let device = Device::cpu_with(mode);
    stress(&device, &OwnModule::load(&device, &config.kernels()).unwrap(), config, &mut |_| ()).unwrap()
}

/// The expected kind of finding.
fn expected(plant: Plant) -> FindingKind {
    match plant {
        Plant::Overlap => FindingKind::Overlap,
        Plant::DoubleFree => FindingKind::DoubleFree,
        Plant::LostBlock => FindingKind::Lost,
        Plant::TornWrite => FindingKind::Torn,
        other => panic!("{other} has no expectation"),
    }
}

/// Asserts that the fault is among the findings. If no thread allocates that size any more, the
/// heap allocates no block twice. Then the only finding is that a live block counts as free.
fn assert_found(report: &StressReport, allocator: AllocatorKind, plant: Plant) {
    let found = |kind| report.findings.iter().any(|finding| finding.kind == kind);
    let early = plant == Plant::Overlap && allocator == AllocatorKind::Heap;
    let is_found = found(expected(plant)) || early && found(FindingKind::CountMismatch);
    assert!(is_found && !found(FindingKind::ChecksDisagree), "{allocator} {plant}: {report:#?}");
}

/// Every allocator with every fault that can be planted in it.
fn faults() -> impl Iterator<Item = (AllocatorKind, Plant)> {
    let all = AllocatorKind::ALL.into_iter().flat_map(|allocator| Plant::ALL.map(|plant| (allocator, plant)));
    all.filter(|(allocator, plant)| plant.suits(*allocator))
}

fn modes() -> impl Iterator<Item = (Mode, u64)> {
    (0..4).map(|seed| (Mode::Parallel { workers: 2 }, seed)).chain([(Mode::Replay { seed: 9 }, 9)])
}

#[test]
fn every_planted_fault_is_found() {
    for (allocator, plant) in faults() {
        for (mode, seed) in modes() {
            let report = run(mode, &config(allocator, Some(plant), seed));
            assert_found(&report, allocator, plant);
            assert_eq!(report.rounds, 3, "the run ends with the round of the fault");
            assert!(report.findings_total >= report.findings.len() as u64);
        }
    }
}

#[test]
fn an_arena_has_no_double_free() {
    let count = |kind| faults().filter(|(allocator, _)| *allocator == kind).count();
    assert_eq!(AllocatorKind::ALL.map(count), [3, 4, 4]);
    let config = config(AllocatorKind::Bump, Some(Plant::DoubleFree), 0);
    let error = config.validate(&Device::cpu()).unwrap_err().to_string();
    assert!(error.contains("use freelist or heap"), "{error}");
}

#[test]
fn without_a_fault_nothing_is_found() {
    for allocator in AllocatorKind::ALL {
        for (mode, seed) in modes() {
            let report = run(mode, &config(allocator, None, seed));
            assert!(report.is_clean() && report.findings.is_empty(), "{:#?}", report.findings);
            assert!(report.allocations > 2 * 256, "{}", report.allocations);
        }
    }
}

/// One fault causes one finding of its kind, at its address, and no other finding.
#[test]
fn one_fault_is_one_finding() {
    for allocator in [AllocatorKind::FreeList, AllocatorKind::Heap] {
        for plant in [Plant::DoubleFree, Plant::LostBlock, Plant::TornWrite] {
            let report = run(Mode::Parallel { workers: 2 }, &config(allocator, Some(plant), 3));
            let [finding] = &report.findings[..] else { panic!("{plant}: {:#?}", report.findings) };
            assert_eq!((finding.kind, report.findings_total), (expected(plant), 1));
            assert!(
                finding.address.is_some_and(|address| finding.message.contains(&format!("{address:#x}")))
            );
            assert_eq!(report.lost_blocks, u64::from(plant == Plant::LostBlock));
            // The allocator's record says what its check saw.
            let is_recorded = ["bit was", "word 0x", "later 0x", "on multiprocessor"];
            let is_recorded = is_recorded.map(|part| finding.message.contains(part));
            assert_eq!(is_recorded, [plant == Plant::DoubleFree; 4], "{}", finding.message);
        }
    }
}

/// The fault is detected in every workload.
#[test]
fn an_overlap_is_found_in_every_workload() {
    for allocator in AllocatorKind::ALL {
        for workload in Workload::ALL.into_iter().filter(|workload| workload.suits(allocator)) {
            let config = config(allocator, Some(Plant::Overlap), 7).workload(workload);
            let report = run(Mode::Parallel { workers: 2 }, &config);
            assert_found(&report, allocator, Plant::Overlap);
        }
    }
}

#[test]
fn an_overlap_names_both_owners() {
    for allocator in AllocatorKind::ALL {
        let overlaps = |seed| {
            let report = run(Mode::Parallel { workers: 2 }, &config(allocator, Some(Plant::Overlap), seed));
            let mut findings = report.findings;
            findings.retain(|finding| finding.kind == FindingKind::Overlap);
            findings
        };
        // A heap allocates the block again only if a later request is of its size class.
        let seeds = if allocator == AllocatorKind::Heap { 3..13 } else { 3..4 };
        // One by the thread that got the block, one by the comparison on the host.
        let found = seeds.map(overlaps).find(|found| found.len() >= 2);
        for finding in found.expect("an overlap is found twice") {
            assert_eq!(finding.message.matches("thread ").count(), 2, "{}", finding.message);
        }
    }
}

#[test]
fn an_overlap_that_would_not_be_found_is_an_error() {
    let mut config = config(AllocatorKind::FreeList, Some(Plant::Overlap), 0);
    config.pool_bytes = Some(1 << 30);
    let error = config.validate(&Device::cpu()).unwrap_err().to_string();
    assert!(error.contains("use a pool of"), "{error}");
}
