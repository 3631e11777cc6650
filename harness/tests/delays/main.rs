//! Stress runs with delays at the named points of the allocators, on the CPU, and on a GPU if there
//! is one.

#[path = "../support/slots.rs"]
mod slots;

use slots::{OVERLAPS, RACES, SOUND, SlotPool};
use std::collections::BTreeMap;
use std::time::Instant;
use warpheap::error::InvalidModule;
use warpheap::simt::Mode;
use warpheap::{Device, Error};
use warpheap_device::sync::Site;
use warpheap_device::sync::delay::{Settings, words};
use warpheap_harness::stress::{
    AllocatorKind, DelayReport, Delays, FindingKind, Limit, SizeMix, StressConfig, StressReport, Subject,
    Workload, stress, stress_allocator,
};
use warpheap_harness::{OwnModule, build_info};

/// The CPU, and the GPU if there is one.
fn devices() -> Vec<Device> {
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let gpu = Device::cuda(0).ok().filter(|_| build_info::images().is_ok());
    assert!(gpu.is_some() || !required, "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU, or no kernels for it");
    [Device::cpu_with(Mode::Parallel { workers: 2 })].into_iter().chain(gpu).collect()
}

fn run(device: &Device, config: &StressConfig) -> warpheap_harness::Result<StressReport> {
    stress(device, &OwnModule::load(device, &config.kernels())?, config, &mut |_| ())
}

/// Small, crowded pools: half of what the threads would hold, of small and of large blocks.
fn crowded(allocator: AllocatorKind) -> Vec<StressConfig> {
    let base = StressConfig::new().allocator(allocator).threads(512).streams(2).limit(Limit::Rounds(9));
    let delays = |one_in| base.clone().delays(Some(Delays::at(["all"]).one_in(one_in)));
    match allocator {
        AllocatorKind::Bump => {
            // Few threads cross the end of a lease.
            let base = delays(2);
            let small = base.clone().pool_bytes(Some(1 << 20));
            vec![small.clone().sizes(16..=4096), small.sizes(64..=64), base.sizes(16..=40_000)]
        }
        AllocatorKind::FreeList => {
            let small = delays(16).sizes(16..=64);
            let storm = small.clone().workload(Workload::Storm);
            vec![small.clone().pool_bytes(Some(64 * 2000)), small.workload(Workload::Exchange), storm]
        }
        _ => {
            let base = delays(8).pool_bytes(Some(1 << 20));
            let mixed = base.clone().sizes(16..=8192).mix(SizeMix::MostlySmall);
            let pipeline = mixed.clone().workload(Workload::Pipeline);
            vec![mixed, pipeline, base.clone().sizes(64..=64), base.sizes(16..=70_000)]
        }
    }
}

/// The pools stay sound, and every point of every allocator is passed.
#[test]
fn crowded_pools_stay_sound_with_delays_at_every_point() {
    for (device, allocator) in
        devices().iter().flat_map(|device| AllocatorKind::ALL.map(|kind| (device, kind)))
    {
        let mut all = BTreeMap::<_, u64>::new();
        for config in crowded(allocator) {
            let report = run(device, &config).unwrap_or_else(|error| panic!("{device}, {config:?}: {error}"));
            assert!(report.is_clean(), "{device}, {config:?}: {:#?}", report.findings);
            let DelayReport { points, total, .. } = report.delays.expect("the run had delays");
            assert_eq!(points.values().sum::<u64>(), total);
            points.into_iter().for_each(|(name, count)| *all.entry(name).or_default() += count);
        }
        println!("{device}: {all:?}");
        assert!(all.keys().copied().eq(std::collections::BTreeSet::from_iter(allocator.points())));
        let missed: Vec<_> = all.iter().filter(|(_, count)| **count == 0).collect();
        assert!(missed.is_empty(), "{device}: no thread was delayed at {missed:?}");
    }
}

fn run_slots<const FAULT: u8>(delays: Option<Delays>) -> warpheap_harness::Result<StressReport>
where
    SlotPool<FAULT>: Subject,
{
    let config = StressConfig::new().threads(256).sizes(16..=64).limit(Limit::Rounds(3)).delays(delays);
    // With one OS thread, lanes alternate only at atomics and collectives.
    stress_allocator::<SlotPool<FAULT>>(
        &Device::cpu_with(Mode::Parallel { workers: 1 }),
        &config,
        &mut |_| (),
    )
}

