//! The memory that a group finds for its cursor.

use super::*;
use crate::heap::tests::heap::{OwnedHeap, heap, moves_of};
use crate::machine::Coords;
use std::vec::Vec;

/// Four blocks in one slab.
const LARGE: SizeClass = SizeClass::of(4096);
/// Two blocks in two slabs; in a larger heap, four in four.
const PAIR: SizeClass = SizeClass::of(16 << 10);

/// Lanes 3, 5 and 6.
const LANES: u32 = 0b110_1000;

fn demand(class: SizeClass, lanes: u32) -> Demand {
    Demand { class, shard: 0, seen: Span::UNUSED, lanes, must: false }
}

/// The first slabs of the spans of a ring, and their runs.
fn spans(owned: &OwnedHeap, class: SizeClass) -> Vec<(u32, u32)> {
    let info = owned.core().class(class);
    let spans = owned.core().ring(class, 0).spans(info).filter(|span| span.runs() > 0);
    spans.map(|span| (span.first(info), span.runs())).collect()
}

/// Takes free slabs that are never free again.
fn take_slabs(owned: &OwnedHeap, slabs: impl IntoIterator<Item = u32>) {
    for slab in slabs {
        owned.core().free_slabs().set.remove_bits(slab / WORD_BITS, 1 << (slab % WORD_BITS));
    }
}

/// The bits of level 1 of the set of free slabs.
fn raised(owned: &OwnedHeap) -> u32 {
    let set = owned.core().free_slabs().set;
    set.at(set.level(1).0).load_relaxed()
}

#[test]
fn slabs_are_claimed_from_the_end_of_the_last_claim_on() {
    let owned = heap(1024, 1);
    let hint = owned.core().hint(0);
    hint.store_relaxed(100);
    // The word after the claimed slabs is zero, and a word before them, of which the bit above is
    // still set.
    take_slabs(&owned, (8 * 32..9 * 32).chain(32..64));
    let claim = |most, search| {
        let claim = |owned: &OwnedHeap, group| {
            owned.core().claim_slabs(group, owned.core().class(PAIR), 0, most, search)
        };
        let slabs = owned.on_lanes(LANES, Coords::SOLE, claim).results;
        assert_eq!(slabs, [slabs[0]; 3]);
        (slabs[0].first, slabs[0].len, hint.load_relaxed())
    };
    assert_eq!(owned.core().class(PAIR).slabs, 4);
    assert_eq!((claim(40, SlabSearch::Brief), raised(&owned)), ((96, 160, 256), !(0b1_1111 << 3)));
    // Nothing changes if there are no such slabs.
    take_slabs(&owned, (0..1024).step_by(2));
    assert_eq!((claim(1, SlabSearch::Full), claim(1, SlabSearch::Brief)), ((0, 0, 256), (0, 0, 256)));
    hint.store_relaxed(5000);
    [340, 342].into_iter().for_each(|slab| owned.core().free_slabs().set.insert(slab));
    assert_eq!(claim(9, SlabSearch::Full), (339, 4, 343));
}

#[test]
fn slabs_are_claimed_from_the_partition_on_if_the_hint_is_beyond_the_heap() {
    let owned = heap(4096, 8);
    let (start, info) = (owned.layout.partition_start(3), *owned.core().class(SizeClass::of(64)));
    owned.core().hint(3).store_relaxed(5000);
    let slabs = owned.core().claim_slabs(Group::alone(), &info, 3, 4, SlabSearch::Full);
    owned.core().overview().common().end();
    assert_eq!(
        (slabs.first, owned.core().hint(3).load_relaxed()),
        (start / WORD_BITS * WORD_BITS, slabs.len)
    );
}

