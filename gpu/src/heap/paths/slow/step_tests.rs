//! The next step of a group that got no block.

use super::*;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::machine::Coords;
use crate::test_lanes::interrupted_at;
use core::alloc::Layout;

/// 256 blocks in eight words, in one slab.
const SMALL: SizeClass = SizeClass::of(64);

/// A word of free blocks in a run: those of word `w`.
fn word(w: u32) -> [u32; 32] {
    core::array::from_fn(|bit| 32 * w + bit as u32)
}

/// A heap with the runs 10 and 11, of which these blocks are free.
fn with_runs(first: &[u32], second: &[u32]) -> OwnedHeap {
    let owned = heap(256, 1);
    owned.add_run_with(SMALL, 10, first);
    owned.add_run_with(SMALL, 11, second);
    owned.add_run(SMALL, 12);
    owned
}

/// The span of the runs 10 and 11. Its first 256 tickets are for the blocks of the first run, from
/// the last one on.
fn span(owned: &OwnedHeap, left: i32) -> Span {
    Span::new(owned.core().class(SMALL), 10, 2).with_left(left)
}

#[test]
fn occupied_blocks_are_counted_up_to_a_word_or_a_run_with_free_ones() {
    let occupied = |first: &[u32], second: &[u32], left| {
        let owned = with_runs(first, second);
        owned.core().occupied(SMALL, owned.core().class(SMALL), span(&owned, left))
    };
    // 300 left: block 43 of the first run is next, bit 11 of word 1.
    assert_eq!(occupied(&[40], &[], 300), Some(0));
    assert_eq!(occupied(&[43], &word(0), 300), Some(0));
    assert_eq!(occupied(&[44], &[], 300), None);
    assert_eq!(occupied(&word(0), &word(0), 300), Some(12));
    assert_eq!(occupied(&[3], &word(7), 300), Some(44));
    assert_eq!(occupied(&[], &[255], 300), None);
    // In the first word of the run. Another one was free before.
    assert_eq!(occupied(&word(5), &[], 268), None);
    assert_eq!(occupied(&word(5), &word(0), 268), Some(12));
    // In the last run, behind which is no other one, and behind its end.
    assert_eq!([20, 1, 0].map(|left| occupied(&word(7), &[30], left)), [None; 3]);
    assert_eq!(occupied(&[], &word(0), 44), Some(12));
    // The span has 512 blocks.
    assert_eq!(occupied(&[255], &[], 9999), Some(0));
}

#[test]
fn blocks_of_a_run_that_is_gone_are_occupied() {
    let owned = with_runs(&[], &word(3));
    let info = owned.core().class(SMALL);
    owned.core().runs().bits(owned.core().runs().first_word(10) + 1).or_relaxed(1 << 8);
    let other = crate::heap::layout::entry::Entry::of_class(SizeClass::of(96), 0, 1);
    owned.core().runs().entry(10).store_relaxed(other.0);
    assert_eq!(owned.core().occupied(SMALL, info, span(&owned, 300)), Some(44));
    owned.core().runs().entry(11).store_relaxed(other.0);
    assert_eq!(owned.core().occupied(SMALL, info, span(&owned, 300)), None);
}

/// The step of a group of two lanes, and the tickets left afterwards.
fn step(owned: &OwnedHeap, seen: Span) -> (&'static str, i32) {
    let cursor = owned.core().cursor(SMALL, 0);
    cursor.restart(seen);
    let (step, _) = owned.core().step(SMALL, 0, 2, 1);
    (name(step), cursor.span().left())
}

fn name(step: Step) -> &'static str {
    match step {
        Step::Draw => "draw",
        Step::Refill => "refill",
        Step::Wait => "wait",
        Step::Search => "search",
    }
}

#[test]
fn a_group_draws_again_where_blocks_are_free_and_skips_those_that_are_not() {
    let owned = with_runs(&word(0), &[]);
    assert_eq!(step(&owned, span(&owned, 268)), ("draw", 268));
    assert_eq!(step(&owned, span(&owned, 300)), ("draw", 288));
}

