//! Blocks for groups of lanes, and what they cost.

use super::{CAPACITY, ForLanes, LAST, with_faults, with_pool};
use crate::freelist::alloc::Reservation;
use crate::freelist::alloc::Taken;
use crate::freelist::{FreeList, Region};
use crate::kernel::DeviceHandle;
use crate::lanes::Group;
use crate::machine::Coords;
use crate::test_lanes::{Done, interrupted_at, on_lanes};
use crate::units::BlockIndex;
use std::vec::Vec;

/// Lanes 3, 5 and 6.
const LANES: u32 = 0b110_1000;

/// Takes the blocks `0..n` of the pool.
fn take_first(pool: &FreeList, n: u32) {
    for block in 0..n {
        assert_eq!(pool.take(block / 128, 1).0, block);
    }
}

/// Each lane of a warp frees the block that `block` names. Returns what that took.
fn free(pool: &FreeList, lanes: u32, block: impl Fn(u32) -> u32 + Sync) -> Done<()> {
    let pool = ForLanes::new(*pool);
    // SAFETY: no thread uses the blocks, which have no memory.
    on_lanes(lanes, Coords::SOLE, |group| unsafe { pool.get().free_index(BlockIndex(block(group.rank()))) })
}

/// The blocks below `n` that are free.
fn free_blocks(pool: &FreeList, n: u32) -> Vec<u32> {
    (0..n).filter(|block| pool.word(block / 32).load_relaxed() >> (block % 32) & 1 == 0).collect()
}

#[test]
fn a_warp_frees_the_blocks_of_a_word_by_two_atomics() {
    with_pool(|pool| {
        take_first(pool, 96);
        let done = free(pool, u32::MAX, |rank| 32 + rank);
        assert_eq!((done.atomics, done.collectives), (2, 3));
        assert!(free_blocks(pool, 96).into_iter().eq(32..64));
        assert_eq!(pool.region(0).free(), 64);
    });
}

#[test]
fn a_warp_frees_blocks_of_two_words_by_two_atomics_each() {
    for first in [8, 20] {
        with_pool(|pool| {
            take_first(pool, 96);
            assert_eq!(free(pool, u32::MAX, |rank| first + rank).atomics, 4);
            assert!(free_blocks(pool, 96).into_iter().eq(first..first + 32));
        });
        with_pool(|pool| {
            take_first(pool, 96);
            // In another order, and by a part of a warp.
            assert_eq!(free(pool, u32::MAX >> 1, |rank| first + (7 * rank) % 31).atomics, 4);
            assert!(free_blocks(pool, 96).into_iter().eq(first..first + 31));
        });
    }
}

#[test]
fn lanes_whose_blocks_are_scattered_free_them_one_by_one() {
    with_pool(|pool| {
        take_first(pool, 512);
        let done = free(pool, u32::MAX >> 16, |rank| 32 * rank + 5);
        assert_eq!((done.atomics, done.collectives), (2 * 16, 4));
        assert!(free_blocks(pool, 512).into_iter().eq((0..16).map(|rank| 32 * rank + 5)));
    });
}

#[test]
fn a_lane_without_a_block_searches_from_a_word_of_its_own() {
    with_pool(|pool| {
        (0..=LAST).filter(|r| *r != 2).for_each(|r| assert_eq!(pool.reserve(r, 128).owed, 0));
        // The cursor of the region is at its second word.
        assert_eq!(pool.take(2, 32).0, 256);
        let lanes = ForLanes::new(pool);
        let search = |first| {
            let search = |group| lanes.get().search(group, first).map(|block| block.0);
            on_lanes(LANES, Coords::SOLE, search).results
        };
        assert_eq!(search(7), [Some(288), Some(320), Some(352)]);
        // Now at its second word and three blocks.
        assert_eq!(search(2), [Some(289), Some(321), Some(353)]);
    });
}

