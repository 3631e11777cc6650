//! Which blocks a search finds for which lanes, and which idle runs are retired.

use super::*;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::machine::Coords;
use std::collections::BTreeSet;
use std::vec::Vec;

/// 256 blocks in eight words, in one slab.
const SMALL: SizeClass = SizeClass::of(64);
/// Four blocks in one slab.
const LARGE: SizeClass = SizeClass::of(4096);
/// Two blocks in two slabs.
const PAIR: SizeClass = SizeClass::of(16 << 10);

/// Lanes 3, 5 and 6.
const LANES: u32 = 0b110_1000;

/// The run and the number of the block that was found.
fn block(owned: &OwnedHeap, class: SizeClass, found: Found) -> Option<(u32, u32)> {
    match found {
        Found::Block(address) => Some(owned.block_at(class, address)),
        _ => None,
    }
}

/// Claims blocks of a run for a group of which `served` lanes are served already. Returns how many
/// were claimed, and the caller's.
fn claim(
    owned: &OwnedHeap,
    run: u32,
    salt: u32,
    group: Group,
    wanting: Group,
    served: u32,
) -> (u32, Option<u32>) {
    let mut claims = Claims { served, address: 0 };
    owned.core().claim_blocks(group, run, SMALL, salt, wanting, &mut claims);
    let block = (claims.address != 0).then(|| owned.block_at(SMALL, claims.address));
    assert!(block.is_none_or(|(of, _)| of == run));
    (claims.served - served, block.map(|(_, block)| block))
}

/// Searches by lanes that all ask for the class.
fn search(owned: &OwnedHeap, lanes: u32, class: SizeClass) -> Vec<Option<(u32, u32)>> {
    let search =
        |owned: &OwnedHeap, group| block(owned, class, owned.core().search(group, true, class, 0, false));
    owned.on_lanes(lanes, Coords::SOLE, search).results
}

#[test]
fn a_search_starts_at_a_run_that_depends_on_its_salt() {
    let owned = heap(256, 1);
    owned.add_run_with(LARGE, 40, &[1, 2, 3]);
    owned.add_run_with(LARGE, 200, &[1]);
    let run = |salt| {
        block(&owned, LARGE, owned.core().search(Group::alone(), true, LARGE, salt, false))
            .map(|(run, _)| run)
    };
    // The golden ratio of 256 slabs is slab 158. There is one block from there on.
    assert_eq!([0, 1, 1, 0].map(run), [Some(40), Some(200), Some(40), Some(40)]);
}

#[test]
fn a_free_block_in_any_word_of_a_run_is_found() {
    let owned = heap(256, 1);
    let group = Group::alone();
    for (run, free, salt) in [(1, 165, 0), (2, 3, 1), (3, 70, 7), (4, 255, 3)] {
        owned.add_run_with(SMALL, run, &[free]);
        let claim = || claim(&owned, run, salt, group, group, 0);
        assert_eq!((claim(), claim()), ((1, Some(free)), (0, None)));
    }
}

#[test]
fn lanes_get_the_blocks_that_all_of_them_claimed() {
    let owned = heap(256, 1);
    owned.add_run_with(SMALL, 7, &[5, 40, 41, 130, 250]);
    let claim = |served: u32| {
        let claim = |owned: &OwnedHeap, group| claim(owned, 7, 0, group, group, served);
        owned.on_lanes(LANES, Coords::SOLE, claim).results
    };
    // One of them is served already.
    assert_eq!(claim(1), [(2, None), (2, Some(5)), (2, Some(40))]);
    assert_eq!(owned.free_blocks(SMALL, 7), [41, 130, 250]);
    assert_eq!(claim(0), [(3, Some(41)), (3, Some(130)), (3, Some(250))]);
    assert_eq!(claim(0), [(0, None); 3]);
}

#[test]
fn no_more_blocks_are_claimed_than_lanes_ask_for() {
    let owned = heap(256, 1);
    owned.add_run(SMALL, 7);
    let claim = |owned: &OwnedHeap, group: Group| {
        let wanting = group.filter(group.lane() != 5);
        claim(owned, 7, 0, group, wanting, 0)
    };
    let got = owned.on_lanes(LANES, Coords::SOLE, claim).results;
    assert_eq!(got, [(2, Some(0)), (2, None), (2, Some(1))]);
    assert!(owned.free_blocks(SMALL, 7).into_iter().eq(2..256));
}

