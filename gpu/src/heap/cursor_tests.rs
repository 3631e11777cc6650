//! More tests of the cursor.

use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::{Cursor, Span};
use super::layout::HeapLayout;

fn info() -> ClassInfo {
    HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(2048))
}

#[test]
fn a_span_ends_before_a_ticket_that_is_beyond_it() {
    let info = info();
    let span = Span::new(&info, 6 * info.slabs, 4);
    assert_eq!((span.first(&info), span.blocks(&info)), (6 * info.slabs, 4 * info.blocks));
    assert_eq!((Span::UNUSED.blocks(&info), span.is_dry(), span.dry().is_dry()), (0, false, true));
    let last = span.with_left(3);
    assert_eq!([0, 1, 2, 3].map(|rank| last.ends_before(4, rank)), [true, false, false, false]);
}

#[test]
fn tickets_are_skipped_only_while_no_others_are_taken() {
    let span = Span::new(&info(), 0, 1);
    let cursor = Cursor::new(span);
    cursor.skip(span, 5);
    assert_eq!(cursor.span(), span.with_left(span.left() - 5));
    cursor.skip(span, 7);
    assert_eq!(cursor.to_word(), span.with_left(span.left() - 5).0);
}

#[test]
fn a_span_whose_last_ticket_was_taken_meanwhile_is_not_replaced_again() {
    let next = Span::new(&info(), 0, 1).in_slot(1);
    let cursor = Cursor::new(Span::UNUSED);
    let seen = cursor.take(next.left() as u32);
    assert!(cursor.replace(seen, next));
    assert_eq!(cursor.span(), next.with_left(0));
}

#[test]
fn a_dry_span_stays_dry_and_a_passed_one_passed() {
    let span = Span::new(&info(), 0, 1);
    assert_eq!((span.dry().dry(), span.passed().passed()), (span.dry(), span.passed()));
}
