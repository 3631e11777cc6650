//! The findings of an audit of metadata that a test has changed.

use super::*;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::lanes::Group;
use std::format;
use std::vec;
use std::vec::Vec;

const CLASS: SizeClass = SizeClass::of(64);
/// A class with two blocks in two slabs.
const PAIR: SizeClass = SizeClass::of(16 << 10);

#[derive(Default)]
struct Findings {
    defects: Vec<(Option<u32>, Defect)>,
    runs: Vec<(u32, Vec<u64>)>,
    large: Vec<(u32, u32)>,
    free: Vec<(u32, FreeSlab)>,
    spans: Vec<SpanAudit>,
}

impl Visitor for Findings {
    fn violation(&mut self, violation: Violation) {
        self.defects.push((violation.slab, violation.found));
    }
    fn run(&mut self, run: &RunAudit<'_>) {
        self.runs.push((run.slab, run.live_blocks().collect()));
    }
    fn large(&mut self, large: LargeAudit) {
        self.large.push((large.slab, large.slabs));
    }
    fn free(&mut self, slab: u32, state: FreeSlab) {
        self.free.push((slab, state));
    }
    fn span(&mut self, span: SpanAudit) {
        self.spans.push(span);
    }
}

fn audit(owned: &OwnedHeap) -> Findings {
    let mut found = Findings::default();
    owned.heap.audit(owned.layout.slabs, &mut found);
    found
}

/// Removes a slab from the free set and writes its entry.
fn write(owned: &OwnedHeap, slab: u32, entry: Entry) {
    owned.core().free_slabs().set.remove_bits(slab / 32, 1 << (slab % 32));
    owned.core().runs().entry(slab).store_relaxed(entry.0);
}

#[test]
fn the_live_blocks_of_a_run_have_their_addresses() {
    let owned = heap(256, 1);
    let live = [0, 31, 32, 100, 255];
    let free: Vec<_> = (0..256).filter(|block| !live.contains(block)).collect();
    owned.add_run_with(CLASS, 7, &free);
    let found = audit(&owned);
    assert_eq!(
        found.runs,
        [(7, live.map(|block| owned.core().slab_address(7) + 64 * u64::from(block)).into())]
    );
    assert_eq!(found.defects, []);
}

#[test]
fn slabs_are_fresh_until_they_are_used() {
    let owned = heap(64, 1);
    owned.core().runs().entry(9).store_relaxed(Entry::FREE.0);
    let found = audit(&owned);
    let state = |slab| (slab, if slab == 9 { FreeSlab::Used } else { FreeSlab::Fresh });
    assert!(found.free.into_iter().eq((0..64).map(state)) && found.defects.is_empty());
}

#[test]
fn open_moves_are_found() {
    let owned = heap(64, 1);
    owned.core().overview().common().begin();
    assert_eq!(audit(&owned).defects, [(None, Defect::MoveOpen { open: 1 })]);
    owned.core().overview().class(CLASS).begin();
    assert_eq!(audit(&owned).defects, vec![(None, Defect::MoveOpen { open: 1 }); 2]);
}

#[test]
fn a_torn_run_is_no_run() {
    let owned = heap(256, 1);
    owned.add_run(PAIR, 4);
    owned.core().runs().entry(5).store_relaxed(Entry::FRESH.0);
    let found = audit(&owned);
    let torn = (Some(5), Defect::Torn { entry: Entry::FRESH.0 });
    assert_eq!((found.defects, found.runs), (vec![torn, (Some(5), Defect::Lost)], vec![]));
}

#[test]
fn a_torn_allocation_ends_at_the_first_other_entry() {
    let owned = heap(256, 1);
    write(&owned, 6, Entry::large(4));
    for (slab, entry) in [(7, Entry::REST), (8, Entry::large(1)), (9, Entry::REST)] {
        write(&owned, slab, entry);
    }
    let found = audit(&owned);
    let torn = Defect::Torn { entry: Entry::large(1).0 };
    let orphan = Defect::Orphan { entry: Entry::REST.0 };
    assert_eq!(found.defects, [(Some(8), torn), (Some(9), orphan)]);
    assert_eq!(found.large, [(6, 2), (8, 1)]);
}

#[test]
fn entries_of_nothing_are_orphans() {
    let owned = heap(256, 1);
    let beyond = SizeClass(owned.layout.classes);
    let entries = [
        Entry::large(0),
        Entry::of_class(beyond, 0, owned.layout.class(beyond).slabs),
        Entry::of_class(PAIR, 1, 2),
    ];
    for (slab, entry) in (20..).zip(entries) {
        write(&owned, slab, entry);
    }
    let found = audit(&owned);
    let orphan = |slab: u32| (Some(slab), Defect::Orphan { entry: entries[slab as usize - 20].0 });
    assert_eq!(found.defects, [20, 21, 22].map(orphan));
    assert_eq!((found.runs, found.large), (vec![], vec![]));
}

#[test]
fn bits_behind_the_blocks_of_a_run_are_found() {
    let owned = heap(256, 1);
    owned.add_run(PAIR, 4);
    let first = owned.core().runs().first_word(4);
    owned.core().runs().bits(first).or_relaxed(0b1010_0000);
    owned.core().runs().bits(first + 3).or_relaxed(1);
    let found = audit(&owned).defects;
    let beyond = |word, bits| (Some(4), Defect::BitsBeyond { word, bits });
    assert_eq!(found[..2], [beyond(0, 0b1010_0000), beyond(3, 1)]);
}

