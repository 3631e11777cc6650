//! Models: programs of a few threads. Each states what must hold in every order of their atomics
//! that loom explores.

use super::loom_support::{Model, PREEMPTIONS, both, model, with};
use super::shared::{HALF, Piece, QUARTER, SLAB, Shared, TWO_SLABS, count};
use std::sync::Arc;
use warpheap_device::fault::FaultKind;

/// The message of an allocation that fails although no move overlapped its search.
pub const FAILED: &str = "the allocation failed beside free memory";

/// Frees the two blocks of a slab, then calls `then`, while another thread allocates `size` bytes.
/// Returns what each of the two got.
fn alloc_beside_frees(
    heap: &Arc<Shared>,
    size: usize,
    then: fn(&Shared) -> Option<Piece>,
) -> [Option<Piece>; 2] {
    let pieces = heap.take::<2>(HALF);
    let free = move |heap: &Shared| {
        pieces.into_iter().for_each(|piece| heap.free(piece));
        then(heap)
    };
    both(heap, free, move |heap| heap.alloc(size)).into()
}

/// A span is visible to the thread that takes from it, together with the description of its slabs.
pub const FIRST_SPAN: Model = model(2, || {
    let heap = Shared::new(1, 1);
    let work = |heap: &Shared| heap.free(heap.alloc(HALF).expect("there is a block for each"));
    both(&heap, work, work);
    heap.check([]);
});

/// A run that is fully free again becomes the next span, together with the last owners' writes.
pub const NEXT_SPAN: Model = model(2, || {
    let heap = Shared::new(1, 1);
    let [mine, theirs] = alloc_beside_frees(&heap, HALF, |heap| heap.alloc(HALF));
    heap.check([(HALF, count([mine, theirs]))]);
});

/// Like [`NEXT_SPAN`], but the thread that stores the span is none of the last owners, and has
/// released nothing itself.
pub const NEXT_SPAN_OF_OTHERS: Model = model(1, || {
    let heap = Shared::new(1, 1);
    let pieces = heap.take::<2>(HALF);
    let last = with(&heap, 0, move |heap| pieces.into_iter().for_each(|piece| heap.free(piece)));
    let alloc_after = move |heap: &Shared| {
        last.join().unwrap();
        heap.alloc(HALF)
    };
    let (mine, theirs) = both(&heap, alloc_after, |heap| heap.alloc(HALF));
    heap.check([(HALF, count([mine, theirs]))]);
});

/// A free block changes owners: the writes of the last owner are visible to the next.
pub const FREE_BLOCK: Model = model(PREEMPTIONS, || {
    let heap = Shared::new(1, 1);
    let [mine, _kept] = heap.take(HALF);
    let (_, theirs) = both(&heap, move |heap| heap.free(mine), |heap| heap.alloc(HALF));
    heap.check([(HALF, 1 + count([theirs]))]);
});

/// The thread that makes a run fully free passes all of it on to the thread that takes it as a
/// span.
pub const FREE_RUN: Model = model(3, || {
    let heap = Shared::new(1, 1);
    let all = alloc_beside_frees(&heap, HALF, |_| None);
    heap.check([(HALF, count(all))]);
});

/// A run moves from its class through the free set to another class.
pub const SWEPT_RUN: Model = model(3, || {
    let heap = Shared::new(1, 1);
    let all = alloc_beside_frees(&heap, QUARTER, |_| None);
    heap.check([(QUARTER, count(all))]);
});

/// A slab moves through the free set from one owner to the next: from a large allocation to a
/// class. Or the last slab of the set is taken while that one is added, and the level above
/// reflects it.
pub const FREE_SLAB: Model = model(PREEMPTIONS, || {
    // The second slab is in the set. So only the set's word synchronises the thread that frees
    // a slab with the thread that takes one.
    let heap = Shared::new(2, 1);
    let [mine] = heap.take(SLAB);
    let alloc = |heap: &Shared| heap.alloc(HALF).expect("there is a slab for it");
    both(&heap, move |heap| heap.free(mine), alloc);
    heap.check([(HALF, 1)]);
});

/// Two threads free one large allocation: exactly one free is valid, and the slab is freed once.
pub const LARGE_FREED_TWICE: Model = model(PREEMPTIONS, || {
    let heap = Shared::new(2, 1);
    let [mine] = heap.take(SLAB);
    heap.write(mine, false);
    // SAFETY: no thread uses the allocation.
    let free = move |heap: &Shared| unsafe { heap.heap.free(mine.address) };
    both(&heap, free, free);
    let faults: Vec<_> = heap.faults.faults().map(|fault| fault.kind).collect();
    assert_eq!(faults, [FaultKind::DoubleFree]);
    heap.check_blocks([]);
});

