//! Programs of a few threads. Each says what must hold in every order of their atomics.

use super::loom_support::Model;
use super::shared::{HALF, QUARTER, SLAB, Shared, count, with};
use warpheap_device::fault::FaultKind;

/// What is said of what I9 promises.
pub const REFUSED: &str = "refused beside free memory";

/// A span goes from who stored it to who takes from it, and with it what the slabs are.
pub const FIRST_SPAN: Model = Model {
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
pub const NEXT_SPAN: Model = Model {
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
pub const NEXT_SPAN_OF_OTHERS: Model = Model {
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
pub const HOLE: Model = Model {
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
pub const WHOLE_RUN: Model = Model {
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
pub const SWEPT_RUN: Model = Model {
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
pub const FREE_SLAB: Model = Model {
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
pub const LARGE_FREED_TWICE: Model = Model {
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
pub const FREED_TWICE: Model = Model {
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
pub const FREED_BEFORE_A_SEARCH: Model = Model {
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
pub const SOUGHT_TWICE: Model = Model {
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
pub const CHURN: Model = Model {
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
pub const EXHAUSTED: Model = Model {
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
pub const STOLEN: Model = Model {
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
pub const CLOSED: Model = Model {
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
