//! Models of the hints that frees leave for searches, where the hints of other frees are under way.

use super::loom_support::{Model, both, model, with};
use super::models::FAILED;
use super::shared::{HALF, Piece, QUARTER, Shared, count};
use super::steps::full_heap;
use std::sync::Arc;

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

/// Two frees mark two runs of one word of the idle set. One of them makes the word nonzero, and has
/// not yet set the bit above when the other one inserts its run beside and returns. A search for
/// another class that begins then must see the first run's move.
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
    lower_beside_a_search(|heap| heap.settle_idle(HALF));
});
