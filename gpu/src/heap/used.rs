//! Which classes have had a span, and how many requests were refused: the words behind one another.
//!
//! ```text
//! used[0..CLASS_WORDS]   a bit for each class, set before its first span is stored, and never cleared
//! used[CLASS_WORDS]      the refusals
//! ```

use super::class::SizeClass;
use super::layout::WORD_BITS;
use super::{CLASS_WORDS, Heap, layout};
use crate::lanes::Group;
use crate::sync::AtomicU32;

/// A bit for each class.
#[derive(Clone, Copy)]
pub(super) struct UsedClasses([u32; CLASS_WORDS]);

impl UsedClasses {
    pub fn has(&self, class: u32) -> bool {
        class < layout::MAX_CLASSES && self.0[(class / WORD_BITS) as usize] >> (class % WORD_BITS) & 1 == 1
    }

    /// Whether it has another.
    pub fn has_others(&self, class: SizeClass) -> bool {
        let own = |w: usize| {
            if w as u32 == class.0 / WORD_BITS { 1 << (class.0 % WORD_BITS) } else { 0 }
        };
        (0..CLASS_WORDS).any(|w| self.0[w] & !own(w) != 0)
    }
}

impl Heap {
    #[inline(always)]
    pub(super) fn used(&self, class: SizeClass) -> &AtomicU32 {
        // SAFETY: a word of a class of the heap, by the callers.
        let word = unsafe { self.parts.used.add((class.0 / WORD_BITS) as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    /// Remembers that the class has cursors with spans. Relaxed: the store of the span is behind it.
    #[inline(always)]
    pub(super) fn note_use(&self, class: SizeClass) {
        self.used(class).or_relaxed(1 << (class.0 % WORD_BITS));
    }

    /// Requests that were refused since the heap was made, modulo 2^32.
    pub fn refusals(&self) -> u32 {
        self.refusal_count().load_relaxed()
    }

    #[inline(always)]
    pub(super) fn refusal_count(&self) -> &AtomicU32 {
        // SAFETY: the word behind those of the classes.
        let word = unsafe { self.parts.used.add(CLASS_WORDS) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    pub(super) fn is_used(&self, class: SizeClass) -> bool {
        self.used(class).load_relaxed() >> (class.0 % WORD_BITS) & 1 == 1
    }

    /// The classes that have had a span; the same for all lanes, also while another warp gives one its first.
    pub(super) fn used_classes(&self, lanes: Group) -> UsedClasses {
        let word = lanes.rank() % CLASS_WORDS as u32;
        let seen = self.used(SizeClass(word * WORD_BITS)).load_relaxed();
        if lanes.count() >= CLASS_WORDS as u32 {
            return UsedClasses(core::array::from_fn(|w| lanes.read_32(seen, lanes.lane_of(w as u32))));
        }
        let word = |w: usize| self.used(SizeClass(w as u32 * WORD_BITS)).load_relaxed();
        UsedClasses(core::array::from_fn(|w| lanes.lead_64(|| word(w).into()) as u32))
    }
}
