//! The path of an allocation that finds no block, and how long it waits.

use super::*;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::machine::Coords;
use crate::test_lanes::{Ran, interrupted};
use core::alloc::Layout;
use core::ptr::NonNull;
use std::vec::Vec;

/// Four blocks in one slab.
const LARGE: SizeClass = SizeClass::of(4096);

/// Allocates by a lone lane, in the cursors of shard 0. Returns the slab.
fn alloc(owned: &OwnedHeap) -> Ran<Option<u32>> {
    let layout = Layout::from_size_align(4096, 1).unwrap();
    interrupted(
        |_| (),
        || {
            let block = owned.heap.alloc(layout)?;
            Some(((block.as_ptr() as u64 - owned.heap.base() as u64) >> owned.layout.slab_log2) as u32)
        },
    )
}

#[test]
fn pauses_double_every_few_turns() {
    let turns = [0, 15, 16, 127, PATIENCE, 131, 132, 140, 143, 144, TURNS];
    let ran = interrupted(|_| (), || turns.map(nap));
    assert_eq!(ran.pauses, [0, 0, 1, 7, 8, 8, 9, 11, 11, 11, 11].map(|doublings| 300 << doublings));
}

#[test]
fn groups_get_all_blocks_of_a_heap_whose_spans_have_no_more_blocks_than_lanes() {
    for (size, lanes, blocks) in [(4096, 32, 256), (4096, 16, 256), (5000, 32, 192), (8192, 8, 128)] {
        let owned = heap(64, 1);
        let (mut got, mask) = (0, u32::MAX >> (32 - lanes));
        for _ in 0..=blocks / lanes {
            let done = owned.on_lanes(mask, Coords::SOLE, |owned, _| {
                owned.heap.alloc(Layout::from_size_align(size, 1).unwrap()).is_some()
            });
            got += done.results.iter().filter(|is_block| **is_block).count();
        }
        assert_eq!(got, blocks, "{size} B, {lanes} lanes");
    }
}

#[test]
fn a_lane_leaves_a_large_full_span_while_there_are_free_slabs() {
    let owned = heap(256, 1);
    let (small, group) = (SizeClass::of(64), Group::alone());
    // 80 full runs: a lane that took 65 tickets in each turn would not come to their end.
    let info = *owned.core().class(small);
    assert!(80 * info.blocks > PATIENCE * (MOST_TAKEN + 1));
    (0..80).for_each(|run| owned.add_run_with(small, run, &[]));
    let ring = owned.core().ring(small, 0);
    let mut survey = ring.survey(group, &info, 0, |_| None);
    owned.core().cursor(small, 0).restart(ring.add(group, &mut survey, &info, 0, 80));
    assert!(owned.heap.alloc(Layout::from_size_align(64, 1).unwrap()).is_some());
}

/// A heap with eight shards. The end of each cursor of the class is crossed, except for those of
/// the `open` shards, which have a span of 32 free blocks.
fn crossed(open: &[u32], is_dry: bool) -> OwnedHeap {
    let owned = heap(4096, 8);
    let info = owned.core().class(LARGE);
    assert_eq!((owned.layout.shards, info.slabs), (8, 2));
    for shard in 0..8 {
        let (cursor, run) = (owned.core().cursor(LARGE, shard), owned.layout.partition_start(shard));
        if open.contains(&shard) {
            (0..4).for_each(|i| owned.add_run(LARGE, run + 2 * i));
            cursor.restart(Span::new(info, run, 4));
        } else {
            // A run that is gone: a cursor without one is for probes.
            let gone = Span::new(info, run, 1).with_left(0);
            cursor.restart(if is_dry { gone.dry() } else { gone });
            assert!(cursor.take(1).is_crossed_by(1));
        }
    }
    owned
}

/// The slab of the last block of a shard's span.
fn last_slab(owned: &OwnedHeap, shard: u32) -> u32 {
    owned.layout.partition_start(shard) + 1
}

