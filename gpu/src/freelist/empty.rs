//! The scan that a pool is empty, and how warps share it.

use super::alloc::Look;
use super::reserve::Word;
use super::{ARRIVE, FreeList, POLL_NANOS, PROVE};
use crate::lanes::{Group, Lanes};
use crate::scans::{Sites, Wait};
use crate::sync::NATIVE_LAYOUT;

/// The wait for another warp's scan is far longer than the few microseconds that a scan takes.
const WAIT: Wait = Wait { polls: if NATIVE_LAYOUT { 1 << 8 } else { 3 }, nanos: POLL_NANOS, polls_first: 0 };

impl FreeList {
    /// Whether a scan that began after this call found the pool empty. The scan is another warp's
    /// or this warp's. When allocation fails for all warps at once, about one warp in thirty looks
    /// at the regions on behalf of the rest: a word that all of them read serves only about one
    /// read in two nanoseconds.
    #[inline(always)]
    pub(super) fn is_known_empty<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, first: u32) -> bool {
        let look = || matches!(self.look_twice(lanes, first), Look::Empty { .. });
        let sites = Sites { arrive: ARRIVE, begin: PROVE };
        // A failed allocation publishes nothing. Without an answer, every warp looks for itself.
        self.region(first).scans.ask(lanes, sites, WAIT, look).unwrap_or(false)
    }

    /// Two looks at every region, for a subset of a warp.
    #[inline(never)]
    pub(super) fn look_twice_in_part(&self, group: Group, first: u32) -> Look {
        self.look_twice(group, first)
    }

    /// Two looks at every region. Returns `Empty` only if both looks found no blocks and nothing
    /// was reserved between them (I4).
    #[inline(always)]
    fn look_twice<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, first: u32) -> Look {
        let mut before = None;
        for _ in 0..2 {
            match self.look(lanes, first) {
                Look::Empty { cursors } if before == Some(cursors) => return Look::Empty { cursors },
                Look::Empty { cursors } => before = Some(cursors),
                other => return other,
            }
        }
        Look::Unsettled
    }

    /// Looks at the regions, one region per lane at a time, until one has free blocks.
    #[inline(always)]
    fn look<const WHOLE: bool>(&self, group: Lanes<WHOLE>, first: u32) -> Look {
        let regions = self.geometry.regions();
        let mut cursors = 0u32;
        let mut base = 0;
        while base < regions {
            // Every lane takes part in every ballot, including lanes with no region left to look
            // at.
            let place = base + group.rank();
            let r = if first + place < regions { first + place } else { first + place - regions };
            // Relaxed: the count is only a hint; two equal looks are the proof (I4).
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
