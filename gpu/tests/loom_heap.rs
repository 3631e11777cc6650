//! The heap in the model checker: orders of its atomics that the memory model allows, of a heap of one slab or two.
//!
//! | not shown | why |
//! |---|---|
//! | that no one is refused beside a block that another thread has freed, which the caller knows nothing of | It does not hold: a search sees what was freed before the calls that it counts for (I9), by those threads or in an order that they know. |
//! | that with two threads who have one block each at most, of two, none is refused | The same: a thread finds the cursor taken down, and need not see what was freed on the way. |
//! | warps of more than one lane | A lane has its warp for itself here. |
//! | more than one preemption where a search of the whole heap is shared | `FREED_BEFORE_A_SEARCH` with 2 did not end in four minutes. |
//! | the clearing of bits as a store | Loom would let others' read-modify-writes go on as if it were not there: it is a swap here. |
//! | all orders of the models with 3 preemptions or fewer | They are too many for a test: `NEXT_SPAN` with 2 takes half a minute, with 3 more than one. |
#![cfg(loom)]

mod loom_support;

#[path = "support/heap.rs"]
mod heap;

use heap::OwnedHeap;
use loom::cell::UnsafeCell;
use loom_support::{Model, spawn};
use std::alloc::Layout as Request;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use warpheap_device::fault::FaultKind;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{Layout, SITES};

/// Sizes of classes of which a slab has four blocks and two.
const QUARTER: usize = 128;
const HALF: usize = 256;
/// A slab by itself: no class has such an alignment. Only the first slab of a heap has it.
const SLAB: usize = 512;
const SLAB_ALIGN: usize = 1 << 15;

/// What is said of two owners who meet without an order; of an entry that a thread has not seen, when it frees; and of
/// what I9 promises.
const UNORDERED: &str = "Concurrent write accesses";
const FAULT: &str = "a fault is recorded of threads without one";
const REFUSED: &str = "refused beside free memory";
/// A hole was seen that is none any more: what its claim wrote over is lost.
const LOST: &str = "live blocks by class";

/// A heap, and for every [`QUARTER`] bytes a plain value that only their owner may touch: whether they have one.
struct Shared {
    owned: OwnedHeap,
    values: Vec<UnsafeCell<bool>>,
}

impl Deref for Shared {
    type Target = OwnedHeap;

    fn deref(&self) -> &OwnedHeap {
        &self.owned
    }
}

// SAFETY: a value is touched by the owner of its bytes alone, which is what the model checks.
unsafe impl Sync for Shared {}
// SAFETY: the same.
unsafe impl Send for Shared {}

/// Memory that a thread has.
#[derive(Clone, Copy)]
struct Piece {
    address: NonNull<u8>,
    size: usize,
}

// SAFETY: it is handed from owner to owner, or used by none.
unsafe impl Send for Piece {}

fn request(size: usize) -> Request {
    Request::from_size_align(size, if size == SLAB { SLAB_ALIGN } else { 16 }).unwrap()
}

impl Shared {
    fn new(slabs: u32, homes: u32) -> Arc<Shared> {
        let owned = OwnedHeap::with(Layout::tiny(slabs, homes));
        let values = (0..owned.layout.bytes() as usize / QUARTER).map(|_| UnsafeCell::new(false)).collect();
        Arc::new(Shared { owned, values })
    }

    /// Allocates, and begins to use the memory as its owner.
    fn alloc(&self, size: usize) -> Option<Piece> {
        let piece = Piece { address: self.heap.alloc(request(size))?, size };
        assert!(!self.write(piece, true), "the memory has two owners");
        Some(piece)
    }

    /// The same before there are others: is granted.
    fn take<const N: usize>(&self, size: usize) -> [Piece; N] {
        std::array::from_fn(|_| self.alloc(size).expect("there is memory, and only one thread"))
    }

    /// Writes whether the memory has an owner. Returns what was written there before.
    fn write(&self, piece: Piece, has_owner: bool) -> bool {
        let start = piece.address.addr().get() - self.heap.base().addr();
        let values = &self.values[start / QUARTER..(start + piece.size) / QUARTER];
        // SAFETY: the model reports whoever else touches it.
        let had_owner: Vec<_> =
            values.iter().map(|value| value.with_mut(|value| unsafe { value.replace(has_owner) })).collect();
        assert!(had_owner.iter().all(|had| *had == had_owner[0]), "the memory has two owners");
        had_owner[0]
    }

