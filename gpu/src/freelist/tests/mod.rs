//! What the leader of a warp takes for all lanes, without a warp.

mod lanes;
mod order;
mod races;

use super::alloc::Look;
use super::alloc::Reservation;
use super::alloc::{SCATTERED, Taken};
use super::{FreeList, Geometry, Region};
use crate::fault::FaultLog;
use crate::lanes::Group;
use crate::sync::AtomicU32;
use crate::test_lanes::ForLanes;
use std::boxed::Box;
use std::vec::Vec;

/// Regions of four words, the last one of three.
const CAPACITY: u32 = 1023 * 32;
const LAST: u32 = 255;

/// Calls `test` with a pool whose memory is never accessed.
fn with_pool(test: impl FnOnce(&FreeList)) {
    let faults = with_faults(|pool| {
        test(pool);
        pool.faults().count()
    });
    assert_eq!(faults, 0);
}

/// Calls `test` with such a pool, and permits faults.
fn with_faults<R>(test: impl FnOnce(&FreeList) -> R) -> R {
    let geometry = Geometry::new(CAPACITY, 16).unwrap();
    let regions: Vec<Region> = (0..geometry.regions()).map(|r| Region::new(geometry.blocks_in(r))).collect();
    let bitmap: Vec<AtomicU32> = (0..geometry.words()).map(|_| AtomicU32::new(0)).collect();
    let faults = FaultLog::default();
    let base = core::ptr::without_provenance_mut(1 << 20);
    let mut shared = Box::<FreeList>::new_uninit();
    let (regions, bitmap, copy) = (regions.as_ptr(), bitmap.as_ptr(), shared.as_ptr());
    // SAFETY: all parts outlive the handle.
    let pool = unsafe { FreeList::from_raw_parts(base, geometry, regions, bitmap, &raw const faults, copy) };
    shared.write(pool);
    test(&pool)
}

/// The indices of the blocks that are taken.
fn blocks(pool: &FreeList, r: u32, taken: Taken) -> Vec<u32> {
    (0..taken.count()).map(|rank| pool.nth_taken(r, taken, rank).0).collect()
}

#[test]
fn blocks_are_taken_in_a_row_across_words() {
    with_pool(|pool| {
        let first = 2 * 128;
        for (n, wanted) in [(0, 20), (20, 20), (40, 24), (64, 32), (96, 31)] {
            let (start, taken) = pool.take(2, wanted);
            assert_eq!((start, taken.count()), (first + n, wanted));
            assert!(blocks(pool, 2, taken).into_iter().eq(start..start + wanted));
        }
        // One block is left for 20 lanes.
        let (start, taken) = pool.take(2, 20);
        assert_eq!((start, taken.reservation().count, blocks(pool, 2, taken)), (SCATTERED, 1, [383].into()));
        assert_eq!(pool.take(2, 1).1.reservation(), Reservation::NONE);
        assert!((8..12).all(|w| pool.word(w).load_relaxed() == u32::MAX));
    });
}

#[test]
fn blocks_are_scattered_where_the_region_ends_or_some_are_taken() {
    with_pool(|pool| {
        // The cursor is at the last 10 blocks of the last region.
        let start = LAST * 128;
        for _ in 0..2 {
            assert_eq!(pool.take(LAST, 30).1.count(), 30);
        }
        assert_eq!(pool.take(LAST, 26).0, start + 60);
        for block in 0..50 {
            pool.word((start + block) / 32).and_release(!(1 << (block % 32)));
        }
        pool.credit(LAST, 50);
        let (scattered, taken) = pool.take(LAST, 20);
        assert_eq!(scattered, SCATTERED);
        assert!(blocks(pool, LAST, taken).into_iter().eq((start + 86..start + 96).chain(start..start + 10)));
        // One of the next blocks is taken.
        pool.word(start / 32).or_relaxed(1 << 12);
        let (scattered, taken) = pool.take(LAST, 5);
        assert_eq!((scattered, taken.count(), taken.reservation().count), (SCATTERED, 4, 5));
        assert_eq!(blocks(pool, LAST, taken), [10, 11, 13, 14].map(|block| start + block));
        // The lane without a block searches the region, from its own word on.
        pool.word(start / 32 + 1).and_release(!(1 << 3));
        assert_eq!(pool.claim_one(LAST, 0).map(|block| block.0), Some(start + 15));
        assert_eq!([32, 64].map(|cursor| pool.claim_one(LAST, cursor).unwrap().0), [start + 32, start + 16]);
    });
}

#[test]
fn what_a_region_owes_is_cancelled_unless_blocks_were_freed() {
    let reservation = Reservation { count: 32, owed: 31, cursor: u32::MAX };
    assert_eq!(Reservation::unpack(reservation.pack()), reservation);
    with_pool(|pool| {
        for (freed, filled) in [(0, 0), (3, 3), (8, 5)] {
            let there = pool.region(0).free();
            // A thread reserves 5 blocks more than there are.
            pool.region(0).word.sub_relaxed(there as u64 + 5);
            pool.credit(0, freed);
            let settled = pool.settle(0, Reservation { count: 2, owed: 5, cursor: 7 });
            assert_eq!(settled, Reservation { count: 2 + filled, owed: 0, cursor: 7 });
            assert_eq!(pool.region(0).free(), (freed - filled) as i32);
            assert_eq!(pool.settle(0, settled), settled);
            pool.credit(0, there as u32 - (freed - filled));
        }
    });
}

#[test]
fn a_scan_finds_the_next_region_with_blocks() {
    with_pool(|pool| {
        let scan = |first| match pool.scan_in_part(Group::alone(), first) {
            Look::Candidate(r) => Some(r),
            Look::Empty { .. } => None,
            Look::Unsettled => panic!("no other thread reserves blocks"),
        };
        assert_eq!([0, 7, LAST].map(scan), [Some(0), Some(7), Some(LAST)]);
        assert!((0..=LAST).all(|r| pool.reserve(r, 128).owed == 0));
        assert_eq!([0, 7, LAST].map(scan), [None; 3]);
        for r in [0, 5, LAST] {
            pool.credit(r, 1);
            assert_eq!([0, 7, LAST].map(scan), [Some(r); 3]);
            assert_eq!(pool.reserve(r, 1).count, 1);
        }
    });
}
