//! Allocation: reserve blocks of a region, claim their bits, and scan all regions before a failure.

use super::geometry::WORD_BLOCKS;
use super::handle::{
    ARRIVE, BEGIN_SCAN, CANCEL, CANCEL_ALL, CLAIM, CREDIT, FreeList, POLL_NANOS, RESERVE, Word,
};
use crate::fault::{FaultCheck, SeenWords};
use crate::lanes::{Group, Lanes, select_bit};
use crate::scans::{Sites, Wait};
use crate::spill::with_spilled;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::BlockIndex;
use core::ptr::NonNull;

/// The budget of fruitless searches before an allocation fails without a scan that finds the pool
/// empty. Losing a block to a faster thread costs one. A scan during which only other threads
/// reserved blocks costs `UNSETTLED`.
const PATIENCE: u32 = if NATIVE_LAYOUT { 64 } else { 6 };
const UNSETTLED: u32 = if NATIVE_LAYOUT { 8 } else { 1 };

impl FreeList {
    /// Allocates a block. Returns `None` if all blocks are taken.
    ///
    /// May be called from any thread at any time, and from any divergent subset of a warp.
    ///
    /// Cost per warp if the region has room: a relaxed load and a relaxed atomic on the region's
    /// word, then an acquire atomic on a word of the bitmap (two if the cursor points inside a
    /// word).
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        let block = self.alloc_index()?;
        NonNull::new(self.address_of(block))
    }

    /// Like [`alloc`](Self::alloc), but returns the block's index instead of its address.
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub fn alloc_index(&self) -> Option<BlockIndex> {
        let group = Group::converged();
        match group.whole() {
            Some(warp) => self.alloc_aggregated(warp),
            None => self.shared().alloc_partial(group),
        }
    }

    /// Out of line, for a subset of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group) -> Option<BlockIndex> {
        self.alloc_aggregated(group)
    }

    #[inline(always)]
    fn alloc_aggregated<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>) -> Option<BlockIndex> {
        let first = self.geometry.first_region(thread::warp_index());
        let (start, taken) =
            if lanes.leads() { self.take(first, lanes.count()) } else { (SCATTERED, Taken::NONE) };
        let start = lanes.broadcast_32(start);
        // The leader claimed for all lanes: the last owners' writes happen before every lane's
        // (I3).
        lanes.order();
        if start != SCATTERED {
            return Some(BlockIndex(start + lanes.rank()));
        }
        self.shared().alloc_slow(lanes, first, taken)
    }

    /// Region `first` did not have a block for every lane under its cursor. `leaders` is valid in
    /// the leader only.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        first: u32,
        leaders: Taken,
    ) -> Option<BlockIndex> {
        let leaders = if lanes.leads() { leaders.settled(self, first) } else { leaders };
        let taken = leaders.broadcast(lanes);
        let reserved = taken.reservation().count;
        if reserved == 0 && self.scan_finds_empty(lanes, first) {
            return None;
        }
        let rank = lanes.rank();
        let rest = lanes.filter(rank >= reserved);
        if rank < taken.count() {
            Some(self.nth_taken(first, taken, rank))
        } else if rank < reserved {
            self.claim_one(first, taken.reservation().cursor + rank * WORD_BLOCKS)
        } else {
            self.search(rest, first)
        }
    }

    /// Searches the other regions until every lane of the group has a block or the pool is empty.
    #[inline(never)]
    pub(super) fn search(&self, group: Group, first: u32) -> Option<BlockIndex> {
        let (mut group, mut first) = (group, first);
        let mut patience = PATIENCE;
        // Every round serves a lane or uses up patience.
        while patience > 0 {
            let kept = (group, first, patience);
            let (kept, look) = with_spilled(kept, || self.scan_in_part(group, first));
            (group, first, patience) = kept;
            match look {
                Look::Candidate(r) => {
                    let leaders =
                        if group.leads() { self.reserve(r, group.count()) } else { Reservation::NONE };
                    let kept = (group, first);
                    let (kept, leaders) = with_spilled(kept, || self.settle(r, leaders));
                    (group, first) = kept;
                    let reservation = leaders.broadcast(group);
                    patience -= u32::from(reservation.count == 0);
                    let rank = group.rank();
                    group = group.filter(rank >= reservation.count);
                    if rank < reservation.count {
                        return self.claim_one(r, reservation.cursor + rank * WORD_BLOCKS);
                    }
                }
                Look::Empty { .. } => return None,
                Look::Unsettled => {
                    patience = patience.saturating_sub(UNSETTLED);
                    thread::nanosleep(POLL_NANOS);
                }
            }
        }
        None
    }
}

