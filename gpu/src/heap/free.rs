//! Giving blocks back.

use super::class::SizeClass;
use super::class_info::{full_word, words};
use super::count::Count;
use super::entry::Entry;
use super::layout::WORD_BITS;
use super::{ADD_COUNT, FREE, Heap, MARK_JOINED, SET_BITS};
use crate::fault::{FaultCheck, SeenWords};
use crate::lanes::{Group, Warp};
use core::ptr::NonNull;

/// A block in the bitmap, and what is to be known of its run.
#[derive(Clone, Copy)]
pub(super) struct Place {
    run: u32,
    class: SizeClass,
    /// Blocks of the run.
    blocks: u32,
    /// The number of the block in the run.
    block: u32,
}

impl Heap {
    /// Frees memory. May be called from any thread, not only the one that allocated it. If no live
    /// block starts at the address, nothing is freed and a fault is recorded.
    ///
    /// Cost per warp that frees the blocks that it allocated: a load of the slab's entry and a
    /// release fence, concurrently, then two concurrent relaxed atomics, on the bits and on the
    /// run's count. Otherwise: one relaxed atomic for each word of the bitmap, one more for each
    /// word that had no free block, and two more for each word that several frees have made fully
    /// free.
    ///
    /// # Safety
    /// No thread uses the memory any more.
    #[inline(always)]
    pub unsafe fn free(&self, block: NonNull<u8>) {
        if self.is_debugged() {
            return self.shared().free_debugged(block);
        }
        // SAFETY: the caller's promise.
        unsafe { self.free_plain(block) }
    }

    /// The same, without what a debug heap adds.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    #[inline(always)]
    pub(super) unsafe fn free_plain(&self, block: NonNull<u8>) {
        let group = Group::converged();
        if let Some(warp) = group.whole() {
            // What all lanes wrote, before the fence of the one that releases for them (I4).
            warp.sync();
        }
        let address = block.as_ptr() as u64;
        let offset = address.wrapping_sub(self.base() as u64);
        let slab = offset >> self.layout.slab_log2;
        if slab >= self.layout.slabs.into() {
            return self.shared().misuse(FaultCheck::Outside, address);
        }
        let slab = slab as u32;
        // Relaxed: who frees a block has it, or got it from who has: its slab's entry was written before (I5). From where all
        // multiprocessors see the same: with the fence it takes no longer than from the cache of this one.
        let entry = Entry(self.entry(slab).load_relaxed());
        // ordering: release; pairs with CLAIM and with RETIRE: the owners' writes before their bits (I4). Here, and not
        // at the bits, it takes no longer than the load.
        FREE.fence_release();
        let Some(class) = entry.class() else { return self.shared().free_large(slab, address) };
        match self.place_of(entry, class, slab, offset) {
            Some(place) => self.release(group, place),
            None => self.shared().misuse(FaultCheck::NotAStart, address),
        }
    }

    /// The block that starts at this offset, which lies in a slab of the class; `None` if none does.
    #[inline(always)]
    pub(super) fn place_of(&self, entry: Entry, class: SizeClass, slab: u32, offset: u64) -> Option<Place> {
        let run = slab - entry.place();
        let inside = (offset - (u64::from(run) << self.layout.slab_log2)) as u32;
        let blocks = class.blocks_in(entry.slabs() << self.layout.slab_log2);
        let block = class.blocks_in(inside);
        (block * class.bytes() == inside && block < blocks).then_some(Place { run, class, blocks, block })
    }

    #[cold]
    #[inline(never)]
    pub(super) fn misuse(&self, check: FaultCheck, address: u64) {
        let slab = address.wrapping_sub(self.base() as u64) >> self.layout.slab_log2;
        if slab >= self.layout.slabs.into() {
            return self.faults().record(check, address, 0);
        }
        let words =
            || SeenWords { entry: Some(self.entry(slab as u32).load_relaxed().into()), ..SeenWords::NONE };
        self.faults().record_words(check, address, 0, words, words);
    }

    /// Releases a block per lane, behind the fence. `met`: the lanes that met before it. Only lanes that all did may
    /// leave their blocks to one of them; some of those here may have come by another call.
    #[inline(always)]
    fn release(&self, met: Group, place: Place) {
        let warp = Group::converged().whole().filter(|warp| warp.all(met.whole().is_some()));
        let bits = match warp {
            Some(warp) => self.gather(warp, place),
            None => 1 << (place.block % WORD_BITS),
        };
        if bits != 0 {
            self.release_bits(place, bits);
        }
        // A lane that comes back from here finds its block free, whoever released it.
        if let Some(warp) = warp {
            warp.sync();
        }
    }

