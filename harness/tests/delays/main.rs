//! Stress runs with delays at the named points of the allocators, on the CPU, and on a GPU if there
//! is one.

#[path = "../support/slots.rs"]
mod slots;

use slots::{OVERLAPS, RACES, SOUND, SlotPool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use warpheap::error::{InvalidConfig, InvalidModule};
use warpheap::simt::Mode;
use warpheap::{Backend, Device, Error};
use warpheap_device::sync::Site;
use warpheap_device::sync::delay::{Settings, WORDS, counts, words};
use warpheap_harness::stress::{
    AllocatorKind, DelayReport, Delays, FindingKind, Limit, SizeMix, StressConfig, StressReport, Subject,
    Workload, stress, stress_allocator,
};
use warpheap_harness::{OwnModule, build_info};

/// Tests with delays run one at a time: the program can switch them on once.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Points that these runs do not reach.
const RARE: [&str; 6] = [
    // After 2^26 subtractions from a retired lease.
    "bump/reset-retired",
    // After 2^12 failures of a compare-and-swap in a row.
    "freelist/cancel-all",
    // Of debug heaps.
    "heap/quarantine",
    "heap/see-quarantine",
    "heap/left",
    "heap/see-left",
];

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
/// On a GPU with more threads, many of which are resident at once, and pools as much larger.
fn crowded(allocator: AllocatorKind, device: &Device) -> Vec<StressConfig> {
    let scale = if device.backend() == Backend::Cuda { 128 } else { 1 };
    let base = StressConfig::new().allocator(allocator).threads(512 * scale);
    let base = base.streams(2).limit(Limit::Rounds(9));
    let pool = |bytes: u64| Some(u64::from(scale) * bytes);
    let delays = |one_in| base.clone().delays(Some(Delays::at(["all"]).one_in(one_in)));
    match allocator {
        AllocatorKind::Bump => {
            // Few threads cross the end of a lease.
            let base = delays(2);
            let small = base.clone().pool_bytes(pool(1 << 20));
            vec![
                small.clone().sizes(16..=4096),
                small.sizes(64..=64),
                base.sizes(16..=40_000).limit(Limit::Rounds(3)),
            ]
        }
        AllocatorKind::FreeList => {
            let small = delays(16).sizes(16..=64);
            let storm = small.clone().workload(Workload::Storm);
            vec![small.clone().pool_bytes(pool(64 * 2000)), small.workload(Workload::Exchange), storm]
        }
        _ => {
            let base = delays(8).pool_bytes(pool(1 << 20));
            let mixed = base.clone().sizes(16..=8192).mix(SizeMix::MostlySmall);
            let pipeline = mixed.clone().workload(Workload::Pipeline);
            let large = base.clone().sizes(16..=70_000);
            vec![mixed, pipeline, base.sizes(64..=64), large]
        }
    }
}

/// The pools stay sound, and every point of every allocator is passed.
#[test]
fn crowded_pools_stay_sound_with_delays_at_every_point() {
    let _alone = alone();
    for (device, allocator) in
        devices().iter().flat_map(|device| AllocatorKind::ALL.map(|kind| (device, kind)))
    {
        let mut all: BTreeMap<_, u64> = allocator.points().map(|name| (name.into(), 0)).collect();
        for config in crowded(allocator, device) {
            let report = run(device, &config).unwrap_or_else(|error| panic!("{device}, {config:?}: {error}"));
            assert!(report.is_clean(), "{device}, {config:?}: {:#?}", report.findings);
            let DelayReport { points, total, .. } = report.delays.expect("the run had delays");
            assert_eq!(points.values().sum::<u64>(), total);
            points.into_iter().for_each(|(name, count)| *all.entry(name).or_default() += count);
        }
        println!("{device}: {all:?}");
        let missed = all.iter().filter(|(name, count)| **count == 0 && !RARE.contains(&&***name));
        let missed: Vec<_> = missed.collect();
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
    let _alone = alone();
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
    let _alone = alone();
    let replay = |seed| {
        let device = Device::cpu_with(Mode::Replay { seed });
        let config = crowded(AllocatorKind::FreeList, &device).remove(0);
        let config = config.threads(256).seed(seed).limit(Limit::Rounds(2));
        run(&device, &config).unwrap().delays.unwrap().points
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
    ];
    let _alone = alone();
    for (config, advice) in cases {
        let error = run(&Device::cpu(), &config).unwrap_err().to_string();
        assert!(error.contains(advice), "{config:?}: {error}");
    }
}

/// So rare that none takes place: the report says so, and has the rest.
#[test]
fn a_run_without_a_delay_has_a_report() {
    let _alone = alone();
    let rare = Delays::at(["all"]).one_in(u32::MAX);
    let config = StressConfig::new().allocator(AllocatorKind::FreeList).threads(256).delays(Some(rare));
    let report = run(&Device::cpu(), &config).unwrap();
    let delays = report.delays.as_ref().unwrap();
    assert!(report.is_clean() && report.pairs > 0, "{report:#?}");
    assert_eq!((delays.total, delays.points.values().sum()), (0, 0_u64));
}

#[test]
fn delays_are_switched_on_once_at_a_time() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let _alone = alone();
    let module = Device::cpu().native_module().unwrap();
    let delays = is_send(module.delay(1, 1, &["test/here"]).unwrap());
    let error = module.delay(1, 1, &["test/here"]).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig(InvalidConfig::Delays { .. })), "{error}");
    assert!(error.to_string().contains("already switched on"), "{error}");
    drop(delays);
    drop(module.delay(1, 1, &["test/here"]).unwrap());
    let error = module.delay(1, 1, &["test/here"; 256]).unwrap_err().to_string();
    assert!(error.contains("room for 255 points, and 256"), "{error}");
    drop(module.delay(1, 1, &["test/here"]).unwrap());
}

/// Kernels of another CPU device run while the settings change.
#[test]
fn settings_may_change_while_threads_pass_points() {
    const HERE: Site = Site::new("test/here");
    let _alone = alone();
    let module = Device::cpu().native_module().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let passes = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                HERE.delay();
            }
        });
        for seed in 0..2000 {
            drop(module.delay(seed, 1 + seed as u32, &["test/here"]).unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
        passes.join().expect("no pass panics");
    });
}

#[test]
fn kernels_without_delays_are_rejected() {
    let _alone = alone();
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
    let _alone = alone();
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
    let of = |points| words(&Settings { seed: 0, one_in: 1, nanos: 0..1, points });
    assert!(of(&names).is_none(), "an empty slot must be left");
    let mut found = of(&names[1..]).expect("255 points fit");
    // The settings have an odd number of words, then keys and counts alternate. Let each key be its
    // own count.
    let keys: Vec<_> = (3..WORDS).step_by(2).filter(|key| found[*key] != 0).collect();
    assert_eq!(keys.len(), 255);
    keys.iter().for_each(|key| found[key + 1] = found[*key]);
    let counted = counts(&found, &names);
    let distinct = BTreeSet::from_iter(counted.iter().copied());
    assert_eq!((counted[0], distinct.len()), (0, 256), "each name has the count of its own key");
    // Keys have home slots of either parity.
    let few = of(&names[..32]).unwrap();
    let parity = |odd: usize| (3..WORDS).step_by(4).filter(|key| few[key + 2 * odd] != 0).count();
    assert!(parity(0) >= 8 && parity(1) >= 8, "{} {}", parity(0), parity(1));
}
