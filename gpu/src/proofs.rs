//! Proofs that one group makes and that count for all who arrived before: a look at everything, so that someone may be
//! refused.
//!
//! ```text
//! begun     proofs begun
//! verdict   twice the number of those that have ended, and 1 if the last said yes
//! ```
//!
//! - I1. `verdict / 2 <= begun <= verdict / 2 + 1`: one proof at a time.
//! - I2. Proof `k`, the one that raised `begun` from `k`, began after every arrival that read a number up to `k`; and
//!   what those who arrived knew is before its looks.
//!
//! Who arrives while a proof is under way waits for the next one's end, for that one may have looked already. The wait is
//! bounded; after it nothing is known.

use crate::lanes::Lanes;
use crate::sync::{AtomicU64, Site};
use crate::thread;

/// The counts of the proofs of one question.
#[repr(C)]
#[derive(Debug)]
pub struct Proofs {
    begun: AtomicU64,
    verdict: AtomicU64,
}

/// How often, and how far apart, the end of another group's proof is looked for; and how often before this group makes one.
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
    /// Of none.
    pub fn new() -> Self {
        Proofs { begun: AtomicU64::new(0), verdict: AtomicU64::new(0) }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// As they lie in device memory.
    pub(crate) fn to_words(&self) -> [u64; 2] {
        [self.begun.load_relaxed(), self.verdict.load_relaxed()]
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// As they lay in device memory.
    pub(crate) fn from_words(words: [u64; 2]) -> Self {
        let [begun, verdict] = words.map(AtomicU64::new);
        Proofs { begun, verdict }
    }

    /// Proofs that have begun, and that have ended.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.begun.load_relaxed(), self.verdict.load_relaxed() / 2)
    }

    /// What a proof says that began after this call: another group's, or `prove`, which this group makes when no other
    /// is under way. `None` if others' took too long. What a proof publishes besides is the caller's to order.
    #[inline(always)]
    pub(crate) fn ask<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        sites: Sites,
        wait: Wait,
        prove: impl FnOnce() -> bool,
    ) -> Option<bool> {
        // ordering: release; pairs with the beginning below: what this group has freed, or knows to be freed, before
        // the looks of a proof that begins later (I2).
        let arrived = lanes.lead_64(|| self.begun.at(sites.arrive).add_release(0));
        let mut under_way = u64::MAX;
        for poll in 0..wait.polls {
            // Relaxed: a verdict by itself publishes nothing.
            let verdict = lanes.lead_64(|| self.verdict.load_relaxed());
            if verdict / 2 > arrived {
                return Some(verdict % 2 == 1);
            }
            // Once for each verdict: until the next one, the proof goes on that kept this group from beginning.
            if verdict != under_way && poll >= wait.polls_first {
                let begun = verdict / 2;
                // ordering: acquire; pairs with the arrivals above (I2).
                let mine = || self.begun.at(sites.begin).cas_acquire(begun, begun + 1).is_ok().into();
                if lanes.lead_64(mine) == 1 {
                    // What the leader acquired is before the looks of all.
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