#[test]
fn lanes_are_served_from_several_runs() {
    let owned = heap(256, 1);
    // In one word of the list, and in another one.
    for (run, free) in [(3, 2), (20, 1), (100, 3)] {
        owned.add_run_with(LARGE, run, &[free]);
    }
    assert_eq!(search(&owned, LANES, LARGE), [Some((3, 2)), Some((20, 1)), Some((100, 3))]);
    owned.add_run_with(LARGE, 110, &[1]);
    owned.add_run_with(LARGE, 180, &[2]);
    assert_eq!(search(&owned, LANES, LARGE), [Some((110, 1)), Some((180, 2)), None]);
}

#[test]
fn a_search_makes_a_run_of_an_idle_one_if_no_slab_is_free() {
    for makes_runs in [false, true] {
        let owned = heap(64, 1);
        (0..64).for_each(|run| owned.add_run_with(SMALL, run, &[]));
        (0..256).step_by(32).for_each(|block| {
            // SAFETY: no thread uses the blocks: they are those of the run.
            (block..block + 32).for_each(|block| unsafe {
                let address = owned.core().block_address(owned.core().class(SMALL), 9, block);
                owned.heap.free(core::ptr::NonNull::new(address as *mut u8).unwrap());
            });
        });
        let search = || owned.core().search(Group::alone(), true, LARGE, 0, makes_runs);
        // The first ones remove the other runs from the idle set.
        let found = (0..9).map(|_| search()).find(|found| *found != Found::Unsure);
        let is_block = found.is_some_and(|found| matches!(found, Found::Block(_)));
        assert_eq!((is_block, owned.is_free_slab(9)), (makes_runs, !makes_runs), "{found:?}");
        assert_eq!(owned.core().runs().starts(9, LARGE, 1), makes_runs);
        assert_eq!(owned.core().overview().common().open(), 0);
    }
}

#[test]
fn a_search_serves_lanes_with_the_run_that_it_makes() {
    let owned = heap(256, 1);
    let search = |makes_runs| {
        let search = |owned: &OwnedHeap, group| owned.core().search(group, true, LARGE, 0, makes_runs);
        let found = owned.on_lanes(0b11_1111, Coords::SOLE, search).results;
        let blocks: BTreeSet<_> = found.iter().filter_map(|found| block(&owned, LARGE, *found)).collect();
        let others = found.iter().filter(|found| **found == Found::Unsure).count();
        assert_eq!(blocks.len() + others, 6);
        blocks.len()
    };
    // A run has four blocks. A search that makes no runs leaves the slabs to the cursors.
    assert_eq!([search(false), search(true), search(true)], [0, 4, 4]);
}

#[test]
fn lanes_that_do_not_ask_get_no_block() {
    let owned = heap(256, 1);
    owned.add_run_with(LARGE, 3, &[0, 1, 2]);
    let search = |owned: &OwnedHeap, group: Group| {
        owned.core().search(group, group.lane() != 5, LARGE, 0, false) == Found::Unsure
    };
    assert_eq!(owned.on_lanes(LANES, Coords::SOLE, search).results, [false, true, false]);
    assert_eq!(owned.free_blocks(LARGE, 3).len(), 1);
}

#[test]
fn a_search_goes_on_behind_the_words_that_its_lanes_looked_at() {
    let owned = heap(1024, 1);
    owned.add_run_with(LARGE, 5, &[]);
    owned.add_run_with(LARGE, 3 * 32, &[3]);
    assert_eq!(search(&owned, LANES, LARGE), [Some((96, 3)), None, None]);
}

#[test]
fn a_search_does_not_look_at_the_runs_of_the_next_class() {
    let owned = heap(256, 1);
    let next = SizeClass(LARGE.0 + 1);
    owned.add_run_with(next, 0, &[0]);
    owned.add_run_with(LARGE, 255, &[0]);
    assert_eq!(search(&owned, LANES, LARGE), [Some((255, 0)), None, None]);
    assert_eq!(search(&owned, LANES, LARGE), [None; 3]);
    assert!(owned.hints(next, 0).0);
}

