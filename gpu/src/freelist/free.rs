//! Freeing.

use super::geometry::{Location, MAX_CAPACITY, WORD_BLOCKS};
use super::handle::{FreeList, RELEASE};
use crate::fault::{FaultCheck, SeenWords};
use crate::lanes::{Group, Lanes};
use crate::units::BlockIndex;
use core::ptr::NonNull;

/// In place of a block index: the address is not a block of this pool.
const MISUSE: u32 = u32::MAX;
const _: () = assert!(MISUSE / WORD_BLOCKS > (MAX_CAPACITY - 1) / WORD_BLOCKS);

impl FreeList {
    /// Frees a block. May be called from any thread, not only the one that allocated the block.
    /// Freeing a block that is already free, or an address where no block starts, changes nothing
    /// and is recorded as a fault.
    ///
    /// Cost per warp that frees blocks it allocated together: one release atomic on a word of the
    /// bitmap, and one relaxed atomic on a region's word, whose result is not waited for. Blocks
    /// scattered over the pool cost both for each word that holds one, or for each lane if no other
    /// lane's block is in the first lane's word.
    ///
    /// # Safety
    /// No thread uses the block any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) {
        let address = block.as_ptr() as u64;
        self.release(match self.geometry.locate(address.wrapping_sub(self.base as u64)) {
            Location::Block(index) => index,
            Location::Inside(index) => self.shared().misuse(FaultCheck::NotAStart, address, index),
            Location::Outside => self.shared().misuse(FaultCheck::Outside, address, 0),
        });
    }

    /// Frees the block with this index; see [`free`](Self::free).
    ///
    /// # Safety
    /// No thread uses the block any more.
    #[inline(always)]
    pub unsafe fn free_index(&self, block: BlockIndex) {
        let inside = block.0 < self.geometry.capacity();
        self.release(if inside { block.0 } else { self.shared().misuse(FaultCheck::Outside, 0, block.0) });
    }

    /// Records an invalid free, which frees nothing.
    #[cold]
    #[inline(never)]
    fn misuse(&self, check: FaultCheck, address: u64, detail: u32) -> u32 {
        self.faults().record(check, address, detail.into());
        MISUSE
    }

    /// Releases one block per lane. Does nothing for lanes with [`MISUSE`].
    #[inline(always)]
    fn release(&self, index: u32) {
        let group = Group::converged();
        let Some(warp) = group.whole() else { return self.shared().release_partial(group, index) };
        let first = warp.broadcast_32(index);
        // A full word of the bitmap: the common case, when a warp frees the blocks it allocated
        // together.
        let in_a_row = warp.all(index == first.wrapping_add(warp.rank()));
        // Orders the writes of all lanes before the release by any of them (I3).
        warp.order();
        let twice = if in_a_row && first % WORD_BLOCKS == 0 {
            if warp.leads() { self.release_bits(first / WORD_BLOCKS, u32::MAX) } else { 0 }
        } else {
            self.release_gathered(warp, index, first)
        };
        self.end_release(warp, index, twice);
    }

    /// Out of line, for a subset of a warp.
    #[inline(never)]
    fn release_partial(&self, group: Group, index: u32) {
        group.sync();
        let twice = self.release_gathered(group, index, group.broadcast_32(index));
        self.end_release(group, index, twice);
    }

    /// Synchronises the lanes: when a lane returns, its block is free, whichever lane released it.
    /// `twice` holds the bits that the lane released although they were already clear.
    #[inline(always)]
    fn end_release<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, index: u32, twice: u32) {
        let sound = lanes.all(twice == 0);
        lanes.order();
        if !sound {
            self.shared().record_double_frees(lanes.group(), index, twice);
        }
    }

    /// Releases blocks in any order, combined by word if lanes share one. `first` is the leader's
    /// block. Returns the bits that the lane released although they were already clear.
    #[inline(always)]
    fn release_gathered<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, index: u32, first: u32) -> u32 {
        let word = index / WORD_BLOCKS;
        let together = lanes.ballot(word == first / WORD_BLOCKS);
        if together.count() > 1 || lanes.count() == 1 {
            return self.shared().release_by_word(lanes.group(), index);
        }
        // No other lane shares the first lane's word: assume that the blocks are scattered over the
        // pool.
        if index == MISUSE { 0 } else { self.release_bits(word, 1 << (index % WORD_BLOCKS)) }
    }

    /// Releases blocks of which some share words, with one atomic per word.
    #[inline(never)]
    fn release_by_word(&self, group: Group, index: u32) -> u32 {
        let (word, bit) = (index / WORD_BLOCKS, index % WORD_BLOCKS);
        // No block lies in the word of `MISUSE`.
        let together = group.matching(word);
        let bits = together.union(1 << bit);
        // If two lanes free the same block, each releases it separately, so that the second free is
        // detected.
        let alone = bits.count_ones() != together.count();
        if index == MISUSE || !(alone || together.leads()) {
            return 0;
        }
        self.release_bits(word, if alone { 1 << bit } else { bits })
    }

    /// Clears bits of a word and credits those that were set. Returns those that were already
    /// clear.
    #[inline(always)]
    fn release_bits(&self, word: u32, bits: u32) -> u32 {
        // ordering: release; pairs with CLAIM: the owners' writes before their bits (I3).
        let old = self.word(word).at(RELEASE).and_release(!bits);
        self.credit(self.geometry.region_of_word(word), (old & bits).count_ones());
        bits & !old
    }

    /// Some lane released bits that were already clear: every lane that freed one of these blocks
    /// records a fault.
    #[cold]
    #[inline(never)]
    fn record_double_frees(&self, group: Group, index: u32, twice: u32) {
        let bit = 1 << (index % WORD_BLOCKS);
        let together = group.matching(index / WORD_BLOCKS);
        let of_leader = together.read_32(twice, together.leader());
        // If two lanes freed the same block, each released it separately, and the later one is the
        // double free.
        let gathered = together.union(bit).count_ones() == together.count();
        let found = if gathered { twice | of_leader } else { twice };
        if index != MISUSE && found & bit != 0 {
            let address = self.base as u64 + u64::from(index) * self.geometry.stride();
            let word = self.word(index / WORD_BLOCKS);
            let words = || SeenWords { word: Some(word.load_relaxed().into()), ..SeenWords::NONE };
            self.faults().record_words(FaultCheck::BitWasClear, address, index.into(), words, words);
        }
    }
}
