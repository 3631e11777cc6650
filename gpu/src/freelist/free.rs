//! Freeing.

use super::geometry::{Location, WORD_BLOCKS};
use super::{FreeList, RELEASE};
use crate::fault::FaultKind;
use crate::lanes::{Group, Lanes};
use crate::units::BlockIndex;
use core::ptr::NonNull;

/// Words that a warp's blocks are gathered by before each lane goes alone.
const GATHERED_WORDS: u32 = 4;

/// In place of a block: the address is none of this pool's.
const MISUSE: u32 = u32::MAX;

impl FreeList {
    /// Gives a block back. Any thread may, also one that did not allocate it. A block that is free
    /// already, and an address that no block starts at, change nothing and are recorded as faults.
    ///
    /// Cost per warp that frees what it allocated: one release atomic on a word of the bitmap and one
    /// relaxed atomic on a region's word that nobody waits for. Blocks spread over the pool cost both for
    /// each word they are in.
    ///
    /// # Safety
    /// No thread uses the block any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) {
        let address = block.as_ptr() as u64;
        self.release(match self.geometry.locate(address.wrapping_sub(self.base as u64)) {
            Location::Block(index) => index,
            Location::Inside(index) => self.shared().misuse(FaultKind::InteriorFree, address, index),
            Location::Outside => self.shared().misuse(FaultKind::ForeignFree, address, 0),
        });
    }

    /// Gives the block at this place back; see [`free`](Self::free).
    ///
    /// # Safety
    /// No thread uses the block any more.
    #[inline(always)]
    pub unsafe fn free_index(&self, block: BlockIndex) {
        let inside = block.0 < self.geometry.capacity();
        self.release(if inside { block.0 } else { self.shared().misuse(FaultKind::ForeignFree, 0, block.0) });
    }

    /// Writes a free down that frees nothing.
    #[cold]
    #[inline(never)]
    fn misuse(&self, kind: FaultKind, address: u64, detail: u32) -> u32 {
        self.faults().record(kind, address, detail.into());
        MISUSE
    }

    /// Releases a block per lane; nothing for [`MISUSE`].
    #[inline(always)]
    fn release(&self, index: u32) {
        let group = Group::converged();
        let Some(warp) = group.whole() else { return self.shared().release_partial(group, index) };
        let first = warp.broadcast_32(index);
        // A whole word of the bitmap: the common case, when a warp frees what it allocated.
        let in_a_row = warp.all(index == first.wrapping_add(warp.rank()));
        // What all lanes wrote, before the release by any of them (I3).
        warp.order();
        if in_a_row && first % WORD_BLOCKS == 0 {
            self.release_together(warp, first / WORD_BLOCKS, u32::MAX, index);
        } else {
            self.release_gathered(warp, index);
        }
        // A lane that comes back from here finds its block free, whoever released it.
        warp.sync();
    }

    /// For a part of a warp.
    #[inline(never)]
    fn release_partial(&self, group: Group, index: u32) {
        group.sync();
        self.release_gathered(group, index);
        group.sync();
    }

    /// Releases blocks in any order, gathered by word where lanes share one.
    #[inline(always)]
    fn release_gathered<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, index: u32) {
        let (word, bit) = (index / WORD_BLOCKS, index % WORD_BLOCKS);
        let target = lanes.broadcast_32(word);
        let together = lanes.ballot(word == target && index != MISUSE);
        if together.count() == 1 && lanes.count() > 1 {
            // Even the first has its word to itself: take it that the blocks are spread over the pool.
            if index != MISUSE {
                self.check_was_taken(self.release_bits(word, 1 << bit), index);
            }
        } else {
            self.shared().release_by_word(lanes.group(), index);
        }
    }

    /// Releases blocks that share words, a word at a time.
    #[inline(never)]
    fn release_by_word(&self, group: Group, index: u32) {
        let (word, bit) = (index / WORD_BLOCKS, index % WORD_BLOCKS);
        let mut waiting = group.filter(index != MISUSE);
        if index == MISUSE {
            return;
        }
        for _ in 0..GATHERED_WORDS {
            let together = waiting.filter(word == waiting.broadcast_32(word));
            if together.contains_self() {
                let bits = together.union(1 << bit);
                // Two lanes with one block go alone, so that the second one's mistake is seen.
                if bits.count_ones() == together.count() {
                    return self.release_together(together, word, bits, index);
                }
                break;
            }
            waiting = waiting.without(together);
        }
        self.check_was_taken(self.release_bits(word, 1 << bit), index);
    }

    /// The leader releases the blocks of all lanes, which share a word.
    #[inline(always)]
    fn release_together<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, word: u32, bits: u32, index: u32) {
        let were_taken = if lanes.leads() { self.release_bits(word, bits) } else { 0 };
        self.check_was_taken(lanes.broadcast_32(were_taken), index);
    }

    /// Clears bits of a word and credits those that were set. Returns the word as it was.
    #[inline(always)]
    fn release_bits(&self, word: u32, bits: u32) -> u32 {
        // ordering: release; pairs with CLAIM: the owners' writes before their bits (I3).
        let old = self.word(word).and_release(!bits, RELEASE);
        self.credit(self.geometry.region_of_word(word), (old & bits).count_ones());
        old
    }

    #[inline(always)]
    fn check_was_taken(&self, word: u32, index: u32) {
        if word >> (index % WORD_BLOCKS) & 1 == 0 {
            self.shared().record_double_free(index);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_double_free(&self, index: u32) {
        let address = self.base as u64 + u64::from(index) * self.geometry.stride();
        self.faults().record(FaultKind::DoubleFree, address, index.into());
    }
}