#[test]
fn a_lane_draws_from_another_shard_while_its_span_is_replaced() {
    // A lone lane uses the shards 0 and 4, and looks at the next one first.
    let owned = crossed(&[4], false);
    let ran = alloc(&owned);
    assert_eq!((ran.result, ran.pauses.len() as u32), (Some(last_slab(&owned, 4)), LOOKS_EVERY - 1));
    // Without tickets elsewhere it waits, and after some turns makes a run for itself.
    let owned = crossed(&[], false);
    let ran = alloc(&owned);
    let run = ran.result.expect("a block") / 2 * 2;
    assert!(owned.core().runs().starts(run, LARGE, 2) && ran.pauses.len() as u32 > PATIENCE);
    assert_eq!(owned.free_blocks(LARGE, run).len(), 7);
}

#[test]
fn a_lane_whose_cursor_is_dry_draws_from_another_shard_before_it_searches() {
    let owned = crossed(&[4], true);
    owned.add_run(LARGE, 8);
    (0..4096).filter(|slab| owned.is_free_slab(*slab)).for_each(|slab| {
        owned.core().free_slabs().set.remove_bits(slab / WORD_BITS, 1 << (slab % WORD_BITS));
    });
    // A search would find this run, which probes do not see yet.
    let (listed, w) = (owned.core().runs().listed(), owned.layout.run_index(LARGE, 0) / WORD_BITS);
    let hidden: Vec<_> = (0..128).map(|i| listed.word(w + i).swap_relaxed(0)).collect();
    assert_eq!(alloc(&owned).result, Some(last_slab(&owned, 4)));
    (w..).zip(hidden).for_each(|(w, bits)| listed.insert_bits_relaxed(w, bits));
    owned.core().cursor(LARGE, 4).restart(Span::UNUSED.dry());
    owned.core().cursor(LARGE, 4).take(1);
    // The other blocks there are live, so no probe finds them.
    let runs = owned.core().runs();
    for i in 0..4 {
        runs.claim(runs.first_word(owned.layout.partition_start(4) + 2 * i), u32::MAX);
    }
    assert!(matches!(alloc(&owned).result, Some(8 | 9)));
}

#[test]
fn each_lane_looks_at_the_cursor_of_another_shard() {
    let other = |owned: &OwnedHeap, mask, turn| {
        let found = owned.on_lanes(mask, Coords::SOLE, |owned, group| {
            owned.core().other(group, group.matching(LARGE.0), true, LARGE, 0, turn)
        });
        assert!(found.results.iter().all(|shard| *shard == found.results[0]));
        found.results[0]
    };
    let owned = crossed(&[3, 4, 5], false);
    // A full warp uses all shards. A part of a warp uses the shards 0 and 4.
    assert_eq!([u32::MAX, 0b111].map(|mask| other(&owned, mask, 0)), [Some(3), Some(4)]);
    // With fewer tickets than lanes, aged or dry.
    owned.core().cursor(LARGE, 4).take(30);
    assert_eq!([0b11, 0b111].map(|mask| other(&owned, mask, 0)), [Some(4), None]);
    owned.core().cursor(LARGE, 4).restart(Span::UNUSED.aged());
    assert_eq!(other(&owned, 0b111, 0), None);
    owned.core().cursor(LARGE, 4).restart(Span::new(owned.core().class(LARGE), 0, 1).dry());
    assert_eq!(other(&owned, 0b111, 0), None);
}

#[test]
fn only_groups_that_have_no_tickets_look_for_another_shard() {
    let owned = crossed(&[4], false);
    let next = SizeClass(LARGE.0 + 1);
    let found = owned.on_lanes(0b1111, Coords::SOLE, |owned, group| {
        let class = if group.lane() < 2 { LARGE } else { next };
        owned.core().other(group, group.matching(class.0), class == LARGE, class, 0, 0)
    });
    assert_eq!(found.results, [Some(4), Some(4), None, None]);
}