#[test]
fn a_failed_search_is_sure_only_if_no_move_is_under_way() {
    let owned = heap(64, 1);
    let (heap, common) = (owned.core(), owned.core().overview().common());
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    let search = || heap.search(Group::alone(), true, LARGE, 0, false);
    // First it removes the idle marks of runs that are not fully free.
    assert!((0..10).any(|_| search() == Found::Nothing));
    for moves in [common, heap.overview().class(LARGE)] {
        moves.begin();
        assert_eq!(search(), Found::Unsure);
        moves.end();
        assert_eq!(search(), Found::Nothing);
    }
    heap.free_slabs().set.insert(9);
    assert_eq!(search(), Found::Unsure);
}

#[test]
fn free_slabs_or_idle_runs_make_a_run() {
    let owned = heap(64, 1);
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    let idle = owned.core().runs().idle();
    [0, 1].into_iter().for_each(|w| assert_eq!(idle.remove_bits(w, u32::MAX), u32::MAX));
    let has = || [LARGE, PAIR].map(|class| owned.core().has_run(Group::alone(), owned.core().class(class)));
    assert_eq!(has(), [false, false]);
    owned.core().free_slabs().set.insert(9);
    assert_eq!(has(), [true, false]);
    owned.core().free_slabs().set.remove_bits(0, 1 << 9);
    idle.insert(40);
    assert_eq!(has(), [true, true]);
}

#[test]
fn idle_runs_of_the_own_class_are_no_other_runs() {
    let owned = heap(64, 1);
    let other = SizeClass(LARGE.0 - 1);
    (0..64).for_each(|run| owned.add_run_with(if run == 50 { other } else { LARGE }, run, &[]));
    let idle = owned.core().runs().idle();
    [0, 1].into_iter().for_each(|w| assert_eq!(idle.remove_bits(w, u32::MAX), u32::MAX));
    let has = || owned.core().has_other_run(LARGE, owned.core().class(LARGE));
    assert!(!has());
    owned.core().free_slabs().set.insert(9);
    assert!(has());
    owned.core().free_slabs().set.remove_bits(0, 1 << 9);
    // Seven runs of the class before the other one are passed over, but not eight.
    for own in 0..=8 {
        assert!(!has(), "{own} idle runs of the class");
        idle.insert(50);
        assert_eq!(has(), own < 8, "{own} idle runs of the class");
        idle.remove_bits(1, 1 << (50 - 32));
        idle.insert(own);
    }
}

/// The slabs below 64 that are free.
fn free_slabs(owned: &OwnedHeap) -> Vec<u32> {
    (0..64).filter(|slab| owned.is_free_slab(*slab)).collect()
}

/// A heap of which the first 64 slabs are not free, but for the idle runs at `runs`.
fn with_idle(class: SizeClass, runs: &[u32]) -> OwnedHeap {
    let owned = heap(128, 1);
    runs.iter().for_each(|run| owned.add_run(class, *run));
    for slab in free_slabs(&owned) {
        owned.add_run_with(LARGE, slab, &[]);
        owned.core().runs().idle().remove_bits(slab / 32, 1 << (slab % 32));
    }
    owned
}

#[test]
fn idle_runs_are_retired_from_a_place_on_until_there_are_enough_slabs() {
    let runs = [2, 9, 12, 40, 41, 42];
    for (start, least, expected) in [
        (0, 1, &[2][..]),
        (0, 3, &[2, 9, 12]),
        (0, 5, &[2, 9, 12, 40, 41]),
        // From the word of the place on.
        (31, 2, &[2, 9]),
        (32, 3, &[40, 41, 42]),
        (32, 5, &[2, 9, 40, 41, 42]),
        (43, 1, &[40]),
        (43, 99, &[2, 9, 12, 40, 41, 42]),
    ] {
        let owned = with_idle(SMALL, &runs);
        assert!(owned.core().retire_idle(Group::alone(), start, least, true));
        assert_eq!(free_slabs(&owned), expected, "{least} slabs from {start}");
        let idle: Vec<_> = runs.into_iter().filter(|run| owned.hints(SMALL, *run).1).collect();
        assert!(idle.into_iter().eq(runs.into_iter().filter(|run| !expected.contains(run))));
    }
}

#[test]
fn the_slabs_of_retired_runs_are_counted() {
    // Two runs of two slabs in one word, and two in the next one.
    for (least, expected) in
        [(1, &[4, 5][..]), (3, &[4, 5, 30, 31]), (4, &[4, 5, 30, 31]), (5, &[4, 5, 30, 31, 38, 39])]
    {
        let owned = with_idle(PAIR, &[4, 30, 38, 50]);
        assert!(owned.core().retire_idle(Group::alone(), 0, least, true));
        assert_eq!(free_slabs(&owned), expected, "{least} slabs");
    }
}