#[test]
fn a_group_at_the_end_of_a_span_looks_at_the_next_one() {
    for (first, expected) in [(&word(7)[..], ("draw", 0)), (&[], ("refill", -1))] {
        let owned = with_runs(first, &[]);
        let (info, group) = (owned.core().class(SMALL), Group::alone());
        let ring = owned.core().ring(SMALL, 0);
        let mut survey = ring.survey(group, info, 0, |_| None);
        ring.add(group, &mut survey, info, 10, 1);
        assert_eq!(step(&owned, span(&owned, 0)), expected);
    }
    // Without a next one.
    assert_eq!(step(&with_runs(&[], &[]), Span::UNUSED), ("refill", -1));
}

#[test]
fn a_group_takes_many_tickets_or_crosses_the_end_if_no_block_is_free() {
    let owned = with_runs(&[], &[]);
    assert_eq!(step(&owned, span(&owned, 300)), ("draw", 300 - 2 * 64));
    assert_eq!(step(&owned, span(&owned, 130)), ("draw", 2));
    // Not fewer than the group has lanes.
    assert_eq!(step(&owned, span(&owned, 129)), ("refill", -1));
    assert_eq!(step(&owned, span(&owned, 127)), ("refill", -1));
    assert_eq!(step(&owned, span(&owned, 5).dry()), ("refill", -1));
}

#[test]
fn a_group_that_took_all_tickets_of_an_aged_cursor_knows_that_it_was_aged() {
    let owned = with_runs(&[], &[]);
    let cursor = owned.core().cursor(SMALL, 0);
    let aged = Span::UNUSED.aged();
    // More tickets than a group takes at once, and one.
    for (seen, is_aged) in [(aged, true), (aged.with_left(1), true), (Span::UNUSED, false)] {
        cursor.restart(seen);
        let (step, seen) = owned.core().step(SMALL, 0, 2, 1);
        assert_eq!((name(step), seen.is_aged(), cursor.span().left()), ("refill", is_aged, -1));
    }
}

#[test]
fn a_group_searches_if_its_cursor_is_dry_and_there_are_no_runs() {
    let owned = with_runs(&[], &[]);
    for slab in (0..256).filter(|slab| owned.is_free_slab(*slab)) {
        owned.core().free_slabs().set.remove_bits(slab / WORD_BITS, 1 << (slab % WORD_BITS));
    }
    for run in [10, 11, 12] {
        owned.core().runs().idle().remove_bits(run / WORD_BITS, 1 << (run % WORD_BITS));
    }
    assert_eq!(step(&owned, span(&owned, 40).dry()), ("search", 40));
    // In the first turn whether there are runs or not.
    owned.core().free_slabs().set.insert(20);
    owned.core().cursor(SMALL, 0).restart(span(&owned, 40).dry());
    assert_eq!(name(owned.core().step(SMALL, 0, 2, 0).0), "search");
    assert_eq!(step(&owned, span(&owned, 40).dry()), ("refill", -1));
    assert_eq!(step(&owned, span(&owned, 40)), ("refill", -1));
}

#[test]
fn a_group_waits_for_one_that_crosses_the_end_or_searches() {
    for (is_dry, expected) in [(false, "wait"), (true, "search")] {
        for at in 0.. {
            let owned = with_runs(&[], &[]);
            let cursor = owned.core().cursor(SMALL, 0);
            let seen = if is_dry { span(&owned, 60).dry() } else { span(&owned, 60) };
            cursor.restart(seen);
            let other = || {
                cursor.take(99);
            };
            let ((step, old), was_there) = interrupted_at(at, other, || owned.core().step(SMALL, 0, 2, 1));
            // One of the two crosses the end.
            let crosses = old.left() == 60;
            assert_eq!(name(step), if crosses { "refill" } else { expected }, "before operation {at}");
            if !was_there {
                break;
            }
        }
    }
}

#[test]
fn a_group_of_which_a_lane_got_a_block_draws_again_for_the_others() {
    // The tickets are for blocks 42 and 43 of the first run. Behind the 64 tickets that the other
    // lane takes when it is alone, a block of the second run is free.
    let owned = with_runs(&[42], &[232]);
    owned.core().cursor(SMALL, 0).restart(span(&owned, 300));
    let done = owned.on_lanes(0b11, Coords::SOLE, |owned, _| {
        let block = owned.heap.alloc(Layout::from_size_align(64, 1).unwrap()).unwrap();
        owned.block_at(SMALL, block.as_ptr() as u64)
    });
    assert_eq!(done.results, [(10, 42), (11, 232)]);
}