#[test]
fn a_span_of_several_rows_is_added_as_several_spans() {
    let owned = heap(4096, 1);
    let info = *owned.core().class(LARGE);
    assert_eq!((info.slabs, info.span_runs(0, 8)), (16, 16));
    // Rows of three words.
    take_slabs(&owned, (0..128).step_by(4).flat_map(|word| [96 + 32 * word, 97 + 32 * word]));
    let survey = owned.core().ring(LARGE, 0).survey(Group::alone(), &info, 0, |_| None);
    let span = owned.core().find_span(Group::alone(), demand(LARGE, 8), &info, survey).unwrap();
    assert_eq!((span.first(&info), spans(&owned, LARGE)), (0, [(0, 6), (128, 6)].into()));
}

#[test]
fn slabs_of_idle_runs_of_another_class_make_a_span() {
    let owned = heap(256, 1);
    let info = *owned.core().class(PAIR);
    let most = info.span_runs(0, 1);
    assert!((3..30).contains(&most) && info.slabs == 2, "{most}");
    (0..256).for_each(|run| owned.add_run(LARGE, run));
    let find = || {
        let survey = owned.core().ring(PAIR, 0).survey(Group::alone(), &info, 0, |_| None);
        owned.core().find_span(Group::alone(), demand(PAIR, 1), &info, survey)
    };
    let span = find().unwrap();
    assert_eq!((span.first(&info), span.runs()), (0, most));
    // No more runs were retired than the span has slabs.
    let gone = (0..256).filter(|run| !owned.hints(LARGE, *run).0).count() as u32;
    assert_eq!(gone, 2 * most);
    assert_eq!(owned.core().free_slabs().claim(Group::alone(), 0, 1, 1, SlabSearch::Full), Slabs::NONE);
    // The other runs are allocated.
    let runs = owned.core().runs();
    for (run, full) in (0..most).map(|i| (2 * i, 0b11)).chain((2 * most..256).map(|run| (run, 0xf))) {
        runs.count_claim(run, runs.claim(runs.first_word(run), full), full);
    }
    assert!(find().is_none());
}

#[test]
fn idle_runs_behind_those_that_are_not_fully_free_are_found() {
    // In the word of the second lane, and behind the words of all three.
    for run in [37, 101] {
        let owned = heap(256, 1);
        let (runs, next) = (owned.core().runs(), SizeClass(LARGE.0 + 1));
        let has = || {
            let has =
                |owned: &OwnedHeap, group| owned.core().has_idle_run(group, LARGE, owned.core().class(LARGE));
            let found = owned.on_lanes(0b111, Coords::SOLE, has).results;
            assert_eq!(found, [found[0]; 3]);
            found[0]
        };
        // The next class has an idle run at the first slab.
        owned.add_run(next, 0);
        [7, 255].into_iter().for_each(|run| owned.add_run_with(LARGE, run, &[1]));
        owned.add_run(LARGE, run);
        assert!(has());
        // A run of the class that is not fully free, and runs of other classes, are not enough.
        runs.count_claim(run, runs.claim(runs.first_word(run), 1), 0xf);
        assert_eq!((has(), owned.hints(next, 0)), (false, (true, true)));
    }
}

#[test]
fn a_search_for_idle_runs_starts_at_a_place_that_depends_on_the_thread() {
    let owned = heap(256, 1);
    owned.add_run(LARGE, 200);
    let idle = owned.core().runs().idle();
    // The words before and after that of the run have no index, but bits above them.
    let above = || idle.at(idle.level(1).0).load_relaxed();
    [1, 7].into_iter().for_each(|w| {
        idle.insert(w * WORD_BITS);
        idle.remove_bits(w, 1);
    });
    assert_eq!(above(), 1 << 1 | 1 << 6 | 1 << 7);
    // Thread 1 starts at the golden ratio of the slabs, and does not come to the second word.
    let at = Coords { thread_idx: [1, 0, 0], ..Coords::SOLE };
    let has = |owned: &OwnedHeap, group| owned.core().has_idle_run(group, LARGE, owned.core().class(LARGE));
    assert_eq!(owned.on_lanes(1, at, has).results, [true]);
    assert_eq!(above(), 1 << 1 | 1 << 6 | 1 << 7);
    assert_eq!(owned.on_lanes(1, Coords::SOLE, has).results, [true]);
    assert_eq!(above(), 1 << 6 | 1 << 7);
}

