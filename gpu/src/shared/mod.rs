//! Memory that the threads of a block share (`.shared`), on the multiprocessor that runs them.
//!
//! A type that implements [`SharedMemory`] names a piece of it: for all threads of a block and all calls with that
//! type the same, for another block or another type another. It is there from the start of the block to its end, and
//! holds **anything** at first.
//!
//! ```text
//! block 0   | piece of type A | piece of type B |
//! block 1   | piece of type A | piece of type B |
//! ```
//!
//! Pieces are static: a kernel has as much of this memory as the pieces of all types that it names, 48 KiB at most,
//! and the blocks that a multiprocessor runs at once share 100 to 228 KiB.
//!
//! Costs on an H200: a load or a store about 30 cycles, no traffic beyond the multiprocessor. All operations are
//! relaxed: what is to be seen by others is ordered by [`thread::sync_threads`](crate::thread::sync_threads).

#[cfg(not(target_arch = "nvptx64"))]
#[path = "host.rs"]
mod backend;
#[cfg(target_arch = "nvptx64")]
#[path = "nvptx.rs"]
mod backend;

/// Bytes of a word.
pub const WORD_BYTES: u32 = 8;

/// The most bytes of this memory that a kernel may have without asking the driver.
pub const MAX_BYTES: u32 = 48 << 10;

/// Names a piece of shared memory.
pub trait SharedMemory: 'static {
    /// How many words of 64 bits it has.
    const WORDS: u32;
}

/// The place of a 64-bit word in shared memory.
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

    /// The place so many words further on.
    #[inline(always)]
    pub fn plus(self, words: u32) -> Self {
        SharedWord(backend::plus(self.0, words))
    }

    /// The place so many words before.
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
            /// The place is inside of the piece that it was made from, by a thread of the same block, which is still running.
            #[inline(always)]
            pub unsafe fn $name(self, $($arg: u64),*) -> $out {
                // SAFETY: the caller's promise.
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
        // SAFETY: the same.
        let read = |piece: SharedWord| (0..4).map(move |w| unsafe { piece.plus(w).load_relaxed() });
        assert!(read(one).eq(0..4) && read(other).eq(10..14));
    }

    #[test]
    fn exchanges_return_what_was_there() {
        let word = SharedWord::first::<One>();
        // SAFETY: the piece has this word; each test has an OS thread, and so a block, of its own.
        unsafe { word.store_relaxed(0b0110) };
        // SAFETY: the same.
        assert_eq!(unsafe { word.or_relaxed(0b0001) }, 0b0110);
        // SAFETY: the same.
        assert_eq!(unsafe { word.and_relaxed(0b0011) }, 0b0111);
        // SAFETY: the same.
        assert_eq!(unsafe { word.swap_relaxed(9) }, 0b0011);
        // SAFETY: the same.
        assert_eq!(unsafe { word.load_relaxed() }, 9);
    }
}