#[test]
fn nothing_is_retired_where_no_run_is_fully_free() {
    let owned = with_idle(SMALL, &[]);
    assert!(!owned.core().retire_idle(Group::alone(), 0, 8, true));
    owned.core().runs().idle().insert(20);
    assert!(!owned.core().retire_idle(Group::alone(), 0, 8, true));
    assert!(!owned.core().runs().idle().contains(20));
}

#[test]
fn a_search_that_is_not_exact_looks_at_a_few_words_of_the_idle_set() {
    let owned = heap(4096, 1);
    // Marked, but not fully free.
    (0..PASSES).for_each(|w| owned.core().runs().idle().insert(w * WORD_BITS));
    owned.add_run(SMALL, PASSES * WORD_BITS + 5);
    let retires = || owned.core().retire_idle(Group::alone(), 0, 1, false);
    assert_eq!([(); 3].map(|()| retires()), [false, true, false]);
}

#[test]
fn idle_runs_behind_those_that_suffice_are_not_looked_at() {
    let owned = with_idle(SMALL, &[2]);
    // Not fully free, but marked.
    owned.core().runs().idle().insert(50);
    assert!(owned.core().retire_idle(Group::alone(), 0, 1, true));
    assert!(owned.core().runs().idle().contains(50));
}

#[test]
fn one_word_of_idle_runs_is_retired_that_depends_on_the_salt() {
    // A quarter of the salts is slab 31, the last of its word.
    for (salt, least, expected) in
        [(0, 1, &[2][..]), (0, 9, &[2, 3]), (u32::MAX / 4, 1, &[40, 41]), (u32::MAX, 1, &[2])]
    {
        let owned = with_idle(SMALL, &[2, 3, 50]);
        [40, 41].into_iter().for_each(|slab| owned.core().free_slabs().set.insert(slab));
        owned.add_run(PAIR, 40);
        owned.core().retire_one(salt, least);
        assert_eq!(free_slabs(&owned), expected);
    }
}

#[test]
fn some_bits_are_as_many_as_wanted() {
    for word in [0, 1, 1 << 31, 0x8421_0ff0, 0x5555_5555, u32::MAX] {
        for (n, salt) in (0..40).flat_map(|n| [0, 1, 7, 31, 1000].map(|salt| (n, salt))) {
            let some = some_bits(word, n, salt);
            assert_eq!((some & !word, some.count_ones()), (0, n.min(word.count_ones())));
        }
    }
    assert_eq!([0, 4, 6].map(|salt| some_bits(0b0101_0101, 2, salt)), [0b101, 0b101_0000, 0b100_0001]);
}

#[test]
fn a_run_is_made_of_the_first_free_slab_of_a_word_that_depends_on_the_salt() {
    let owned = heap(256, 1);
    let (heap, set) = (owned.core(), owned.core().free_slabs().set);
    // In the middle of the sixth word.
    assert_eq!(heap.make_run(LARGE, 179 << 24), Some(160));
    assert!(heap.runs().starts(160, LARGE, 1) && !owned.is_free_slab(160) && owned.is_free_slab(161));
    (0..8).for_each(|w| _ = set.remove_bits(w, u32::MAX));
    assert_eq!(heap.make_run(LARGE, 179 << 24), None);
    assert_eq!(heap.overview().common().open(), 0);
}

#[test]
fn lanes_retire_as_many_runs_as_are_needed() {
    for (least, freed) in [(1, 2), (4, 4), (6, 6), (7, 8), (100, 28)] {
        let owned = heap(512, 1);
        // Two runs of two slabs in each word but the first one.
        let runs = || (1..8).flat_map(|w| [34 * w, 34 * w + 10]);
        runs().for_each(|run| owned.add_run(PAIR, run));
        let before = (0..512).filter(|slab| owned.is_free_slab(*slab)).count();
        let retire = |owned: &OwnedHeap, group| assert!(owned.core().retire_idle(group, 0, least, true));
        owned.on_lanes(0xff, Coords::SOLE, retire);
        let after = (0..512).filter(|slab| owned.is_free_slab(*slab)).count();
        assert_eq!(after - before, freed, "for {least} slabs");
        let first = runs().filter(|run| owned.is_free_slab(*run)).count();
        assert!(runs().take(first).all(|run| owned.is_free_slab(run)), "the first runs");
    }
}