#[test]
fn no_runs_are_retired_while_the_class_has_a_fully_free_one() {
    let owned = heap(64, 1);
    let info = *owned.core().class(LARGE);
    (0..62).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    let other = SizeClass(LARGE.0 + 1);
    owned.add_run(LARGE, 62);
    owned.add_run(other, 63);
    let find = |group: Group| {
        let survey = owned.core().ring(LARGE, 0).survey(group, &info, 0, |_| None);
        owned.core().find_span(group, demand(LARGE, 1), &info, survey).map(|span| span.first(&info))
    };
    let runs = owned.core().runs();
    let is_there = || runs.starts(63, other, 1);
    assert_eq!((find(Group::alone()), is_there()), (None, true));
    runs.count_claim(62, runs.claim(runs.first_word(62), u32::MAX), 0xf);
    assert_eq!((find(Group::alone()), is_there()), (Some(63), false));
}

#[test]
fn a_span_of_the_ring_with_free_blocks_is_the_next_one() {
    let owned = heap(256, 1);
    let (info, group) = (*owned.core().class(LARGE), Group::alone());
    let ring = owned.core().ring(LARGE, 0);
    let mut survey = ring.survey(group, &info, 0, |_| None);
    for run in [50, 60, 70] {
        let free: &[u32] = if run == 70 { &[0, 1, 2, 3] } else { &[] };
        owned.add_run_with(LARGE, run, free);
        ring.add(group, &mut survey, &info, run, 1);
    }
    let seen = Span::new(&info, 50, 1).with_left(0);
    owned.core().cursor(LARGE, 0).restart(seen);
    assert!(owned.core().replace_span(group, Demand { seen, ..demand(LARGE, 1) }));
    let now = owned.core().cursor(LARGE, 0).span();
    assert_eq!((now.first(&info), now.runs(), now.slot(), now.left()), (70, 1, 2, 4));
    assert_eq!(spans(&owned, LARGE), [(50, 1), (60, 1), (70, 1)]);
}

#[test]
fn a_dry_cursor_makes_no_move_while_there_are_no_runs() {
    let owned = heap(64, 1);
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    let (common, group) = (owned.core().overview().common(), Group::alone());
    let replace = |seen| {
        let mut is_found = false;
        let moves = moves_of(common, || {
            is_found = owned.core().replace_span(group, Demand { seen, ..demand(LARGE, 1) });
        });
        (is_found, moves > 0)
    };
    // The first time, the idle marks of all runs are removed.
    let seen = || owned.core().cursor(LARGE, 0).span();
    assert_eq!(replace(seen()), (false, true));
    assert!(seen().is_dry());
    assert_eq!([replace(seen()), replace(seen())], [(false, false); 2]);
}

#[test]
fn a_cursor_is_dry_until_there_is_memory() {
    let group = Group::alone();
    // Free slabs, a free span of the ring, or idle runs of another class.
    let found: [fn(&OwnedHeap); 3] = [
        |owned| owned.core().free_slabs().set.insert(9),
        |owned| {
            let (ring, info) = (owned.core().ring(LARGE, 0), owned.core().class(LARGE));
            let mut survey = ring.survey(Group::alone(), info, 0, |_| None);
            owned.core().free_slabs().set.insert(9);
            owned.add_run(LARGE, 9);
            ring.add(Group::alone(), &mut survey, info, 9, 1);
            owned.core().cursor(LARGE, 0).restart(Span::UNUSED.in_slot(7).dry());
        },
        |owned| {
            owned.core().free_slabs().set.insert(9);
            owned.add_run(SizeClass::of(64), 9);
        },
    ];
    for make in found {
        let owned = heap(64, 1);
        take_slabs(&owned, 0..64);
        let (cursor, demand) = (owned.core().cursor(LARGE, 0), demand(LARGE, 1));
        let replace = || owned.core().replace_span(group, Demand { seen: cursor.span(), ..demand });
        assert!((0..3).all(|_| !replace() && cursor.span().is_dry()));
        make(&owned);
        assert!(replace());
        let now = cursor.span();
        assert_eq!((now.first(owned.core().class(LARGE)), now.left(), now.is_dry()), (9, 4, false));
    }
}

