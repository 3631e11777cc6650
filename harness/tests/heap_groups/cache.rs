//! The block cache.

use crate::support::{BLOCK, Fixture, THREADS, fixtures};
use warpheap::Device;
use warpheap::simt::Mode;
use warpheap_device::fault::FaultCheck;
use warpheap_harness::kernels::groups::{
    Endings, Plan, groups_cache, groups_exhaust, groups_misuse, groups_vanish,
};

/// Runs the plan, then frees the blocks that were left at the places. Returns the number of
/// failures.
fn run_cache(fixture: &Fixture, plan: Plan) -> u64 {
    let places = fixture.device.zeroed::<u64>(32).unwrap();
    let args = (fixture.heap.handle(), fixture.marks.slice(), places.slice(), plan, fixture.counter());
    fixture.run(groups_cache, THREADS, args);
    let left: Vec<u64> = places.copy_to_vec().unwrap().into_iter().filter(|place| *place != 0).collect();
    fixture.free(&left);
    fixture.failures()
}

const PLAN: Plan = Plan { steps: 40, bytes: 48, seed: 1, endings: Endings::Return as u32, plant: 0 };

#[test]
fn no_block_has_two_owners_and_none_is_lost_however_threads_end() {
    for endings in [Endings::Return, Endings::Together, Endings::Any] {
        for (fixture, seed) in fixtures(12).zip(1..) {
            let plan = Plan { seed, endings: endings as u32, ..PLAN };
            assert_eq!(run_cache(&fixture, plan), 0, "{endings:?}, {}", fixture.name);
            let faults = fixture.heap.faults().unwrap();
            assert_eq!(faults.count, 0, "{endings:?}, {}: {:?}", fixture.name, faults.first.first());
            // Also with `Any`: in each block at least one thread reaches the end, depending on the
            // seed.
            assert!(fixture.is_all_free(), "{endings:?}, {}: blocks were lost", fixture.name);
        }
    }
}

#[test]
fn a_planted_double_free_is_found() {
    for (fixture, seed) in fixtures(8).zip(1..) {
        let failures =
            run_cache(&fixture, Plan { seed, plant: 1, endings: Endings::Together as u32, ..PLAN });
        let faults = fixture.heap.faults().unwrap().count;
        assert!(failures + faults > 0, "{}: 20 blocks were freed twice", fixture.name);
    }
}

#[test]
fn a_heap_exhausted_through_the_cache_is_all_free_afterwards() {
    for fixture in fixtures(6) {
        let bytes = 4096;
        for _ in 0..2 {
            let args =
                (fixture.heap.handle(), fixture.marks.slice(), fixture.out.slice(), bytes, fixture.counter());
            fixture.run(groups_exhaust, THREADS, args);
            let taken: u64 = fixture.out().iter().sum();
            let max = fixture.heap.capacity() / u64::from(bytes);
            // Other threads free meanwhile, so a freed block may be allocated again.
            assert!(taken >= max / 2, "{}: {taken} of {max}", fixture.name);
            assert!(fixture.out().iter().any(|count| *count < 32), "{}: no allocation failed", fixture.name);
        }
        fixture.check();
    }
}

#[test]
fn threads_that_exit_lose_nothing_if_the_others_end_the_cache() {
    for mut fixture in fixtures(4) {
        for gone in [1, 2, 33] {
            fixture.run(groups_vanish, THREADS, (fixture.heap.handle(), gone, 1));
            // If all threads have exited, none is left to end the cache.
            assert_eq!(fixture.is_all_free(), gone != 1, "one in {gone}, {}", fixture.name);
            fixture.heap.reset().unwrap();
        }
        fixture.run(groups_vanish, THREADS, (fixture.heap.handle(), 5, 0));
        assert!(!fixture.is_all_free(), "{}: the check finds the lost blocks", fixture.name);
    }
}

#[test]
fn misuse_is_recorded() {
    let expected = [FaultCheck::InSlots, FaultCheck::BitWasSet, FaultCheck::NotAStart, FaultCheck::Outside];
    for fixture in fixtures(4) {
        for (what, check) in (0..).zip(expected) {
            let before = fixture.heap.faults().unwrap().count;
            fixture.run(groups_misuse, BLOCK, (fixture.heap.handle(), fixture.out.slice(), what));
            let faults = fixture.heap.faults().unwrap();
            assert_eq!(faults.count, before + 1, "{what}, {}", fixture.name);
            assert_eq!(faults.first.last().unwrap().check, check, "{what}, {}", fixture.name);
            let base = fixture.heap.memory().address();
            let [one, other] = [1, 2].map(|i| fixture.out()[i] - base);
            assert_ne!(one, other, "{what}, {}: a block was allocated twice", fixture.name);
            assert!(one % 64 == 0 && other % 64 == 0, "{what}, {}: {one:#x} {other:#x}", fixture.name);
        }
    }
}

#[test]
fn a_replay_of_the_cache_is_the_same_run() {
    let run = |seed| {
        let device = Device::cpu_with(Mode::Replay { seed });
        let module = device.native_module().unwrap();
        let fixture = Fixture::new(format!("seed {seed}"), device, module);
        let places = fixture.device.zeroed::<u64>(32).unwrap();
        let plan = Plan { endings: Endings::Together as u32, ..PLAN };
        let args = (fixture.heap.handle(), fixture.marks.slice(), places.slice(), plan, fixture.counter());
        fixture.run(groups_cache, THREADS, args);
        let base = fixture.heap.memory().address();
        // `None` for threads that left no block. Offsets, because the heap's address differs
        // between runs.
        places.copy_to_vec().unwrap().iter().map(|&a| (a != 0).then(|| a - base)).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert!((8..12).any(|seed| run(seed) != run(7)), "the seed decides which threads leave blocks");
}
