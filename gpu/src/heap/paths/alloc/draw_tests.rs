//! Tickets beyond the end of a span, and the cursor of a full warp.

use super::*;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::lanes::Group;
use crate::machine::Coords;
use core::alloc::Layout;
use std::vec::Vec;

const A: SizeClass = SizeClass::of(64);
const B: SizeClass = SizeClass::of(96);

/// A heap with a span of the class from slab `run` on, with `left` blocks left, and a next one.
fn with_spans(owned: &OwnedHeap, class: SizeClass, run: u32, left: i32) {
    let (heap, info) = (owned.core(), owned.core().class(class));
    let ring = heap.ring(class, 0);
    let group = Group::alone();
    let mut survey = ring.survey(group, info, 0, |_| None);
    for run in [run, run + 1] {
        owned.add_run(class, run);
        ring.add(group, &mut survey, info, run, 1);
    }
    // The second one is as large as the first one, so it has a slot of its own.
    heap.cursor(class, 0).restart(ring.spans(info).next().unwrap().with_left(left));
}

/// A heap with `spans` spans of one run each in the ring of the class. A group has crossed the end
/// of the first span: it took all tickets of the other spans except `rest`.
fn crossed(spans: u32, rest: u32) -> (OwnedHeap, Span) {
    let owned = heap(256, 1);
    let (info, group) = (*owned.core().class(A), Group::alone());
    let ring = owned.core().ring(A, 0);
    for run in 0..spans {
        owned.add_run(A, 10 + run);
        let mut survey = ring.survey(group, &info, 0, |_| Some(false));
        // So that the span does not replace all others.
        survey.runs = 1000;
        ring.add(group, &mut survey, &info, 10 + run, 1);
    }
    let cursor = owned.core().cursor(A, 0);
    cursor.restart(ring.spans(&info).next().unwrap().with_left(0));
    let seen = cursor.take((spans - 1) * info.blocks - rest);
    (owned, seen)
}

#[test]
fn tickets_beyond_several_spans_are_for_the_span_after_them() {
    let group = Group::alone();
    for (spans, rest, block) in [(3, 10, Some((12, 9))), (3, 1, Some((12, 0))), (9, 256, Some((18, 255)))] {
        let (owned, _) = crossed(spans, rest);
        let drawn = owned.core().draw(group, group, true, A, 0);
        let found = (drawn.address != 0).then(|| owned.block_at(A, drawn.address));
        // The caller did not cross the end, so it does not replace the span.
        assert_eq!(
            (found, owned.core().cursor(A, 0).span().slot()),
            (block, 0),
            "{spans} spans, {rest} left"
        );
        assert!(!drawn.seen.is_crossed_by(1));
    }
    // Beyond the last span that is looked at.
    let (owned, _) = crossed(10, 256);
    assert_eq!(owned.core().draw(group, group, true, A, 0).address, 0);
}

#[test]
fn a_group_that_crosses_the_end_replaces_spans_until_tickets_are_left() {
    let info = *heap(256, 1).core().class(A);
    for (spans, rest, slot, left) in [(2, 10, 1, 10), (4, 10, 3, 10), (4, 0, 3, 0), (9, 7, 8, 7)] {
        let (owned, seen) = crossed(spans, rest);
        let own = owned.core().pass(A, 0, &info, seen, 1);
        let now = owned.core().cursor(A, 0).span();
        assert_eq!((now.slot(), now.left()), (slot, left), "{spans} spans");
        // Its own tickets are for the first one of them.
        assert_eq!((own.slot(), own.left()), (1, 256));
        assert!(!own.is_crossed_by(u32::MAX >> 1));
    }
    // Beyond the last span that is looked at, it is to refill.
    let (owned, seen) = crossed(10, 7);
    let own = owned.core().pass(A, 0, &info, seen, 1);
    let now = owned.core().cursor(A, 0).span();
    assert_eq!((own.slot(), own.left(), now.slot(), now.left()), (8, 0, 8, 7 - 256));
    assert!(own.is_crossed_by(1));
}

