//! Damage done on purpose, so that the checks can be checked.

use super::Bump;

impl Bump {
    /// Moves the arena's counter back: the last `bytes` that the root has lent out count as not lent. The
    /// arena will hand them out a second time.
    ///
    /// # Safety
    /// Never safe for the owners, which is the purpose. At least as much was lent, and no one else uses the
    /// arena at the moment.
    #[doc(hidden)]
    pub unsafe fn corrupt_rewind(&self, bytes: u64) {
        // Relaxed: no one else uses the arena.
        self.root().remaining.add_relaxed(bytes >> self.granule_log2);
        self.root().ceiling.store_relaxed(u64::MAX);
    }
}
