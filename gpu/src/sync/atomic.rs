//! The atomic words: each operation in each ordering, by name.

use super::backend;
use super::site::Site;

/// Whether an atomic has the size and the layout of its integer. Not the case under loom.
pub const NATIVE_LAYOUT: bool = !cfg!(loom);

/// A word together with the name of its next operation: see [`AtomicU32::at`] and its counterparts
/// on the other types.
///
/// In a normal build it holds only the word.
#[must_use = "it does nothing without an operation"]
#[derive(Debug)]
pub struct At<'a, W> {
    word: &'a W,
    site: Site,
}

/// One read-modify-write in its four orderings.
macro_rules! rmw {
    (word $int:ty, $($relaxed:ident $acquire:ident $release:ident $acq_rel:ident: $doc:literal;)+) => {$(
        #[doc = $doc]
        /// Returns the old value. Relaxed.
        #[inline(always)]
        pub fn $relaxed(&self, v: $int) -> $int {
            self.0.$relaxed(v)
        }
        #[doc = $doc]
        /// Returns the old value. Acquire.
        #[inline(always)]
        pub fn $acquire(&self, v: $int) -> $int {
            self.0.$acquire(v)
        }
        #[doc = $doc]
        /// Returns the old value. Release.
        #[inline(always)]
        pub fn $release(&self, v: $int) -> $int {
            self.0.$release(v)
        }
        #[doc = $doc]
        /// Returns the old value. Acquire and release.
        #[inline(always)]
        pub fn $acq_rel(&self, v: $int) -> $int {
            self.0.$acq_rel(v)
        }
    )+};
    (at $int:ty, $($relaxed:ident $acquire:ident $release:ident $acq_rel:ident: $doc:literal;)+) => {$(
        rmw! { @at $int, $relaxed $acquire $doc "Returns the old value. Acquire." }
        rmw! { @at $int, $relaxed $release $doc "Returns the old value. Release." }
        #[doc = $doc]
        /// Returns the old value. Acquire and release.
        #[inline(always)]
        pub fn $acq_rel(self, v: $int) -> $int {
            match self.site.weakened_halves() {
                (false, false) => self.word.$acq_rel(v),
                (true, false) => self.word.$release(v),
                (false, true) => self.word.$acquire(v),
                (true, true) => self.word.$relaxed(v),
            }
        }
    )+};
    (@at $int:ty, $relaxed:ident $ordered:ident $doc:literal $order:literal) => {
        #[doc = $doc]
        #[doc = $order]
        #[inline(always)]
        pub fn $ordered(self, v: $int) -> $int {
            if self.site.is_weakened() { self.word.$relaxed(v) } else { self.word.$ordered(v) }
        }
    };
}

/// A compare-and-swap in its three ordered forms.
macro_rules! cas {
    (at $int:ty) => {
        cas! { @at $int, cas_acquire: "Acquire." }
        cas! { @at $int, cas_release: "Release." }
        /// Stores `new` if the value is `old`. Returns the value found: `Ok` if it was `old`.
        /// Acquire and release.
        #[inline(always)]
        pub fn cas_acq_rel(self, old: $int, new: $int) -> Result<$int, $int> {
            match self.site.weakened_halves() {
                (false, false) => self.word.cas_acq_rel(old, new),
                (true, false) => self.word.cas_release(old, new),
                (false, true) => self.word.cas_acquire(old, new),
                (true, true) => self.word.cas_relaxed(old, new),
            }
        }
    };
    (word $int:ty) => {
        cas! { @word $int, cas_acquire: "Acquire." }
        cas! { @word $int, cas_release: "Release." }
        cas! { @word $int, cas_acq_rel: "Acquire and release." }
    };
    (@word $int:ty, $name:ident: $doc:literal) => {
        /// Stores `new` if the value is `old`. Returns the value found: `Ok` if it was `old`.
        #[doc = $doc]
        #[inline(always)]
        pub fn $name(&self, old: $int, new: $int) -> Result<$int, $int> {
            self.0.$name(old, new)
        }
    };
    (@at $int:ty, $name:ident: $doc:literal) => {
        /// Stores `new` if the value is `old`. Returns the value found: `Ok` if it was `old`.
        #[doc = $doc]
        #[inline(always)]
        pub fn $name(self, old: $int, new: $int) -> Result<$int, $int> {
            if self.site.is_weakened() { self.word.cas_relaxed(old, new) } else { self.word.$name(old, new) }
        }
    };
}

/// The read-modify-writes of a word, or of a word `at` a site.
macro_rules! exchanges {
    ($of:ident $int:ty) => {
        rmw! { $of $int,
            add_relaxed add_acquire add_release add_acq_rel: "Adds `v`, wrapping.";
            sub_relaxed sub_acquire sub_release sub_acq_rel: "Subtracts `v`, wrapping.";
            and_relaxed and_acquire and_release and_acq_rel: "Keeps the bits of `v`.";
            or_relaxed or_acquire or_release or_acq_rel: "Sets the bits of `v`.";
            xor_relaxed xor_acquire xor_release xor_acq_rel: "Flips the bits of `v`.";
            max_relaxed max_acquire max_release max_acq_rel: "Raises to `v`.";
            min_relaxed min_acquire min_release min_acq_rel: "Lowers to `v`.";
            swap_relaxed swap_acquire swap_release swap_acq_rel: "Replaces by `v`.";
        }
        cas! { $of $int }
    };
}

