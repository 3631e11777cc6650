//! Giving blocks back.

use super::class::SizeClass;
use super::entry::Entry;
use super::layout::{ClassInfo, WORD_BITS, divided};
use super::{FREE, Heap};
use crate::fault::FaultKind;
use crate::lanes::{Group, Lanes, Warp};
use crate::units::LaneMask;
use core::ptr::NonNull;

/// What a release brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Follows {
    Nothing,
    /// The run has its first holes, and is to be put in its class' set.
    Note,
    /// All blocks of the run are holes.
    Retire,
    /// The same, and it is not in its class' set.
    RetireUnnoted,
}

impl Heap {
    /// Gives memory back. Any thread may, also one that did not allocate it. An address that no live block
    /// starts at changes nothing and is recorded as a fault.
    ///
    /// Cost per warp that frees what it allocated: a load of the slab's entry, mostly from the cache, a
    /// release atomic on the bits and a relaxed atomic on the count of holes. Blocks that are not in one word
    /// of the bitmap cost both for each word.
    ///
    /// # Safety
    /// No thread uses the memory any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) {
        let address = block.as_ptr() as u64;
        let offset = address.wrapping_sub(self.base() as u64);
        if offset >= self.layout.bytes() {
            return self.shared().misuse(FaultKind::ForeignFree, address);
        }
        let slab = (offset >> self.layout.slab_log2) as u32;
        // Who frees a block has it, or got it from who has: its slab's entry was written before (I5).
        let entry = Entry(self.entry(slab).load_unraced());
        let Some(class) = entry.class() else { return self.shared().free_large(slab, address) };
        let run = slab - entry.place();
        let ClassInfo { bytes, blocks, quarters_reciprocal, shift, .. } = *self.class(class);
        let inside = (offset - (u64::from(run) << self.layout.slab_log2)) as u32;
        let block = divided(inside >> shift, quarters_reciprocal);
        if block * bytes != inside || block >= blocks {
            return self.shared().misuse(FaultKind::InteriorFree, address);
        }
        self.release(run, self.word_of(run, block), block % WORD_BITS, blocks);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn misuse(&self, kind: FaultKind, address: u64) {
        self.faults().record(kind, address, 0);
    }

    /// Releases a block per lane: bit `bit` of word `word`, of a run of `blocks` blocks.
    #[inline(always)]
    fn release(&self, run: u32, word: u32, bit: u32, blocks: u32) {
        let group = Group::converged();
        let Some(warp) = group.whole() else {
            return self.shared().release_partial(group, run, word, bit, blocks);
        };
        let first = warp.broadcast_32(word);
        let in_a_row = warp.all(word == first && bit == warp.rank());
        // What all lanes wrote, before the release by any of them (I4).
        warp.order();
        if in_a_row {
            let follows =
                if warp.leads() { self.release_bits(run, word, u32::MAX, blocks) } else { Follows::Nothing };
            let follows = warp.broadcast_32(follows as u32);
            if follows != Follows::Nothing as u32 {
                self.shared().follow_of_leader(warp, run, follows);
            }
        } else {
            self.shared().release_gathered(warp, run, word, bit, blocks);
        }
        // A lane that comes back from here finds its block free, whoever released it.
        warp.sync();
    }

    /// For a part of a warp.
    #[inline(never)]
    fn release_partial(&self, group: Group, run: u32, word: u32, bit: u32, blocks: u32) {
        group.sync();
        self.release_gathered(group, run, word, bit, blocks);
        group.sync();
    }

    /// Releases blocks in any order, gathered by word where lanes share one.
    #[inline(never)]
    fn release_gathered<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        run: u32,
        word: u32,
        bit: u32,
        blocks: u32,
    ) {
        let mut bits = 1 << bit;
        let with_first = lanes.ballot(word == lanes.broadcast_32(word));
        // Where even the first has its word to itself, take it that the blocks are spread over the heap.
        if with_first.count() > 1 {
            let peers = lanes.matching(word);
            let gathered = peers.union(bits);
            // Two lanes with one block go alone, so that the second one's mistake is seen.
            if gathered.count_ones() == peers.count() {
                bits = if peers.leads() { gathered } else { 0 };
            }
        }
        let follows = if bits != 0 { self.release_bits(run, word, bits, blocks) } else { Follows::Nothing };
        if !lanes.all(follows == Follows::Nothing) {
            self.follow(lanes.group(), run, follows as u32);
        }
    }

    /// Sets bits of a word, counts those that were clear, and says what has to follow.
    #[inline(always)]
    fn release_bits(&self, run: u32, word: u32, bits: u32, blocks: u32) -> Follows {
        // ordering: release; pairs with CLAIM and with RETIRE: the owners' writes before their bits (I4).
        let old = self.bits(word).or_release(bits, FREE);
        if old & bits != 0 {
            self.shared().record_double_frees(run, word, old & bits);
        }
        let new = (bits & !old).count_ones();
        // Relaxed: the count only says when to look at the bits.
        let before = self.holes(run).add_relaxed(new);
        if before + new == blocks {
            if before == 0 { Follows::RetireUnnoted } else { Follows::Retire }
        } else if before == 0 && new > 0 {
            Follows::Note
        } else {
            Follows::Nothing
        }
    }

    /// The same as [`follow`](Self::follow), for what the leader of a warp released for all.
    #[inline(never)]
    fn follow_of_leader(&self, warp: Warp, run: u32, follows: u32) {
        self.follow(warp.group(), run, if warp.leads() { follows } else { Follows::Nothing as u32 });
    }

    /// Does what has to follow on some lanes, all lanes together.
    #[inline(never)]
    fn follow(&self, group: Group, run: u32, follows: u32) {
        // The blocks are holes by now, so others may have retired the run, and it may have another class: then
        // there is nothing to do for the old one, and what is done for the new one is harmless.
        let class = Entry(self.entry(run).load_relaxed()).class();
        if let (Some(class), true) = (class, follows == Follows::Note as u32) {
            self.partial(class).insert(run);
        }
        let mut waiting = group.ballot(follows >= Follows::Retire as u32 && class.is_some());
        let class = class.unwrap_or(SizeClass(0));
        while !waiting.is_empty() {
            let lane = waiting.leader();
            let unnoted = group.read_32(follows, lane) == Follows::RetireUnnoted as u32;
            let (run, class) = (group.read_32(run, lane), SizeClass(group.read_32(class.0, lane)));
            // A run whose bits are not all there yet is not forgotten (I7).
            if !self.retire(group, run, class) && unnoted && group.leads() {
                self.partial(class).insert(run);
            }
            waiting = waiting.without(LaneMask::only(lane));
        }
    }

    /// A run has its first holes, or more: puts it in its class' set, or retires it. For a thread by itself.
    #[inline(never)]
    pub(super) fn note_holes(&self, run: u32, class: SizeClass) {
        // First, so that a run whose bits are not all there yet is not forgotten (I7).
        self.partial(class).insert(run);
        self.retire(Group::alone(), run, class);
    }

    #[cold]
    #[inline(never)]
    fn record_double_frees(&self, run: u32, word: u32, twice: u32) {
        let Some(class) = Entry(self.entry(run).load_relaxed()).class() else { return };
        let info = self.class(class);
        let first = (word - self.word_of(run, 0)) * WORD_BITS;
        let mut rest = twice;
        while rest != 0 {
            let block = first + rest.trailing_zeros();
            self.faults().record(FaultKind::DoubleFree, self.block_address(info, run, block), block.into());
            rest &= rest - 1;
        }
    }
}
