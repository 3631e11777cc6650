//! Models of the hints that frees leave for searches, where the hints of other frees are under way.

use super::loom_support::{Model, both, model, with};
use super::models::FAILED;
use super::shared::{HALF, Piece, QUARTER, Shared, count};
use std::sync::Arc;

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
