//! Deliberate corruption, for testing the checks.

use super::handle::Bump;

impl Bump {
    /// Moves the arena's counter back: the last `bytes` that the root has leased count as not
    /// leased. The arena will allocate them a second time.
    ///
    /// # Safety
    /// Never safe for the owners: that is the purpose. At least `bytes` were leased, and no other
    /// thread uses the arena during the call.
    #[doc(hidden)]
    pub unsafe fn corrupt_rewind(&self, bytes: u64) {
        // Relaxed: no other thread uses the arena.
        self.root().remaining.add_relaxed(bytes >> self.granule_log2);
        self.root().ceiling.store_relaxed(u64::MAX);
    }
}
