//! State of the classes together: moves under way, and failed allocations.

use super::class::SizeClass;
use super::index_set::WORD_BITS;
use super::layout::MAX_CLASSES;
use super::moves::Moves;
use crate::sync::{AtomicU32, NATIVE_LAYOUT};

/// Words with a bit for each class.
const CLASS_WORDS: usize = MAX_CLASSES.div_ceil(WORD_BITS) as usize;

/// Initially all words are zero.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Overview {
    /// Failed allocations.
    failures: AtomicU32,
    /// A bit for each class that has had a span.
    used: [AtomicU32; CLASS_WORDS],
    /// Moves of free slabs, and of bits in the upper levels of the sets.
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
            failures: AtomicU32::new(0),
            used: core::array::from_fn(|_| AtomicU32::new(0)),
            common: Moves::new(),
            classes: core::array::from_fn(|_| Moves::new()),
        }
    }

    /// The byte offset of the moves of a class.
    pub const fn offset_of(class: SizeClass) -> usize {
        core::mem::offset_of!(Overview, classes) + class.0 as usize * size_of::<Moves>()
    }

    /// The number of failed allocations, modulo 2^32.
    #[inline(always)]
    pub(super) fn failures(&self) -> &AtomicU32 {
        &self.failures
    }

    /// Notes that cursors of the class may have spans. Relaxed: before the first span is installed.
    pub(super) fn note_use(&self, class: SizeClass) {
        self.used[(class.0 / WORD_BITS) as usize % CLASS_WORDS].or_relaxed(1 << (class.0 % WORD_BITS));
    }

    /// The classes whose cursors may have spans.
    pub(super) fn used_classes(&self) -> impl Iterator<Item = SizeClass> {
        let words = self.used.each_ref().map(AtomicU32::load_relaxed);
        let mut rest = words.into_iter().fold(0_u128, |all, word| all >> 32 | u128::from(word) << 64);
        core::iter::from_fn(move || {
            let class = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (class < MAX_CLASSES).then_some(SizeClass(class))
        })
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
