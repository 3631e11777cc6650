//! Operations that hide memory for a moment: a search that overlaps one proves no lack of memory.
//!
//! A search runs before each atomic operation of the operation, and the operation before each one
//! of the search. The models of `loom_heap` have the other orders.

use super::*;
use crate::heap::structures::slabs::{SlabSearch, Slabs};
use crate::heap::tests::heap::{OwnedHeap, heap, moves_of};
use crate::test_lanes::{interrupted, interrupted_at};
use core::alloc::Layout;
use core::ops::Range;
use core::ptr::NonNull;

/// Four blocks in one slab.
const CLASS: SizeClass = SizeClass::of(4096);
/// 256 blocks in one slab.
const OTHER: SizeClass = SizeClass::of(64);

type Search = fn(&OwnedHeap) -> Found;

const SEARCHES: [(&str, Search); 3] = [
    ("of the class", |owned| owned.core().search(Group::alone(), true, CLASS, 0, false)),
    ("of another class", |owned| owned.core().search(Group::alone(), true, OTHER, 0, false)),
    ("for a slab", |owned| owned.core().search_large(1, 1)),
];

/// A heap of which only the slabs `free` are free.
fn with_slabs(free: Range<u32>) -> OwnedHeap {
    let owned = heap(64, 1);
    take_slabs(&owned, 0..free.start);
    take_slabs(&owned, free.end..64);
    owned
}

fn take_slabs(owned: &OwnedHeap, taken: Range<u32>) {
    let set = owned.core().free_slabs().set;
    taken.for_each(|slab| _ = set.remove_bits(slab / WORD_BITS, 1 << (slab % WORD_BITS)));
}

/// Clears the bits above the list of the class, as if the threads that listed the runs had not set
/// them yet. No run is idle.
fn hide_runs(owned: &OwnedHeap) {
    let runs = owned.core().runs();
    (0..2).for_each(|w| _ = runs.idle().remove_bits(w, u32::MAX));
    let (above, _) = runs.listed().level(1);
    runs.listed().at(above + owned.layout.run_index(CLASS, 40) / WORD_BITS / WORD_BITS).and_acquire(0);
}

/// The only memory is a fully free run.
fn with_run() -> OwnedHeap {
    let owned = with_slabs(40..41);
    owned.add_run(CLASS, 40);
    owned
}

/// `operate` leaves memory for these searches, whichever of the two runs inside of the other.
fn is_never_hidden(searches: &[(&str, Search)], made: fn() -> OwnedHeap, operate: fn(&OwnedHeap)) {
    for (name, search) in searches {
        let (mut inside, mut around) = (0, 0);
        loop {
            let (owned, mut found) = (made(), Found::Unsure);
            let ((), was_there) = interrupted_at(inside, || found = search(&owned), || operate(&owned));
            assert_ne!(found, Found::Nothing, "a search {name} before operation {inside}");
            if !was_there {
                break;
            }
            inside += 1;
        }
        loop {
            let owned = made();
            let (found, was_there) = interrupted_at(around, || operate(&owned), || search(&owned));
            assert_ne!(found, Found::Nothing, "before operation {around} of a search {name}");
            if !was_there {
                break;
            }
            around += 1;
        }
        assert!(inside > 4 && around > 4, "{inside} and {around} operations");
    }
}

/// A block is freed in a run that the search has read, and the last block of another run, which the
/// search has not read, is allocated. So there is a free block all the time.
#[test]
fn a_free_block_may_move_to_a_run_that_a_search_has_read() {
    let mut step = 0;
    loop {
        let owned = with_slabs(0..41);
        owned.add_run_with(CLASS, 0, &[]);
        owned.add_run_with(CLASS, 40, &[0]);
        take_slabs(&owned, 1..40);
        // The first run is not listed, and the levels of the list do not show the other one yet.
        let runs = owned.core().runs();
        runs.listed().remove_bits(owned.layout.run_index(CLASS, 0) / WORD_BITS, u32::MAX);
        hide_runs(&owned);
        let freed = NonNull::new(owned.core().slab_address(0) as *mut u8).unwrap();
        let moves_block = || {
            // SAFETY: the run has no free block.
            unsafe { owned.heap.free(freed) };
            runs.claim(runs.first_word(40), 1);
        };
        let (found, was_there) =
            interrupted_at(step, moves_block, || owned.core().search(Group::alone(), true, CLASS, 0, false));
        assert_ne!(found, Found::Nothing, "before operation {step}");
        if !was_there {
            break;
        }
        step += 1;
    }
    assert!(step > 4, "{step} operations");
}

#[test]
fn retired_runs_are_not_hidden() {
    is_never_hidden(&SEARCHES, with_run, |owned| {
        owned.core().retire_idle(Group::alone(), 0, 1, true);
    });
}

#[test]
fn runs_that_are_not_retired_are_not_hidden() {
    // A block is allocated, which the count does not show yet.
    let made = || {
        let owned = with_run();
        owned.core().runs().claim(owned.core().runs().first_word(40), 1);
        owned
    };
    is_never_hidden(&SEARCHES[..1], made, |owned| {
        owned.core().retire_idle(Group::alone(), 0, 1, true);
    });
}

