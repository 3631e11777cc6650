//! Shared memory of a block (`.shared`), on the SM that runs the block.
//!
//! A type that implements [`SharedMemory`] names a piece of it. All threads of a block get the same
//! piece for the same type; another block or another type has another piece. A piece is valid from
//! the start of the block to its end. Its initial content is **undefined**.
//!
//! ```text
//! block 0   | piece of type A | piece of type B |
//! block 1   | piece of type A | piece of type B |
//! ```
//!
//! Pieces are static. A kernel uses as much shared memory as the pieces of all types that it names,
//! 48 KiB at most. The resident blocks of an SM share 100 to 228 KiB.
//!
//! Costs on an H200: a load or a store takes about 30 cycles and causes no traffic outside the SM.
//! All operations are relaxed: use [`thread::sync_threads`](crate::thread::sync_threads) to order
//! them between threads.

#[cfg(not(target_arch = "nvptx64"))]
#[path = "host.rs"]
mod backend;
#[cfg(target_arch = "nvptx64")]
#[path = "nvptx.rs"]
mod backend;

/// The address of a 64-bit word in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct SharedWord(backend::Address);

impl SharedWord {
    /// The first word of the piece that `M` names.
    #[inline(always)]
    pub fn first<M: SharedMemory>() -> Self {
        const { assert!(M::WORDS <= MAX_BYTES / WORD_BYTES, "more shared memory than a kernel may have") };
        SharedWord(backend::first::<M>())
    }

    /// The word `words` positions further on.
    #[inline(always)]
    pub fn plus(self, words: u32) -> Self {
        SharedWord(backend::plus(self.0, words))
    }

    /// The word `words` positions before.
    #[inline(always)]
    pub fn minus(self, words: u32) -> Self {
        SharedWord(backend::minus(self.0, words))
    }
}

macro_rules! operations {
    ($($name:ident($($arg:ident: u64),*) -> $out:ty: $doc:literal;)+) => {
        impl SharedWord {$(
            #[doc = $doc]
            ///
            /// # Safety
            /// The word is inside the piece that its address was derived from. A thread of the same
            /// block derived the address, and the block is still running.
            #[inline(always)]
            pub unsafe fn $name(self, $($arg: u64),*) -> $out {
                // SAFETY: the word is inside a live piece, by the caller's promise.
                unsafe { backend::$name(self.0, $($arg),*) }
            }
        )+}
    };
}

operations! {
    load_relaxed() -> u64: "Reads. Relaxed.";
    store_relaxed(v: u64) -> (): "Writes. Relaxed.";
    or_relaxed(v: u64) -> u64: "Sets the bits of `v`. Returns the old value. Relaxed.";
    and_relaxed(v: u64) -> u64: "Keeps the bits of `v`. Returns the old value. Relaxed.";
    swap_relaxed(v: u64) -> u64: "Replaces by `v`. Returns the old value. Relaxed.";
}

/// The size of a word in bytes.
pub const WORD_BYTES: u32 = 8;

/// The largest amount of shared memory, in bytes, that a kernel may use without an opt-in through
/// the driver.
pub const MAX_BYTES: u32 = 48 << 10;

/// Names a piece of shared memory.
pub trait SharedMemory: 'static {
    /// The number of 64-bit words in the piece.
    const WORDS: u32;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct One;
    struct Other;
    impl SharedMemory for One {
        const WORDS: u32 = 4;
    }
    impl SharedMemory for Other {
        const WORDS: u32 = 4;
    }

    #[test]
    fn a_type_names_one_piece() {
        let (one, other) = (SharedWord::first::<One>(), SharedWord::first::<Other>());
        assert_eq!(one, SharedWord::first::<One>());
        assert_ne!(one, other);
        assert_eq!(one.plus(3).minus(3), one);
        for (i, piece) in (0..).zip([one, other]) {
            // SAFETY: four words each.
            (0..4).for_each(|w| unsafe { piece.plus(w).store_relaxed(u64::from(10 * i + w)) });
        }
        // SAFETY: four words each.
        let read = |piece: SharedWord| (0..4).map(move |w| unsafe { piece.plus(w).load_relaxed() });
        assert!(read(one).eq(0..4) && read(other).eq(10..14));
    }

    #[test]
    fn exchanges_return_what_was_there() {
        let word = SharedWord::first::<One>();
        // SAFETY: the piece has this word. Each test runs on its own OS thread, and so in its own
        // block.
        unsafe { word.store_relaxed(0b0110) };
        // SAFETY: the piece has this word.
        assert_eq!(unsafe { word.or_relaxed(0b0001) }, 0b0110);
        // SAFETY: the piece has this word.
        assert_eq!(unsafe { word.and_relaxed(0b0011) }, 0b0111);
        // SAFETY: the piece has this word.
        assert_eq!(unsafe { word.swap_relaxed(9) }, 0b0011);
        // SAFETY: the piece has this word.
        assert_eq!(unsafe { word.load_relaxed() }, 9);
    }
}
