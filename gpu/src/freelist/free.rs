//! Freeing.

use super::geometry::{Location, MAX_CAPACITY, WORD_BLOCKS};
use super::{FreeList, RELEASE};
use crate::fault::FaultKind;
use crate::lanes::{Group, Lanes};
use crate::units::BlockIndex;
use core::ptr::NonNull;

/// In place of a block: the address is none of this pool's.
const MISUSE: u32 = u32::MAX;
const _: () = assert!(MISUSE / WORD_BLOCKS > (MAX_CAPACITY - 1) / WORD_BLOCKS);

impl FreeList {
    /// Gives a block back. Any thread may, also one that did not allocate it. A block that is free
    /// already, and an address that no block starts at, change nothing and are recorded as faults.
    ///
    /// Cost per warp that frees what it allocated: one release atomic on a word of the bitmap and one
    /// relaxed atomic on a region's word that nobody waits for. Blocks spread over the pool cost both for
    /// each word they are in, or for each lane where the first lane has its word to itself.
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
        let twice = if in_a_row && first % WORD_BLOCKS == 0 {
            if warp.leads() { self.release_bits(first / WORD_BLOCKS, u32::MAX) } else { 0 }
        } else {
            self.release_gathered(warp, index, first)
        };
        self.end_release(warp, index, twice);
    }

    /// For a part of a warp.
    #[inline(never)]
    fn release_partial(&self, group: Group, index: u32) {
        group.sync();
        let twice = self.release_gathered(group, index, group.broadcast_32(index));
        self.end_release(group, index, twice);
    }

    /// The lanes meet: one that comes back from here finds its block free, whoever released it. `twice` are the
    /// bits that the lane released and that were clear already.
    #[inline(always)]
    fn end_release<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, index: u32, twice: u32) {
        let sound = lanes.all(twice == 0);
        lanes.order();
        if !sound {
            self.shared().record_double_frees(lanes.group(), index, twice);
        }
    }

    /// Releases blocks in any order, gathered by word where lanes share one. `first` is the leader's. Returns
    /// the bits that the lane released and that were clear already.
    #[inline(always)]
    fn release_gathered<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, index: u32, first: u32) -> u32 {
        let word = index / WORD_BLOCKS;
        let together = lanes.ballot(word == first / WORD_BLOCKS);
        if together.count() > 1 || lanes.count() == 1 {
            return self.shared().release_by_word(lanes.group(), index);
        }
        // Even the first has its word to itself: take it that the blocks are spread over the pool.
        if index == MISUSE { 0 } else { self.release_bits(word, 1 << (index % WORD_BLOCKS)) }
    }

    /// Releases blocks of which some share words, all of a word at once.
    #[inline(never)]
    fn release_by_word(&self, group: Group, index: u32) -> u32 {
        let (word, bit) = (index / WORD_BLOCKS, index % WORD_BLOCKS);
        // No block is in the word of `MISUSE`.
        let together = group.matching(word);
        let bits = together.union(1 << bit);
        // Two lanes with one block go alone, so that the second one's mistake is seen.
        let alone = bits.count_ones() != together.count();
        if index == MISUSE || !(alone || together.leads()) {
            return 0;
        }
        self.release_bits(word, if alone { 1 << bit } else { bits })
    }

    /// Clears bits of a word and credits those that were set. Returns those that were not.
    #[inline(always)]
    fn release_bits(&self, word: u32, bits: u32) -> u32 {
        // ordering: release; pairs with CLAIM: the owners' writes before their bits (I3).
        let old = self.word(word).at(RELEASE).and_release(!bits);
        self.credit(self.geometry.region_of_word(word), (old & bits).count_ones());
        bits & !old
    }

    /// Some lane released bits that were clear: every lane whose block is among them writes it down.
    #[cold]
    #[inline(never)]
    fn record_double_frees(&self, group: Group, index: u32, twice: u32) {
        let bit = 1 << (index % WORD_BLOCKS);
        let together = group.matching(index / WORD_BLOCKS);
        let of_leader = together.read_32(twice, together.leader());
        // Of two lanes with one block, which go alone, the later one made the mistake.
        let gathered = together.union(bit).count_ones() == together.count();
        let found = if gathered { twice | of_leader } else { twice };
        if index != MISUSE && found & bit != 0 {
            let address = self.base as u64 + u64::from(index) * self.geometry.stride();
            self.faults().record(FaultKind::DoubleFree, address, index.into());
        }
    }
}