#[test]
fn a_warp_does_not_go_on_to_a_run_without_a_fully_free_word() {
    let owned = heap(256, 1);
    with_spans(&owned, A, 10, 0);
    let info = *owned.core().class(A);
    (0..info.words()).for_each(|w| {
        let old = owned.core().runs().claim(owned.core().runs().first_word(11) + w, 1);
        owned.core().runs().count_claim(11, old, u32::MAX);
    });
    for (lanes, goes_on) in [(32, false), (31, true)] {
        let cursor = owned.core().cursor(A, 0);
        cursor.restart(owned.core().ring(A, 0).spans(&info).next().unwrap().with_left(0));
        let own = owned.core().pass(A, 0, &info, cursor.take(lanes), lanes);
        assert_eq!(
            (own.is_crossed_by(lanes), cursor.span().left() >= 0),
            (!goes_on, goes_on),
            "{lanes} lanes"
        );
    }
}

/// The span of the cursor: its first slab, and its blocks left.
fn span(owned: &OwnedHeap, class: SizeClass) -> (u32, i32) {
    let span = owned.core().cursor(class, 0).span();
    (span.first(owned.core().class(class)), span.left())
}

#[test]
fn a_ticket_beyond_the_end_is_for_the_last_block_of_the_next_span() {
    for (left, run, block, now) in [(2, 10, 1, (10, 1)), (1, 10, 0, (10, 0)), (0, 11, 255, (11, 255))] {
        let owned = heap(256, 1);
        with_spans(&owned, A, 10, left);
        let group = Group::alone();
        let drawn = owned.core().draw(group, group, true, A, 0);
        assert_eq!((owned.block_at(A, drawn.address), span(&owned, A)), ((run, block), now));
        assert_eq!(owned.core().runs().free_words(run), 7);
    }
}

#[test]
fn only_a_group_that_crosses_the_end_passes_to_the_next_span() {
    let owned = heap(256, 1);
    with_spans(&owned, A, 10, 1);
    with_spans(&owned, B, 20, 2);
    // Two lanes of each class: those of the first one cross the end, the others take the last
    // block.
    let drawn = owned.on_lanes(0b1111, Coords::SOLE, |owned, group| {
        let class = if group.lane() % 2 == 0 { A } else { B };
        let drawn = owned.core().draw(group, group.matching(class.0), true, class, 0);
        owned.block_at(class, drawn.address)
    });
    assert_eq!(drawn.results, [(11, 255), (20, 0), (10, 0), (20, 1)]);
    assert_eq!((span(&owned, A), span(&owned, B)), ((11, 255), (20, 0)));
}

#[test]
fn lanes_that_do_not_ask_take_no_tickets() {
    let owned = heap(256, 1);
    with_spans(&owned, A, 10, 0);
    let drawn = owned.on_lanes(0b11, Coords::SOLE, |owned, group| {
        let asks = group.lane() == 1;
        owned.core().draw(group, group.matching(u32::from(asks)), asks, A, 0).address
    });
    assert_eq!((drawn.results[0], owned.block_at(A, drawn.results[1])), (0, (11, 255)));
    assert_eq!(span(&owned, A), (11, 255));
}

/// Draws for a full warp from the cursor at run 10, with `left` tickets left. Returns the blocks of
/// the lanes, and what they are to put back.
fn draw_word(owned: &OwnedHeap, left: i32) -> Vec<(Option<(u32, u32)>, u32)> {
    owned.core().cursor(A, 0).restart(Span::new(owned.core().class(A), 10, 1).with_left(left));
    let drawn = owned.on_lanes(u32::MAX, Coords::SOLE, |owned, group| {
        let warp = group.whole().unwrap();
        let drawn = owned.core().draw(warp, warp, true, A, 0);
        ((drawn.address != 0).then(|| owned.block_at(A, drawn.address)), drawn.stale)
    });
    drawn.results
}

