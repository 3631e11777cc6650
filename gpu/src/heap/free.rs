//! Giving blocks back.

use super::class::SizeClass;
use super::entry::Entry;
use super::layout::{WORD_BITS, divided};
use super::{FREE, Heap};
use crate::fault::FaultKind;
use crate::lanes::Group;
use crate::units::LaneMask;
use core::ptr::NonNull;

/// A block, as its bit finds it.
#[derive(Clone, Copy)]
struct Place {
    /// The slab where its run starts.
    run: u32,
    class: SizeClass,
    /// Its number in the run.
    block: u32,
}

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
        let info = self.class(class);
        let inside = (offset - (u64::from(run) << self.layout.slab_log2)) as u32;
        let block = divided(inside >> info.shift, info.quarters_reciprocal);
        if block * info.bytes != inside || block >= info.blocks {
            return self.shared().misuse(FaultKind::InteriorFree, address);
        }
        self.release(Place { run, class, block });
    }

    #[cold]
    #[inline(never)]
    pub(super) fn misuse(&self, kind: FaultKind, address: u64) {
        self.faults().record(kind, address, 0);
    }

    #[inline(always)]
    fn release(&self, place: Place) {
        let group = Group::converged();
        let Some(warp) = group.whole() else { return self.shared().release_partial(group, place) };
        let word = self.word_of(place.run, place.block);
        let first = warp.broadcast_32(word);
        let in_a_row = warp.all(word == first && place.block % WORD_BITS == warp.rank());
        // What all lanes wrote, before the release by any of them (I4).
        warp.order();
        if in_a_row {
            let follows = if warp.leads() { self.release_bits(place, word, u32::MAX) } else { Follows::Nothing };
            if warp.broadcast_32(follows as u32) != Follows::Nothing as u32 {
                self.shared().follow(warp.group(), place, follows);
            }
        } else {
            self.shared().release_gathered(warp.group(), place, word);
        }
        // A lane that comes back from here finds its block free, whoever released it.
        warp.sync();
    }

    /// For a part of a warp.
    #[inline(never)]
    fn release_partial(&self, group: Group, place: Place) {
        group.sync();
        self.release_gathered(group, place, self.word_of(place.run, place.block));
        group.sync();
    }

    /// Releases blocks in any order, gathered by word where lanes share one.
    #[inline(never)]
    fn release_gathered(&self, group: Group, place: Place, word: u32) {
        let bit = 1 << (place.block % WORD_BITS);
        let with_first = group.ballot(word == group.broadcast_32(word));
        // Even the first has its word to itself: take it that the blocks are spread over the heap.
        let spread = with_first.count() == 1 && group.count() > 1;
        let peers = if spread { Group::alone() } else { group.matching(word) };
        let bits = if spread { bit } else { peers.union(bit) };
        // Two lanes with one block go alone, so that the second one's mistake is seen.
        let alone = bits.count_ones() != peers.count();
        let follows = if alone {
            self.release_bits(place, word, bit)
        } else if peers.leads() {
            self.release_bits(place, word, bits)
        } else {
            Follows::Nothing
        };
        if !group.all(follows == Follows::Nothing) {
            self.follow(group, place, follows);
        }
    }

    /// Sets bits of a word, counts those that were clear, and says what has to follow.
    #[inline(always)]
    fn release_bits(&self, place: Place, word: u32, bits: u32) -> Follows {
        // ordering: release; pairs with CLAIM and with RETIRE: the owners' writes before their bits (I4).
        let old = self.bits(word).or_release(bits, FREE);
        if old & bits != 0 {
            self.shared().record_double_frees(place, old & bits);
        }
        let new = (bits & !old).count_ones();
        // Relaxed: the count only says when to look at the bits.
        let before = self.holes(place.run).add_relaxed(new);
        if before + new == self.class(place.class).blocks {
            if before == 0 { Follows::RetireUnnoted } else { Follows::Retire }
        } else if before == 0 && new > 0 {
            Follows::Note
        } else {
            Follows::Nothing
        }
    }

    /// Does what has to follow on some lanes, all lanes together.
    #[inline(never)]
    fn follow(&self, group: Group, place: Place, follows: Follows) {
        if follows == Follows::Note {
            self.partial(place.class).insert(place.run);
        }
        let mut waiting = group.ballot(matches!(follows, Follows::Retire | Follows::RetireUnnoted));
        while !waiting.is_empty() {
            let lane = waiting.leader();
            let (run, class) = (group.read_32(place.run, lane), group.read_32(place.class.0, lane));
            let unnoted = group.read_32(follows as u32, lane) == Follows::RetireUnnoted as u32;
            let class = SizeClass(class);
            let retired = self.retire(group, run, class);
            // A run whose bits are not all there yet is not forgotten (I7).
            if !retired && unnoted && group.leads() {
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
    fn record_double_frees(&self, place: Place, twice: u32) {
        let mut rest = twice;
        while rest != 0 {
            let block = place.block / WORD_BITS * WORD_BITS + rest.trailing_zeros();
            let address = self.block_address(self.class(place.class), place.run, block);
            self.faults().record(FaultKind::DoubleFree, address, block.into());
            rest &= rest - 1;
        }
    }
}
