//! Damage done on purpose, so that the checks can be checked.

use super::FreeList;
use super::geometry::{Location, WORD_BLOCKS};
use core::ptr::NonNull;

impl FreeList {
    /// Makes a live block look free: its bit is cleared and its region credited, behind its owner's back.
    /// The pool will hand it out a second time. Returns whether the block was live.
    ///
    /// # Safety
    /// Never safe for the owner, which is the purpose. No one else uses the pool at the moment.
    #[doc(hidden)]
    pub unsafe fn corrupt_unclaim(&self, block: NonNull<u8>) -> bool {
        let offset = (block.as_ptr() as u64).wrapping_sub(self.base as u64);
        let Location::Block(index) = self.geometry.locate(offset) else { return false };
        let (word, bit) = (index / WORD_BLOCKS, 1 << (index % WORD_BLOCKS));
        // Relaxed: no one else uses the pool.
        let was_live = self.word(word).and_relaxed(!bit) & bit != 0;
        if was_live {
            self.credit(self.geometry.region_of_word(word), 1);
        }
        was_live
    }
}
