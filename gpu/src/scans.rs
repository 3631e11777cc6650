//! Shared scans: one group scans a whole structure, and the result counts for every group that
//! arrived before the scan began. An allocation may fail because of such a result.
//!
//! ```text
//! begun    number of scans begun
//! result   twice the number of scans ended, plus 1 if the last one returned true
//! ```
//!
//! - I1. `result / 2 <= begun <= result / 2 + 1`: one scan at a time.
//! - I2. Scan `k`, the one that raised `begun` from `k`, began after every arrival that read a
//!   value up to `k`. What the arriving groups knew happens before the reads of that scan.
//!
//! A group that arrives while a scan is under way waits for the end of the next scan, because the
//! current one may have read its words already. The wait is bounded; if it expires, nothing is
//! known.

use crate::lanes::Lanes;
use crate::sync::{AtomicU64, Site};
use crate::thread;

/// The counters of the scans of one structure.
#[repr(C)]
#[derive(Debug)]
pub struct Scans {
    begun: AtomicU64,
    result: AtomicU64,
}

/// How long to wait for the end of another group's scan: the number of polls, the pause between
/// them, and the number of polls before this group begins a scan itself.
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

/// The end of a scan, before its result is stored.
const END: Site = Site::new("scans/end");
/// The points at which a stress test can delay a thread.
pub const POINTS: [&str; 1] = ["scans/end"];

impl Scans {
    #[cfg(not(target_arch = "nvptx64"))]
    /// Counters without any scan.
    pub fn new() -> Self {
        Scans::from_words([0; 2])
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// The in-memory representation for device memory.
    pub(crate) fn to_words(&self) -> [u64; 2] {
        [self.begun.load_relaxed(), self.result.load_relaxed()]
    }

    #[cfg(not(target_arch = "nvptx64"))]
    /// Decodes the representation in device memory.
    pub(crate) fn from_words(words: [u64; 2]) -> Self {
        let [begun, result] = words.map(AtomicU64::new);
        Scans { begun, result }
    }

    /// The result of a scan that began after this call: another group's scan, or `scan`, which this
    /// group runs if no other scan is under way. Returns `None` if other groups' scans took too
    /// long. Anything else that a scan publishes must be ordered by the caller.
    #[inline(always)]
    pub(crate) fn ask<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        sites: Sites,
        wait: Wait,
        scan: impl FnOnce() -> bool,
    ) -> Option<bool> {
        // ordering: release; pairs with the beginning below: what this group has freed, or knows to
        // be freed, before the reads of a scan that begins later (I2).
        let arrived = lanes.lead_64(|| self.begun.at(sites.arrive).add_release(0));
        let mut under_way = u64::MAX;
        for poll in 0..wait.polls {
            // Relaxed: a result by itself publishes nothing.
            let result = lanes.lead_64(|| self.result.load_relaxed());
            if result / 2 > arrived {
                return Some(result % 2 == 1);
            }
            // One attempt per result: until the result changes, the scan that prevented this group
            // from beginning one is still under way.
            if result != under_way && poll >= wait.polls_first {
                let begun = result / 2;
                // ordering: acquire; pairs with the arrivals above (I2).
                let mine = || self.begun.at(sites.begin).cas_acquire(begun, begun + 1).is_ok().into();
                if lanes.lead_64(mine) == 1 {
                    // What the leader acquired is before the reads of all lanes.
                    lanes.order();
                    let found = scan();
                    if lanes.leads() {
                        END.delay();
                        self.result.store_relaxed(2 * (begun + 1) + u64::from(found));
                    }
                    return Some(found);
                }
                under_way = result;
            }
            thread::nanosleep(wait.nanos);
        }
        None
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Scans {
    fn default() -> Self {
        Scans::new()
    }
}
