//! Claims of free slabs, by one lane and by a group.

use super::*;
use crate::heap::layout::bits::total_words;
use crate::machine::Coords;
use crate::sync::AtomicU32;
use crate::test_lanes::{ForLanes, interrupted, interrupted_at, on_lanes};
use core::cell::Cell;
use std::vec::Vec;

/// Calls `test` with a set in which the slabs `free` are free.
fn with_slabs<R>(
    slabs: u32,
    free: impl IntoIterator<Item = u32>,
    test: impl FnOnce(FreeSlabs<'_>) -> R,
) -> R {
    let words: Vec<AtomicU32> = (0..total_words(slabs)).map(|_| AtomicU32::new(0)).collect();
    let moves = Moves::new();
    // SAFETY: as many words as it has.
    let set = unsafe { IndexSet::new(words.as_ptr(), slabs) };
    free.into_iter().for_each(|slab| set.insert(slab));
    test(FreeSlabs { set, slabs, moves: &moves })
}

fn free(slabs: FreeSlabs<'_>) -> Vec<u32> {
    (0..slabs.slabs).filter(|slab| slabs.set.contains(*slab)).collect()
}

/// Claims by a lone lane.
fn claim(slabs: FreeSlabs<'_>, from: u32, unit: u32, most: u32, search: SlabSearch) -> (u32, u32) {
    let Slabs { first, len } = slabs.claim(Group::alone(), from, unit, most, search);
    (first, len)
}

#[test]
fn a_claim_of_many_words_takes_all_slabs_up_to_its_limit() {
    for (most, expected) in [(31, 31), (32, 32), (33, 33), (256, 256), (600, 600), (2000, 768)] {
        let left = with_slabs(1024, 0..1024, |slabs| {
            assert_eq!(claim(slabs, 256, 1, most, SlabSearch::Full), (256, expected));
            free(slabs)
        });
        assert!(left.into_iter().eq((0..256).chain(256 + expected..1024)), "{most}");
    }
}

#[test]
fn a_claim_of_many_words_ends_at_a_slab_that_is_taken() {
    // The 300th slab from slab 32 on is taken. A run has two slabs, or four.
    let all = || (0..1024).filter(|slab| *slab != 332);
    for (unit, len) in [(1, 300), (2, 300), (8, 296)] {
        let left = with_slabs(1024, all(), |slabs| {
            assert_eq!(claim(slabs, 40, unit, 700, SlabSearch::Full), (32, len));
            free(slabs)
        });
        assert!(left.into_iter().eq(all().filter(|slab| !(32..32 + len).contains(slab))));
    }
}

#[test]
fn a_claim_of_slabs_is_a_move_that_its_caller_ends() {
    for most in [1, 32, 33] {
        with_slabs(64, 0..64, |slabs| {
            assert_eq!((claim(slabs, 0, 1, most, SlabSearch::Full).1, slabs.moves.open()), (most, 1));
            slabs.moves.end();
            // Nothing in a row of 65, and nothing at all.
            assert_eq!((claim(slabs, 0, 65, 65, SlabSearch::Full).1, slabs.moves.open()), (0, 0));
        });
    }
}

#[test]
fn a_picky_claim_takes_a_row_of_all_that_it_asks_for() {
    // Rows of 7 and 11 slabs. Nine slabs in runs of four are two runs.
    let rows = (3..10).chain(40..51);
    with_slabs(64, rows.clone(), |slabs| assert_eq!(claim(slabs, 0, 4, 9, SlabSearch::Brief), (40, 8)));
    with_slabs(64, rows.clone(), |slabs| assert_eq!(claim(slabs, 0, 4, 9, SlabSearch::Full), (3, 4)));
    with_slabs(64, rows, |slabs| assert_eq!(claim(slabs, 0, 4, 13, SlabSearch::Brief), (0, 0)));
}

#[test]
fn a_picky_claim_looks_at_a_few_words_only() {
    // Single slabs, then a row of two in word `w`.
    let free = |w: u32| (0..w * 32).step_by(2).chain([w * 32, w * 32 + 1]);
    for (w, is_found) in [(LOOKS - 1, true), (LOOKS, false)] {
        with_slabs(4096, free(w), |slabs| {
            assert_eq!(claim(slabs, 0, 1, 2, SlabSearch::Brief), if is_found { (w * 32, 2) } else { (0, 0) });
            assert_eq!(claim(slabs, 0, 2, 2, SlabSearch::Full).1, if is_found { 0 } else { 2 });
        });
    }
}

#[test]
fn lanes_look_at_consecutive_words_and_all_get_the_first_row() {
    // Single slabs in five words, then rows of three and of 32.
    let rows = || (0..160).step_by(2).chain(164..167).chain(192..224);
    for (most, first, len) in [(3, 164, 3), (4, 192, 4), (32, 192, 32)] {
        with_slabs(256, rows(), |slabs| {
            let slabs = ForLanes::new(slabs);
            let done = on_lanes(1 << 3 | 1 << 5 | 1 << 6, Coords::SOLE, |group| {
                slabs.get().claim(group, 0, 1, most, SlabSearch::Brief)
            });
            assert_eq!(done.results, [Slabs { first, len }; 3]);
            let left = rows().filter(|slab| !(first..first + len).contains(slab));
            assert!(free(*slabs.get()).into_iter().eq(left));
        });
    }
}

#[test]
fn a_row_in_any_word_is_one_for_a_claim() {
    let has = |slabs: FreeSlabs<'_>, unit| {
        let found = [slabs.has(unit), slabs.scan(Group::alone(), unit)];
        assert_eq!(found[0], found[1]);
        found[0]
    };
    with_slabs(256, (0..160).step_by(2).chain([170, 171]), |slabs| {
        assert_eq!([1, 2, 3].map(|unit| has(slabs, unit)), [true, true, false]);
    });
}