    /// Uses the memory for the last time and frees it.
    fn free(&self, piece: Piece) {
        assert!(self.write(piece, false), "the owner's value is lost");
        // SAFETY: not used any more.
        unsafe { self.heap.free(piece.address) };
    }

    /// When all threads are done: no fault, nothing broken, and as many blocks of each size are live.
    fn check<const N: usize>(&self, live: [(usize, usize); N]) {
        assert_eq!(self.faults.count(), 0, "{FAULT}");
        self.check_blocks(live);
    }

    fn check_blocks<const N: usize>(&self, live: [(usize, usize); N]) {
        let live = live.into_iter().filter(|(_, count)| *count > 0);
        let live = live.map(|(size, count)| (SizeClass::of(size as u32).0, count as u32));
        self.owned.check(&live.collect::<BTreeMap<_, _>>());
    }
}

/// A thread at a place with its own handle of the heap.
fn with<R: 'static>(
    heap: &Arc<Shared>,
    place: u32,
    body: impl FnOnce(&Shared) -> R + 'static,
) -> loom::thread::JoinHandle<R> {
    let heap = heap.clone();
    spawn(place, move || body(&heap))
}

/// A span goes from who stored it to who takes from it, and with it what the slabs are.
const FIRST_SPAN: Model = Model {
    preemptions: 9,
    run: || {
        let heap = Shared::new(1, 1);
        let work = |heap: &Shared| heap.free(heap.alloc(HALF).expect("there is a block for each"));
        let other = with(&heap, 0, work);
        work(&heap);
        other.join().unwrap();
        heap.check([]);
    },
};

/// A run that is whole again is the next span, and with it goes what the last owners wrote.
const NEXT_SPAN: Model = Model {
    preemptions: 1,
    run: || {
        let heap = Shared::new(1, 1);
        let [first, second] = heap.take(HALF);
        let other = with(&heap, 0, |heap| heap.alloc(HALF));
        heap.free(first);
        heap.free(second);
        let mine = heap.alloc(HALF);
        let theirs = other.join().unwrap();
        heap.check([(HALF, count([mine, theirs]))]);
    },
};

/// The same, where who stores the span is none of the last owners, and has released nothing by itself.
const NEXT_SPAN_OF_OTHERS: Model = Model {
    preemptions: 0,
    run: || {
        let heap = Shared::new(1, 1);
        let pieces = heap.take::<2>(HALF);
        let next = with(&heap, 0, |heap| heap.alloc(HALF));
        let last = with(&heap, 0, move |heap| {
            for piece in pieces {
                heap.free(piece);
            }
        });
        last.join().unwrap();
        let mine = heap.alloc(HALF);
        let theirs = next.join().unwrap();
        heap.check([(HALF, count([mine, theirs]))]);
    },
};

/// A hole goes from its last owner to the next, and with it what was written there.
const HOLE: Model = Model {
    preemptions: 9,
    run: || {
        let heap = Shared::new(1, 1);
        let [mine, _kept] = heap.take(HALF);
        let other = with(&heap, 0, |heap| heap.alloc(HALF));
        heap.free(mine);
        let theirs = other.join().unwrap();
        heap.check([(HALF, 1 + count([theirs]))]);
    },
};

/// Who makes a run whole hands all of it on, to who takes it as a span.
const WHOLE_RUN: Model = Model {
    preemptions: 2,
    run: || {
        let heap = Shared::new(1, 1);
        let [first, second] = heap.take(HALF);
        let other = with(&heap, 0, |heap| heap.alloc(HALF));
        heap.free(first);
        heap.free(second);
        let theirs = other.join().unwrap();
        heap.check([(HALF, count([theirs]))]);
    },
};

/// A run goes from its class through the free set to another.
const SWEPT_RUN: Model = Model {
    preemptions: 9,
    run: || {
        let heap = Shared::new(1, 1);
        let [first, second] = heap.take(HALF);
        let other = with(&heap, 0, |heap| heap.alloc(QUARTER));
        heap.free(first);
        heap.free(second);
        let theirs = other.join().unwrap();
        heap.check([(QUARTER, count([theirs]))]);
    },
};

