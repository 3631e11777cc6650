//! Accesses beyond one word: to several words at once, and to memory that other threads own.

use super::atomic::{AtomicU32, NATIVE_LAYOUT};
use super::backend::{self, GpuU32};

/// Number of words that one instruction reads or writes.
pub const QUAD: usize = if NATIVE_LAYOUT { 4 } else { 1 };

/// [`QUAD`] words, aligned to their total size. On a GPU each lane executes one instruction, which
/// accesses each word separately. Relaxed.
pub(crate) mod quad {
    use super::{AtomicU32, GpuU32, QUAD, backend};

    #[inline(always)]
    fn cells(words: &[AtomicU32; QUAD]) -> &[GpuU32; QUAD] {
        // SAFETY: `AtomicU32` is `repr(transparent)` over `GpuU32`.
        unsafe { &*(&raw const *words).cast() }
    }

    /// Reads the words.
    #[inline(always)]
    pub fn load_relaxed(words: &[AtomicU32; QUAD]) -> [u32; QUAD] {
        backend::load_quad(cells(words))
    }

    /// Sets all of the words to zero.
    #[inline(always)]
    pub fn clear_relaxed(words: &[AtomicU32; QUAD]) {
        backend::clear_quad(cells(words));
    }
}

macro_rules! unowned {
    ($($int:ty: $peek:ident $poke:ident;)+) => {$(
        /// Reads memory that another thread may be writing by mistake. Returns the current content,
        /// not one that a cache or the compiler remembers. For checks; orders nothing.
        ///
        /// # Safety
        /// `place` is live global memory, and aligned.
        #[inline(always)]
        pub unsafe fn $peek(place: *const $int) -> $int {
            // SAFETY: the caller promises live, aligned global memory.
            unsafe { backend::$peek(place) }
        }

        /// Writes memory that another thread may be using by mistake. For checks; orders nothing.
        ///
        /// # Safety
        /// `place` is live global memory, and aligned.
        #[inline(always)]
        pub unsafe fn $poke(place: *mut $int, value: $int) {
            // SAFETY: the caller promises live, aligned global memory.
            unsafe { backend::$poke(place, value) }
        }
    )+};
}

unowned! {
    u64: peek_u64 poke_u64;
    u8: peek_u8 poke_u8;
}
