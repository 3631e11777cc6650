//! Freeing.

use super::geometry::{Location, WORD_BLOCKS};
use super::{FreeList, RELEASE};
use crate::fault::FaultKind;
use crate::lanes::Group;
use crate::sync::fence_release;
use crate::units::BlockIndex;
use core::ptr::NonNull;

/// Words that a warp's blocks are gathered by before each lane goes alone. A warp that frees what it
/// allocated has one or two.
const GATHERED_WORDS: u32 = 4;

impl FreeList {
    /// Gives a block back. Any thread may, also one that did not allocate it. A block that is free
    /// already, and an address that no block starts at, change nothing and are recorded as faults.
    ///
    /// Cost per warp: one fence; then, for the lanes whose blocks share a word, one relaxed atomic on that
    /// word and one on its region.
    ///
    /// # Safety
    /// No thread uses the block any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) {
        let address = block.as_ptr() as u64;
        let group = Group::converged();
        let index = match self.geometry.locate(address.wrapping_sub(self.base as u64)) {
            Location::Block(index) => Some(index),
            Location::Inside(index) => {
                self.faults().record(FaultKind::InteriorFree, address, index.into());
                None
            }
            Location::Outside => {
                self.faults().record(FaultKind::ForeignFree, address, 0);
                None
            }
        };
        let group = group.filter(index.is_some());
        if let Some(index) = index {
            self.release(group, index);
        }
    }

    /// Gives the block at this place back; see [`free`](Self::free).
    ///
    /// # Safety
    /// No thread uses the block any more.
    #[inline(always)]
    pub unsafe fn free_index(&self, block: BlockIndex) {
        let group = Group::converged();
        let valid = block.0 < self.geometry.capacity();
        let group = group.filter(valid);
        if valid {
            self.release(group, block.0);
        } else {
            self.faults().record(FaultKind::ForeignFree, 0, block.0.into());
        }
    }

    /// Releases the blocks of the group, gathered by word.
    #[inline(always)]
    fn release(&self, group: Group, index: u32) {
        let (word, bit) = (index / WORD_BLOCKS, index % WORD_BLOCKS);
        // What all lanes wrote, before the release by any of them.
        group.sync();
        // ordering: release; pairs with CLAIM: this owner's writes before the bit (I3).
        fence_release(RELEASE);
        let mut waiting = group;
        for _ in 0..GATHERED_WORDS {
            let target = waiting.broadcast_32(word);
            let together = waiting.filter(word == target);
            if together.count() == 1 {
                break;
            }
            if word == target {
                self.release_together(together, word, bit);
                return group.sync();
            }
            waiting = waiting.without(together);
        }
        self.release_bits(word, 1 << bit, index);
        // A lane that comes back from here finds its block free, whoever released it.
        group.sync();
    }

    /// Releases blocks that share a word.
    #[inline(always)]
    fn release_together(&self, group: Group, word: u32, bit: u32) {
        let first = group.broadcast_32(bit);
        let in_order = group.all(bit == first + group.rank());
        let bits = if in_order { (u32::MAX >> (32 - group.count())) << first } else { group.union(1 << bit) };
        let index = word * WORD_BLOCKS + bit;
        // Two lanes with one block: each alone, so that the second one's mistake is seen.
        if bits.count_ones() != group.count() {
            return self.release_bits(word, 1 << bit, index);
        }
        let mut were_taken = 0;
        if group.leads() {
            // Relaxed: the fence in `release` goes before it.
            were_taken = bits & self.word(word).and_relaxed(!bits);
            self.credit(self.geometry.region_of_word(word), were_taken.count_ones());
        }
        if group.broadcast_32(were_taken) >> bit & 1 == 0 {
            self.record_double_free(index);
        }
    }

    /// Releases one lane's block.
    #[inline(always)]
    fn release_bits(&self, word: u32, bit: u32, index: u32) {
        // Relaxed: the fence in `release` goes before it.
        if self.word(word).and_relaxed(!bit) & bit != 0 {
            self.credit(self.geometry.region_of_word(word), 1);
        } else {
            self.record_double_free(index);
        }
    }

    #[cold]
    fn record_double_free(&self, index: u32) {
        let address = self.base as u64 + u64::from(index) * self.geometry.stride();
        self.faults().record(FaultKind::DoubleFree, address, index.into());
    }
}
