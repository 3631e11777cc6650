//! Where memory comes from, and what an allocation does while another thread changes a counter.

use super::super::handle::encode;
use super::super::test_arena::{Arena, check_disjoint};
use super::*;
use crate::kernel::DeviceHandle;
use crate::machine::Coords;
use crate::test_lanes::{interrupted, interrupted_at, on_lanes};
use std::vec::Vec;

/// Granules of 16 bytes. A lone shard has the first half of them.
const GRANULES: u64 = 1 << 16;
const HALF: u64 = GRANULES / 2;

fn arena() -> Arena {
    Arena::new(GRANULES, 4, 1)
}

/// The granule that an allocation starts in.
fn granule(arena: &Arena, size: usize, align: usize) -> Option<u64> {
    Some(arena.alloc(size, align)? / 16)
}

#[test]
fn only_large_sizes_and_alignments_take_memory_from_the_root() {
    for (size, align, is_large) in [
        (8192, 1, false),
        (8193, 1, true),
        (8193, 16, true),
        (100, 8192, false),
        (100, 1 << 14, true),
        (9000, 8192, true),
    ] {
        let arena = arena();
        let start = granule(&arena, size, align).unwrap();
        assert_eq!(start >= HALF, is_large, "{size} B aligned to {align} B");
    }
}

#[test]
fn an_arena_is_allocated_as_one_piece_but_not_more() {
    let arena = Arena::new(GRANULES, 4, 0);
    assert_eq!(arena.bump.capacity(), GRANULES * 16);
    let mut found = None;
    arena.bump.for_each_range(&mut |start, bytes| assert_eq!(found.replace((start, bytes)), None));
    assert_eq!(found, Some((arena.bump.base() as u64, GRANULES * 16)));
    assert_eq!(granule(&arena, GRANULES as usize * 16 + 1, 1), None);
    assert_eq!(granule(&arena, GRANULES as usize * 16, 1), Some(0));
}

#[test]
fn a_retired_lease_is_reset_by_a_leader_when_it_has_dropped_far() {
    let arena = arena();
    let word = &arena.shards[0].lease;
    for (dropped, is_reset) in [(RESET_BELOW + 1, false), (RESET_BELOW, false), (RESET_BELOW - 1, true)] {
        let low = Lease(Lease::RETIRED.0 - u64::from((-1 - dropped).unsigned_abs()));
        assert_eq!((low.signed_remaining(), low.is_retired()), (dropped, true));
        word.swap_relaxed(low.0);
        let request = Request { bump: &arena.bump, group: Group::alone(), granules: 1, shard: 0 };
        request.reset_retired(low);
        assert_eq!(Lease(word.load_relaxed()), if is_reset { Lease::RETIRED } else { low });
    }
}

#[test]
fn a_thread_waits_for_the_next_lease_for_a_bounded_time() {
    let arena = arena();
    let word = &arena.shards[0].lease;
    let wait = |stored: u32| {
        word.swap_relaxed(Lease::NONE.0 - 1);
        let other = |step| {
            if step == stored {
                word.swap_relaxed(Lease::NONE.0);
            }
        };
        let ran = interrupted(other, || arena.bump.await_settled(0));
        (ran.result, ran.pauses.len() as u32)
    };
    assert_eq!(
        [0, 1, 50, u32::MAX].map(wait),
        [(true, 0), (true, 1), (true, 50), (false, super::super::handle::SETTLE_POLLS)]
    );
    word.swap_relaxed(Lease::RETIRED.0 - 5);
    assert!(arena.bump.await_settled(0));
}

#[test]
fn an_allocation_waits_for_the_next_lease_and_does_not_subtract_meanwhile() {
    let arena = arena();
    let word = &arena.shards[0].lease;
    // Another thread has crossed the end of the lease, and takes its time.
    word.swap_relaxed(Lease::NONE.0 - 7);
    let next = Lease::of(Piece { start: 1000, len: 50 });
    let other = |step| {
        if step == 200 {
            assert_eq!(Lease(word.load_relaxed()).signed_remaining(), -7 - 3);
            word.swap_relaxed(next.0);
        }
    };
    let ran = interrupted(other, || granule(&arena, 3 * 16, 1));
    assert_eq!((ran.result, Lease(word.load_relaxed()).remaining()), (Some(1000), Some(47)));
}

