//! The heap, repeatedly filled with blocks of all sizes and emptied, from many SMs.

use crate::heap::OwnedHeap;
use crate::lane::{LANE, with_lane};
use std::alloc::Layout;
use std::collections::{BTreeMap, BTreeSet};
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

/// Allocates blocks of `size` bytes on one SM until the allocation fails.
fn exhaust(owned: &OwnedHeap, multiprocessor: u32, size: usize) -> BTreeSet<NonNull<u8>> {
    LANE.set(multiprocessor);
    let mut blocks = BTreeSet::new();
    while let Some(block) = owned.heap.alloc(Layout::from_size_align(size, 16).unwrap()) {
        assert!(blocks.insert(block), "{block:?} twice");
    }
    blocks
}

#[test]
fn a_multiprocessor_finds_all_free_blocks_in_the_runs_of_another() {
    with_lane(|| {
        let owned = OwnedHeap::new(32 << 20, MULTIPROCESSORS);
        for size in [500, 1000, 5000] {
            let mut blocks = exhaust(&owned, 0, size);
            // An allocation by one lane ends before it has passed all blocks of a long span.
            blocks.append(&mut exhaust(&owned, MULTIPROCESSORS - 1, size));
            for share in [3, 99] {
                let freed: BTreeSet<_> = blocks.iter().copied().skip(share / 2).step_by(share).collect();
                for block in &freed {
                    // SAFETY: allocated above, and not used.
                    unsafe { owned.heap.free(*block) };
                }
                assert!(exhaust(&owned, MULTIPROCESSORS - 1, size) == freed, "{size} bytes, one in {share}");
            }
            let live = [Layout::from_size_align(size, 16).unwrap()].repeat(blocks.len());
            owned.check(&owned.by_class(live.iter()));
            while let Some(block) = blocks.pop_first() {
                // SAFETY: as above.
                unsafe { owned.heap.free(block) };
            }
            owned.check(&BTreeMap::new());
        }
        assert_eq!(owned.faults.count(), 0);
    });
}
