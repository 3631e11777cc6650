//! Models of single steps: a search, a free, and the moves beside it. If a search ends with the
//! proof that there is no memory, then there must be none.

use super::loom_support::{Model, PREEMPTIONS, both, model, with};
use super::models::FAILED;
use super::shared::{HALF, Piece, QUARTER, SLAB, Search, Shared, count};
use std::sync::Arc;

/// A heap of one slab, of which all blocks are allocated. Their run is not in the idle set, and in
/// the list only if `is_listed`.
pub fn full_heap<const N: usize>(is_listed: bool) -> (Arc<Shared>, [Piece; N]) {
    let (heap, size) = (Shared::new(1, 1), SLAB / N);
    let pieces = heap.take(size);
    heap.retire();
    if !is_listed {
        assert!(heap.search(size).is_proof());
    }
    (heap, pieces)
}

/// A heap of one slab, which is a fully free run of two blocks.
fn idle_run() -> Arc<Shared> {
    let heap = Shared::new(1, 1);
    assert!(heap.add_run(HALF));
    heap
}

/// A thread frees two blocks and searches. Another thread searches meanwhile, and takes at most one
/// of them.
fn free_beside_a_search(is_listed: bool) {
    let (heap, [first, second, _kept, _kept_too]) = full_heap(is_listed);
    let free_and_search = move |heap: &Shared| {
        heap.free(first);
        heap.free(second);
        heap.search(QUARTER)
    };
    let (mine, theirs) = both(&heap, free_and_search, |heap| heap.search(QUARTER).found());
    assert!(!mine.is_proof(), "{FAILED}");
    heap.check([(QUARTER, 2 + count([mine.found(), theirs]))]);
}

/// The other search unlists the run.
pub const UNLISTED_BESIDE_A_SEARCH: Model = model(3, || free_beside_a_search(true));

/// The other search clears the bit above the list.
pub const LOWERED_BESIDE_A_SEARCH: Model = model(3, || free_beside_a_search(false));

/// Another thread probes meanwhile, and unlists the run if it finds it full.
pub const PROBED_BESIDE_A_SEARCH: Model = model(3, || {
    let (heap, [first, second, _kept, _kept_too]) = full_heap(true);
    let free_and_search = move |heap: &Shared| {
        heap.free(first);
        heap.free(second);
        heap.search(QUARTER)
    };
    let (mine, theirs) = both(&heap, free_and_search, |heap| heap.probe(QUARTER));
    assert!(!mine.is_proof(), "{FAILED}");
    heap.check([(QUARTER, 2 + count([mine.found(), theirs]))]);
});

/// A probe finds the block that another thread frees, or the next one does.
pub const PROBED_BESIDE_A_FREE: Model = model(PREEMPTIONS, || {
    let (heap, [mine, _kept]) = full_heap(true);
    let (_, theirs) = both(&heap, move |heap| heap.free(mine), |heap| heap.probe(HALF));
    let found = theirs.or_else(|| heap.probe(HALF)).or_else(|| heap.probe(HALF));
    heap.check([(HALF, 1 + count([found]))]);
    assert!(found.is_some(), "{FAILED}");
});

/// A run changes its class beside a probe, which puts back a block of the other class.
pub const PROBED_BESIDE_A_RETIRE: Model = model(3, || {
    let heap = idle_run();
    let retire_and_add = |heap: &Shared| {
        heap.retire();
        heap.add_run(QUARTER);
    };
    let (_, found) = both(&heap, retire_and_add, |heap| heap.probe(HALF));
    heap.check([(HALF, count([found]))]);
});

/// Two threads free blocks of one word, of a run that is not listed. The one that does not make the
/// word nonzero searches next, and must find a block or try again.
pub const FREED_IN_ONE_WORD: Model = model(4, || {
    let (heap, [first, second, ..]) = full_heap::<4>(false);
    let free_and_search = move |heap: &Shared| {
        heap.free(second);
        heap.search(QUARTER)
    };
    let (_, found) = both(&heap, move |heap| heap.free(first), free_and_search);
    assert!(!found.is_proof(), "{FAILED}");
    heap.check([(QUARTER, 2 + count([found.found()]))]);
});

/// A search finds a run in the list while another thread still makes it. The search has no proof
/// while the slab is free or the run has blocks, and the run keeps its hints.
pub const LISTED_RUN: Model = model(5, || {
    let heap = Shared::new(1, 1);
    let (is_added, found) = both(&heap, |heap| heap.add_run(HALF), |heap| heap.search(HALF));
    assert!(is_added && !found.is_proof(), "{FAILED}");
    heap.check([(HALF, count([found.found()]))]);
});

/// A thread with a ticket for an earlier run claims a block of a run that another thread still
/// makes. It finds the entry of the new run, and sets the block free again.
pub const STALE_TICKET: Model = model(PREEMPTIONS, || {
    let heap = Shared::new(1, 1);
    let (is_added, ()) = both(&heap, |heap| heap.add_run(HALF), |heap| heap.heap.core().claim_stale(0));
    assert!(is_added);
    heap.check([]);
});