/// What a group's leader took for the whole group: a reservation, and the reserved blocks that it
/// claimed in the word under the cursor (lower half of `bits`) and in the next word (upper half).
/// It fits in two registers, so that it is passed in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    reservation: u64,
    bits: u64,
}

impl Taken {
    pub const NONE: Taken = Taken { reservation: 0, bits: 0 };

    /// Settles the reservation, which was made in region `r`: nothing is owed afterwards.
    #[inline(always)]
    pub fn settled(self, list: &FreeList, r: u32) -> Self {
        Taken { reservation: list.settle(r, self.reservation()).pack(), ..self }
    }

    /// Broadcasts the leader's value to every lane.
    pub fn broadcast<const WHOLE: bool>(self, group: Lanes<WHOLE>) -> Self {
        Taken { reservation: group.broadcast_64(self.reservation), bits: group.broadcast_64(self.bits) }
    }

    pub fn reservation(self) -> Reservation {
        Reservation::unpack(self.reservation)
    }

    /// Number of claimed blocks.
    pub fn count(self) -> u32 {
        self.bits.count_ones()
    }
}

/// In place of a block index: the group's blocks are not all claimed, or not contiguous.
pub(super) const SCATTERED: u32 = u32::MAX;

/// Passes over a region before its metadata is reported as corrupt. Each reservation guarantees a
/// clear bit (I1). A pass misses a bit only if another claim took it, or if its release is not
/// visible yet, so a few passes are enough.
pub(super) const PASSES: u32 = if NATIVE_LAYOUT { 1 << 10 } else { 4 };

impl FreeList {
    /// Takes up to `wanted` blocks of region `r`: reserves them, and claims bits in the words under
    /// the cursor without loading those words first. Returns the index of the first block if all
    /// blocks were claimed and are contiguous, otherwise [`SCATTERED`].
    #[inline(always)]
    pub(super) fn take(&self, r: u32, wanted: u32) -> (u32, Taken) {
        let reservation = self.reserve(r, wanted);
        if reservation.count == 0 || reservation.owed > 0 {
            return (SCATTERED, Taken { reservation: reservation.pack(), bits: 0 });
        }
        let (first, words) = (self.geometry.first_word(r), self.geometry.words_in(r));
        let place = self.geometry.word_under(reservation.cursor, words);
        let bit = reservation.cursor % WORD_BLOCKS;
        let window = ((1u64 << reservation.count) - 1) << bit;
        let (lower, upper) = (window as u32, (window >> WORD_BLOCKS) as u32);
        let low = self.claim(first + place, lower);
        let mut whole = low == lower && reservation.count == wanted;
        let mut high = 0;
        if upper != 0 {
            let wraps = place + 1 == words;
            high = self.claim(first + if wraps { 0 } else { place + 1 }, upper);
            whole &= high == upper && !wraps;
        }
        let start = if whole { (first + place) * WORD_BLOCKS + bit } else { SCATTERED };
        (
            start,
            Taken { reservation: reservation.pack(), bits: u64::from(high) << WORD_BLOCKS | u64::from(low) },
        )
    }

    /// The block of the lane with this `rank` among the blocks taken in region `r`.
    pub(super) fn nth_taken(&self, r: u32, taken: Taken, rank: u32) -> BlockIndex {
        let (first, words) = (self.geometry.first_word(r), self.geometry.words_in(r));
        let place = self.geometry.word_under(taken.reservation().cursor, words);
        let (low, high) = (taken.bits as u32, (taken.bits >> WORD_BLOCKS) as u32);
        let (place, bit) = if rank < low.count_ones() {
            (place, select_bit(low, rank))
        } else {
            (if place + 1 == words { 0 } else { place + 1 }, select_bit(high, rank - low.count_ones()))
        };
        BlockIndex((first + place) * WORD_BLOCKS + bit)
    }

