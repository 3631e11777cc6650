//! Free: one thread frees all blocks of a warp that lie in one word of the bitmap.
//!
//! Cost of a warp that frees the blocks that it allocated, one after the other: a load of the
//! slab's entry; an atomic on the bitmap that releases and acquires; a load of the list of runs. If
//! the word becomes fully free, also a load of the idle set and an addition to the run's count,
//! both at the same time as the load of the list. If a warp frees other blocks: this cost for each
//! word of the bitmap.

use crate::fault::{FaultCheck, SeenWords};
use crate::heap::layout::bits::WORD_BITS;
use crate::heap::layout::class::SizeClass;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::locate::{Located, Place};
use crate::heap::structures::runs::Run;
use crate::lanes::{Group, Warp};
use core::ptr::NonNull;

impl HeapCore {
    /// Frees a block. If no live block starts at the address, nothing is freed and a fault is
    /// recorded.
    ///
    /// # Safety
    /// No thread uses the memory any more.
    #[inline(always)]
    pub(in crate::heap) unsafe fn free(&self, block: NonNull<u8>) {
        let group = Group::converged();
        if let Some(warp) = group.whole() {
            // Orders the writes of all lanes before the release of the lane that frees for them.
            warp.sync();
        }
        let address = block.as_ptr() as u64;
        // Relaxed: the caller owns the block, so the entry was written before (I2 of `runs`).
        let Located::Block(place) = self.locate(address, |entry| entry.load_relaxed()) else {
            return self.shared().free_unusual(address);
        };
        // Another call: with one for both, `ptxas` spills registers of large kernels.
        if !place.is_start() {
            return self.shared().free_unusual(address);
        }
        self.release(group, place);
    }

    /// Frees a large allocation, or records that there is no allocation at the address.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn free_unusual(&self, address: u64) {
        // Relaxed, as in `free`.
        match self.locate(address, |entry| entry.load_relaxed()) {
            Located::Slab(slab, entry) => self.free_large(slab, entry, address),
            Located::Block(_) => self.misuse(FaultCheck::NotAStart, address),
            Located::Outside => self.misuse(FaultCheck::Outside, address),
        }
    }

    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn misuse(&self, check: FaultCheck, address: u64) {
        let Some(slab) = self.slab_of(address) else {
            return self.faults().record(check, address, 0);
        };
        let entry = || self.runs().entry(slab).load_relaxed();
        let words = || SeenWords { entry: Some(entry().into()), ..SeenWords::NONE };
        self.faults().record_words(check, address, 0, words, words);
    }

    /// Frees a block per lane. `met`: the lanes that were converged at the beginning of the call.
    /// One lane may free for a warp only if all lanes of the warp were converged there: some of the
    /// lanes here may have come from another call.
    #[inline(always)]
    fn release(&self, met: Group, place: Place) {
        let warp = Group::converged().whole().filter(|warp| warp.all(met.whole().is_some()));
        let bits = match warp {
            Some(warp) => self.gather(warp, place),
            None => 1 << (place.block % WORD_BITS),
        };
        if bits != 0 {
            let Place { run, block, .. } = place;
            let w = block / WORD_BITS;
            let released = self.runs().release(run, w, bits);
            if released.is_unfinished {
                self.shared().finish_free(
                    run.first,
                    run.class,
                    run.blocks,
                    w,
                    bits,
                    released.old,
                    released.is_idle,
                );
            }
        }
        // After the call the block is free, whichever lane freed it.
        if let Some(warp) = warp {
            warp.sync();
        }
    }

    #[cold]
    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "in registers: a structure would be on every thread's stack"
    )]
    pub(in crate::heap) fn finish_free(
        &self,
        first: u32,
        class: SizeClass,
        blocks: u32,
        w: u32,
        bits: u32,
        old: u32,
        is_idle: bool,
    ) {
        let run = Run { first, class, blocks };
        self.runs().finish_release(run, is_idle);
        if old & bits != 0 {
            // Last: it waits for a millisecond.
            self.record_double_frees(run, w, bits, old);
        }
    }

    /// The bits that the caller's lane is to set: those of all lanes with blocks in the same word
    /// of the bitmap if it leads them, otherwise none.
    #[inline(always)]
    pub(in crate::heap) fn gather(&self, warp: Warp, place: Place) -> u32 {
        let own = 1 << (place.block % WORD_BITS);
        let word = self.runs().first_word(place.run.first) + place.block / WORD_BITS;
        let after = word.wrapping_sub(warp.broadcast_32(word));
        // All blocks of one word, in order: most warps allocate these at once.
        if warp.all(after == 0 && place.block % WORD_BITS == warp.rank()) {
            return if warp.leads() { u32::MAX } else { 0 };
        }
        if !warp.all(after <= 1) {
            return self.gather_any(warp, word, own);
        }
        // The blocks of a word and the next one.
        let high_lanes = warp.ballot(after == 1);
        let (low, high) = if after == 0 { (own, 0) } else { (0, own) };
        let (low, high) = (warp.union(low), warp.union(high));
        // If two lanes free one block, each lane frees by itself, so that the second free is found.
        if low.count_ones() + high.count_ones() != warp.count() {
            own
        } else if warp.leads() {
            low
        } else if warp.rank() == high_lanes.leader() {
            high
        } else {
            0
        }
    }

    /// [`gather`](Self::gather) for blocks of any words.
    #[inline(always)]
    fn gather_any(&self, warp: Warp, word: u32, own: u32) -> u32 {
        let peers = warp.matching(word);
        let (mut rest, mut bits) = (peers.members(), 0);
        while !warp.all(rest.is_empty()) {
            let lane = if rest.is_empty() { peers.leader() } else { rest.leader() };
            bits |= warp.read_32(own, lane);
            rest = rest.without_leader();
        }
        if bits.count_ones() != peers.count() {
            own
        } else if peers.leads() {
            bits
        } else {
            0
        }
    }

    /// Records a double free for each block of a word of which the bit was set.
    fn record_double_frees(&self, run: Run, w: u32, bits: u32, old: u32) {
        let runs = self.runs();
        let word = runs.bits(runs.first_word(run.first) + w);
        let words = |word: u32| {
            let entry = runs.entry(run.first).load_relaxed();
            SeenWords { word: Some(word.into()), entry: Some(entry.into()) }
        };
        let mut rest = old & bits;
        while rest != 0 {
            let block = w * WORD_BITS + rest.trailing_zeros();
            let address = self.block_address(self.class(run.class), run.first, block);
            let (seen, again) = (|| words(old), || words(word.load_relaxed()));
            self.faults().record_words(FaultCheck::BitWasSet, address, block.into(), seen, again);
            rest &= rest - 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