#[test]
fn an_allocation_that_finds_no_memory_fails_at_once() {
    let owned = heap(64, 1);
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    // The first ones remove the hints of all runs.
    let all = [(); 16].map(|()| alloc(&owned));
    assert!(all.iter().all(|ran| ran.result.is_none()) && owned.heap.failures() == 16);
    assert_eq!(owned.heap.contended_failures(), 0);
    let last = &all[15];
    assert!(last.pauses.is_empty() && last.steps < 100, "{} operations", last.steps);
}

#[test]
fn a_group_fails_at_the_first_proof_if_its_probes_see_no_run() {
    let owned = heap(64, 1);
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    // The first ones unlist the runs.
    (0..32).for_each(|_| _ = alloc(&owned));
    assert!(owned.core().cursor(LARGE, 0).span().is_aged());
    let quick = alloc(&owned);
    assert!(quick.result.is_none() && quick.steps < 40, "{} operations", quick.steps);
    // With a move inside the proof, there are more.
    let longer = (0..quick.steps).filter(|at| {
        let move_nothing = |step| {
            if step == *at {
                owned.core().overview().common().during(|| ());
            }
        };
        let layout = Layout::from_size_align(4096, 1).unwrap();
        let ran = interrupted(move_nothing, || owned.heap.alloc(layout));
        assert!(ran.result.is_none() && owned.heap.contended_failures() == 0);
        ran.steps > quick.steps + 20
    });
    assert!(longer.count() > 10);
}

/// A heap of 64 slabs. The cursors of two classes, with runs of one slab and of two, are aged. No
/// run is listed, and only the slabs `free` are free.
fn aged_without_runs(free: &[u32]) -> (OwnedHeap, [SizeClass; 2]) {
    let (owned, classes) = (heap(64, 1), [64, 16384].map(SizeClass::of));
    assert_eq!(classes.map(|class| owned.core().class(class).slabs), [1, 2]);
    (0..64).filter(|slab| !free.contains(slab)).for_each(|slab| {
        owned.core().free_slabs().set.remove_bits(slab / WORD_BITS, 1 << (slab % WORD_BITS));
    });
    for class in classes {
        owned.core().cursor(class, 0).restart(Span::UNUSED.aged());
    }
    (owned, classes)
}

/// Which lanes of a warp get a block. Lane `i` asks for class `i` of the `n` classes, modulo `n`.
fn served(owned: &OwnedHeap, classes: &[SizeClass]) -> Vec<bool> {
    let done = owned.on_lanes(u32::MAX, Coords::SOLE, |owned, group| {
        let bytes = classes[group.lane() as usize % classes.len()].bytes() as usize;
        owned.heap.alloc(Layout::from_size_align(bytes, 1).unwrap()).is_some()
    });
    done.results
}

#[test]
fn a_warp_without_a_listed_run_uses_free_slabs() {
    let (owned, [small, large]) = aged_without_runs(&[5, 20, 21]);
    assert!(served(&owned, &[small]).into_iter().all(|is_block| is_block));
    let (owned, _) = aged_without_runs(&[5, 20, 21]);
    assert!(served(&owned, &[large]).into_iter().any(|is_block| is_block));
}

#[test]
fn lanes_of_a_class_that_fits_no_free_row_fail_beside_lanes_of_one_that_fits() {
    let (owned, classes) = aged_without_runs(&[5, 20]);
    let is_served = served(&owned, &classes);
    assert!(is_served.iter().enumerate().all(|(lane, is_block)| *is_block == (lane % 2 == 0)));
    assert_eq!((owned.heap.failures(), owned.heap.contended_failures()), (16, 0));
}

#[test]
fn lanes_of_a_class_without_runs_fail_beside_lanes_that_find_blocks() {
    let classes = [SizeClass::of(64), SizeClass::of(80), LARGE];
    let owned = heap(64, 1);
    (0..32).for_each(|run| owned.add_run_with(classes[0], run, &[7, 70]));
    // Listed, but full.
    (32..64).for_each(|run| owned.add_run_with(classes[1], run, &[]));
    for class in classes {
        owned.core().cursor(class, 0).restart(Span::UNUSED.aged());
    }
    let is_served = served(&owned, &classes);
    assert!(is_served.iter().enumerate().all(|(lane, is_block)| *is_block == (lane % 3 == 0)));
    assert_eq!((owned.heap.failures(), owned.heap.contended_failures()), (21, 0));
}

