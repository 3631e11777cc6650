//! The proof that a pool is empty, and how warps share it.

use super::alloc::Look;
use super::reserve::Word;
use super::{ARRIVE, FreeList, POLL_NANOS, PROVE};
use crate::lanes::{Group, Lanes};
use crate::proofs::{Sites, Wait};
use crate::sync::NATIVE_LAYOUT;

/// Proofs that others make are waited for far longer than the few microseconds that they take.
const WAIT: Wait = Wait { polls: if NATIVE_LAYOUT { 1 << 8 } else { 3 }, nanos: POLL_NANOS, polls_first: 0 };

impl FreeList {
    /// Whether a proof that began after this call says that the pool is empty: another warp's, or this
    /// one's own. When all warps are refused at once, one in thirty looks at the regions for the rest;
    /// a word that all of them read serves only about one in two nanoseconds.
    #[inline(always)]
    pub(super) fn is_known_empty<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, home: u32) -> bool {
        let look = || matches!(self.look_twice(lanes, home), Look::Empty { .. });
        let sites = Sites { arrive: ARRIVE, begin: PROVE };
        // A refusal publishes nothing, and without an answer every warp looks for itself.
        self.region(home).proofs.ask(lanes, sites, WAIT, look).unwrap_or(false)
    }

    /// Two looks at every region, for a part of a warp.
    #[inline(never)]
    pub(super) fn look_twice_in_part(&self, group: Group, home: u32) -> Look {
        self.look_twice(group, home)
    }

    /// Two looks at every region. Empty only if both found that, and nothing was reserved in between (I4).
    #[inline(always)]
    fn look_twice<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, home: u32) -> Look {
        let mut before = None;
        for _ in 0..2 {
            match self.look(lanes, home) {
                Look::Empty { cursors } if before == Some(cursors) => return Look::Empty { cursors },
                Look::Empty { cursors } => before = Some(cursors),
                other => return other,
            }
        }
        Look::Unsettled
    }

    /// Looks at every region, a lane a region at a time, until one has blocks.
    #[inline(always)]
    fn look<const WHOLE: bool>(&self, group: Lanes<WHOLE>, home: u32) -> Look {
        let regions = self.geometry.regions();
        let mut cursors = 0u32;
        let mut base = 0;
        while base < regions {
            // Every lane takes part in every ballot, also one that has no region left to look at.
            let place = base + group.rank();
            let r = if home + place < regions { home + place } else { home + place - regions };
            // Relaxed: a count is a hint here, and two equal looks are the proof (I4).
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