#[test]
fn idle_runs_whose_count_is_late_are_not_hidden() {
    let made = || {
        let owned = with_run();
        owned.core().runs().count(40).sub_relaxed(1);
        owned
    };
    is_never_hidden(&SEARCHES, made, |owned| {
        owned.core().runs().sweep(40 / WORD_BITS, 1 << (40 % WORD_BITS));
    });
}

#[test]
fn slabs_are_not_hidden_while_they_become_a_run() {
    is_never_hidden(
        &SEARCHES[..1],
        || with_slabs(40..41),
        |owned| {
            assert!(owned.heap.alloc(Layout::from_size_align(4096, 1).unwrap()).is_some());
        },
    );
}

#[test]
fn slabs_are_not_hidden_while_a_search_makes_a_run() {
    // One free slab, or a fully free run of another class that is retired first.
    let of_other = || {
        let owned = with_slabs(40..41);
        owned.add_run(OTHER, 40);
        owned
    };
    for made in [|| with_slabs(40..41), of_other] {
        is_never_hidden(&SEARCHES, made, |owned| {
            _ = owned.core().search(Group::alone(), true, CLASS, 0, true);
        });
    }
}

#[test]
fn slabs_are_not_hidden_while_a_lane_grows_a_cursor() {
    is_never_hidden(
        &SEARCHES,
        || with_slabs(0..4),
        |owned| {
            let seen = owned.core().cursor(CLASS, 0).take(1);
            owned.core().grow(true, CLASS, 0, seen, 1);
        },
    );
}

#[test]
fn slabs_that_are_left_of_a_claim_are_not_hidden() {
    // Of the 35 slabs, 34 are claimed.
    is_never_hidden(
        &SEARCHES,
        || with_slabs(0..35),
        |owned| {
            let Slabs { len, .. } =
                owned.core().free_slabs().claim(Group::alone(), 0, 2, 64, SlabSearch::Full);
            assert!(len >= 30, "{len} slabs");
        },
    );
}

#[test]
fn slabs_of_a_claim_that_fails_are_not_hidden() {
    // The third slab, in another word, is not free.
    is_never_hidden(
        &SEARCHES,
        || with_slabs(31..33),
        |owned| {
            assert_ne!(owned.core().free_slabs().claim_at(31, 3), 3);
        },
    );
}

/// A heap in which only slab 5 is free. The levels of the list do not show its run, which is full.
fn with_hidden_run() -> OwnedHeap {
    let owned = with_slabs(5..41);
    owned.add_run_with(CLASS, 40, &[]);
    take_slabs(&owned, 6..40);
    hide_runs(&owned);
    owned
}

#[test]
fn a_search_that_unlists_a_run_reads_everything_again() {
    let owned = with_hidden_run();
    take_slabs(&owned, 5..6);
    let moves = moves_of(owned.core().overview().class(CLASS), || {
        assert_eq!(owned.core().search(Group::alone(), true, CLASS, 0, false), Found::Nothing);
    });
    assert_eq!(moves, 1);
}

#[test]
fn a_search_uses_the_run_that_it_makes_although_a_full_run_is_listed_again_and_again() {
    let owned = with_hidden_run();
    let lists = |_| owned.core().runs().listed().insert(owned.layout.run_index(CLASS, 40));
    let ran = interrupted(lists, || owned.core().search(Group::alone(), true, CLASS, 0, true));
    let Found::Block(address) = ran.result else { panic!("{:?}", ran.result) };
    assert_eq!((owned.block_at(CLASS, address).0, owned.is_free_slab(5)), (5, false));
}

#[test]
fn an_exact_search_beside_a_move_makes_a_run_and_unlists_nothing() {
    let owned = with_hidden_run();
    let moves = owned.core().overview().class(CLASS);
    moves.begin();
    let search = |makes_runs| owned.core().search(Group::alone(), true, CLASS, 0, makes_runs);
    assert_eq!((search(false), owned.is_free_slab(5)), (Found::Unsure, true));
    let Found::Block(address) = search(true) else { panic!("no block") };
    assert_eq!((owned.block_at(CLASS, address).0, owned.is_free_slab(5)), (5, false));
    assert_eq!((owned.hints(CLASS, 40).0, moves.open(), moves.begun()), (true, 1, 1));
}

#[test]
fn a_search_whose_run_is_taken_goes_on() {
    for at in 0.. {
        let owned = with_slabs(5..41);
        owned.add_run_with(CLASS, 40, &[1]);
        take_slabs(&owned, 6..40);
        let runs = owned.core().runs();
        let take = || _ = runs.claim(runs.first_word(40), u32::MAX);
        let search = || owned.core().search(Group::alone(), true, CLASS, 0, true);
        let (found, was_there) = interrupted_at(at, take, search);
        let Found::Block(address) = found else { panic!("before operation {at}: {found:?}") };
        assert!([5, 40].contains(&owned.block_at(CLASS, address).0));
        if !was_there {
            assert!(at > 5, "{at} operations");
            break;
        }
    }
}