#[test]
fn an_allocation_waits_for_the_moves_of_other_threads() {
    let owned = heap(64, 1);
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    while !alloc(&owned).pauses.is_empty() {}
    owned.core().overview().common().begin();
    let ran = alloc(&owned);
    let nanos: u32 = ran.pauses.iter().sum();
    assert!(ran.result.is_none() && (15_000_000..30_000_000).contains(&nanos), "{nanos} ns");
    assert_eq!(owned.heap.contended_failures(), 1);
}

#[test]
fn a_lane_that_waits_for_long_takes_no_more_tickets() {
    // Another group is replacing the span all the time, and no slab is free.
    let owned = crossed(&[], false);
    (0..4096 / WORD_BITS).for_each(|w| _ = owned.core().free_slabs().set.remove_bits(w, u32::MAX));
    owned.core().overview().common().begin();
    assert_eq!((alloc(&owned).result, owned.heap.contended_failures()), (None, 1));
    // Each turn draws from one of two cursors, and not each turn has a draw (I3 of `cursor`).
    let taken = -[0, 4].map(|shard| owned.core().cursor(LARGE, shard).span().left()).iter().sum::<i32>();
    assert!((PATIENCE as i32 / 2..=PATIENCE as i32 + 3).contains(&taken), "{taken} tickets");
}

#[test]
fn a_lane_that_has_a_block_does_not_search_for_another() {
    let owned = heap(64, 1);
    for run in 0..64 {
        let free: &[u32] = match run {
            10 => &[0],
            20 => &[1, 2],
            _ => &[],
        };
        owned.add_run_with(LARGE, run, free);
    }
    // One ticket is left for two lanes, and there is no other span.
    let span = Span::new(owned.core().class(LARGE), 10, 1).with_left(1);
    owned.core().cursor(LARGE, 0).restart(span);
    let done = owned.on_lanes(0b11, Coords::SOLE, |owned, _| {
        let block = owned.heap.alloc(Layout::from_size_align(4096, 1).unwrap()).unwrap();
        owned.block_at(LARGE, block.as_ptr() as u64)
    });
    assert_eq!((done.results[0].0, done.results[1]), (20, (10, 0)));
    assert_eq!(owned.free_blocks(LARGE, 20).len(), 1);
}

/// Allocates all blocks of a heap of 64 slabs by a lone lane. Returns them, and the number of
/// atomic operations.
fn alloc_all(owned: &OwnedHeap) -> (Vec<NonNull<u8>>, u32) {
    let layout = Layout::from_size_align(4096, 1).unwrap();
    let ran = interrupted(|_| (), || (0..256).filter_map(|_| owned.heap.alloc(layout)).collect());
    (ran.result, ran.steps)
}

#[test]
fn an_allocation_costs_the_same_after_the_heap_was_exhausted() {
    let steps = |fails: u32| {
        let owned = heap(64, 1);
        let (blocks, _) = alloc_all(&owned);
        assert_eq!(blocks.len(), 256);
        assert!((0..fails).all(|_| alloc(&owned).result.is_none()));
        // SAFETY: no thread uses them.
        let free = |block| unsafe { owned.heap.free(block) };
        blocks.into_iter().for_each(free);
        // Until a lane that found a fully free word gives up the aged cursor.
        for _ in 0..17_000 {
            free(owned.heap.alloc(Layout::from_size_align(4096, 1).unwrap()).unwrap());
        }
        let (blocks, steps) = alloc_all(&owned);
        assert_eq!(blocks.len(), 256);
        steps
    };
    let (never, often) = (steps(0), steps(4));
    assert!(often <= never + 100, "{often} operations, {never} without failures");
}
