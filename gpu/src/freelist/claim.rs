//! Claiming: turning a reservation into blocks.

use super::geometry::WORD_BLOCKS;
use super::handle::{CLAIM, FreeList, POLL_NANOS};
use super::reserve::Reservation;
use crate::fault::{FaultCheck, SeenWords};
use crate::lanes::{Lanes, select_bit};
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::BlockIndex;

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
