//! What is known of all classes: which have had a span, and which the last search of the whole heap found nothing for.
//!
//! ```text
//! used       a bit for each class, set before its first span is stored, and never cleared
//! refusals   requests that were refused
//! bare       a bit for each class: the last search found no run or rest of one, and no free slabs for one
//! full       the same, and no hole, and no one who has something in hand
//! seekers    a word for each class: groups that look for a dry cursor's next span, and may have it in hand
//! scans     the searches of the whole heap
//! ```
//!
//! `full` and `bare` are written by who makes a scan, before its scan_result. In between they are hints.

use super::class::SizeClass;
use super::layout::WORD_BITS;
use super::{CLASS_WORDS, Heap, STORE_RESULT, layout};
use crate::lanes::Group;
use crate::scans::Scans;
use crate::sync::{AtomicU32, NATIVE_LAYOUT};

/// The state of all classes together. Initially all words are zero.
#[repr(C)]
#[derive(Debug)]
pub struct Overview {
    used: Sector<[AtomicU32; CLASS_WORDS]>,
    found: Sector<Classes>,
    refusals: Sector<AtomicU32>,
    seekers: Sector<[AtomicU32; layout::MAX_CLASSES as usize]>,
    pub(super) scans: Line<Scans>,
}

/// What the last search of the whole heap has found.
#[repr(C)]
#[derive(Debug)]
struct Classes {
    full: [AtomicU32; CLASS_WORDS],
    bare: [AtomicU32; CLASS_WORDS],
}

/// In a sector of the cache of its own: what many change is beside nothing that all read.
#[repr(C, align(32))]
#[derive(Debug)]
struct Sector<T>(T);

/// In a line of the cache of its own: who waits for a scan reads its scan_result again and again.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Line<T>(pub T);

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Overview>() == 512);

impl Overview {
    #[cfg(not(target_arch = "nvptx64"))]
    /// The state of an unused heap.
    pub fn new() -> Self {
        let zeros = || core::array::from_fn(|_| AtomicU32::new(0));
        Overview {
            used: Sector(zeros()),
            found: Sector(Classes { full: zeros(), bare: zeros() }),
            refusals: Sector(AtomicU32::new(0)),
            seekers: Sector(core::array::from_fn(|_| AtomicU32::new(0))),
            scans: Line(Scans::new()),
        }
    }

    /// The byte range of the last scan's result. The host clears it when it adds slabs to the heap.
    pub const FOUND: core::ops::Range<usize> =
        core::mem::offset_of!(Overview, found)..core::mem::offset_of!(Overview, refusals);
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Overview {
    fn default() -> Self {
        Overview::new()
    }
}

/// A bit for each class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ClassSet([u32; CLASS_WORDS]);

impl ClassSet {
    pub const NONE: ClassSet = ClassSet([0; CLASS_WORDS]);

    /// That of one class; of none, if no class is so large.
    fn of(class: u32) -> Self {
        // No place is looked up by a number: so the words are in registers.
        let bit = 1 << (class % WORD_BITS);
        ClassSet(core::array::from_fn(|w| if w as u32 == class / WORD_BITS { bit } else { 0 }))
    }

    fn meets(&self, other: Self) -> bool {
        self.0.iter().zip(other.0).any(|(own, others)| own & others != 0)
    }

    pub fn has(&self, class: u32) -> bool {
        self.meets(ClassSet::of(class))
    }

    /// Whether it has another.
    pub fn has_others(&self, class: SizeClass) -> bool {
        self.meets(ClassSet(ClassSet::of(class.0).0.map(|word| !word)))
    }

    /// Those that any lane has.
    pub fn union(self, lanes: Group) -> Self {
        ClassSet(self.0.map(|word| lanes.union(word)))
    }

    pub fn insert(&mut self, class: SizeClass) {
        let class = ClassSet::of(class.0);
        self.0.iter_mut().zip(class.0).for_each(|(word, bit)| *word |= bit);
    }
}

impl Heap {
    #[inline(always)]
    pub(super) fn overview(&self) -> &Overview {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.parts.overview }
    }

    #[inline(always)]
    fn used(&self, class: SizeClass) -> &AtomicU32 {
        let word = (class.0 / WORD_BITS) as usize;
        // SAFETY: a class of the heap, by the callers.
        unsafe { self.overview().used.0.get_unchecked(word) }
    }

    /// Remembers that the class has cursors with spans. Relaxed: the release of the span is behind it.
    #[inline(always)]
    pub(super) fn note_use(&self, class: SizeClass) {
        self.used(class).or_relaxed(1 << (class.0 % WORD_BITS));
    }

    /// Number of failed allocations since the heap was created, modulo 2^32.
    pub fn refusals(&self) -> u32 {
        self.refusal_count().load_relaxed()
    }

    /// Number of scans of the whole heap since it was created.
    pub fn scans(&self) -> u64 {
        self.overview().scans.0.counts().1
    }

    #[inline(always)]
    pub(super) fn refusal_count(&self) -> &AtomicU32 {
        &self.overview().refusals.0
    }

    pub(super) fn is_used(&self, class: SizeClass) -> bool {
        self.used(class).load_relaxed() >> (class.0 % WORD_BITS) & 1 == 1
    }

    /// The classes that have had a span; the same for all lanes, also while another warp gives one its first.
    pub(super) fn used_classes(&self, lanes: Group) -> ClassSet {
        self.read_classes(lanes, &self.overview().used.0)
    }

    /// The classes for which the last search of the whole heap found nothing at all; the same for all lanes.
    pub(super) fn full_classes(&self, lanes: Group) -> ClassSet {
        self.read_classes(lanes, &self.overview().found.0.full)
    }

    /// The classes for which it found nothing but holes; the same for all lanes.
    pub(super) fn bare_classes(&self, lanes: Group) -> ClassSet {
        self.read_classes(lanes, &self.overview().found.0.bare)
    }

    /// Writes those down, for who leads a scan.
    pub(super) fn set_verdict(&self, full: ClassSet, bare: ClassSet) {
        let Classes { full: full_words, bare: bare_words } = &self.overview().found.0;
        for w in 0..CLASS_WORDS {
            for (word, classes) in [(&full_words[w], full.0[w]), (&bare_words[w], bare.0[w])] {
                STORE_RESULT.delay();
                // Relaxed: a release is behind it. What is there was written by an earlier scan, which was acquired.
                if word.load_relaxed() != classes {
                    word.store_relaxed(classes);
                }
            }
        }
    }

    /// Slabs have come back, for any class. Relaxed: a hint.
    pub(super) fn forget_bare(&self) {
        self.overview().found.0.bare.iter().for_each(|word| word.store_relaxed(0));
    }

    /// Groups that look for the next span of a dry cursor of the class.
    #[inline(always)]
    pub(super) fn seekers(&self, class: SizeClass) -> &AtomicU32 {
        // SAFETY: the same.
        unsafe { self.overview().seekers.0.get_unchecked(class.0 as usize) }
    }

    fn read_classes(&self, lanes: Group, words: &[AtomicU32; CLASS_WORDS]) -> ClassSet {
        if lanes.count() >= CLASS_WORDS as u32 {
            let seen = words[lanes.rank() as usize % CLASS_WORDS].load_relaxed();
            return ClassSet(core::array::from_fn(|w| lanes.read_32(seen, lanes.lane_of(w as u32))));
        }
        ClassSet(core::array::from_fn(|w| lanes.lead_64(|| words[w].load_relaxed().into()) as u32))
    }
}