/// Two threads free one block: exactly one free is valid.
pub const FREED_TWICE: Model = model(PREEMPTIONS, || {
    let heap = Shared::new(1, 1);
    let [mine, _kept] = heap.take(HALF);
    // SAFETY: no thread uses the block.
    let free = move |heap: &Shared| unsafe { heap.heap.free(mine.address) };
    both(&heap, free, free);
    let faults: Vec<_> = heap.faults.faults().map(|fault| fault.kind).collect();
    assert_eq!(faults, [FaultKind::DoubleFree]);
    heap.check_blocks([(HALF, 1)]);
});

/// A thread frees the last blocks of the only slab and allocates from another class. Meanwhile an
/// allocation fails on the same cursor, for a thread that has seen none of these frees. That
/// failure is no proof for the thread that freed the blocks.
pub const FREED_BEFORE_A_SEARCH: Model = model(1, || {
    let heap = Shared::new(1, 1);
    let [first, second] = heap.take(HALF);
    assert!(heap.alloc(QUARTER).is_none(), "the heap is full");
    let free_and_alloc = move |heap: &Shared| {
        heap.free(first);
        heap.free(second);
        heap.alloc(QUARTER)
    };
    let (mine, theirs) = both(&heap, free_and_alloc, |heap| heap.alloc(QUARTER));
    assert!(mine.is_some(), "{FAILED}");
    heap.check([(QUARTER, count([mine, theirs]))]);
});

/// Two threads search for spans for one exhausted cursor, and there are two spans. The second
/// thread finds the span of the first one already there.
pub const SOUGHT_TWICE: Model = model(1, || {
    let heap = Shared::new(2, 1);
    let pieces = heap.take::<4>(HALF);
    assert!(heap.alloc(QUARTER).is_none(), "the heap is full");
    pieces.into_iter().for_each(|piece| heap.free(piece));
    let (mine, theirs) = both(&heap, |heap| heap.alloc(QUARTER), |heap| heap.alloc(QUARTER));
    heap.check([(QUARTER, count([mine, theirs]))]);
});

/// Two threads allocate and free, one of them repeatedly. Whichever allocations succeed, nothing is
/// lost at the end.
pub const CHURN: Model = model(1, || {
    let heap = Shared::new(1, 1);
    let churn = |heap: &Shared| heap.alloc(HALF).into_iter().for_each(|piece| heap.free(piece));
    let churn_twice = move |heap: &Shared| (0..2).for_each(|_| churn(heap));
    both(&heap, churn_twice, churn);
    heap.check([]);
});

/// Three threads, two blocks: exactly two allocations succeed. The third thread allocates last.
pub const EXHAUSTED: Model = model(3, || {
    let heap = Shared::new(1, 1);
    let (first, second) = both(&heap, |heap| heap.alloc(HALF), |heap| heap.alloc(HALF));
    let third = heap.alloc(HALF);
    assert_eq!(count([first, second, third]), 2);
    heap.check([(HALF, 2)]);
});

/// Two threads with different cursors allocate the last free block: one of them gets it.
pub const LAST_BLOCK: Model = model(1, || {
    let heap = Shared::new(2, 2);
    let _kept = heap.take::<3>(HALF);
    let threads = [0, 1].map(|lane| with(&heap, lane, |heap| heap.alloc(HALF)));
    assert_eq!(count(threads.map(|thread| thread.join().unwrap())), 1);
    heap.check([(HALF, 4)]);
});

/// A thread that asks for another class retires the run of a block that is freed meanwhile.
pub const RETIRED_RUN: Model = model(3, || {
    let heap = Shared::new(1, 1);
    let [mine] = heap.take(HALF);
    let (_, theirs) = both(&heap, move |heap| heap.free(mine), |heap| heap.alloc(QUARTER));
    heap.check([(QUARTER, count([theirs]))]);
});

/// Allocates `size` bytes, for which only the idle run of one slab is left, while another thread
/// frees that slab in a search for more than there is. Nothing is ever taken, so the allocation
/// must succeed.
fn alloc_beside_a_failing_search(size: usize) {
    let heap = Shared::new(2, 1);
    // The other slab has the first run, so that this one is the first of the heap.
    let [slab] = heap.take(SLAB);
    let _kept = heap.take::<2>(HALF);
    heap.free(slab);
    let [last] = heap.take(HALF);
    heap.free(last);
    let (two, mine) = both(&heap, |heap| heap.alloc(TWO_SLABS), move |heap| heap.alloc(size));
    assert!(two.is_none(), "there is one slab only");
    assert!(mine.is_some(), "{FAILED}");
}

/// A block, while another thread moves the only slab for it.
pub const MOVED_BESIDE_A_SEARCH: Model = model(1, || alloc_beside_a_failing_search(QUARTER));

/// [`MOVED_BESIDE_A_SEARCH`] for a large allocation.
pub const MOVED_BESIDE_A_LARGE_SEARCH: Model = model(1, || alloc_beside_a_failing_search(SLAB));