#[test]
fn only_the_lanes_of_a_class_without_memory_find_their_cursor_dry() {
    let owned = heap(256, 1);
    // No two slabs in a row.
    take_slabs(&owned, (0..256).step_by(2));
    let refill = |owned: &OwnedHeap, group: Group| {
        let class = if group.lane() == 5 { PAIR } else { LARGE };
        let peers = group.matching(class.0);
        owned.core().refill(group, peers, true, class, 0, Span::UNUSED, false)
    };
    assert_eq!(owned.on_lanes(LANES, Coords::SOLE, refill).results, [false, true, false]);
    let dry = |class| owned.core().cursor(class, 0).span().is_dry();
    assert_eq!([LARGE, PAIR].map(dry), [false, true]);
}

const SMALL: SizeClass = SizeClass::of(64);

/// A heap of 256 slabs. `free` slabs are free, all over the heap, and the other ones are runs with
/// these free blocks of 256.
fn aged_heap(free: u32, blocks: &[u32]) -> OwnedHeap {
    let owned = heap(256, 1);
    let is_free = |slab: u32| free > 0 && slab.is_multiple_of(256 / free.max(1));
    (0..256).filter(|slab| !is_free(*slab)).for_each(|run| owned.add_run_with(SMALL, run, blocks));
    owned
}

/// Whether a warp that replaces a span of such a heap makes the cursor aged because of holes.
/// `lanes` of the warp asked for the class.
fn is_aged(free: u32, blocks: &[u32], lanes: u32, must: bool) -> bool {
    let owned = aged_heap(free, blocks);
    let done = owned.on_lanes(u32::MAX, Coords::SOLE, |owned, group| {
        owned.core().replace_span(group, Demand { must, ..demand(SMALL, lanes) })
    });
    let is_aged = owned.core().cursor(SMALL, 0).span().is_aged();
    // Without memory for a span, the cursor is aged, too.
    assert!(done.results.iter().all(|is_found| *is_found || is_aged));
    done.results[0] && is_aged
}

#[test]
fn a_cursor_is_aged_if_its_class_has_holes_and_few_slabs_are_free() {
    let every = |step: u32| -> Vec<u32> { (0..256).step_by(step as usize).collect() };
    for lanes in [1, 31, 32] {
        // A quarter of the heap is free, then a sixteenth, a thirty-second, and nothing.
        let aged = [64, 16, 8, 0].map(|free| is_aged(free, &every(4), lanes, false));
        assert_eq!(aged, [false, false, true, true]);
        // With few free blocks only if no slab is free; the sample of words is pseudo-random.
        assert_eq!([8, 0].map(|free| is_aged(free, &every(16), lanes, false)), [false, true]);
        assert!(!is_aged(8, &[], lanes, false));
        // Not after probes that found nothing.
        assert!(!is_aged(8, &every(4), lanes, true) && !is_aged(0, &every(4), lanes, true));
    }
}

#[test]
fn fully_free_words_are_no_holes() {
    let owned = aged_heap(0, &(0..64).collect::<Vec<u32>>());
    let is_aged = |owned: &OwnedHeap, group| owned.core().is_aged(group, SMALL, owned.core().class(SMALL));
    assert!(owned.on_lanes(u32::MAX, Coords::SOLE, is_aged).results.iter().all(|is_aged| !is_aged));
}

#[test]
fn a_cursor_is_aged_if_there_is_no_memory_for_a_span() {
    let owned = aged_heap(0, &[]);
    let replace = |owned: &OwnedHeap, group| owned.core().replace_span(group, demand(SMALL, 32));
    assert!(owned.on_lanes(u32::MAX, Coords::SOLE, replace).results.iter().all(|is_found| !is_found));
    assert!(owned.core().cursor(SMALL, 0).span().is_aged());
}