    /// Sets the `wanted` bits of a word. Returns those that were clear: they are now the caller's
    /// blocks.
    #[inline(always)]
    fn claim(&self, word: u32, wanted: u32) -> u32 {
        // ordering: acquire; pairs with RELEASE in `free`: the last owner's writes before the bit
        // (I3).
        wanted & !self.word(word).at(CLAIM).or_acquire(wanted)
    }

    /// Finds a block for a reservation that the cursor did not lead to. Scans the region word by
    /// word. Each lane scans on its own and starts at a word that no other lane of its warp starts
    /// at.
    #[inline(never)]
    pub(super) fn claim_one(&self, r: u32, cursor: u32) -> Option<BlockIndex> {
        let (first, words) = (self.geometry.first_word(r), self.geometry.words_in(r));
        let mut place = self.geometry.word_under(cursor, words);
        for _ in 0..PASSES * words {
            // Relaxed: a hint only; the claim checks the bit.
            let clear = !self.word(first + place).load_relaxed();
            if clear != 0 && self.claim(first + place, clear & clear.wrapping_neg()) != 0 {
                return Some(BlockIndex((first + place) * WORD_BLOCKS + clear.trailing_zeros()));
            }
            place += 1;
            if place == words {
                // A release may become visible a little later than its credit.
                thread::nanosleep(POLL_NANOS);
                place = 0;
            }
        }
        let words = || SeenWords { word: Some(self.region(r).word.load_relaxed()), ..SeenWords::NONE };
        self.faults().record_words(FaultCheck::NoClearBit, 0, r.into(), words, words);
        None
    }
}

/// Maximum attempts of a cancellation. Each failed attempt means that another thread succeeded.
/// While the count is below zero, only threads that owe or free blocks of this region succeed.
const CANCELS: u32 = 1 << 12;

/// Blocks reserved in a region, and the cursor at which to look for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub count: u32,
    /// Blocks that the region did not have; to be settled.
    pub owed: u32,
    pub cursor: u32,
}

/// Bits that hold a number of lanes.
const LANE_BITS: u32 = 8;

impl Reservation {
    pub const NONE: Reservation = Reservation { count: 0, owed: 0, cursor: 0 };

    #[inline(always)]
    pub fn pack(self) -> u64 {
        u64::from(self.cursor) << 32 | u64::from(self.owed << LANE_BITS | self.count)
    }

    #[inline(always)]
    pub fn unpack(packed: u64) -> Self {
        let low = packed as u32;
        Reservation {
            count: low & ((1 << LANE_BITS) - 1),
            owed: low >> LANE_BITS,
            cursor: (packed >> 32) as u32,
        }
    }

    /// Broadcasts the leader's reservation to the group.
    pub fn broadcast<const WHOLE: bool>(self, group: Lanes<WHOLE>) -> Self {
        Reservation::unpack(group.broadcast_64(self.pack()))
    }
}

impl FreeList {
    /// Reserves up to `wanted` blocks of region `r`, at most one per lane. Reserves fewer if the
    /// region has fewer. What the result owes must be settled.
    ///
    /// The load before the atomic lets the count go below zero only in a race for the last blocks.
    /// Relaxed: a reservation is a right to some bits (I1); the memory behind a bit is ordered by
    /// its claim (I3).
    #[inline(always)]
    pub(super) fn reserve(&self, r: u32, wanted: u32) -> Reservation {
        let word = &self.region(r).word;
        let there = Word(word.load_relaxed()).free();
        if there <= 0 {
            return Reservation::NONE;
        }
        let wanted = wanted.min(there as u32);
        RESERVE.delay();
        let old = Word(word.add_relaxed(Word::step(wanted)));
        if old.free() >= wanted as i32 {
            return Reservation { count: wanted, owed: 0, cursor: old.cursor() };
        }
        // Other threads were faster: keep the blocks that were left, and owe the rest.
        let count = old.free().max(0) as u32;
        Reservation { count, owed: wanted - count, cursor: old.cursor() }
    }

    /// Cancels what was reserved beyond what region `r` had. Blocks that were freed since may have
    /// filled part of it: those stay reserved (I5).
    #[inline(always)]
    pub(super) fn settle(&self, r: u32, reservation: Reservation) -> Reservation {
        let Reservation { count, owed, cursor } = reservation;
        let filled = if owed == 0 { 0 } else { owed - self.cancel(r, owed) };
        Reservation { count: count + filled, owed: 0, cursor }
    }