#[test]
fn indices_behind_the_last_slab_are_found() {
    let owned = heap(100, 1);
    let (runs, index) = (owned.core().runs(), owned.layout.run_index(CLASS, 0));
    owned.core().free_slabs().set.insert(101);
    runs.listed().insert(index + 107);
    runs.idle().insert(127);
    let outside = |slab| (None, Defect::SlabOutside { slab });
    assert_eq!(audit(&owned).defects, [101, 127, 107].map(outside));
}

#[test]
fn a_word_without_its_bit_above_is_found() {
    let owned = heap(100, 1);
    let set = owned.core().free_slabs().set;
    set.at(set.level(1).0).and_acq_rel(!(1 << 2));
    assert_eq!(audit(&owned).defects, [(None, Defect::NotRaised { level: 0, word: 2 })]);
}

#[test]
fn spans_that_were_not_replaced_or_end_outside_are_found() {
    let owned = heap(100, 1);
    let cursor = owned.core().cursor(CLASS, owned.layout.shards - 1);
    cursor.take(7);
    assert_eq!(audit(&owned).defects, [(None, Defect::SpanNotReplaced { beyond: 7 })]);
    for (end, defects) in [(100, 0), (101, 1)] {
        cursor.restart(crate::heap::Span::new(owned.core().class(CLASS), end - 1, 1));
        let outside = (None, Defect::SpanOutside { end });
        assert_eq!(audit(&owned).defects, vec![outside; defects]);
    }
}

#[test]
fn spans_of_cursors_and_rings_are_visited_once() {
    let owned = heap(256, 1);
    let info = owned.core().class(PAIR);
    let ring = owned.core().ring(PAIR, 0);
    let mut survey = ring.survey(Group::alone(), info, 0, |_| Some(false));
    let [first, second] =
        [4, 16].map(|slab| ring.add(Group::alone(), &mut survey, info, slab, 1).with_left(1));
    let span = |slab, is_current| SpanAudit { class: PAIR, shard: 0, slab, slabs: 2, is_current };
    assert_eq!(audit(&owned).spans, [span(4, false), span(16, false)]);
    for (current, expected) in [(first, [true, false]), (second, [false, true])] {
        owned.core().cursor(PAIR, 0).restart(current);
        assert_eq!(audit(&owned).spans, [span(4, expected[0]), span(16, expected[1])]);
    }
    // A current span that is no longer in the ring.
    owned.core().cursor(PAIR, 0).restart(Span::new(info, 40, 1));
    assert_eq!(audit(&owned).spans, [span(4, false), span(16, false), span(40, true)]);
    // One span begins before the heap, and the other ends after it.
    for outside in [Span::new(info, 0, 2).range() - 2, Span::new(info, 255, 1).range()] {
        owned.core().cursor(PAIR, 0).restart(Span::of_range(info, outside));
        assert_eq!(audit(&owned).spans.len(), 2);
    }
}

#[test]
fn bits_and_counts_without_a_run_are_found() {
    let owned = heap(100, 1);
    let runs = owned.core().runs();
    runs.bits(runs.first_word(9) + 3).or_relaxed(6);
    runs.count(10).add_relaxed(5);
    let expected = [
        (Some(9), Defect::BitsWithoutClass { word: 3, bits: 6 }),
        (Some(10), Defect::CountWithoutRun { count: 5 }),
    ];
    assert_eq!(audit(&owned).defects, expected);
}

#[test]
fn hints_that_disagree_with_the_bits_of_a_run_are_found() {
    let owned = heap(100, 1);
    owned.add_run(CLASS, 7);
    owned.add_run_with(CLASS, 8, &[]);
    owned.add_run_with(CLASS, 9, &[3]);
    let (runs, index) = (owned.core().runs(), owned.layout.run_index(CLASS, 0));
    runs.listed().remove_bits(index / 32, 0b111 << 7);
    runs.idle().remove_bits(0, 0b111 << 7);
    runs.count(8).add_relaxed(2);
    let expected = [
        (Some(7), Defect::NotListed),
        (Some(7), Defect::NotIdle),
        (Some(8), Defect::Count { bits: 0, count: 2 }),
        (Some(9), Defect::NotListed),
    ];
    assert_eq!(audit(&owned).defects, expected);
}

#[test]
fn slabs_that_are_in_use_and_free_are_found() {
    let owned = heap(100, 1);
    owned.add_run(PAIR, 4);
    owned.core().free_slabs().set.insert(5);
    // A large allocation that extends past the end of the heap.
    write(&owned, 98, Entry::large(5));
    write(&owned, 99, Entry::REST);
    let found = audit(&owned);
    let entry = Entry::of_class(PAIR, 1, 2).0;
    let past_end = Defect::ReachesPastEnd { slabs: 5 };
    assert_eq!(found.defects, [(Some(5), Defect::TakenAndFree { entry }), (Some(98), past_end)]);
    assert_eq!(found.large, [(98, 2)]);
}

#[test]
fn a_violation_says_where_it_is_and_what_was_found() {
    let violation = Violation { slab: Some(7), class: Some(CLASS), found: Defect::NotIdle };
    assert_eq!(violation.invariant().number(), "I6 of runs");
    let text = "slab 7, class 8 (64 B), all its blocks are free, but it is not idle";
    assert_eq!(format!("{violation}"), text);
}

#[test]
fn slabs_without_memory_are_not_in_the_free_set() {
    let owned = heap(64, 1);
    owned.core().free_slabs().set.remove_bits(1, u32::MAX << 28);
    owned.core().free_slabs().set.insert(62);
    let mut found = Findings::default();
    owned.heap.audit(60, &mut found);
    assert_eq!(found.defects, [(Some(62), Defect::Withheld)]);
    let is_withheld = |slab: &u32| found.free[*slab as usize] == (*slab, FreeSlab::Withheld);
    assert!((0..64).filter(is_withheld).eq(60..64));
}
