//! Which blocks a probe claims, and which runs it unlists.

use super::*;
use crate::heap::structures::cursor::Span;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::lanes::Group;
use crate::machine::Coords;
use crate::test_lanes::{interrupted, interrupted_at};
use core::alloc::Layout;
use std::collections::BTreeSet;
use std::vec::Vec;

/// 256 blocks in eight words, in one slab.
const SMALL: SizeClass = SizeClass::of(64);
/// Four blocks in one slab.
const LARGE: SizeClass = SizeClass::of(4096);

/// The run and the number of the block that a probe claims.
fn probe(owned: &OwnedHeap, class: SizeClass, salt: u32) -> Result<(u32, u32), Probed> {
    match owned.core().probe(Group::alone(), true, class, salt) {
        Probed::Block { address, .. } => Ok(owned.block_at(class, address)),
        other => Err(other),
    }
}

#[test]
fn a_probe_claims_one_free_block_of_a_run() {
    for block in [0, 31, 127, 130, 255] {
        let owned = heap(256, 1);
        owned.add_run_with(SMALL, 77, &[block]);
        // Half of the places that it looks at are in the other half of the run.
        let salt = (0..20).find(|salt| probe(&owned, SMALL, *salt) == Ok((77, block)));
        assert!(salt.is_some(), "block {block}");
        assert_eq!((owned.free_blocks(SMALL, 77).len(), owned.core().runs().free_words(77)), (0, 0));
    }
}

#[test]
fn lanes_claim_blocks_of_all_runs_and_words() {
    let owned = heap(256, 1);
    let free: Vec<u32> = (0..256).filter(|block| block % 4 == 1).collect();
    (0..250).for_each(|run| owned.add_run_with(SMALL, run, &free));
    let got: BTreeSet<(u32, u32)> =
        (0..2000).map(|salt| probe(&owned, SMALL, salt).expect("a block")).collect();
    assert_eq!(got.len(), 2000, "each block has one owner");
    let count = |is: &dyn Fn(&(u32, u32)) -> bool| got.iter().filter(|block| is(block)).count();
    assert!((0..250).all(|run| count(&|block| block.0 == run) > 0), "each run");
    assert!((0..8).all(|word| count(&|block| block.1 / WORD_BITS == word) > 150), "each word");
    assert!((0..8).all(|bit| count(&|block| block.1 % WORD_BITS / 4 == bit) > 150), "each bit");
}

#[test]
fn lanes_that_meet_in_a_word_claim_different_blocks() {
    let firsts: BTreeSet<u32> = (0..100)
        .map(|salt| {
            let owned = heap(256, 1);
            owned.add_run_with(SMALL, 77, &(1..32).collect::<Vec<_>>());
            (0..20).find_map(|turn| probe(&owned, SMALL, 1000 * salt + turn).ok()).expect("a block").1
        })
        .collect();
    assert!(firsts.len() > 20, "{} different blocks of 31", firsts.len());
}

#[test]
fn a_probe_reports_whether_its_word_was_fully_free() {
    for (blocks, expected) in [(32, true), (31, false)] {
        let owned = heap(256, 1);
        owned.add_run_with(SMALL, 7, &Vec::from_iter(64..64 + blocks));
        let is_whole = (0..20).find_map(|salt| match owned.core().probe(Group::alone(), true, SMALL, salt) {
            Probed::Block { is_whole, .. } => Some(is_whole),
            _ => None,
        });
        assert_eq!(is_whole, Some(expected), "{blocks} blocks");
    }
}

#[test]
fn a_lane_that_does_not_ask_claims_nothing() {
    let owned = heap(256, 1);
    owned.add_run_with(SMALL, 7, &[5]);
    let done = owned.on_lanes(0b111, Coords::SOLE, |owned, group| {
        let probe = |salt| owned.core().probe(group, group.rank() == 1, SMALL, salt);
        (0..20).map(probe).filter(|probed| matches!(probed, Probed::Block { .. })).count()
    });
    assert_eq!(done.results, [0, 1, 0]);
}

#[test]
fn full_runs_are_unlisted() {
    let owned = heap(256, 1);
    [3, 90, 200].into_iter().for_each(|run| owned.add_run_with(LARGE, run, &[]));
    // Each probe that sees a full run of one word unlists one.
    assert!((0..100).any(|salt| probe(&owned, LARGE, salt) == Err(Probed::Empty)));
    assert!([3, 90, 200].iter().all(|run| !owned.hints(LARGE, *run).0));
    // A free lists its run again.
    // SAFETY: no thread uses the block.
    unsafe {
        owned.heap.free(
            core::ptr::NonNull::new(owned.core().block_address(owned.core().class(LARGE), 90, 2) as *mut u8)
                .unwrap(),
        )
    };
    assert_eq!(probe(&owned, LARGE, 0), Ok((90, 2)));
}