/// A claim by a load and a store is found only if a thread is delayed between the two.
#[test]
fn a_race_between_two_steps_is_found_by_a_delay_between_them() {
    assert!(run_slots::<RACES>(None).unwrap().is_clean());
    let at = || Some(Delays::at(["slots"]).one_in(64));
    let report = run_slots::<RACES>(at()).unwrap();
    assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::Overlap), "{report:#?}");
    let report = run_slots::<SOUND>(at()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(!run_slots::<OVERLAPS>(None).unwrap().is_clean());
}

#[test]
fn the_seed_of_a_replay_determines_its_delays() {
    let replay = |seed| {
        let config =
            crowded(AllocatorKind::FreeList).remove(0).threads(256).seed(seed).limit(Limit::Rounds(2));
        run(&Device::cpu_with(Mode::Replay { seed }), &config).unwrap().delays.unwrap().points
    };
    let first = replay(11);
    assert_eq!(first, replay(11));
    assert_ne!(first, replay(12));
}

#[test]
fn delays_that_cannot_take_place_are_errors_with_advice() {
    let freelist = |delays| StressConfig::new().allocator(AllocatorKind::FreeList).delays(Some(delays));
    let cases = [
        (freelist(Delays::at(["freelist", "heap/claim"])), "it has these points: freelist/claim"),
        (freelist(Delays::at(["freelist/cl"])), "it has these points"),
        (freelist(Delays::at::<&str>([])), "name at least one point"),
        (freelist(Delays::at(["all"]).one_in(0)), "at least one thread"),
        // So rare that none takes place.
        (
            freelist(Delays::at(["all"]).one_in(u32::MAX)).threads(256),
            "no thread was delayed at freelist/claim",
        ),
    ];
    for (config, advice) in cases {
        let error = run(&Device::cpu(), &config).unwrap_err().to_string();
        assert!(error.contains(advice), "{config:?}: {error}");
    }
}

#[test]
fn kernels_without_delays_are_rejected() {
    const PTX: &str = ".version 7.0 .target sm_70 .visible .entry double() { ret; }";
    let module = Device::cpu().load_module(PTX).unwrap();
    let error = module.delay(1, 1, &["heap/claim"]).unwrap_err();
    assert!(matches!(error, Error::InvalidModule(InvalidModule::NoDelays { .. })), "{error}");
    for image in build_info::images().unwrap_or_default() {
        let module = Device::cpu().load_module(image.ptx).unwrap();
        drop(module.delay(1, 1, &["heap/claim"]).expect("the kernels have the variable"));
    }
}

/// Passes of a point wait as often and as long as set; those of another, and after the end, do not.
#[test]
fn a_point_waits_and_is_counted_until_the_delays_are_dropped() {
    const HERE: Site = Site::new("test/here");
    const THERE: Site = Site::new("test/there");
    let delays = Device::cpu().native_module().unwrap().delay(7, 2, &["test/here"]).unwrap();
    let began = Instant::now();
    (0..100).for_each(|_| HERE.delay());
    let waited = began.elapsed();
    (0..100).for_each(|_| THERE.delay());
    let counts = delays.counts().unwrap();
    let [("test/here", count)] = counts[..] else { panic!("{counts:?}") };
    assert!((20..80).contains(&count), "{count}");
    assert!(waited.as_micros() as u64 >= 20 * count, "{count} in {waited:?}");
    drop(delays);
    // The test itself may be preempted, but not every time.
    let is_fast = || {
        let began = Instant::now();
        (0..100).for_each(|_| HERE.delay());
        began.elapsed().as_micros() < 20 * 20
    };
    assert!((0..100).any(|_| is_fast()));
}

#[test]
fn every_point_has_a_slot() {
    let names: Vec<&'static str> = (0..256).map(|i| &*format!("test/{i}").leak()).collect();
    let of = |points| words(&Settings { seed: 0, one_in: 1, nanos: (0, 0), points });
    let found = of(&names[1..]).expect("255 points fit");
    assert_eq!(found.into_iter().filter(|word| *word != 0).count(), 255 + 1, "the keys, and `one in`");
    assert!(of(&names).is_none(), "an empty slot must be left");
}