#[test]
fn one_lane_claims_the_word_of_a_full_warp() {
    let owned = heap(256, 1);
    owned.add_run(A, 10);
    let (word, full) = (draw_word(&owned, 96), [0, 1, 3, 4, 5, 6, 7].map(|w| (w, u32::MAX)));
    assert!((0..32).all(|lane| word[lane] == (Some((10, 64 + lane as u32)), 0)));
    let words = owned.words(A, 10);
    assert!(words[2] == 0 && full.iter().all(|(w, full)| words[*w] == *full));
    assert_eq!(owned.core().runs().free_words(10), 7);
    // The same word after two of its blocks were freed. No word becomes or ceases to be fully free.
    owned.core().runs().bits(owned.core().runs().first_word(10) + 2).or_relaxed(0x0400_0001);
    let word = draw_word(&owned, 96);
    let served = |lane: usize| word[lane].0 == (lane == 0 || lane == 26).then_some((10, 64 + lane as u32));
    assert!((0..32).all(served) && owned.core().runs().free_words(10) == 7);
}

#[test]
fn a_full_warp_claims_one_word_or_two() {
    for (left, words) in [(256, 1), (32, 1), (250, 2), (33, 2)] {
        let owned = heap(256, 1);
        owned.add_run(A, 10);
        assert!(draw_word(&owned, left).iter().all(|(block, _)| block.is_some()), "{left} left");
        assert_eq!(owned.core().runs().free_words(10), 8 - words, "{left} left");
    }
    // More than the span has, and no next span.
    for left in [320, 0] {
        let owned = heap(256, 1);
        owned.add_run(A, 10);
        assert!(draw_word(&owned, left).iter().all(|lane| *lane == (None, 0)), "{left} left");
        assert_eq!(owned.core().runs().free_words(10), 8);
    }
}

#[test]
fn the_leader_puts_back_the_word_of_a_run_that_is_gone() {
    let owned = heap(256, 1);
    owned.add_run(B, 10);
    let word = draw_word(&owned, 96);
    assert!((0..32).all(|lane| word[lane] == (None, if lane == 0 { u32::MAX } else { 0 })));
}

#[test]
fn a_full_warp_gets_blocks_whatever_its_tickets_are_for() {
    // Of two words, of the next span, of both spans.
    for (left, blocks) in [(33, [(10, 1), (10, 32)]), (0, [(11, 224), (11, 255)]), (5, [(11, 229), (10, 4)])]
    {
        let owned = heap(256, 1);
        with_spans(&owned, A, 10, left);
        let done = owned.on_lanes(u32::MAX, Coords::SOLE, |owned, _| {
            let block = owned.heap.alloc(Layout::from_size_align(64, 1).unwrap()).unwrap();
            owned.block_at(A, block.as_ptr() as u64)
        });
        assert_eq!([done.results[0], done.results[31]], blocks);
    }
}

#[test]
fn a_full_warp_of_one_class_uses_the_cursor_of_its_multiprocessor() {
    let owned = heap(4096, 8);
    assert_eq!(owned.layout.shards, 8);
    let at = Coords { sm: 5, ..Coords::SOLE };
    for (size, lanes, shard) in [(64, u32::MAX, 5), (96, u32::MAX >> 1, 4), (128, u32::MAX, 4)] {
        owned.on_lanes(lanes, at, |owned, group| {
            // The last one is mixed with another class.
            let size = if size == 128 && group.lane() == 7 { 1024 } else { size };
            assert!(owned.heap.alloc(Layout::from_size_align(size, 1).unwrap()).is_some());
        });
        let spans = |shard| owned.core().cursor(SizeClass::of(size as u32), shard).span().runs() > 0;
        assert!((0..8).all(|other| spans(other) == (other == shard)), "{size} B");
    }
}