#[test]
fn lanes_that_the_cursor_leads_to_no_block_search_the_region() {
    with_pool(|pool| {
        (0..=LAST).filter(|r| *r != 2).for_each(|r| assert_eq!(pool.reserve(r, 128).owed, 0));
        // Blocks 0 and 2 of the region are taken without a reservation.
        pool.word(8).or_relaxed(0b101);
        let lanes = ForLanes::new(pool);
        let alloc = |group: Group| {
            let pool = lanes.get();
            let (start, taken) = if group.leads() { pool.take(2, 3) } else { (u32::MAX, Taken::NONE) };
            assert_eq!(start, u32::MAX);
            pool.alloc_slow(group, 2, taken).map(|block| block.0)
        };
        let blocks = on_lanes(LANES, Coords::SOLE, alloc).results;
        // The first lane has the block that was taken; the others look in the words after it.
        assert_eq!(blocks, [Some(257), Some(288), Some(320)]);
    });
}

#[test]
fn a_failed_allocation_shares_its_scan() {
    with_pool(|pool| {
        (0..=LAST).for_each(|r| assert_eq!(pool.reserve(r, 128).owed, 0));
        let lanes = ForLanes::new(pool);
        let alloc = |group| lanes.get().alloc_slow(group, 3, Taken::NONE);
        assert_eq!(on_lanes(LANES, Coords::SOLE, alloc).results, [None; 3]);
        // One scan has begun, and found the pool empty.
        assert_eq!(Region::to_words(pool.region(3))[1..3], [1, 3]);
    });
}

#[test]
fn a_reservation_with_a_debt_claims_nothing_yet() {
    with_pool(|pool| {
        // 3 blocks are left; another thread reserves 2 of them.
        assert_eq!(pool.reserve(0, 125).count, 125);
        let other = || assert_eq!(pool.reserve(0, 2).count, 2);
        let (got, _) = interrupted_at(1, other, || pool.take(0, 3));
        let reservation = Reservation { count: 1, owed: 2, cursor: 127 };
        assert_eq!((got.1.count(), got.1.reservation()), (0, reservation));
        pool.credit(0, 1);
        let settled = got.1.settled(pool, 0).reservation();
        assert_eq!(settled, Reservation { count: 2, owed: 0, ..reservation });
    });
}

#[test]
fn a_handle_names_the_memory_of_its_pool() {
    with_pool(|pool| {
        let mut found = None;
        pool.for_each_range(&mut |start, bytes| assert_eq!(found.replace((start, bytes)), None));
        assert_eq!(found, Some((1 << 20, u64::from(CAPACITY) * 16)));
    });
}

#[test]
fn lanes_allocate_in_a_row() {
    with_pool(|pool| {
        let pool = ForLanes::new(*pool);
        let alloc = |_| pool.get().alloc_index().map(|block| block.0);
        assert_eq!(on_lanes(LANES, Coords::SOLE, alloc).results, [0, 1, 2].map(Some));
        let all = on_lanes(u32::MAX, Coords::SOLE, alloc).results;
        assert!(all.into_iter().eq((3..35).map(Some)));
    });
}

#[test]
fn a_block_that_is_free_or_freed_by_two_lanes_is_recorded_once() {
    for (blocks, expected, faults) in [
        ([5, 6, 7], &[5, 6, 7][..], &[6][..]),
        ([5, 5, 9], &[5, 9], &[5]),
        ([5, 40, 9], &[5, 9, 40], &[]),
        ([6, 40, 9], &[9, 40], &[6]),
        ([40, 6, 72], &[40, 72], &[6]),
    ] {
        let (freed, mut found) = with_faults(|pool| {
            take_first(pool, 96);
            // Block 6 is free already, which the region does not count.
            pool.word(0).and_release(!(1 << 6));
            free(pool, LANES, |rank| blocks[rank as usize]);
            let faults = || pool.faults().faults();
            assert!(faults().all(|fault| fault.seen.word.is_some()));
            let found: Vec<_> = faults().map(|fault| (fault.detail, fault.address)).collect();
            let counted = pool.region(0).free() as u32 - 32;
            let free = free_blocks(pool, 96);
            assert_eq!(counted, free.len() as u32 - 1);
            (free, found)
        });
        found.sort();
        assert!(
            found.into_iter().eq(faults.iter().map(|block| (*block, (1 << 20) + 16 * block))),
            "{blocks:?}"
        );
        assert!(expected.iter().all(|block| freed.contains(block)));
    }
}