#[test]
fn aligned_slabs_are_claimed_across_words() {
    let row = || (0..4).chain(40..85).chain(90..128);
    for (len, step, first) in [(40, 1, 40), (45, 1, 40), (40, 2, 40), (40, 4, 40), (37, 16, 48), (38, 16, 0)]
    {
        with_slabs(128, row(), |slabs| {
            let expected = if first == 0 { Slabs::NONE } else { Slabs { first, len } };
            assert_eq!(slabs.claim_aligned(0, len, step), expected, "{len} slabs at multiples of {step}");
            let left = row().filter(|slab| first == 0 || !(first..first + len).contains(slab));
            assert!(free(slabs).into_iter().eq(left));
        });
    }
    with_slabs(128, row(), |slabs| {
        assert_eq!([slabs.claim_aligned(0, 46, 1), slabs.claim_aligned(0, 129, 1)], [Slabs::NONE; 2]);
        assert_eq!(slabs.claim_aligned(0, 38, 2), Slabs { first: 40, len: 38 });
        assert_eq!(slabs.claim_aligned(0, 38, 2), Slabs { first: 90, len: 38 });
    });
}

#[test]
fn aligned_slabs_are_claimed_from_a_place_on_and_around_the_end() {
    let row = || (0..44).chain(80..128);
    // Also a row that begins before the place and ends behind it.
    for (from, len, step, first) in [
        (0, 8, 1, 0),
        (5, 8, 1, 5),
        (5, 8, 4, 8),
        (40, 8, 1, 80),
        (121, 8, 1, 0),
        (127, 44, 1, 0),
        (81, 48, 1, 80),
    ] {
        with_slabs(128, row(), |slabs| {
            assert_eq!(slabs.claim_aligned(from, len, step), Slabs { first, len }, "{len} slabs from {from}");
        });
    }
    with_slabs(128, row(), |slabs| assert_eq!(slabs.claim_aligned(100, 49, 1), Slabs::NONE));
}