#[test]
fn a_probe_that_finds_no_block_where_it_looks_may_be_repeated() {
    let owned = heap(256, 1);
    // One block in the last word of each run, and more runs than a probe looks at.
    (0..200).for_each(|run| owned.add_run_with(SMALL, run, &[255]));
    let results: Vec<_> = (0..40).map(|salt| probe(&owned, SMALL, salt)).collect();
    assert!(results.iter().all(|result| result.is_ok() || *result == Err(Probed::Missed)));
    assert!((0..200).all(|run| owned.free_blocks(SMALL, run).is_empty() || owned.hints(SMALL, run).0));
}

#[test]
fn a_block_of_another_class_is_put_back() {
    let owned = heap(256, 1);
    owned.add_run_with(LARGE, 5, &[1, 2]);
    // Listed for the wrong class, as by a free that was late.
    owned.core().runs().listed().insert(owned.layout.run_index(SMALL, 5));
    assert!(probe(&owned, SMALL, 0).is_err());
    assert_eq!(owned.free_blocks(LARGE, 5), [1, 2]);
}

#[test]
fn the_lanes_of_a_warp_probe_if_their_cursor_is_aged() {
    let owned = heap(256, 1);
    let free: Vec<u32> = (0..256).filter(|block| block % 16 < 3).collect();
    (0..250).for_each(|run| owned.add_run_with(SMALL, run, &free));
    let cursor = owned.core().cursor(SMALL, 0);
    cursor.restart(cursor.span().aged());
    let tickets = cursor.span().left();
    let done = owned.on_lanes(u32::MAX, Coords::SOLE, |owned, _| {
        let block = owned.heap.alloc(Layout::from_size_align(64, 1).unwrap()).unwrap();
        owned.block_at(SMALL, block.as_ptr() as u64)
    });
    assert!(done.results.iter().all(|(_, block)| free.contains(block)));
    assert_eq!(done.results.iter().collect::<BTreeSet<_>>().len(), 32);
    assert!(cursor.span().is_aged() && cursor.span().left() <= tickets - 32);
}

#[test]
fn an_aged_cursor_of_whole_warps_gets_a_span_if_there_are_no_holes() {
    let owned = heap(256, 1);
    (0..100).for_each(|run| owned.add_run_with(SMALL, run, &[]));
    let cursor = owned.core().cursor(SMALL, 0);
    cursor.restart(cursor.span().aged());
    let done = owned.on_lanes(u32::MAX, Coords::SOLE, |owned, _: Group| {
        owned.heap.alloc(Layout::from_size_align(64, 1).unwrap()).is_some()
    });
    assert!(done.results.iter().all(|is_block| *is_block));
    assert!(!cursor.span().is_aged() && cursor.span().runs() > 0);
}

#[test]
fn a_warp_that_finds_fully_free_words_gives_up_its_aged_cursor() {
    // All words are fully free; five of eight, beside many holes; and none.
    let some: Vec<u32> = (0..256).filter(|block| *block < 160 || block % 8 != 0).collect();
    let none: Vec<u32> = (1..256).step_by(2).collect();
    for (blocks, is_aged) in [(Vec::from_iter(0..256), false), (some, false), (none, true)] {
        let owned = heap(256, 1);
        (0..250).for_each(|run| owned.add_run_with(SMALL, run, &blocks));
        let cursor = owned.core().cursor(SMALL, 0);
        cursor.restart(cursor.span().aged());
        // One of 32 such warps gives it up.
        for _ in 0..if is_aged { 50 } else { 700 } {
            owned.on_lanes(u32::MAX, Coords::SOLE, |owned, _: Group| {
                let block = owned.heap.alloc(Layout::from_size_align(64, 1).unwrap()).unwrap();
                // SAFETY: no thread uses it.
                unsafe { owned.heap.free(block) }
            });
            if !cursor.span().is_aged() {
                break;
            }
        }
        assert_eq!(cursor.span().is_aged(), is_aged);
    }
}

