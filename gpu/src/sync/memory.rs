//! Accesses to memory that other threads own.

use super::backend;

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
