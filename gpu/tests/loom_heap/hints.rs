//! Models of the hints that frees leave for searches, where the hints of other frees are under way.

use super::loom_support::{Model, both, model, with};
use super::models::FAILED;
use super::shared::{HALF, Piece, QUARTER, SLAB, Shared, count};
use super::steps::full_heap;
use std::sync::Arc;
use warpheap_device::heap::class::SizeClass;

/// The message of a hint that searches never remove.
const ENDLESS: &str = "searches find no memory and do not end";

/// A heap of two slabs, each of which is a run of two blocks, all of them allocated: the blocks of
/// the first run, and those of the other one. The runs are in no set, and the bits above are clear.
fn two_full_runs() -> (Arc<Shared>, [Piece; 2], [Piece; 2]) {
    let heap = Shared::new(2, 1);
    let mut pieces = heap.take::<4>(HALF);
    pieces.sort_by_key(|piece| piece.address);
    heap.retire();
    assert!(heap.search(HALF).is_proof() && heap.search(QUARTER).is_proof());
    let [a, b, c, d] = pieces;
    (heap, [a, b], [c, d])
}

/// A heap of which the only run is in the second words of its list and of the idle set, while
/// searches begin at the first ones. All of its blocks are allocated. It is in no set, and the bits
/// above are clear.
fn run_in_the_second_word<const N: usize>() -> (Arc<Shared>, [Piece; N]) {
    let heap = Shared::new(33, 1);
    let [_rest] = heap.take(32 * SLAB);
    let pieces = heap.take(SLAB / N);
    heap.retire();
    assert!([(); 2].map(|()| heap.search(SLAB / N).is_proof())[1]);
    (heap, pieces)
}

/// Two threads free blocks of a run that is not listed. One of them lists it, and has not yet set
/// the bit above when the other one sees the run listed and returns. A search that begins then must
/// see the run.
pub const FREED_BESIDE_A_FREE: Model = model(3, || {
    let (heap, [first, second, _kept, _kept_too]) = run_in_the_second_word();
    let shared = heap.clone();
    let free_and_search = move |heap: &Shared| {
        heap.free(second);
        // By a thread that begins after the free.
        with(&shared, 0, |heap| heap.search(QUARTER).is_proof()).join().unwrap()
    };
    let (_, is_wrong) = both(&heap, move |heap| heap.free(first), free_and_search);
    assert!(!is_wrong, "{FAILED}");
});

/// A thread lists a run. Another one sees that. A thread that begins then must see it, too.
fn listed_beside_a_search(is_exact: bool) {
    let (heap, [first, ..]) = run_in_the_second_word::<4>();
    let shared = heap.clone();
    let see_and_search = move |heap: &Shared| {
        let class = SizeClass::of(QUARTER as u32);
        let has = move |heap: &Shared| heap.heap.core().has_listed(class, is_exact);
        // By a thread that begins after the look.
        !heap.heap.core().is_listed(class, 32) || with(&shared, 0, has).join().unwrap()
    };
    let (_, is_seen) = both(&heap, move |heap| heap.free(first), see_and_search);
    assert!(is_seen, "{FAILED}");
}

/// A search that is to prove that there is no memory.
pub const LISTED_BESIDE_A_PROOF: Model = model(3, || listed_beside_a_search(true));

/// A search through the levels, which proves nothing: it misses the run.
pub const LISTED_BESIDE_HINTS: Model = model(3, || listed_beside_a_search(false));

/// A thread makes a run fully free, and has marked it idle, but not yet set the bit above. Another
/// one takes both blocks and frees them. It sees the mark and returns. A search for another class
/// that begins then must see the run.
pub const IDLE_BESIDE_A_FREE: Model = model(3, || {
    let (heap, [first, second]) = run_in_the_second_word();
    heap.free(first);
    let shared = heap.clone();
    let free_and_search = move |heap: &Shared| {
        let pieces = [0; 2].map(|_| heap.search(HALF).found());
        pieces.into_iter().flatten().for_each(|piece| heap.free(piece));
        // By a thread that begins after the frees.
        let is_proof = with(&shared, 0, |heap| heap.search(QUARTER).is_proof()).join().unwrap();
        count(pieces) == 2 && is_proof
    };
    let (_, is_wrong) = both(&heap, move |heap| heap.free(second), free_and_search);
    assert!(!is_wrong, "{FAILED}");
});

