//! Spans that change from one ring to another.

use super::*;
use crate::heap::Heap;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::machine::Coords;
use crate::test_lanes::interrupted_at;
use std::vec::Vec;

/// Eight blocks in two slabs.
const LARGE: SizeClass = SizeClass::of(4096);

/// A heap with eight shards, and with these spans in their rings: shard, first slab, runs. The
/// cursor of each shard is at slot 0.
fn rings(spans: &[(u32, u32, u32)]) -> OwnedHeap {
    let owned = heap(4096, 8);
    let (info, group) = (*owned.core().class(LARGE), Group::alone());
    assert_eq!((owned.layout.shards, info.slabs, info.blocks), (8, 2, 8));
    for (shard, first, runs) in spans {
        (0..*runs).for_each(|i| owned.add_run(LARGE, first + 2 * i));
        let ring = owned.core().ring(LARGE, *shard);
        let mut survey = ring.survey(group, &info, 0, |_| Some(false));
        // So that the span does not replace all others.
        survey.runs = u32::MAX / 8;
        ring.add(group, &mut survey, &info, *first, *runs);
    }
    owned
}

/// The spans of the ring of a shard: their first slabs, and their runs.
fn ring_of(owned: &OwnedHeap, shard: u32) -> Vec<(u32, u32)> {
    let info = owned.core().class(LARGE);
    let spans = owned.core().ring(LARGE, shard).spans(info).filter(|span| span.runs() > 0);
    spans.map(|span| (span.first(info), span.runs())).collect()
}

fn demand(lanes: u32) -> Demand {
    Demand { class: LARGE, shard: 0, seen: Span::UNUSED, lanes, must: false }
}

/// Takes over a span for shard 0 by a full warp that asks for blocks, or by three lanes that do.
fn take_over(owned: &OwnedHeap, mask: u32) -> Option<u32> {
    let taken = owned.on_lanes(mask, Coords::SOLE, |owned, group| {
        let info = owned.core().class(LARGE);
        let mut survey = owned.core().ring(LARGE, 0).survey(group, info, 0, |_| Some(false));
        let span = owned.core().take_over(group, demand(group.count()), info, &mut survey);
        span.map(|span| span.first(info))
    });
    assert!(taken.results.iter().all(|span| *span == taken.results[0]));
    taken.results[0]
}

/// Claims a block of a fully free run with one word.
fn occupy(owned: &OwnedHeap, run: u32, full: u32) {
    let runs = owned.core().runs();
    runs.count_claim(run, runs.claim(runs.first_word(run), 1), full);
}

#[test]
fn the_last_span_of_a_longer_ring_changes_to_a_shorter_one() {
    let owned = rings(&[(0, 100, 1), (3, 200, 2), (3, 300, 2), (5, 400, 2), (5, 500, 1)]);
    assert_eq!(take_over(&owned, u32::MAX), Some(500));
    // Both have two runs now.
    assert_eq!((ring_of(&owned, 0), ring_of(&owned, 5)), ([(100, 1), (500, 1)].into(), [(400, 2)].into()));
    assert_eq!((take_over(&owned, u32::MAX), ring_of(&owned, 3).len()), (None, 2));
    let owned = rings(&[(3, 200, 2), (3, 300, 2)]);
    assert_eq!((take_over(&owned, u32::MAX), ring_of(&owned, 0)), (Some(300), [(300, 2)].into()));
}

#[test]
fn a_span_that_is_in_use_stays_in_its_ring() {
    // The cursor is at the last span.
    let owned = rings(&[(3, 200, 9)]);
    assert_eq!(take_over(&owned, u32::MAX), None);
    // A block of its first run is occupied; then, the run is gone.
    let owned = rings(&[(3, 200, 2), (3, 300, 2)]);
    occupy(&owned, 300, 0xff);
    assert_eq!(take_over(&owned, u32::MAX), None);
    let owned = rings(&[(3, 200, 2), (3, 300, 2)]);
    owned.core().runs().entry(300).store_relaxed(Heap::free_entry());
    assert_eq!(take_over(&owned, u32::MAX), None);
    // Of its second run.
    let owned = rings(&[(3, 200, 2), (3, 300, 2)]);
    occupy(&owned, 302, 0xff);
    assert_eq!(take_over(&owned, u32::MAX), Some(300));
}

#[test]
fn parts_of_warps_take_over_spans_of_the_shards_that_they_use() {
    for (shard, taken) in [(3, None), (4, Some(300))] {
        let owned = rings(&[(shard, 200, 2), (shard, 300, 2)]);
        assert_eq!(take_over(&owned, 0b111), taken);
    }
}

#[test]
fn a_span_that_another_group_has_taken_is_not_taken_again() {
    for at in 0.. {
        let owned = rings(&[(1, 200, 2), (1, 300, 2)]);
        let (info, ring) = (owned.core().class(LARGE), owned.core().ring(LARGE, 1));
        let ((last, _), mut is_removed) = (ring.last(info), false);
        let other = || is_removed = ring.remove(last);
        // Thread 0 is for the ring of shard 1.
        let (span, was_there) = interrupted_at(at, other, || {
            let group = Group::alone();
            let mut survey = owned.core().ring(LARGE, 0).survey(group, info, 0, |_| None);
            owned.core().take_over(group, demand(32), info, &mut survey)
        });
        if !was_there {
            break;
        }
        assert_eq!(
            (ring_of(&owned, 1).len(), span.is_some(), is_removed),
            (1, !is_removed, is_removed),
            "{at}"
        );
    }
}