    /// The bits that the caller's lane is to release: those of all lanes with blocks of the same word of the bitmap
    /// where it leads these, otherwise none.
    #[inline(always)]
    fn gather(&self, warp: Warp, place: Place) -> u32 {
        let own = 1 << (place.block % WORD_BITS);
        let word = self.word_of(place.run, place.block);
        let after = word.wrapping_sub(warp.broadcast_32(word));
        // A word's blocks, in order: what most warps get at once.
        if warp.all(after == 0 && place.block % WORD_BITS == warp.rank()) {
            return if warp.leads() { u32::MAX } else { 0 };
        }
        if !warp.all(after <= 1) {
            return self.gather_any(warp, word, own);
        }
        // In a word and the one after lie the blocks that a warp gets at once.
        let high_lanes = warp.ballot(after == 1);
        let (low, high) = if after == 0 { (own, 0) } else { (0, own) };
        let (low, high) = (warp.union(low), warp.union(high));
        // Two lanes with one block go alone, so that the second one's mistake is seen.
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

    /// The same for blocks that lie anywhere.
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

    /// Sets bits of the word of a block, and counts what that makes of it. A release fence is before it.
    #[inline(always)]
    fn release_bits(&self, place: Place, bits: u32) {
        let Place { run, class, blocks, block } = place;
        let (word, count) = (self.bits(self.word_of(run, block)), self.count(run));
        SET_BITS.delay();
        if bits == u32::MAX {
            // What this makes of the word is known without a look at it: both at once. Relaxed: the fence is before them,
            // and who takes the run whole acquires every change of its count (I4).
            let old = word.or_relaxed(bits);
            ADD_COUNT.delay();
            let before = Count(count.add_relaxed(Count::of_whole(1).0));
            // Set where its argument is zero. All of it in one comparison: `ptxas` puts one of `old` alone before the
            // addition, which then begins a round trip later.
            let is_zero = |n: u32| n.wrapping_sub(1) & 1 << 31;
            let first_or_last = is_zero(before.some()) | is_zero((before.whole() + 1) ^ words(blocks));
            if old | first_or_last != 0 {
                self.shared().look_closer(run, class, blocks, block, [bits, old], Count::of_whole(1), before);
            }
            return;
        }
        // Relaxed: the fence is before it.
        let old = word.or_relaxed(bits);
        ADD_COUNT.delay();
        let full = full_word(blocks, block / WORD_BITS);
        let change = Count::change(old, old | bits, full);
        if change.whole() > 0 && bits != full {
            MARK_JOINED.delay();
            // Relaxed: of one word, so it is there before the addition.
            count.or_relaxed(Count::JOINED.0);
        }
        // Relaxed: the same as above.
        let before = if change == Count::NONE { change } else { Count(count.add_relaxed(change.0)) };
        let whole = before.plus(change).whole() == words(blocks);
        if old & bits != 0 || change != Count::NONE && (whole || before.some() == 0) {
            self.shared().look_closer(run, class, blocks, block, [bits, old], change, before);
        }
    }

    /// Bits were set in a word that was `old`, with the bit of block `block` of a run among them, and `change` was added to a
    /// count that was `before`. Either some of the bits were set there, or the run has its first hole now, or nothing else.
    #[cold]
    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "in registers: a structure would be on every thread's stack"
    )]
    fn look_closer(
        &self,
        run: u32,
        class: SizeClass,
        blocks: u32,
        block: u32,
        [bits, old]: [u32; 2],
        change: Count,
        before: Count,
    ) {
        if old & bits != 0 {
            let counted = Count::change(old, old | bits, full_word(blocks, block / WORD_BITS));
            self.count(run).add_relaxed(counted.0.wrapping_sub(change.0));
        }
        let whole = before.plus(change).whole() == words(blocks);
        if change != Count::NONE && (whole || before.some() == 0) {
            self.note(run, class, whole);
        }
        // Last: it waits, and the run is noted for other threads meanwhile.
        if old & bits != 0 {
            self.record_double_frees(run, class, block, [bits, old]);
        }
    }

    /// Sets bits of a word that a thread by itself has, of a slab that has a class while it has them.
    pub(super) fn put_back(&self, word: u32, bits: u32) {
        if let Some((run, class)) = self.owner_of(word) {
            let block = (word - self.word_of(run, 0)) * WORD_BITS;
            // ordering: release; pairs with CLAIM and with RETIRE: hands on what was acquired with the blocks (I4).
            FREE.fence_release();
            self.release_bits(Place { run, class, blocks: self.class(class).blocks, block }, bits);
        }
    }

    /// The run that a word of the bitmap belongs to, and its class.
    pub(super) fn owner_of(&self, word: u32) -> Option<(u32, SizeClass)> {
        let slab = word / self.layout.words_per_slab();
        let entry = Entry(self.entry(slab).load_relaxed());
        Some((slab - entry.place(), entry.class()?))
    }

    /// A run has its first hole, or nothing else. By now others may have taken that, and the run may be another
    /// class': then this is a hint without reason.
    pub(super) fn note(&self, run: u32, class: SizeClass, whole: bool) {
        if whole {
            self.idle(class).note(run)
        } else {
            self.partial(class).note(run)
        };
    }

    /// The count of a run, for who has taken it out of a set: with all that was counted before it was noted there.
    pub(super) fn count_after_note(&self, run: u32) -> Count {
        // Relaxed: a read-modify-write reads the last value.
        Count(self.count(run).add_relaxed(0))
    }

    /// `bits` were released in the word of a block that was `old`, and some were set there: records each.
    #[inline(always)]
    fn record_double_frees(&self, run: u32, class: SizeClass, block: u32, [bits, old]: [u32; 2]) {
        let word = self.bits(self.word_of(run, block));
        let words = |word: u32| {
            let entry = self.entry(run).load_relaxed();
            SeenWords { word: Some(word.into()), entry: Some(entry.into()) }
        };
        let mut rest = old & bits;
        while rest != 0 {
            let block = block / WORD_BITS * WORD_BITS + rest.trailing_zeros();
            let address = self.block_address(self.class(class), run, block);
            let (seen, again) = (|| words(old), || words(word.load_relaxed()));
            self.faults().record_words(FaultCheck::BitWasSet, address, block.into(), seen, again);
            rest &= rest - 1;
        }
    }
}
