//! State of the classes together: moves under way, the size of the last failed allocation, the slab
//! from which the next large allocation searches, and the used share of the heap.

use super::class::SizeClass;
use super::layout::MAX_CLASSES;
use super::moves::Moves;
use crate::sync::{AtomicU32, AtomicU64, NATIVE_LAYOUT};

/// Initially all words are zero.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Overview {
    /// A hint: the slab, modulo the number of slabs, from which the next large allocation searches.
    large_start: AtomicU32,
    /// A hint: the used share of the heap when a group last measured it.
    load: AtomicU32,
    /// The bytes of the last failed allocation.
    last_failed: AtomicU64,
    /// Moves of free slabs, of idle runs, and of bits in the upper levels of the sets.
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
            load: AtomicU32::new(0),
            last_failed: AtomicU64::new(0),
            common: Moves::new(),
            classes: core::array::from_fn(|_| Moves::new()),
        }
    }

    /// The byte offset of the moves of a class.
    pub const fn offset_of(class: SizeClass) -> usize {
        core::mem::offset_of!(Overview, classes) + class.0 as usize * size_of::<Moves>()
    }

    pub(super) fn last_failed(&self) -> &AtomicU64 {
        &self.last_failed
    }

    pub(super) fn large_start(&self) -> &AtomicU32 {
        &self.large_start
    }

    pub(super) fn load(&self) -> &AtomicU32 {
        &self.load
    }

    #[inline(always)]
    pub(super) fn common(&self) -> &Moves {
        &self.common
    }

    #[inline(always)]
    pub(super) fn class(&self, class: SizeClass) -> &Moves {
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

    #[test]
    fn the_moves_of_a_class_are_at_their_offset() {
        let overview = Overview::new();
        for class in [0, 1, 7, MAX_CLASSES - 1].map(SizeClass) {
            let at = (&raw const *overview.class(class)).addr() - (&raw const overview).addr();
            assert_eq!(Overview::offset_of(class), at);
        }
    }
}
