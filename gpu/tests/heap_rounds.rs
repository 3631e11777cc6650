//! The heap, repeatedly filled with blocks of all sizes and emptied, from many SMs.
#![cfg(not(loom))]

#[path = "support/heap.rs"]
mod heap;
#[path = "support/lane.rs"]
mod lane;

use heap::OwnedHeap;
use lane::{LANE, with_lane};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;

const MULTIPROCESSORS: u32 = 8;
const BYTES: u64 = 256 << 20;

/// A pseudo-random number generator.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Allocates blocks of 16 to 8192 bytes on one SM after the other, on some more often than on
/// others, until they take up the fraction `part` of the heap, with sizes rounded up to classes.
/// Every allocation must succeed.
fn fill(owned: &OwnedHeap, numbers: &mut Xorshift, busiest: u32, part: f64) -> Vec<NonNull<u8>> {
    let (mut blocks, mut bytes) = (Vec::new(), 0);
    while (bytes as f64) < part * BYTES as f64 {
        let lane = (numbers.next() % (2 * u64::from(MULTIPROCESSORS))) as u32;
        LANE.set(if lane < MULTIPROCESSORS { lane } else { busiest });
        let size = 16 + (numbers.next() % 8177) as usize;
        let block = owned.heap.alloc(Layout::from_size_align(size, 16).unwrap());
        let block = block.unwrap_or_else(|| panic!("{size} bytes cannot be allocated with {bytes} in use"));
        // SAFETY: just allocated.
        bytes += unsafe { owned.heap.usable_size(block) };
        blocks.push(block);
    }
    blocks
}

#[test]
fn blocks_of_all_sizes_fit_round_after_round() {
    with_lane(rounds);
}

fn rounds() {
    let owned = OwnedHeap::new(BYTES, MULTIPROCESSORS);
    let mut numbers = Xorshift(12345);
    for round in 0..6 {
        // One SM issues half of the allocations, a different one in each round.
        for block in fill(&owned, &mut numbers, round % MULTIPROCESSORS, 0.8) {
            // SAFETY: allocated in `fill`, and not used.
            unsafe { owned.heap.free(block) };
        }
        owned.check(&BTreeMap::new());
        assert_eq!(owned.faults.count(), 0);
    }
}
