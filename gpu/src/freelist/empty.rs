//! The proof that a pool is empty, and how warps share it.

use super::alloc::Look;
use super::reserve::Word;
use super::{ARRIVE, FreeList, POLL_NANOS, PROVE};
use crate::lanes::{Group, Lanes};
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// Polls for the end of a proof that another warp has begun: far more than the few microseconds it takes.
const WAITS: u32 = if NATIVE_LAYOUT { 1 << 8 } else { 3 };

impl FreeList {
    /// Whether a proof that began after this call says that the pool is empty: another warp's, or this
    /// one's own. When all warps are refused at once, one in thirty looks at the regions for the rest;
    /// a word that all of them read serves only about one in two nanoseconds.
    #[inline(always)]
    pub(super) fn is_known_empty<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, home: u32) -> bool {
        let region = self.region(home);
        // ordering: release; pairs with PROVE below: what this warp has freed, or knows to be freed, before
        // the looks of a proof that begins later (I6).
        let arrived = lanes.lead_64(|| region.proofs_begun.add_release(0, ARRIVE));
        for _ in 0..WAITS {
            let verdict = lanes.lead_64(|| region.verdict.load_relaxed());
            if verdict / 2 > arrived {
                return verdict % 2 == 1;
            }
            // No proof is under way: begin one, unless another warp is faster.
            let begun = verdict / 2;
            // ordering: acquire; pairs with ARRIVE above.
            let mine =
                lanes.lead_64(|| region.proofs_begun.cas_acquire(begun, begun + 1, PROVE).is_ok().into());
            if mine == 1 {
                let empty = matches!(self.look_twice(lanes, home), Look::Empty { .. });
                if lanes.leads() {
                    // Relaxed: a refusal publishes nothing, and without one every warp looks for itself.
                    region.verdict.store_relaxed(2 * (begun + 1) + u64::from(empty));
                }
                return empty;
            }
            thread::nanosleep(POLL_NANOS);
        }
        false
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
