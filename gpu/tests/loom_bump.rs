//! The bump arena under loom, with at most [`PREEMPTIONS`] preemptions a run. For what loom cannot
//! see, see docs/memory-model.md.
#![cfg(loom)]

#[macro_use]
mod loom_support;

#[path = "support/arena.rs"]
mod arena;

use arena::{Arena, check_disjoint};
use loom_support::{Model, at, every_site_is_needed, model, with};
use std::sync::{Arc, Mutex};
use warpheap_device::bump::ORDERINGS;

/// An arena with one-byte granules, and its allocations as start and length.
struct Shared {
    arena: Arena,
    granted: Mutex<Vec<(u64, u64)>>,
}

impl Shared {
    fn new(granules: u64, shards: u32) -> Arc<Shared> {
        Arc::new(Shared { arena: Arena::new(granules, 0, shards), granted: Mutex::default() })
    }

    /// Allocates `granules`. Returns whether the allocation succeeded.
    fn alloc(&self, granules: u64) -> bool {
        let Some(start) = self.arena.alloc(granules as usize, 1) else { return false };
        self.granted.lock().unwrap().push((start, granules));
        true
    }

    /// To be called when all threads have ended. The allocations are disjoint and in bounds, and
    /// together with the remainder they are the whole arena.
    fn check(&self) {
        let granted = self.granted.lock().unwrap().clone();
        let sum: u64 = granted.iter().map(|(_, len)| len).sum();
        assert_eq!(sum + self.arena.left(), self.arena.granules, "granted {granted:?}");
        check_disjoint(&self.arena, granted);
    }
}

/// Runs threads as these lanes, each of which allocates these sizes. Returns, per thread, which
/// allocations succeeded.
fn ask<const N: usize>(arena: &Arc<Shared>, threads: [(u32, &'static [u64]); N]) -> [Vec<bool>; N] {
    let work =
        |arena: &Shared, sizes: &[u64]| sizes.iter().map(|size| arena.alloc(*size)).collect::<Vec<_>>();
    let spawn = |(lane, sizes)| with(arena, lane, move |arena| work(arena, sizes));
    let granted = threads.map(spawn).map(|thread| thread.join().unwrap());
    arena.check();
    granted
}

fn count(granted: &[Vec<bool>]) -> usize {
    granted.iter().flatten().filter(|granted| **granted).count()
}

/// The maximum number of preemptions that the models of this file explore.
const PREEMPTIONS: usize = 3;

const FITTING_FAILED: &str = "one of two requests that fit fails";
const TAIL_LOST: &str = "the tail that fits is not found";

/// One counter: of three requests, of which two fit, two succeed.
const ONE_COUNTER: Model = model(PREEMPTIONS, || {
    let arena = Shared::new(2, 0);
    let granted = count(&ask(&arena, [(0, &[1]), (1, &[1]), (2, &[1])]));
    assert_eq!(granted, 2, "two of three requests must succeed");
});

/// A failed allocation changes nothing: of 4096 granules, 4000 are taken. In any order, a request
/// of 200 fails and one of 96 succeeds.
const FAILURE_TAKES_NOTHING: Model = model(PREEMPTIONS, || {
    let arena = Shared::new(4096, 0);
    assert!(arena.alloc(4000), "a request that fits fails without contention");
    let granted = ask(&arena, [(0, &[96]), (1, &[200])]);
    assert_eq!(granted, [[true], [false]], "the failure of 200 takes some of the 96");
});

/// A failed allocation lowers the ceiling, but never to a size that still fits.
const CEILING: Model = model(PREEMPTIONS, || {
    let arena = Shared::new(3, 0);
    let granted = ask(&arena, [(0, &[4, 1]), (1, &[2, 5])]);
    assert_eq!(granted, [[false, true], [true, false]], "the ceiling is not what fits");
});

/// Two threads share a counter with an exhausted lease: one stores the next lease, the other waits
/// for it.
const SHARED_LEASE: Model = model(PREEMPTIONS, || {
    let arena = Shared::new(3, 1);
    let granted = count(&ask(&arena, [(0, &[1, 1]), (0, &[1, 1])]));
    assert_eq!(granted, 3, "three of four requests must succeed");
});

/// The last of the root's memory is leased to one counter, and a thread of the other counter needs
/// some of it.
const LENT_TO_ANOTHER: Model = model(PREEMPTIONS, || {
    let arena = Shared::new(2, 2);
    assert_eq!(count(&ask(&arena, [(0, &[1]), (1, &[1])])), 2, "{FITTING_FAILED}");
});

/// The remainder of a lease that is too small for one thread is kept where another thread finds it.
const KEPT_TAIL: Model = model(2, || {
    let arena = Shared::new(5, 2);
    assert!(arena.alloc(2), "a request that fits fails without contention");
    let [too_large, fits] = ask(&arena, [(0, &[4]), (1, &[3])]);
    assert_eq!(too_large, [false], "a request beyond the arena succeeds");
    assert_eq!(fits, [true], "{TAIL_LOST}");
});

/// One thread leases some of the root's memory, another thread the rest. A third thread sees the
/// root empty, and needs what the first one leased.
const ROOT_EMPTIED_BY_ANOTHER: Model = model(1, || {
    let arena = Shared::new(8200, 3);
    for lane in 0..3 {
        let both = at(lane, || arena.alloc(512) && arena.alloc(512));
        assert!(both, "a request that fits fails without contention");
    }
    let granted = count(&ask(&arena, [(0, &[2000]), (1, &[1]), (2, &[1])]));
    assert_eq!(granted, 3, "one of three requests that fit fails");
});

holds! {
    one_counter_for_all_grants_exactly_what_fits: ONE_COUNTER;
    a_failed_allocation_takes_nothing: FAILURE_TAKES_NOTHING;
    no_request_that_fits_fails_at_the_ceiling: CEILING;
    a_lease_that_runs_out_is_replaced_once: SHARED_LEASE;
    what_the_root_leased_is_found: LENT_TO_ANOTHER;
    tails_are_found: KEPT_TAIL;
    a_lease_taken_before_the_root_was_emptied_is_found: ROOT_EMPTIED_BY_ANOTHER;
}

#[test]
fn every_weakened_ordering_is_noticed() {
    let noticed_by = [
        ("bump/lend", LENT_TO_ANOTHER, FITTING_FAILED),
        ("bump/see-tail", KEPT_TAIL, TAIL_LOST),
        ("bump/see-lent", LENT_TO_ANOTHER, FITTING_FAILED),
    ];
    every_site_is_needed(&ORDERINGS, &[], &noticed_by);
}