/// Two frees mark two runs of one word of the idle set. One of them makes the word nonzero, and has
/// not yet set the bit above when the other one inserts its run beside and returns. A search for
/// another class that begins then must see the run.
pub const MARKED_BESIDE: Model = model(3, || {
    let (heap, [first, last], [mine, mine_too]) = two_full_runs();
    heap.free(first);
    heap.free(mine);
    let shared = heap.clone();
    let free_and_search = move |heap: &Shared| {
        heap.free(mine_too);
        // By a thread that begins after the free.
        with(&shared, 0, |heap| heap.search(QUARTER).is_proof()).join().unwrap()
    };
    let (_, is_wrong) = both(&heap, move |heap| heap.free(last), free_and_search);
    assert!(!is_wrong, "{FAILED}");
});

/// A run is listed late, by a free that was under way while all blocks were freed and the slab
/// became a run of another class. Searches pass over it to the run behind it in the same word.
pub const LISTED_LATE: Model = model(3, || {
    let (heap, [first, second], [last, _]) = two_full_runs();
    let free_and_retire = move |heap: &Shared| {
        heap.free(second);
        heap.retire();
        heap.add_run(QUARTER)
    };
    both(&heap, move |heap| heap.free(first), free_and_retire);
    heap.free(last);
    let found = [(); 3].map(|()| heap.search(HALF).found());
    assert!(count(found) > 0, "{FAILED}");
});

/// A free marks a run idle late: meanwhile all blocks were freed, and the slab became a run of
/// another class. Searches for a slab remove the mark and come to an end, although the blocks are
/// free that a run of the first class would have.
pub const MARKED_LATE: Model = model(2, || {
    let (heap, [first, last]) = full_heap(true);
    heap.free(first);
    let free_and_retire = |heap: &Shared| {
        heap.search(HALF).found().into_iter().for_each(|piece| heap.free(piece));
        heap.retire();
        heap.add_run(QUARTER)
    };
    let (_, is_of_another) = both(&heap, move |heap| heap.free(last), free_and_retire);
    if !is_of_another {
        return;
    }
    let mut pieces = [(); 4].map(|()| heap.search(QUARTER).found().expect("there is a block"));
    pieces.sort_by_key(|piece| piece.address);
    let [a, b, ..] = pieces;
    heap.free(a);
    heap.free(b);
    assert!((0..3).any(|_| heap.search_large().is_proof()), "{ENDLESS}");
});

/// A thread makes a run fully free, which is not in the idle set, and searches for a block of
/// another class. It starts at another word of the set. Meanwhile another thread clears the bit
/// above, and sets it again.
fn lower_beside_a_search(lower: fn(&Shared)) {
    let (heap, [first, last]) = full_heap(true);
    heap.free(first);
    let free_and_search = move |heap: &Shared| {
        heap.free(last);
        heap.search(QUARTER)
    };
    let (found, ()) = both(&heap, free_and_search, lower);
    assert!(!found.is_proof(), "{FAILED}");
}

/// Another thread's search for a block of the run's class clears the bit.
pub const LOWERED_ABOVE_A_SEARCH: Model = model(2, || {
    lower_beside_a_search(|heap| _ = heap.search(QUARTER));
});

/// `settle` clears the bit.
pub const SETTLED_BESIDE_A_SEARCH: Model = model(3, || {
    lower_beside_a_search(|heap| heap.settle_idle());
});

/// Does not hold. A thread frees a block of one run, and then claims the last block of another one.
/// A search that sees the claim unlists that run, and may still read the list as it was before the
/// free: a claim does not release.
pub const MOVED_BY_ONE_THREAD: Model = model(3, || {
    let (heap, class) = (Shared::new(33, 1), SizeClass::of(HALF as u32));
    let [rest] = heap.take(32 * SLAB);
    let [freed, _kept] = heap.take(HALF);
    heap.retire();
    assert!([(); 2].map(|()| heap.search(HALF).is_proof())[1]);
    heap.free(rest);
    assert!(heap.add_run(HALF));
    while heap.heap.core().claim_slab() {}
    let _first = heap.search(HALF).found().expect("the new run has two blocks");
    heap.retire();
    heap.heap.core().hide_listed(class, 0);
    let move_block = move |heap: &Shared| {
        heap.free(freed);
        heap.search(HALF).found()
    };
    let (_, found) = both(&heap, move_block, |heap| heap.search(HALF));
    assert!(!found.is_proof(), "{FAILED}");
});