macro_rules! atomic {
    ($(#[$doc:meta])* $name:ident($cell:ident), $int:ty, $bytes:literal) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name(backend::$cell);

        const _: () = assert!(!NATIVE_LAYOUT || size_of::<$name>() == $bytes);
        const _: () = assert!(!NATIVE_LAYOUT || align_of::<$name>() == $bytes);

        impl $name {
            /// Creates a word with value `v`. Host only: see [`in_global`](Self::in_global) for
            /// kernels.
            #[cfg(not(target_arch = "nvptx64"))]
            pub fn new(v: $int) -> Self {
                Self(backend::$cell::new(v))
            }
            /// Creates a word with value `v`, which a kernel then writes to global memory.
            ///
            /// # Safety
            /// On a GPU, the word lies in global memory whenever an operation is called on it. A
            /// local variable does not lie there, and safe code can move a word out of a `Box` into
            /// one.
            #[inline(always)]
            pub unsafe fn in_global(v: $int) -> Self {
                Self(backend::$cell::new(v))
            }
            /// Reads. Relaxed.
            #[inline(always)]
            pub fn load_relaxed(&self) -> $int {
                self.0.load_relaxed()
            }
            /// Reads. Acquire.
            #[inline(always)]
            pub fn load_acquire(&self) -> $int {
                self.0.load_acquire()
            }
            /// Reads a word that no thread is writing. The caller's acquire orders the last write
            /// before this read. On a GPU the read may be served by the SM's cache.
            ///
            /// # Safety
            /// No thread writes the word at the same time: on a GPU that is a data race.
            #[inline(always)]
            pub unsafe fn load_unraced(&self) -> $int {
                self.0.load_unraced()
            }
            /// Writes. Relaxed.
            #[inline(always)]
            pub fn store_relaxed(&self, v: $int) {
                self.0.store_relaxed(v)
            }
            /// Writes. Release.
            #[inline(always)]
            pub fn store_release(&self, v: $int) {
                self.0.store_release(v)
            }
            /// Stores `new` if the value is `old`. Returns the value found: `Ok` if it was `old`.
            /// Relaxed.
            #[inline(always)]
            pub fn cas_relaxed(&self, old: $int, new: $int) -> Result<$int, $int> {
                self.0.cas_relaxed(old, new)
            }
            exchanges! { word $int }
            /// Names the next operation, so that a model checker can weaken it, and a stress test
            /// can delay the thread before it.
            #[inline(always)]
            pub fn at(&self, site: Site) -> At<'_, Self> {
                site.delay();
                At { word: self, site }
            }
        }

        impl At<'_, $name> {
            /// Reads. Acquire.
            #[inline(always)]
            pub fn load_acquire(self) -> $int {
                if self.site.is_weakened() { self.word.load_relaxed() } else { self.word.load_acquire() }
            }
            /// Writes. Release.
            #[inline(always)]
            pub fn store_release(self, v: $int) {
                if self.site.is_weakened() { self.word.store_relaxed(v) } else { self.word.store_release(v) }
            }
            exchanges! { at $int }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.load_relaxed().fmt(f)
            }
        }
    };
}

atomic! { /// A 32-bit word shared by the threads of a device.
AtomicU32(GpuU32), u32, 4 }
atomic! { /// A 64-bit word shared by the threads of a device.
AtomicU64(GpuU64), u64, 8 }
atomic! { /// A 32-bit word in global memory shared by the threads of one block.
BlockAtomicU32(BlockU32), u32, 4 }
atomic! { /// A 64-bit word in global memory shared by the threads of one block.
BlockAtomicU64(BlockU64), u64, 8 }
atomic! { /// A 32-bit word shared with the host or another device.
SystemAtomicU32(SystemU32), u32, 4 }
atomic! { /// A 64-bit word shared with the host or another device.
SystemAtomicU64(SystemU64), u64, 8 }

/// Reads two words by one instruction. Relaxed, each for itself.
///
/// # Safety
/// `second` is directly behind `first`. On a GPU, the address of `first` is a multiple of 8.
#[inline(always)]
pub unsafe fn load_two_relaxed(first: &AtomicU32, second: &AtomicU32) -> [u32; 2] {
    // SAFETY: the caller's promise.
    unsafe { backend::load_two_relaxed(&first.0, &second.0) }
}

macro_rules! fences {
    ($($name:ident: $doc:literal;)+) => {
        $(
        #[doc = $doc]
        #[inline(always)]
        pub fn $name() {
            backend::$name();
        }
        )+

        /// Fences, named by their place in the source, so that a model checker can omit them.
        impl Site {$(
            #[doc = $doc]
            #[inline(always)]
            pub fn $name(self) {
                self.delay();
                if !self.is_weakened() {
                    backend::$name();
                }
            }
        )+}
    };
}

fences! {
    fence_acquire: "Acquire fence, device scope. PTX 7.0 has no weaker instruction than `fence.acq_rel.gpu`.";
    fence_release: "Release fence, device scope. PTX 7.0 has no weaker instruction than `fence.acq_rel.gpu`.";
    fence_acq_rel: "Acquire and release fence, device scope (`fence.acq_rel.gpu`).";
    fence_seq_cst: "Sequentially consistent fence, device scope (`fence.sc.gpu`).";
    block_fence_acq_rel: "Acquire and release fence among the threads of a block (`fence.acq_rel.cta`).";
    system_fence_acq_rel: "Acquire and release fence that the host and other devices see (`fence.acq_rel.sys`).";
    system_fence_seq_cst: "Sequentially consistent fence that the host and other devices see (`fence.sc.sys`).";
}

impl Site {
    /// `first`, a release fence, then `second`: relaxed operations on different words.
    ///
    /// Loom performs read-modify-writes in the order of the program, even those without a fence
    /// between them. So the weakened site swaps the two, as a device may do without the fence.
    #[inline(always)]
    pub fn release_between<R>(self, first: impl FnOnce(), second: impl FnOnce() -> R) -> R {
        if self.is_weakened() {
            let result = second();
            first();
            return result;
        }
        first();
        self.fence_release();
        second()
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
