//! Shared proofs: one group looks at the whole structure, and the result counts for every group
//! that arrived before the look began. An allocation may fail on the strength of such a proof.
//!
//! ```text
//! begun     proofs begun
//! verdict   twice the number of proofs ended, plus 1 if the last one answered yes
//! ```
//!
//! - I1. `verdict / 2 <= begun <= verdict / 2 + 1`: one proof at a time.
//! - I2. Proof `k`, the one that raised `begun` from `k`, began after every arrival that read a
//!   value up to `k`. What the arriving groups knew happens before the looks of that proof.
//!
//! A group that arrives while a proof is under way waits for the end of the next proof, because the
//! current one may have looked already. The wait is bounded; if it expires, nothing is known.

use crate::lanes::Lanes;
use crate::sync::{AtomicU64, Site};
use crate::thread;

/// The counters of the proofs of one question.
#[repr(C)]
#[derive(Debug)]
pub struct Proofs {
    begun: AtomicU64,
    verdict: AtomicU64,
}

/// How long to wait for the end of another group's proof: the number of polls, the pause between
/// them, and the number of polls before this group begins a proof itself.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub polls: u32,
    pub nanos: u32,
    pub polls_first: u32,
}

/// The orderings of an arrival, which releases, and of a beginning, which acquires.
#[derive(Clone, Copy)]
pub(crate) struct Sites {
    pub arrive: Site,
    pub begin: Site,
}

impl Proofs {
    #[cfg(not(target_arch = "nvptx64"))]
    /// Counters without any proof.
    pub fn new() -> Self {
        Proofs { begun: AtomicU64::new(0), verdict: AtomicU64::new(0) }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// The in-memory representation for device memory.
    pub(crate) fn to_words(&self) -> [u64; 2] {
        [self.begun.load_relaxed(), self.verdict.load_relaxed()]
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// Decodes the representation in device memory.
    pub(crate) fn from_words(words: [u64; 2]) -> Self {
        let [begun, verdict] = words.map(AtomicU64::new);
        Proofs { begun, verdict }
    }

    /// The number of proofs that have begun, and the number that have ended.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.begun.load_relaxed(), self.verdict.load_relaxed() / 2)
    }

    /// The answer of a proof that began after this call: another group's proof, or `prove`, which
    /// this group runs if no other proof is under way. Returns `None` if other groups' proofs took
    /// too long. Anything else that a proof publishes must be ordered by the caller.
    #[inline(always)]
    pub(crate) fn ask<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        sites: Sites,
        wait: Wait,
        prove: impl FnOnce() -> bool,
    ) -> Option<bool> {
        // ordering: release; pairs with the beginning below: what this group has freed, or knows to
        // be freed, before the looks of a proof that begins later (I2).
        let arrived = lanes.lead_64(|| self.begun.at(sites.arrive).add_release(0));
        let mut under_way = u64::MAX;
        for poll in 0..wait.polls {
            // Relaxed: a verdict by itself publishes nothing.
            let verdict = lanes.lead_64(|| self.verdict.load_relaxed());
            if verdict / 2 > arrived {
                return Some(verdict % 2 == 1);
            }
            // One attempt per verdict: until the verdict changes, the proof that stopped this group
            // from beginning is still under way.
            if verdict != under_way && poll >= wait.polls_first {
                let begun = verdict / 2;
                // ordering: acquire; pairs with the arrivals above (I2).
                let mine = || self.begun.at(sites.begin).cas_acquire(begun, begun + 1).is_ok().into();
                if lanes.lead_64(mine) == 1 {
                    // What the leader acquired is before the looks of all lanes.
                    lanes.order();
                    let answer = prove();
                    if lanes.leads() {
                        self.verdict.store_relaxed(2 * (begun + 1) + u64::from(answer));
                    }
                    return Some(answer);
                }
                under_way = verdict;
            }
            thread::nanosleep(wait.nanos);
        }
        None
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Proofs {
    fn default() -> Self {
        Proofs::new()
    }
}