    /// Cancels the part of `owed` blocks that is still unfilled. Returns the number of blocks
    /// cancelled.
    #[inline(never)]
    fn cancel(&self, r: u32, owed: u32) -> u32 {
        let word = &self.region(r).word;
        let mut seen = Word(word.load_relaxed());
        for _ in 0..CANCELS {
            let unfilled = seen.free().min(0).unsigned_abs().min(owed);
            if unfilled == 0 {
                return 0;
            }
            CANCEL.delay();
            match word.cas_relaxed(seen.0, seen.0 + u64::from(unfilled)) {
                Ok(_) => return unfilled,
                Err(now) => seen = Word(now),
            }
        }
        CANCEL_ALL.delay();
        word.add_relaxed(owed.into());
        owed
    }

    /// Adds `n` blocks to the count of region `r`, after their bits were released (I1).
    ///
    /// Relaxed: the release has returned its old value, so it has taken place. A claim that still
    /// misses it looks again.
    #[inline(always)]
    pub(super) fn credit(&self, r: u32, n: u32) {
        CREDIT.delay();
        self.region(r).word.add_relaxed(n.into());
    }
}

/// The wait for another warp's scan is far longer than the few microseconds that a scan takes.
const WAIT: Wait = Wait { polls: if NATIVE_LAYOUT { 1 << 8 } else { 3 }, nanos: POLL_NANOS, polls_first: 0 };

/// What a pass over all regions, or a scan, has found.
pub(super) enum Look {
    /// This region has free blocks.
    Candidate(u32),
    /// No region has free blocks. `cursors` is the sum of their cursors, which grows with every
    /// reservation.
    Empty { cursors: u32 },
    /// No region had free blocks, but blocks were reserved between the two passes of a scan.
    Unsettled,
}

impl FreeList {
    /// Whether a scan that began after this call found the pool empty. The scan is another warp's
    /// or this warp's. When allocation fails for all warps at once, about one warp in thirty scans
    /// the regions on behalf of the rest: a word that all of them read serves only about one read
    /// in two nanoseconds.
    #[inline(always)]
    pub(super) fn scan_finds_empty<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, first: u32) -> bool {
        let scan = || matches!(self.scan(lanes, first), Look::Empty { .. });
        let sites = Sites { arrive: ARRIVE, begin: BEGIN_SCAN };
        // A failed allocation publishes nothing. Without a result, every warp scans for itself.
        self.region(first).scans.ask(lanes, sites, WAIT, scan).unwrap_or(false)
    }

    /// A scan by a subset of a warp.
    #[inline(never)]
    pub(super) fn scan_in_part(&self, group: Group, first: u32) -> Look {
        self.scan(group, first)
    }

    /// Reads every region twice. Returns `Empty` only if both passes found no blocks and nothing
    /// was reserved between them (I4).
    #[inline(always)]
    fn scan<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, first: u32) -> Look {
        let mut before = None;
        for _ in 0..2 {
            match self.pass(lanes, first) {
                Look::Empty { cursors } if before == Some(cursors) => return Look::Empty { cursors },
                Look::Empty { cursors } => before = Some(cursors),
                other => return other,
            }
        }
        Look::Unsettled
    }

    /// Reads the regions, one region per lane at a time, until one has free blocks.
    #[inline(always)]
    fn pass<const WHOLE: bool>(&self, group: Lanes<WHOLE>, first: u32) -> Look {
        let regions = self.geometry.regions();
        let mut cursors = 0u32;
        let mut base = 0;
        while base < regions {
            // Every lane takes part in every ballot, including lanes with no region left to read.
            let place = base + group.rank();
            let r = if first + place < regions { first + place } else { first + place - regions };
            // Relaxed: the count is only a hint; two equal passes show that the pool is empty (I4).
            let word = if place < regions { Word(self.region(r).word.load_relaxed()) } else { Word::new(0) };
            let candidates = group.ballot(word.free() > 0);
            if !candidates.is_empty() {
                return Look::Candidate(group.read_32(r, candidates.leader()));
            }
            cursors = cursors.wrapping_add(word.cursor());
            base += group.count();
        }
        Look::Empty { cursors: group.wrapping_sum(cursors) }
    }
}