/// Another group crosses the end of the aged cursor before operation `at` of the lane that ends the
/// aged state, and stores the next span `gap` operations later.
#[test]
fn the_end_of_an_aged_cursor_is_replaced_by_one_group() {
    for gap in [1, 2, 5, 20, u32::MAX] {
        let (mut at, mut is_over, mut crossings) = (0, false, 0);
        while !is_over {
            let owned = heap(256, 1);
            (0..100).for_each(|run| owned.add_run_with(SMALL, run, &[]));
            let cursor = owned.core().cursor(SMALL, 0);
            cursor.restart(cursor.span().aged());
            let next = Span::new(owned.core().class(SMALL), 99, 1);
            let (mut crossed, mut stored) = (None, false);
            let other = |step: u32| {
                let now = cursor.span();
                // Also if the lane has taken all tickets, but has not crossed the end.
                if step == at && now.runs() == 0 && now.left() >= 0 {
                    assert!(now.left() == 0 || cursor.skip(now, now.left() as u32));
                    assert!(cursor.take(1).is_crossed_by(1));
                    crossed = Some(step);
                }
                if !stored && crossed.is_some_and(|crossed| step - crossed >= gap) {
                    cursor.restart(next);
                    stored = true;
                }
            };
            let ran = interrupted(other, || owned.core().end_aged(Group::alone(), SMALL, 1));
            is_over = ran.steps <= at;
            crossings += u32::from(crossed.is_some());
            if crossed.is_some() && !stored {
                cursor.restart(next);
            }
            let last = cursor.span();
            assert_eq!(ran.result, 1);
            assert!(!last.is_aged() && last.runs() > 0, "before operation {at}");
            assert_eq!(last.range() == next.range(), crossed.is_some(), "before operation {at}, {gap}");
            at += 1;
        }
        assert!((2..at).contains(&crossings), "{crossings} crossings");
    }
}

/// Repeats probes for the lanes of a mask. Returns the runs of the blocks.
fn probe_again(owned: &OwnedHeap, mask: u32, class: SizeClass, grows: bool) -> Vec<Option<u32>> {
    let done = owned.on_lanes(mask, Coords::SOLE, |owned, group| {
        let address = owned.core().probe_again(group, class, 0, grows);
        (address != 0).then(|| owned.block_at(class, address).0)
    });
    done.results
}

#[test]
fn lanes_that_find_no_block_make_as_many_runs_as_they_need() {
    let owned = heap(256, 1);
    (0..100).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    let runs = probe_again(&owned, u32::MAX, LARGE, true);
    assert!(runs.iter().flatten().all(|run| *run >= 100), "{runs:?}");
    // Eight for 32 lanes, but a lane makes one with a probability.
    let made = (100..256).filter(|slab| !owned.is_free_slab(*slab)).count();
    let served = runs.iter().flatten().count();
    assert!(served >= 16 && (served.div_ceil(4)..=48).contains(&made), "{served} blocks, {made} runs");
    // Whole warps leave it to their cursor.
    let owned = heap(256, 1);
    (0..100).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    assert!(probe_again(&owned, u32::MAX, LARGE, false).iter().all(Option::is_none));
    assert!((100..256).all(|slab| owned.is_free_slab(slab)));
}

#[test]
fn lanes_without_a_free_slab_give_up_soon() {
    let owned = heap(64, 1);
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    let alloc = || interrupted(|_| (), || owned.core().probe_again(Group::alone(), LARGE, 0, true));
    // Each probe unlists a run.
    assert!((0..60).all(|_| alloc().result == 0));
    let last = alloc();
    assert_eq!(last.result, 0);
    // No run is listed any more.
    assert!(last.steps < 20, "{} operations", last.steps);
}

#[test]
fn a_probe_prefers_the_run_with_more_free_blocks() {
    let mut emptier = 0;
    for salt in 0..200 {
        let owned = heap(256, 1);
        let most: Vec<u32> = (0..256).filter(|block| block % 4 != 0).collect();
        (0..128).for_each(|run| owned.add_run_with(SMALL, run, &[5, 37, 69, 101, 133, 165, 197, 229]));
        (128..256).for_each(|run| owned.add_run_with(SMALL, run, &most));
        emptier += u32::from(probe(&owned, SMALL, salt).expect("a block").0 >= 128);
    }
    // Three of four pairs have one.
    assert!((130..175).contains(&emptier), "{emptier} of 200");
}

#[test]
fn a_probe_that_loses_a_block_claims_another_one_of_the_word() {
    let mut lost = 0;
    for at in 0..40 {
        let owned = heap(256, 1);
        owned.add_run_with(LARGE, 5, &[1, 2]);
        let take = || _ = owned.core().runs().claim(owned.core().runs().first_word(5), 0b10);
        let (found, was_there) = interrupted_at(at, take, || probe(&owned, LARGE, 7));
        lost += u32::from(found == Ok((5, 2)));
        assert!(matches!(found, Ok((5, 1 | 2))), "{found:?} before operation {at}");
        if !was_there {
            break;
        }
    }
    assert!(lost > 2, "{lost}");
}

#[test]
fn the_last_block_of_a_run_of_one_word_unlists_it() {
    let owned = heap(256, 1);
    owned.add_run_with(LARGE, 5, &[1, 2]);
    for is_listed in [true, false] {
        assert!(probe(&owned, LARGE, 3).is_ok());
        assert_eq!(owned.hints(LARGE, 5).0, is_listed);
    }
}
