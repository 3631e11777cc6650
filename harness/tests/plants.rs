//! Every injected fault is detected by the check that is meant for it. Without a fault, nothing is
//! found.

use warpheap::Device;
use warpheap::simt::Mode;
use warpheap_harness::OwnModule;
use warpheap_harness::stress::{
    AllocatorKind, FindingKind, Limit, Plant, SizeMix, StressConfig, StressReport, Workload, stress,
};

fn config(allocator: AllocatorKind, plant: Option<Plant>, seed: u64) -> StressConfig {
    // The smallest heap has 1 MiB, and a planted overlap shows when it runs out of memory.
    let largest = if allocator == AllocatorKind::Heap { 2048 } else { 64 };
    StressConfig::new()
        .allocator(allocator)
        .threads(256)
        .workload(Workload::Churn)
        .sizes(24..=largest)
        .mix(SizeMix::Uniform)
        .limit(Limit::Rounds(5))
        .streams(2)
        .pool_bytes(None)
        .seed(seed)
        .plant(plant)
}

fn run(mode: Mode, config: &StressConfig) -> StressReport {
    let device = Device::cpu_with(mode);
    stress(&device, &OwnModule::load(&device, &config.kernels()).unwrap(), config, &mut |_| ()).unwrap()
}

/// Runs on the GPU, if there is one and the kernels were built. With `WARPHEAP_REQUIRE_CUDA=1` both
/// are required.
fn run_on_gpu(config: &StressConfig) -> Option<StressReport> {
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let (Ok(device), Ok(images)) = (Device::cuda(0), warpheap_harness::build_info::images()) else {
        assert!(!required, "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU, or no kernels for it");
        return None;
    };
    let kernels = OwnModule::load_for(&device, images.last()?.capability, &config.kernels()).unwrap();
    Some(stress(&device, &kernels, config, &mut |_| ()).unwrap())
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

/// Whether the fault is among the findings. If no thread allocates that size any more, the heap
/// allocates no block twice. Then the only finding is that a live block counts as free.
fn is_caught(report: &StressReport, allocator: AllocatorKind, plant: Plant) -> bool {
    let found = |kind| report.findings.iter().any(|finding| finding.kind == kind);
    let early = plant == Plant::Overlap && allocator == AllocatorKind::Heap;
    found(expected(plant)) || early && found(FindingKind::CountMismatch)
}

fn modes() -> impl Iterator<Item = (Mode, u64)> {
    (0..4).map(|seed| (Mode::Parallel { workers: 2 }, seed)).chain([(Mode::Replay { seed: 9 }, 9)])
}

#[test]
fn every_planted_fault_is_caught() {
    for allocator in AllocatorKind::ALL {
        for plant in Plant::ALL.into_iter().filter(|plant| plant.suits(allocator)) {
            for (mode, seed) in modes() {
                let report = run(mode, &config(allocator, Some(plant), seed));
                let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
                let caught = is_caught(&report, allocator, plant);
                assert!(caught, "{allocator} {plant} {seed}: {:#?}", report.findings);
                assert!(!kinds.contains(&FindingKind::ChecksDisagree), "{:#?}", report.findings);
                assert_eq!(report.rounds, 3, "the run ends with the round of the fault");
                assert!(report.findings_total >= report.findings.len() as u64);
            }
        }
    }
}

#[test]
fn every_planted_fault_is_caught_on_a_gpu() {
    for allocator in AllocatorKind::ALL {
        for plant in Plant::ALL.into_iter().filter(|plant| plant.suits(allocator)) {
            let config = config(allocator, Some(plant), 5).threads(1 << 16);
            let Some(report) = run_on_gpu(&config) else { return eprintln!("no GPU: nothing was tried") };
            let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
            let caught = is_caught(&report, allocator, plant);
            assert!(caught, "{allocator} {plant}: {:#?}", report.findings);
            assert!(!kinds.contains(&FindingKind::ChecksDisagree), "{:#?}", report.findings);
        }
    }
}

#[test]
fn four_faults_are_caught_where_blocks_are_freed_and_three_in_an_arena() {
    let count = |allocator| Plant::ALL.into_iter().filter(|plant| plant.suits(allocator)).count();
    assert_eq!(AllocatorKind::ALL.map(count), [3, 4, 4]);
    let refused = config(AllocatorKind::Bump, Some(Plant::DoubleFree), 0);
    let error = refused.validate(&Device::cpu()).unwrap_err().to_string();
    assert!(error.contains("use freelist or heap"), "{error}");
}

#[test]
fn without_a_plant_nothing_is_found() {
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
fn misuse_is_told_exactly() {
    for allocator in [AllocatorKind::FreeList, AllocatorKind::Heap] {
        for plant in [Plant::DoubleFree, Plant::LostBlock, Plant::TornWrite] {
            let report = run(Mode::Parallel { workers: 2 }, &config(allocator, Some(plant), 3));
            let [finding] = &report.findings[..] else { panic!("{plant}: {:#?}", report.findings) };
            assert_eq!((finding.kind, report.findings_total), (expected(plant), 1));
            assert!(
                finding.address.is_some_and(|address| finding.message.contains(&format!("{address:#x}")))
            );
            assert_eq!(report.lost_blocks, u64::from(plant == Plant::LostBlock));
        }
    }
}

/// The fault is detected in every workload.
#[test]
fn an_overlap_is_caught_in_every_workload() {
    for allocator in AllocatorKind::ALL {
        for workload in Workload::ALL.into_iter().filter(|workload| workload.suits(allocator)) {
            let config = config(allocator, Some(Plant::Overlap), 7).workload(workload);
            let report = run(Mode::Parallel { workers: 2 }, &config);
            let caught = is_caught(&report, allocator, Plant::Overlap);
            assert!(caught, "{allocator} {workload}: {:#?}", report.findings);
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
fn an_overlap_that_would_not_show_is_refused() {
    let mut config = config(AllocatorKind::FreeList, Some(Plant::Overlap), 0);
    config.pool_bytes = Some(1 << 30);
    let error = config.validate(&Device::cpu()).unwrap_err().to_string();
    assert!(error.contains("use a pool of"), "{error}");
}