#[test]
fn of_two_remainders_of_equal_length_the_first_is_kept() {
    let arena = arena();
    let shard = &arena.shards[0];
    let piece = |start, len| Lease::of(Piece { start, len });
    for (left, kept, wasted) in [
        (piece(100, 5), piece(100, 5), 0),
        (piece(200, 5), piece(100, 5), 5),
        (piece(300, 6), piece(300, 6), 10),
        (piece(400, 2), piece(300, 6), 12),
        (piece(500, 0), piece(300, 6), 12),
    ] {
        arena.bump.keep_tail(0, left);
        assert_eq!((Lease(shard.tail.load_relaxed()), arena.root.wasted()), (kept, wasted));
    }
}

#[test]
fn the_last_granules_of_the_root_go_to_one_of_two_threads() {
    for (others, at) in [1, 90, 95, 100].into_iter().flat_map(|others| (0..9).map(move |at| (others, at))) {
        let arena = Arena::new(100, 4, 0);
        let mut pieces = Vec::new();
        let other = || pieces.push(arena.bump.take_from_root(others, others, others));
        let (piece, _) = interrupted_at(at, other, || arena.bump.take_from_root(10, 10, 10));
        pieces.push(piece);
        assert!(pieces.iter().all(|piece| [0, 10, others].contains(&piece.len)), "{pieces:?}");
        let is_sure = pieces.iter().filter(|piece| piece.is_none()).all(|piece| *piece == Piece::NOTHING);
        assert!(is_sure, "{others} before {at}: {pieces:?}");
        check_disjoint(&arena, pieces.iter().map(|piece| (16 * piece.start, 16 * piece.len)).collect());
    }
}

#[test]
fn lanes_with_different_sizes_get_a_piece_of_the_tail_or_of_the_next_lease() {
    let arena = arena();
    arena.shards[0].lease.swap_relaxed(Lease::of(Piece { start: 0, len: 10 }).0);
    // The first two lanes fit.
    let sizes = [4, 5, 6, 7];
    let done = on_lanes(0b1111, Coords::SOLE, |group| {
        let size = sizes[group.rank() as usize];
        (16 * granule(&arena, 16 * size as usize, 1).unwrap(), 16 * size)
    });
    assert_eq!(done.results[..2], [(0, 64), (64, 80)]);
    assert!(done.results[2..].iter().all(|(start, _)| *start >= 16 * HALF));
    check_disjoint(&arena, done.results);
}

/// Lanes that need these granules allocate from the root, which has 12, or from the shards.
fn anywhere(arena: &Arena, granules: &[u64]) -> Vec<Option<u64>> {
    let alloc = |group: Group| {
        let arena: &Arena = arena;
        let start = arena.bump.alloc_anywhere(group, granules[group.rank() as usize]);
        (start != NO_START).then_some(start)
    };
    // Lanes 3, 5, 6 and so on.
    on_lanes([0, 8, 0b10_1000, 0b110_1000][granules.len()], Coords::SOLE, alloc).results
}

#[test]
fn lanes_get_one_piece_for_all_or_one_after_the_other() {
    for (granules, starts, left) in [
        (&[2, 3][..], &[Some(0), Some(2)][..], 7),
        (&[5, 5, 2], &[Some(0), Some(5), Some(10)], 0),
        (&[4, 5, 6], &[Some(0), Some(4), None], 3),
        (&[20, 3, 20], &[None, Some(0), None], 9),
        (&[20, 30, 3], &[None, None, Some(0)], 9),
        (&[12], &[Some(0)], 0),
        (&[13], &[None], 12),
    ] {
        let arena = Arena::new(12, 4, 0);
        assert_eq!(anywhere(&arena, granules), starts, "{granules:?}");
        assert_eq!(arena.root.remaining(), Some(left), "{granules:?}");
    }
}

