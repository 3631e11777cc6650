//! Scans of all regions, and how warps share them.

use super::handle::{ARRIVE, BEGIN_SCAN, FreeList, POLL_NANOS};
use super::region::Word;
use crate::lanes::{Group, Lanes};
use crate::scans::{Sites, Wait};
use crate::sync::NATIVE_LAYOUT;

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