#[test]
fn a_claim_passes_over_taken_slabs_by_words_and_over_short_rows_at_once() {
    let steps = |free: Vec<u32>, len| {
        with_slabs(256, free, |slabs| {
            let ran = interrupted(|_| (), || slabs.claim_aligned(0, len, 1));
            (ran.result, ran.steps)
        })
    };
    // A look at each word, twice.
    assert_eq!(steps((0..256).filter(|slab| slab % 32 != 31).collect(), 40), (Slabs::NONE, 2 * 7));
    // If no slab is free, a look at the word, and a search of the two levels. Then the same look,
    // one at the word for the next slab, and a scan of the other seven, which reads eight.
    assert_eq!(steps([].into(), 10), (Slabs::NONE, 1 + 2 + 1 + 1 + 8));
    // A look at the first row and one behind it, and a search of three words. A look at the two
    // words of the second row, the begin and the end of a move, and two atomics.
    let expected = (Slabs { first: 32, len: 40 }, 2 + 3 + 2 + 4);
    assert_eq!(steps((0..20).chain(32..72).collect(), 40), expected);
}

#[test]
fn slabs_of_which_one_is_taken_are_not_claimed() {
    // Taken in the first word, at the start of the second one, and in it.
    for (taken, found) in [(20, 4), (32, 16), (37, 21)] {
        let rest = || (16..64).filter(|slab| *slab != taken);
        with_slabs(64, rest(), |slabs| {
            assert_eq!(slabs.claim_at(16, 40), found);
            assert!(free(slabs).into_iter().eq(rest()));
            assert_eq!(slabs.claim_at(16, found), found);
            assert!(free(slabs).into_iter().eq(rest().filter(|slab| *slab >= 16 + found)));
        });
    }
}

#[test]
fn aligned_slabs_are_found_although_another_thread_claims_some() {
    for at in 0.. {
        let was_there = with_slabs(128, 3..128, |slabs| {
            // The other thread claims a slab in the middle of the first row.
            let claimed = Cell::new(0);
            let other = || claimed.set(slabs.set.remove_bits(0, 1 << 23));
            let (got, was_there) = interrupted_at(at, other, || slabs.claim_aligned(0, 30, 1));
            let first = if claimed.get() == 0 { 3 } else { 24 };
            assert_eq!(got, Slabs { first, len: 30 });
            let is_left = |slab: &u32| !(first..first + 30).contains(slab);
            let rest = (3..128).filter(is_left).filter(|slab| *slab != 23 || claimed.get() == 0);
            assert!(free(slabs).into_iter().eq(rest));
            was_there
        });
        if !was_there {
            break;
        }
    }
}

#[test]
fn a_claim_looks_again_at_a_word_that_another_thread_changed() {
    for at in 0.. {
        let was_there = with_slabs(64, 0..32, |slabs| {
            let other = || assert_eq!(slabs.set.remove_bits(0, 1 << 31), 1 << 31);
            let (got, was_there) = interrupted_at(at, other, || claim(slabs, 0, 1, 4, SlabSearch::Full));
            assert_eq!(got, (0, 4));
            was_there
        });
        if !was_there {
            break;
        }
    }
}

#[test]
fn a_claim_passes_over_a_word_that_changes_all_the_time() {
    with_slabs(64, 0..64, |slabs| {
        // No two changes in a row restore the word.
        let other = |at: u32| {
            slabs.set.word(0).xor_acq_rel(1 << (30 + at % 2));
        };
        let ran = interrupted(other, || claim(slabs, 0, 1, 4, SlabSearch::Full));
        assert_eq!((ran.result, free(slabs).len() >= 59), ((32, 4), true));
        // The search for the word, the look, and the attempt to claim, which is a move.
        assert!((2 * ATTEMPTS..6 * ATTEMPTS).contains(&ran.steps), "{}", ran.steps);
    });
}

#[test]
fn the_slabs_of_runs_that_end_in_the_next_word_are_inserted() {
    with_slabs(128, [], |slabs| {
        slabs.insert_mask(64, 0b1011 << 30);
        assert_eq!(free(slabs), [94, 95, 97]);
        slabs.insert(Slabs { first: 20, len: 50 });
        assert!(free(slabs).into_iter().eq((20..70).chain([94, 95, 97])));
    });
}
