//! Deliberate corruption, for testing the checks.

use super::geometry::{Location, WORD_BLOCKS};
use super::handle::FreeList;
use core::ptr::NonNull;

impl FreeList {
    /// Marks a live block as free without its owner's knowledge: clears its bit and credits its
    /// region. The pool will allocate the block a second time. Returns whether the block was live.
    ///
    /// # Safety
    /// Never safe for the block's owner: that is the purpose. No other thread uses the pool during
    /// the call.
    #[doc(hidden)]
    pub unsafe fn corrupt_unclaim(&self, block: NonNull<u8>) -> bool {
        let offset = (block.as_ptr() as u64).wrapping_sub(self.base as u64);
        let Location::Block(index) = self.geometry.locate(offset) else { return false };
        let (word, bit) = (index / WORD_BLOCKS, 1 << (index % WORD_BLOCKS));
        // Relaxed: no other thread uses the pool.
        let was_live = self.word(word).and_relaxed(!bit) & bit != 0;
        if was_live {
            self.credit(self.geometry.region_of_word(word), 1);
        }
        was_live
    }
}
