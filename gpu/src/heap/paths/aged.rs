//! Aged: decides whether lanes are to probe for single free blocks of a class.
//!
//! Whole warps probe if the free blocks lie beside live ones and few slabs are free. Parts of warps
//! probe if most of the heap is used: this is faster than going through the spans of a ring of
//! which most blocks are live.
//!
//! Each lane of a group reads a few words at pseudo-random places, so the decision is based on a
//! sample.

use crate::heap::layout::bits::{WORD_BITS, full_word};
use crate::heap::layout::class::{ClassInfo, SizeClass};
use crate::heap::layout::entry::Entry;
use crate::heap::layout::scatter::{hash, salt, scaled};
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::index_set::Picked;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;

/// Words that a group reads of the set of free slabs, and of the runs of its class.
const LOOKS: u32 = if NATIVE_LAYOUT { 64 } else { 1 };
/// The most of them that one lane reads.
const MOST_LOOKS: u32 = 4;
/// The denominator of shares of the heap.
pub(in crate::heap) const SHARE: u32 = 128;

/// The least used share of a heap that is aged for parts of warps.
const PART_LOAD: u32 = SHARE * 21 / 32;
/// On average, one in this many calls measures the used share.
const MEASURES: u32 = 16;
/// The most that the known share falls when it is measured.
const MOST_FALL: u32 = SHARE / 32;
/// Slabs that a group reads to measure it, and the most that one lane reads.
const LOAD_LOOKS: (u32, u32) = if NATIVE_LAYOUT { (128, 16) } else { (1, 1) };

/// Lanes are to probe if at least one in this many blocks is free beside live ones: a probe then
/// reads a few words to find one.
const HOLES: u32 = 64;
/// The limit if there are free slabs, in place of [`HOLES`].
const MANY_HOLES: u32 = 8;

impl HeapCore {
    /// The free slabs as a share of the heap, estimated from a few words of their set.
    fn free_share(&self, group: Group) -> u32 {
        let (set, salt, looks) = (self.free_slabs().set, salt(0), looks(group));
        let mut free = 0;
        for i in 0..looks {
            // Relaxed: a hint.
            free += set.word(scaled(hash(salt.wrapping_add(i)), set.len())).load_relaxed().count_ones();
        }
        group.wrapping_sum(free) * SHARE / (looks * group.count() * WORD_BITS)
    }

    /// Whether whole warps are to use single free blocks before free slabs: few slabs are free, and
    /// probes find such blocks soon.
    pub(in crate::heap) fn is_aged(&self, group: Group, class: SizeClass, info: &ClassInfo) -> bool {
        let free = self.free_share(group);
        let part = if free == 0 { HOLES } else { MANY_HOLES };
        free < SHARE / 4 && self.has_holes(group, class, info, part, false)
    }

    /// Whether parts of warps are to use single free blocks before free slabs, and before the spans
    /// of their ring: most of the heap is used, and probes find such blocks soon.
    pub(in crate::heap) fn is_aged_for_parts(
        &self,
        group: Group,
        class: SizeClass,
        info: &ClassInfo,
    ) -> bool {
        self.known_load(group) >= PART_LOAD && self.has_holes(group, class, info, HOLES, true)
    }

    /// The used share of the heap, as last measured. On average one in [`MEASURES`] calls measures
    /// it again. The value falls slowly: otherwise it would change all the time in kernels that
    /// first free most blocks.
    fn known_load(&self, group: Group) -> u32 {
        // Relaxed, as the store: a hint.
        let (word, measures) = (self.overview().load(), salt(3).is_multiple_of(MEASURES));
        let known = group.broadcast_32(word.load_relaxed());
        if group.broadcast_32(measures.into()) == 0 {
            return known;
        }
        let load = self.load(group).max(known.saturating_sub(MOST_FALL));
        if group.leads() {
            word.store_relaxed(load);
        }
        load
    }

    /// Whether free blocks beside live ones are to be used where no slab is free.
    pub(in crate::heap) fn has_any_holes(&self, group: Group, class: SizeClass, info: &ClassInfo) -> bool {
        self.has_holes(group, class, info, HOLES, false)
    }

    /// The used share of the heap, estimated from one word of the bitmap for each of some slabs.
    pub(in crate::heap) fn load(&self, group: Group) -> u32 {
        let looks = LOAD_LOOKS.0.div_ceil(group.count()).min(LOAD_LOOKS.1);
        let (runs, salt) = (self.runs(), salt(2));
        let mut used = 0;
        for i in 0..looks {
            let salt = hash(salt.wrapping_add(i));
            let slab = scaled(salt, self.layout.slabs);
            // Relaxed: hints.
            let entry = Entry(runs.entry(slab).load_relaxed());
            used += match entry.class() {
                None if entry.is_free() => 0,
                None => WORD_BITS,
                Some(class) => {
                    let info = self.class(class);
                    let w = scaled(hash(salt), info.words());
                    let word = runs.bits(runs.first_word(slab - entry.place()) + w).load_relaxed();
                    let all = full_word(info.blocks, w).count_ones();
                    (all - word.count_ones().min(all)) * WORD_BITS / all
                }
            };
        }
        group.wrapping_sum(used) * SHARE / (looks * group.count() * WORD_BITS)
    }

    /// Whether at least one in `part` blocks of the class is free, estimated from a few words of
    /// listed runs. Fully free words count only if `takes_words`: cursors have tickets for them.
    fn has_holes(
        &self,
        group: Group,
        class: SizeClass,
        info: &ClassInfo,
        part: u32,
        takes_words: bool,
    ) -> bool {
        let runs = self.runs();
        let (start, end) =
            (self.layout.run_index(class, 0), self.layout.run_index(SizeClass(class.0 + 1), 0));
        let (salt, mut holes, mut blocks) = (salt(1), 0, 0);
        for i in 0..looks(group) {
            let salt = hash(salt.wrapping_add(i));
            if let Picked::Two([index, _]) = runs.listed().pick(start, end, salt) {
                let w = scaled(hash(salt), info.words());
                // Relaxed: a hint.
                let word = runs.bits(runs.first_word(index - start) + w).load_relaxed();
                let full = full_word(info.blocks, w);
                holes += if word == full && !takes_words { 0 } else { word.count_ones() };
                blocks += full.count_ones();
            }
        }
        let (holes, blocks) = (group.wrapping_sum(holes), group.wrapping_sum(blocks));
        holes > 0 && holes * part >= blocks
    }
}

/// The number of words that each lane of a group reads. A group reads a few dozen words altogether.
fn looks(group: Group) -> u32 {
    LOOKS.div_ceil(group.count()).min(MOST_LOOKS)
}