/// An arena of which only these shards have granules, 100 for each number.
fn with_shards(shards: u32, full: &[u32]) -> Arena {
    let arena = Arena::new(1000, 4, shards);
    assert_eq!(arena.root.remaining(), Some(1000));
    assert_eq!(arena.bump.take_from_root(1000, 1000, 1000).len, 1000);
    for shard in full {
        let piece = Piece { start: 100 * u64::from(*shard), len: 10 };
        arena.shards[*shard as usize].lease.swap_relaxed(Lease::of(piece).0);
    }
    arena
}

#[test]
fn lanes_look_at_all_shards() {
    for full in 0..7 {
        let arena = with_shards(7, &[full]);
        let first = 100 * u64::from(full);
        assert_eq!(anywhere(&arena, &[2, 3, 4]), [0, 2, 5].map(|n| Some(first + n)));
        assert_eq!(anywhere(&arena, &[2, 2]), [None; 2]);
        assert_eq!(anywhere(&arena, &[1]), [Some(first + 9)]);
    }
}

#[test]
fn a_search_is_not_sure_while_a_shard_is_between_two_leases() {
    for shard in [0, 2, 6] {
        let arena = with_shards(7, &[]);
        arena.shards[shard].lease.sub_relaxed(1);
        assert_eq!(anywhere(&arena, &[5]), [None]);
        assert_eq!(arena.root.ceiling.load_relaxed(), u64::MAX);
        arena.shards[shard].lease.swap_relaxed(Lease::NONE.0);
        assert_eq!(anywhere(&arena, &[5]), [None]);
        assert_eq!(arena.root.ceiling.load_relaxed(), 5);
    }
}

#[test]
fn lanes_of_one_warp_allocate_in_a_row() {
    let arena = arena();
    let alloc = |group: Group| granule(&arena, 16 * (1 + group.rank() as usize), 1);
    assert_eq!(on_lanes(0b111, Coords::SOLE, alloc).results, [0, 1, 3].map(Some));
    let alloc = |group: Group| granule(&arena, 16 * (1 + group.rank() as usize % 2), 1);
    let done = on_lanes(u32::MAX, Coords::SOLE, alloc).results;
    assert!(done.into_iter().eq((0..32).map(|lane| Some(6 + lane / 2 * 3 + lane % 2))));
}

#[test]
fn a_lease_has_a_least_length_while_the_root_has_more() {
    // Of 2 shards, each one's share is 500 granules, or 5000.
    for (left, len) in [(1000, 1000), (10_000, 4998)] {
        let arena = Arena::new(1 << 16, 4, 2);
        let all = arena.root.remaining().unwrap();
        assert!(!arena.bump.take_from_root(all - left, 1, 1).is_none());
        arena.bump.store_next_lease(1, 7);
        assert_eq!(Lease(arena.shards[1].lease.load_relaxed()).remaining(), Some(len));
        assert_eq!(arena.root.remaining(), Some(left - u64::from(len)));
    }
}

#[test]
fn a_root_below_zero_has_nothing_until_it_is_settled() {
    let arena = Arena::new(100, 4, 0);
    arena.root.remaining.sub_relaxed(101);
    assert_eq!((arena.root.remaining(), arena.bump.take_from_root(1, 1, 1)), (None, Piece::UNSETTLED));
}

#[test]
fn a_shard_gets_no_lease_but_is_not_retired_while_the_root_is_below_zero() {
    let arena = Arena::new(1000, 4, 1);
    let (left, used) = (arena.root.remaining().unwrap(), arena.shards[0].remaining().unwrap());
    assert!(arena.alloc(16 * used as usize, 1).is_some());
    // Another thread is between the subtraction and the store of the rest.
    arena.root.remaining.sub_relaxed(left + 1);
    arena.bump.store_next_lease(0, 1);
    arena.root.remaining.swap_relaxed(encode(left));
    // The next allocation gets a lease, and what is left of it later ones.
    assert_eq!(granule(&arena, 16, 1), Some(used));
    assert_eq!(arena.shards[0].remaining(), Some(left - 1));
    // It stays retired when the root has nothing (I4).
    (0..2).for_each(|_| arena.bump.store_next_lease(0, 1));
    assert!(Lease(arena.shards[0].lease.load_relaxed()).is_retired());
}