/// A slab goes through the free set from one owner to the next: from a large allocation to a class. Or the last slab
/// of the set is taken while that one is put in, and the summary knows of it.
const FREE_SLAB: Model = Model {
    preemptions: 9,
    run: || {
        // The second slab is in the set, so nothing but the set's word is between who gives a slab and who takes one.
        let heap = Shared::new(2, 1);
        let [mine] = heap.take(SLAB);
        let other = with(&heap, 0, |heap| heap.alloc(HALF).expect("there is a slab for it"));
        heap.free(mine);
        other.join().unwrap();
        heap.check([(HALF, 1)]);
    },
};

/// Two threads free one large allocation: one of them is right, and the slab is free once.
const LARGE_FREED_TWICE: Model = Model {
    preemptions: 9,
    run: || {
        let heap = Shared::new(2, 1);
        let [mine] = heap.take(SLAB);
        heap.write(mine, false);
        // SAFETY: nobody uses it.
        let other = with(&heap, 0, move |heap| unsafe { heap.heap.free(mine.address) });
        // SAFETY: the same.
        unsafe { heap.heap.free(mine.address) };
        other.join().unwrap();
        let faults: Vec<_> = heap.faults.faults().map(|fault| fault.kind).collect();
        assert_eq!(faults, [FaultKind::DoubleFree]);
        heap.check_blocks([]);
    },
};

/// Two threads free one block: one of them is right.
const FREED_TWICE: Model = Model {
    preemptions: 9,
    run: || {
        let heap = Shared::new(1, 1);
        let [mine, _kept] = heap.take(HALF);
        // SAFETY: nobody uses it.
        let other = with(&heap, 0, move |heap| unsafe { heap.heap.free(mine.address) });
        // SAFETY: the same.
        unsafe { heap.heap.free(mine.address) };
        other.join().unwrap();
        let faults: Vec<_> = heap.faults.faults().map(|fault| fault.kind).collect();
        assert_eq!(faults, [FaultKind::DoubleFree]);
        heap.check_blocks([(HALF, 1)]);
    },
};

/// A thread makes the only slab whole and asks for another class, in the cursor where a thread is refused that has
/// seen nothing of it: its proof must not count for the one that freed.
const FREED_BEFORE_A_SEARCH: Model = Model {
    preemptions: 1,
    run: || {
        let heap = Shared::new(1, 1);
        let [first, second] = heap.take(HALF);
        assert!(heap.alloc(QUARTER).is_none(), "the heap is full");
        let other = with(&heap, 0, |heap| heap.alloc(QUARTER));
        heap.free(first);
        heap.free(second);
        let mine = heap.alloc(QUARTER);
        let theirs = other.join().unwrap();
        assert!(mine.is_some(), "{REFUSED}");
        heap.check([(QUARTER, count([mine, theirs]))]);
    },
};

/// Two threads look for spans for one dry cursor, where there are two: who is second finds the first one's there.
const SOUGHT_TWICE: Model = Model {
    preemptions: 2,
    run: || {
        let heap = Shared::new(2, 1);
        let pieces = heap.take::<4>(HALF);
        assert!(heap.alloc(QUARTER).is_none(), "the heap is full");
        pieces.into_iter().for_each(|piece| heap.free(piece));
        let other = with(&heap, 0, |heap| heap.alloc(QUARTER));
        let mine = heap.alloc(QUARTER);
        let theirs = other.join().unwrap();
        heap.check([(QUARTER, count([mine, theirs]))]);
    },
};

/// Two threads allocate and free again and again: whatever they get, in the end nothing is lost.
const CHURN: Model = Model {
    preemptions: 1,
    run: || {
        let heap = Shared::new(1, 1);
        let both = |heap: &Shared| {
            for _ in 0..2 {
                heap.alloc(HALF).into_iter().for_each(|piece| heap.free(piece));
            }
        };
        let other = with(&heap, 0, both);
        both(&heap);
        other.join().unwrap();
        heap.check([]);
    },
};

/// Three threads, two blocks: exactly two are served.
const EXHAUSTED: Model = Model {
    preemptions: 2,
    run: || {
        let heap = Shared::new(1, 1);
        let others = [0, 0].map(|place| with(&heap, place, |heap| heap.alloc(HALF)));
        let [second, third] = others.map(|other| other.join().unwrap());
        let mine = heap.alloc(HALF);
        assert_eq!(count([mine, second, third]), 2);
        heap.check([(HALF, 2)]);
    },
};

