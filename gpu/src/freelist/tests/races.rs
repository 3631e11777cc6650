//! Operations of the pool while another thread changes what they read.

use super::{LAST, with_faults, with_pool};
use crate::fault::FaultCheck;
use crate::freelist::alloc::Look;
use crate::freelist::alloc::PASSES;
use crate::freelist::handle::POLL_NANOS;
use crate::lanes::Group;
use crate::test_lanes::{interrupted, interrupted_at};

#[test]
fn a_block_that_moves_behind_a_scan_is_found() {
    for at in 0.. {
        let mut was_there = false;
        with_pool(|pool| {
            (0..LAST).for_each(|r| assert_eq!(pool.reserve(r, 128).count, 128));
            assert_eq!(pool.reserve(LAST, 96).count, 96);
            pool.credit(LAST, 1);
            // The only free block is taken, and one of the first region is freed.
            let other = || {
                assert_eq!(pool.reserve(LAST, 1).count, 1);
                pool.credit(0, 1);
            };
            let scan = || pool.scan_in_part(Group::alone(), 0);
            let (look, reached) = interrupted_at(at, other, scan);
            assert!(!matches!(look, Look::Empty { .. }), "before operation {at}");
            was_there = reached;
        });
        if !was_there {
            break;
        }
    }
}

#[test]
fn a_pool_that_changes_all_the_time_is_searched_a_few_times() {
    with_pool(|pool| {
        (0..=LAST).for_each(|r| assert_eq!(pool.reserve(r, 128).owed, 0));
        // The cursor of a region moves without a block that a scan can see.
        let other = |_| {
            pool.credit(9, 1);
            assert_eq!(pool.reserve(9, 1).count, 1);
        };
        let ran = interrupted(other, || pool.search(Group::alone(), 0));
        assert_eq!((ran.result, ran.pauses.len()), (None, 8));
    });
}

#[test]
fn a_search_that_always_loses_its_block_gives_up() {
    with_pool(|pool| {
        (0..=LAST).for_each(|r| assert_eq!(pool.reserve(r, 128).owed, 0));
        pool.credit(0, 1);
        // A block is there when the region is scanned, and is gone when it is reserved.
        let other = |step| {
            if step % 2 == 1 {
                assert_eq!(pool.reserve(0, 1).count, 1);
            } else if step > 0 {
                pool.credit(0, 1);
            }
        };
        let ran = interrupted(other, || pool.search(Group::alone(), 0));
        assert_eq!((ran.result, ran.steps), (None, 2 * 64));
    });
}

#[test]
fn a_region_without_the_block_that_it_promised_is_searched_for_a_while() {
    with_faults(|pool| {
        (0..4).for_each(|w| assert_eq!(pool.word(w).or_relaxed(u32::MAX), 0));
        let ran = interrupted(|_| (), || pool.claim_one(0, 0));
        let fault = pool.faults().faults().next().unwrap();
        assert_eq!((ran.result, fault.check), (None, FaultCheck::NoClearBit));
        assert_eq!(fault.seen.word, Some(pool.region(0).word.load_relaxed()));
        // The fault waits longer each time.
        let passes = ran.pauses.iter().filter(|nanos| **nanos == POLL_NANOS).count();
        assert_eq!(passes as u32, PASSES);
    });
}

#[test]
fn a_bit_that_another_thread_takes_meanwhile_is_not_claimed() {
    for at in 0.. {
        let mut was_there = false;
        with_pool(|pool| {
            // Both reserve a block, and the first free bit is the same.
            assert_eq!(pool.reserve(0, 2).count, 2);
            let mut other = None;
            let (own, reached) = interrupted_at(at, || other = pool.claim_one(0, 0), || pool.claim_one(0, 0));
            let other = if reached { other } else { pool.claim_one(0, 0) };
            assert!(own.is_some() && other.is_some() && own != other, "before operation {at}");
            was_there = reached;
        });
        if !was_there {
            break;
        }
    }
}
