//! Moves: operations under way that hide free memory of a class, or free slabs, for a moment.
//!
//! ```text
//! 63      32 31       0
//! | begun   | open     |
//! ```
//!
//! A search finds free memory by hints: the sets of runs and of slabs. A thread that removes a hint
//! of memory that may be free, or that holds more memory than it allocates, begins a move first and
//! ends it when the hints are complete again.
//!
//! - I1. `open` is the number of moves that have begun and not ended.
//! - I2. If a search reads the same word before and after its reads of the sets, and `open` is
//!   zero, then no move overlapped these reads.
//!
//! Any thread may add. Wait-free.
//!
//! [`Overview`] has the moves of all classes, and other words that the classes share.

use crate::heap::layout::MAX_CLASSES;
use crate::heap::layout::class::SizeClass;
use crate::heap::structures::orderings::{MOVE, SEARCH};
use crate::sync::{AtomicU32, AtomicU64, NATIVE_LAYOUT};

/// In the high half, so that the carry of an overflow is lost.
const BEGUN: u64 = 1 << 32;

/// The word of the moves, initially zero. It has its own cache sector, to avoid false sharing.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Moves(AtomicU64);

/// The state of a [`Moves`] at the start of a proof.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Before(u64);

impl Before {
    /// Whether no move was under way.
    pub(in crate::heap) fn is_quiet(self) -> bool {
        self.0 as u32 == 0
    }
}

impl Moves {
    #[cfg(not(target_arch = "nvptx64"))]
    /// The state before any move.
    pub fn new() -> Self {
        Moves(AtomicU64::new(0))
    }

    /// Number of moves that have begun and not ended.
    pub fn open(&self) -> u32 {
        self.0.load_relaxed() as u32
    }

    /// Begins a move. Relaxed: each step of the move that hides memory releases.
    #[inline(always)]
    pub(in crate::heap) fn begin(&self) {
        self.0.add_relaxed(BEGUN + 1);
    }

    /// Ends a move.
    #[inline(always)]
    pub(in crate::heap) fn end(&self) {
        // ordering: release; pairs with `search`: the completed hints before the end.
        self.0.at(MOVE).sub_release(1);
    }

    /// Runs `f` as a move.
    #[inline(always)]
    pub(in crate::heap) fn during<R>(&self, f: impl FnOnce() -> R) -> R {
        self.begin();
        let result = f();
        self.end();
        result
    }

    /// The state at the start of a proof, for [`is_unchanged`](Self::is_unchanged).
    pub(in crate::heap) fn search(&self) -> Before {
        // ordering: acquire; pairs with `end`: a search reads the hints after every move that
        // ended.
        Before(self.0.at(SEARCH).load_acquire())
    }

    /// Whether no move overlapped the reads of a proof (I2). A fence must be between these and this
    /// call.
    pub(in crate::heap) fn is_unchanged(&self, before: Before) -> bool {
        // Relaxed: the fence orders it behind the reads of the search.
        before.is_quiet() && self.0.load_relaxed() == before.0
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Moves {
    fn default() -> Self {
        Moves::new()
    }
}

/// The moves of all classes, and other words that the classes share. Initially all words are zero.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Overview {
    /// A hint: the slab, modulo the number of slabs, from which the next large allocation searches.
    large_start: AtomicU32,
    /// The bytes of the last failed allocation.
    last_failed: AtomicU64,
    /// Moves of free slabs and of idle runs.
    common: Moves,
    /// Moves of the runs of each class.
    classes: [Moves; MAX_CLASSES as usize],
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Overview>() == 32 * (2 + MAX_CLASSES as usize));

impl Overview {
    #[cfg(not(target_arch = "nvptx64"))]
    /// The state of an unused heap.
    pub fn new() -> Self {
        Overview {
            large_start: AtomicU32::new(0),
            last_failed: AtomicU64::new(0),
            common: Moves::new(),
            classes: core::array::from_fn(|_| Moves::new()),
        }
    }

    /// The byte offset of the moves of a class.
    pub const fn offset_of(class: SizeClass) -> usize {
        core::mem::offset_of!(Overview, classes) + class.0 as usize * size_of::<Moves>()
    }

    pub(in crate::heap) fn last_failed(&self) -> &AtomicU64 {
        &self.last_failed
    }

    pub(in crate::heap) fn large_start(&self) -> &AtomicU32 {
        &self.large_start
    }

    #[inline(always)]
    pub(in crate::heap) fn common(&self) -> &Moves {
        &self.common
    }

    #[inline(always)]
    pub(in crate::heap) fn class(&self, class: SizeClass) -> &Moves {
        debug_assert!(class.0 < MAX_CLASSES);
        // SAFETY: a class of the heap, by the callers.
        unsafe { self.classes.get_unchecked(class.0 as usize) }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Overview {
    fn default() -> Self {
        Overview::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl Moves {
        /// Number of moves that have begun.
        pub(in crate::heap) fn begun(&self) -> u32 {
            (self.0.load_relaxed() >> 32) as u32
        }
    }

    #[test]
    fn the_number_of_moves_wraps_without_a_carry() {
        let moves = Moves(AtomicU64::new(u64::from(u32::MAX) << 32));
        let before = moves.search();
        moves.during(|| assert_eq!(moves.open(), 1));
        assert_eq!(moves.open(), 0);
        assert!(!moves.is_unchanged(before) && moves.is_unchanged(moves.search()));
    }

    #[test]
    fn the_moves_of_a_class_are_at_their_offset() {
        let overview = Overview::new();
        for class in [0, 1, 7, MAX_CLASSES - 1].map(SizeClass) {
            let at = (&raw const *overview.class(class)).addr() - (&raw const overview).addr();
            assert_eq!(Overview::offset_of(class), at);
        }
    }
}
