//! Whichever lanes claim and release the blocks of a warp, each lane's use of its block is between
//! the two (I3), and a free is over when a lane comes back from it.

use super::{ForLanes, LAST, with_pool};
use crate::freelist::FreeList;
use crate::machine::Coords;
use crate::test_lanes::{Order, on_ordered_lanes};
use crate::units::BlockIndex;

/// Lanes that are a full warp, and some that are not.
const MASKS: [u32; 3] = [u32::MAX, 0x00ff_3f00, 1];

/// Blocks of the pool that the test uses.
const WORDS: u32 = 16;

/// Allocates and frees by the lanes of a warp.
fn check(pool: &FreeList, mask: u32) {
    let order = Order::new(|| (0..WORDS).map(|w| !pool.word(w).load_relaxed()).collect(), || 0);
    let (order, lanes) = (&order, &ForLanes::new(*pool));
    let alloc = || {
        let block = lanes.get().alloc_index().expect("there is a block");
        order.uses(block.0);
        block
    };
    let free = |block: BlockIndex| {
        order.uses(block.0);
        // SAFETY: the block is not used any more.
        unsafe { lanes.get().free_index(block) };
        order.has_freed(block.0);
    };
    on_ordered_lanes(Some(order), mask, Coords::SOLE, |group| {
        let blocks = [(); 4].map(|()| alloc());
        // In a row, then of several words.
        (0..2).for_each(|i| free(blocks[i]));
        let late = group.lane() as usize % 2;
        free(blocks[2 + late]);
        free(blocks[3 - late]);
    });
}

#[test]
fn a_use_of_a_block_is_between_its_claim_and_its_release() {
    for (mask, before) in MASKS.into_iter().flat_map(|mask| [0, 5].map(|before| (mask, before))) {
        with_pool(|pool| {
            assert_eq!(pool.reserve(0, before).count, before);
            check(pool, mask);
        });
    }
}

#[test]
fn the_same_for_blocks_that_a_search_finds() {
    for mask in MASKS {
        with_pool(|pool| {
            // A few blocks are left in the first region, then those of the fourth one.
            (0..=LAST).filter(|r| *r != 3).for_each(|r| assert_eq!(pool.reserve(r, 128).owed, 0));
            pool.credit(0, 20);
            check(pool, mask);
        });
    }
}