/// The only slab moves from an idle run to the free slabs, beside a search.
fn retire_beside_a_search(search: fn(&Shared) -> Search) {
    let (_, found) = both(&idle_run(), Shared::retire, search);
    assert!(!found.is_proof(), "{FAILED}");
}

/// A search for a block of another class.
pub const RETIRED_BESIDE_A_SEARCH: Model = model(5, || retire_beside_a_search(|heap| heap.search(QUARTER)));

/// A search for a block of the run's class.
pub const RETIRED_BESIDE_A_SEARCH_OF_ITS_CLASS: Model =
    model(5, || retire_beside_a_search(|heap| heap.search(HALF)));

/// A search for a slab.
pub const RETIRED_BESIDE_A_LARGE_SEARCH: Model = model(4, || retire_beside_a_search(Shared::search_large));

/// A thread takes a block of an idle run, frees it and searches. Another thread finds the run not
/// fully free meanwhile, and removes it from the idle set for a moment.
fn sweep_beside_a_search(search: fn(&Shared) -> Search) {
    let free_and_search = move |heap: &Shared| {
        heap.search(HALF).found().into_iter().for_each(|piece| heap.free(piece));
        search(heap)
    };
    let (found, _) = both(&idle_run(), free_and_search, |heap| heap.search(QUARTER).is_proof());
    assert!(!found.is_proof(), "{FAILED}");
}

/// A search for a block of another class.
pub const SWEPT_BESIDE_A_SEARCH: Model = model(2, || sweep_beside_a_search(|heap| heap.search(QUARTER)));

/// A search for a slab.
pub const SWEPT_BESIDE_A_LARGE_SEARCH: Model = model(2, || sweep_beside_a_search(Shared::search_large));

/// A thread makes a run fully free, and is not done with the count and the idle set. Another one
/// allocates all blocks of the run and frees them. Its search must find the run.
fn insert_beside_a_search(search: fn(&Shared) -> Search) {
    let (heap, [first, second]) = full_heap(true);
    // Clears the bit above the idle set.
    assert!(heap.search(QUARTER).is_proof());
    heap.free(first);
    let free_all_and_search = move |heap: &Shared| {
        let pieces = [0; 2].map(|_| heap.search(HALF).found());
        pieces.into_iter().flatten().for_each(|piece| heap.free(piece));
        count(pieces) == 2 && search(heap).is_proof()
    };
    let (_, is_wrong) = both(&heap, move |heap| heap.free(second), free_all_and_search);
    assert!(!is_wrong, "{FAILED}");
}

/// A search for a block of another class.
pub const IDLE_BESIDE_A_SEARCH: Model = model(3, || insert_beside_a_search(|heap| heap.search(QUARTER)));

/// A search for a slab.
pub const IDLE_BESIDE_A_LARGE_SEARCH: Model = model(3, || insert_beside_a_search(Shared::search_large));

/// A thread takes one of two slabs and searches for the other one. A thread that tries to take both
/// has that one meanwhile.
fn borrow_beside_a_search(search: fn(&Shared) -> Search) {
    let heap = Shared::new(2, 1);
    let claim_and_search = move |heap: &Shared| heap.heap.core().claim_slab() && search(heap).is_proof();
    let (_, is_wrong) = both(&heap, |heap| heap.heap.core().borrow_slabs(2), claim_and_search);
    assert!(!is_wrong, "{FAILED}");
}

/// A search for a block.
pub const HIDDEN_FROM_A_SEARCH: Model = model(7, || borrow_beside_a_search(|heap| heap.search(HALF)));

/// A search for a slab.
pub const HIDDEN_FROM_A_LARGE_SEARCH: Model = model(5, || borrow_beside_a_search(Shared::search_large));

/// A slab goes from one large allocation to the next.
pub const LARGE_SLAB: Model = model(PREEMPTIONS, || {
    let heap = Shared::new(1, 1);
    let [mine] = heap.take(SLAB);
    both(&heap, move |heap| heap.free(mine), |heap| heap.search_large().found());
    heap.check([]);
});

/// A block goes from its owner to a thread with a stale ticket, which sets it free again, and from
/// there to the next owner.
pub const PUT_BACK: Model = model(2, || {
    let (heap, [mine, _kept]) = full_heap(true);
    let stale = with(&heap, 0, |heap| heap.heap.core().claim_stale(0));
    let (_, next) = both(&heap, move |heap| heap.free(mine), |heap| heap.search(HALF).found());
    stale.join().unwrap();
    heap.check([(HALF, 1 + count([next]))]);
});

/// A thread with a stale ticket claims a block of a fully free run and sets it free again. Another
/// thread allocates a block of the run and frees it meanwhile, and tries to retire the run. The run
/// is idle at the end, or retired.
pub const PUT_BACK_BESIDE_A_RETIRE: Model = model(3, || {
    let heap = idle_run();
    let retire = |heap: &Shared| {
        heap.search(HALF).found().into_iter().for_each(|piece| heap.free(piece));
        heap.retire();
    };
    both(&heap, |heap| heap.heap.core().claim_stale(0), retire);
    heap.check([]);
});
