//! What retiring removes from the sets, and what it leaves there.

use super::*;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::tests::heap::{OwnedHeap, heap, moves_of};
use std::vec::Vec;

/// 256 blocks in eight words.
const SMALL: SizeClass = SizeClass::of(64);

/// The word of the sets that has the runs of the class at the first slabs.
fn word(owned: &OwnedHeap, class: SizeClass) -> u32 {
    owned.layout.run_index(class, 0) / WORD_BITS
}

/// Marks a run idle although it is not fully free.
fn mark_idle(heap: &HeapCore, run: u32) {
    heap.runs().idle().insert(run);
}

#[test]
fn a_free_block_in_any_word_makes_a_run_open() {
    let owned = heap(256, 1);
    let (runs, info, w) = (owned.core().runs(), owned.core().class(SMALL), word(&owned, SMALL));
    assert_eq!((info.blocks, info.slabs, info.words()), (256, 1, 8));
    for block in 0..8 {
        owned.add_run_with(SMALL, block, &[block * 33]);
        let moves = moves_of(owned.core().overview().class(SMALL), || {
            assert_eq!(runs.first_open(SMALL, info, w, 1 << block), Some(block));
        });
        assert_eq!(moves, 0);
    }
}

#[test]
fn only_runs_before_the_first_open_one_are_unlisted() {
    let owned = heap(256, 1);
    let (runs, info, w) = (owned.core().runs(), owned.core().class(SMALL), word(&owned, SMALL));
    for (run, free) in [(0, &[][..]), (2, &[]), (3, &[]), (5, &[40]), (6, &[]), (9, &[1])] {
        owned.add_run_with(SMALL, run, free);
    }
    let moves = moves_of(owned.core().overview().class(SMALL), || {
        let open = runs.first_open(SMALL, info, w, 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6);
        assert_eq!(open, Some(5));
    });
    assert_eq!(moves, 1);
    let listed = |run| owned.hints(SMALL, run).0;
    assert_eq!([0, 2, 3, 5, 6, 9].map(listed), [true, false, false, true, true, true]);
    assert_eq!(runs.first_open(SMALL, info, w, 1 << 6), None);
    // Runs that another thread unlisted meanwhile need no move.
    let moves = |bits| {
        moves_of(owned.core().overview().class(SMALL), || {
            assert_eq!(runs.first_open(SMALL, info, w, bits), None);
        })
    };
    assert_eq!([moves(1 << 2 | 1 << 3), moves(1 << 2 | 1), moves(1 << 2 | 1)], [0, 1, 0]);
    assert!(!listed(0));
    runs.listed().insert(owned.layout.run_index(SMALL, 0));
    // A run that became open meanwhile stays.
    assert_eq!(runs.unlist(SMALL, info, w, 1 | 1 << 5 | 1 << 9), 1 << 5 | 1 << 9);
    assert_eq!([0, 2, 3, 5, 6, 9].map(listed), [false, false, false, true, false, true]);
}

#[test]
fn a_run_of_another_class_is_unlisted() {
    let owned = heap(256, 1);
    let other = SizeClass::of(128);
    owned.add_run(other, 4);
    let (runs, w) = (owned.core().runs(), word(&owned, SMALL));
    runs.listed().insert(owned.layout.run_index(SMALL, 4));
    let moves = moves_of(owned.core().overview().class(SMALL), || {
        assert_eq!(runs.first_open(SMALL, owned.core().class(SMALL), w, 1 << 4), None);
    });
    assert_eq!((moves, owned.hints(SMALL, 4).0, owned.hints(other, 4).0), (1, false, true));
}

#[test]
fn a_sweep_removes_the_runs_that_are_not_fully_free() {
    let owned = heap(256, 1);
    let runs = owned.core().runs();
    owned.add_run(SMALL, 1);
    for run in [0, 2, 3, 7] {
        owned.add_run_with(SMALL, run, &[7]);
        mark_idle(owned.core(), run);
    }
    // The count of a run that is fully free is not complete yet.
    owned.add_run(SMALL, 6);
    runs.count(6).sub_relaxed(1);
    let count = moves_of(owned.core().overview().common(), || {
        assert_eq!(runs.sweep(0, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6), 1 << 1);
        assert_eq!(runs.sweep(0, 1 << 1), 1 << 1);
    });
    assert_eq!(count, 1);
    let idle = |run| owned.hints(SMALL, run).1;
    assert_eq!([0, 1, 2, 3, 6, 7].map(idle), [true, true, false, false, true, true]);
    // Marks of slabs without a run, or in a run of several slabs.
    let pair = SizeClass::of(16 << 10);
    owned.add_run(pair, 40);
    [39, 41].into_iter().for_each(|slab| mark_idle(owned.core(), slab));
    assert_eq!(runs.sweep(1, 0b111 << 7), 1 << 8);
    assert_eq!([39, 40, 41].map(idle), [false, true, false]);
}

#[test]
fn a_retired_run_is_in_no_set_and_has_no_blocks() {
    let owned = heap(256, 1);
    let class = SizeClass::of(16 << 10);
    let runs = owned.core().runs();
    assert_eq!(owned.core().class(class).slabs, 2);
    [0, 4, 6].into_iter().for_each(|run| owned.add_run(class, run));
    owned.add_run_with(class, 2, &[0]);
    assert_eq!(runs.retire(0, 1 | 1 << 2 | 1 << 6), 0b11 | 0b11 << 6);
    let hints = [0, 2, 4, 6].map(|run| owned.hints(class, run));
    assert_eq!(hints, [(false, false), (true, false), (true, true), (false, false)]);
    let entries: Vec<_> = (0..8).map(|slab| Entry(runs.entry(slab).load_relaxed()).is_free()).collect();
    assert_eq!(entries, [true, true, false, false, false, false, true, true]);
    assert_eq!([0, 6].map(|run| owned.words(class, run)[0]), [0, 0]);
}

#[test]
fn a_run_that_lost_a_block_gets_back_all_others() {
    // The count still says that the run is fully free. Some word, or all of it, is allocated.
    for free in [!(1 << 5), 0] {
        let owned = heap(256, 1);
        let runs = owned.core().runs();
        owned.add_run(SMALL, 9);
        runs.claim(runs.first_word(9) + 3, !free);
        assert_eq!(runs.retire(0, 1 << 9), 0);
        let full = u32::MAX;
        assert_eq!(owned.words(SMALL, 9), [full, full, full, free, full, full, full, full]);
        assert_eq!((runs.free_words(9), owned.hints(SMALL, 9).0), (8, true));
        assert!(runs.starts(9, SMALL, 1));
    }
}

#[test]
fn a_run_whose_count_is_late_stays_idle() {
    let owned = heap(256, 1);
    let runs = owned.core().runs();
    owned.add_run(SMALL, 9);
    runs.count(9).sub_relaxed(1);
    assert_eq!(runs.retire(0, 1 << 9), 0);
    assert_eq!((owned.hints(SMALL, 9), runs.free_words(9)), ((true, true), 7));
    assert!(owned.words(SMALL, 9).iter().all(|word| *word == u32::MAX));
}
