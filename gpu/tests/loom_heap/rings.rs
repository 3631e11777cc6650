//! Models of a cursor that goes through its ring: groups take tickets at the end of a span, and one
//! of them replaces the span while the others go on to the next one.

use super::loom_support::{Model, PREEMPTIONS, both, model};
use super::shared::{HALF, Piece, Shared, count};
use std::sync::Arc;

/// A heap of two slabs, which are two spans of the ring of one cursor. Each has two blocks. No
/// tickets of the second span are left, but its blocks are free; those of the first one are owned.
fn second_span() -> (Arc<Shared>, [Piece; 2]) {
    let heap = Shared::new(2, 1);
    let [first, second, third, fourth] = heap.take(HALF);
    [third, fourth].into_iter().for_each(|piece| heap.free(piece));
    assert_eq!(heap.slot_and_left(HALF), (1, 0));
    (heap, [first, second])
}

/// Two spans whose blocks are all free.
fn two_spans() -> Arc<Shared> {
    let (heap, pieces) = second_span();
    pieces.into_iter().for_each(|piece| heap.free(piece));
    heap
}

/// Takes so many tickets, one after the other, and claims their blocks.
fn draw<const N: usize>(heap: &Shared) -> [Option<Piece>; N] {
    std::array::from_fn(|_| heap.draw(HALF))
}

/// Two groups take tickets at the end of a span, and one of them crosses it. Both get blocks of the
/// next span, the one with a ticket below zero, too.
pub const CROSSED: Model = model(PREEMPTIONS, || {
    let heap = two_spans();
    let (mine, theirs) = both(&heap, draw::<1>, draw::<1>);
    let blocks = [mine, theirs].map(|[block]| block.expect("there is a block for each ticket"));
    assert_eq!(blocks.map(|block| heap.slab(block)), [0; 2], "of the next span");
    assert_eq!(heap.slot_and_left(HALF), (0, 0));
    heap.check([(HALF, 2)]);
});

/// A group takes many tickets while another one replaces the span: as many as the next span has, or
/// more, so the other one replaces that span, too. In the end `left >= 0`.
pub const OVERTAKEN: Model = model(PREEMPTIONS, || {
    let heap = two_spans();
    let ([mine], theirs) = both(&heap, draw::<1>, draw::<3>);
    let (_, left) = heap.slot_and_left(HALF);
    assert!(left >= 0, "I2 of cursors");
    heap.check([(HALF, count([mine]) + count(theirs))]);
});

/// [`OVERTAKEN`] for whole allocations, which wait for the group that replaces the span. There is a
/// block for each.
pub const IN_TURN: Model = model(3, || {
    let heap = two_spans();
    let alloc = |heap: &Shared| heap.alloc(HALF).expect("there is a block for it");
    let alloc_twice = move |heap: &Shared| [alloc(heap), alloc(heap)];
    both(&heap, alloc_twice, alloc_twice);
    assert!(heap.slot_and_left(HALF).1 >= 0, "I2 of cursors");
    heap.check([(HALF, 4)]);
});

/// The blocks of the next span are occupied. So a group takes all of its tickets, to replace it by
/// the span after that.
pub const SKIPPED: Model = model(3, || {
    let (heap, _kept) = second_span();
    let alloc = |heap: &Shared| heap.alloc(HALF).expect("there is a block for it");
    both(&heap, alloc, alloc);
    assert!(heap.slot_and_left(HALF).1 >= 0, "I2 of cursors");
    heap.check([(HALF, 4)]);
});
