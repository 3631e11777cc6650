//! Tests of the cursor.

use super::*;
use crate::heap::layout::HeapLayout;
use crate::heap::layout::class::SizeClass;

fn info(bytes: u32) -> ClassInfo {
    HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(bytes))
}

#[test]
fn one_group_crosses_the_end_of_a_span() {
    let info = info(2048);
    let span = Span::new(&info, 7 * info.slabs, 1);
    let cursor = Cursor::new(span);
    let take = |n: u32| {
        let old = cursor.take(n);
        (old.is_crossed_by(n), old.block(n, 0), old.block(n, n - 1))
    };
    assert_eq!((info.blocks, span.end(), span.runs()), (128, 8 * info.slabs, 1));
    assert_eq!(take(108), (false, 20, 127));
    assert_eq!(take(20), (false, 0, 19));
    let seen = cursor.span();
    assert!(take(32).0);
    assert!(!take(1).0);
    assert!(take(1).1 >= 128, "a ticket beyond the end");
    let next = Span::new(&info, 0, 1).in_slot(3);
    assert!(cursor.replace(seen, next));
    assert_eq!(cursor.span(), next.with_left(128 - 34));
    assert!(!cursor.span().passed().is_crossed_by(128));
}

#[test]
fn as_many_lanes_as_a_gpu_has_do_not_borrow_from_the_end() {
    let span = Span::new(&info(16), 0, MAX_RUNS).with_left(0);
    let cursor = Cursor::new(span);
    // All of them take 65 tickets at once, and then all tickets of an allocation.
    for (times, tickets) in [(1 << 18, 65), (1 << 18, 129)] {
        for _ in 0..times {
            cursor.take(tickets);
        }
    }
    assert_eq!((cursor.span().range(), cursor.span().left()), (span.range(), -(194 << 18)));
}

#[test]
fn a_span_whose_tickets_are_all_taken_is_replaced_again() {
    let info = info(2048);
    let cursor = Cursor::new(Span::UNUSED);
    let seen = cursor.take(300);
    assert!(seen.is_crossed_by(300) && seen.block(300, 299) > info.blocks);
    let spans = [1, 2, 3].map(|slot| Span::new(&info, 0, 1).in_slot(slot));
    assert!(!cursor.replace(seen, spans[0]) && !cursor.replace(spans[0], spans[1]));
    // Until then no other group crosses the end.
    assert!(!cursor.take(1).is_crossed_by(1));
    assert!(cursor.replace(spans[1], spans[2]));
    assert_eq!(cursor.span(), spans[2].with_left(3 * 128 - 301));
}

#[test]
fn a_span_starts_again_with_all_of_its_tickets() {
    let info = info(2048);
    let cursor = Cursor::new(Span::UNUSED);
    cursor.take(500);
    let next = Span::new(&info, 0, 1).in_slot(1);
    cursor.restart(next.dry());
    assert_eq!((cursor.span(), cursor.span().is_dry()), (next.dry(), true));
}

#[test]
fn the_fields_of_a_span_are_independent() {
    let info = info(64);
    let span = Span::new(&info, (1 << END_BITS) - 1 - MAX_RUNS * info.slabs, MAX_RUNS);
    for slot in [0, 31, 3] {
        for left in [0, 1, -1, i32::from(i16::MIN), (1 << 26) - 1, 1 - (1 << 26)] {
            let changed = span.in_slot(31).with_left(left).in_slot(slot);
            assert_eq!((changed.slot(), changed.left(), changed.range()), (slot, left, span.range()));
            assert_eq!((changed.dry().passed().range(), changed.dry().left()), (span.range(), left));
        }
    }
}

#[test]
fn the_first_blocks_are_in_the_first_run() {
    let info = info(2048);
    let span = Span::new(&info, 6 * info.slabs, 4);
    assert_eq!(span.place(&info, 4 * info.blocks - 1), (6 * info.slabs, info.blocks - 1));
    assert_eq!(span.place(&info, 0), (9 * info.slabs, 0));
}

#[test]
fn a_span_ends_before_a_ticket_that_is_beyond_it() {
    let info = info(2048);
    let span = Span::new(&info, 6 * info.slabs, 4);
    assert_eq!((span.first(&info), span.blocks(&info)), (6 * info.slabs, 4 * info.blocks));
    assert_eq!((Span::UNUSED.blocks(&info), span.is_dry(), span.dry().is_dry()), (0, false, true));
    let last = span.with_left(3);
    assert_eq!([0, 1, 2, 3].map(|rank| last.ends_before(4, rank)), [true, false, false, false]);
}

#[test]
fn tickets_are_skipped_only_while_no_others_are_taken() {
    let span = Span::new(&info(2048), 0, 1);
    let cursor = Cursor::new(span);
    assert!(cursor.skip(span, 5));
    assert_eq!(cursor.span(), span.with_left(span.left() - 5));
    assert!(!cursor.skip(span, 7));
    assert_eq!(cursor.to_word(), span.with_left(span.left() - 5).0);
}

#[test]
fn a_span_whose_last_ticket_was_taken_meanwhile_is_not_replaced_again() {
    let next = Span::new(&info(2048), 0, 1).in_slot(1);
    let cursor = Cursor::new(Span::UNUSED);
    let seen = cursor.take(next.left() as u32);
    assert!(cursor.replace(seen, next));
    assert_eq!(cursor.span(), next.with_left(0));
}

#[test]
fn a_dry_span_stays_dry_and_a_passed_one_passed() {
    let span = Span::new(&info(2048), 0, 1);
    assert_eq!((span.dry().dry(), span.passed().passed()), (span.dry(), span.passed()));
}