/// What one cursor has is found by a thread of another, while the first hands it out.
const STOLEN: Model = Model {
    preemptions: 2,
    run: || {
        let heap = Shared::new(2, 2);
        let _kept = heap.take::<3>(HALF);
        let other = with(&heap, 1, |heap| heap.alloc(HALF));
        let mine = heap.alloc(HALF);
        let theirs = other.join().unwrap();
        assert_eq!(count([mine, theirs]), 1);
        heap.check([(HALF, 4)]);
    },
};

/// What a cursor of another class has is made free, while another of its blocks comes back.
const CLOSED: Model = Model {
    preemptions: 3,
    run: || {
        let heap = Shared::new(1, 1);
        let [mine] = heap.take(HALF);
        let other = with(&heap, 0, |heap| heap.alloc(QUARTER));
        heap.free(mine);
        let theirs = other.join().unwrap();
        heap.check([(QUARTER, count([theirs]))]);
    },
};

fn count<const N: usize>(pieces: [Option<Piece>; N]) -> usize {
    pieces.into_iter().flatten().count()
}

#[test]
fn a_first_span_is_handed_on() {
    FIRST_SPAN.holds();
}

#[test]
fn a_next_span_is_handed_on() {
    NEXT_SPAN.holds();
}

#[test]
fn a_next_span_is_handed_on_by_a_third() {
    NEXT_SPAN_OF_OTHERS.holds();
}

#[test]
fn a_hole_goes_from_owner_to_owner() {
    HOLE.holds();
}

#[test]
fn a_whole_run_is_handed_on() {
    WHOLE_RUN.holds();
}

#[test]
fn a_run_goes_from_class_to_class() {
    SWEPT_RUN.holds();
}

#[test]
fn a_slab_goes_from_owner_to_owner() {
    FREE_SLAB.holds();
}

#[test]
fn of_two_frees_of_one_block_one_is_recorded() {
    FREED_TWICE.holds();
}

#[test]
fn of_two_frees_of_one_large_allocation_one_is_recorded() {
    LARGE_FREED_TWICE.holds();
}

#[test]
fn a_search_knows_what_was_freed_before_the_calls_it_counts_for() {
    FREED_BEFORE_A_SEARCH.holds();
}

#[test]
fn a_dry_cursor_gets_one_span_at_a_time() {
    SOUGHT_TWICE.holds();
}

#[test]
fn exactly_as_many_as_there_are_blocks_are_served() {
    EXHAUSTED.holds();
}

#[test]
fn nothing_is_lost_by_a_churn() {
    CHURN.holds();
}

#[test]
fn what_another_cursor_has_is_found_once() {
    STOLEN.holds();
}

#[test]
fn what_a_cursor_of_another_class_has_is_found() {
    CLOSED.holds();
}

#[test]
fn every_weakened_ordering_is_noticed() {
    let noticed_by = [
        ("heap/take", FIRST_SPAN, FAULT),
        ("heap/take", NEXT_SPAN, UNORDERED),
        ("heap/install", FIRST_SPAN, FAULT),
        ("heap/install", Model { preemptions: 1, ..NEXT_SPAN_OF_OTHERS }, LOST),
        ("heap/free", HOLE, UNORDERED),
        ("heap/free", WHOLE_RUN, UNORDERED),
        ("heap/claim", HOLE, UNORDERED),
        ("heap/retire", WHOLE_RUN, UNORDERED),
        ("heap/retire", SWEPT_RUN, UNORDERED),
        // The slab's entry is not that of its new class for who looks at it last.
        ("heap/give-slab", FREE_SLAB, "I1: slab 0"),
        ("heap/take-slab", FREE_SLAB, UNORDERED),
        ("heap/summarise", HOLE, "I2 of sets"),
        ("heap/summarise", FREE_SLAB, "I2 of sets"),
        ("heap/arrive", FREED_BEFORE_A_SEARCH, REFUSED),
        ("heap/verdict", FREED_BEFORE_A_SEARCH, REFUSED),
        ("heap/search", SOUGHT_TWICE, LOST),
        ("heap/seek", FREED_BEFORE_A_SEARCH, REFUSED),
    ];
    let named = noticed_by.iter().map(|(site, ..)| *site);
    assert_eq!(named.collect::<BTreeSet<_>>(), BTreeSet::from(SITES));
    for (site, model, why) in noticed_by {
        model.notices(site, why);
    }
}
