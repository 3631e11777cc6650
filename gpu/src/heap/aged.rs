//! Aged: whether the free blocks of a class lie beside live ones, and few slabs are free.
//!
//! Each lane of a group looks at a few words at pseudo-random places, so the answer is a sample.

use super::Heap;
use super::bits::{WORD_BITS, full_word};
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::scatter::{hash, salt, scaled};
use super::set_search::Picked;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;

/// Words of the free slabs, and of the runs of its class, that a group looks at.
const LOOKS: u32 = if NATIVE_LAYOUT { 64 } else { 1 };
/// The most of them that one lane looks at.
const MOST_LOOKS: u32 = 4;
/// Shares of the heap are in parts of this.
const SHARE: u32 = 128;

/// One of so many blocks is free beside live ones: a probe looks at a few words to find one.
const HOLES: u32 = 64;
/// The same if there are free slabs.
const MANY_HOLES: u32 = 8;

impl Heap {
    /// The free slabs as a share of the heap, by a few words of their set.
    fn free_share(&self, group: Group) -> u32 {
        let (set, salt, looks) = (self.free_slabs().set, salt(0), looks(group));
        let mut free = 0;
        for i in 0..looks {
            // Relaxed: a hint.
            free += set.word(scaled(hash(salt.wrapping_add(i)), set.len())).load_relaxed().count_ones();
        }
        group.wrapping_sum(free) * SHARE / (looks * group.count() * WORD_BITS)
    }

    /// Whether free blocks beside live ones are to be used before free slabs: few slabs are free,
    /// and probes find such blocks at once.
    pub(super) fn is_aged(&self, group: Group, class: SizeClass, info: &ClassInfo) -> bool {
        let free = self.free_share(group);
        free < SHARE / 4 && self.has_holes(group, class, info, if free == 0 { HOLES } else { MANY_HOLES })
    }

    /// Whether free blocks beside live ones are to be used where no slab is free.
    pub(super) fn has_any_holes(&self, group: Group, class: SizeClass, info: &ClassInfo) -> bool {
        self.has_holes(group, class, info, HOLES)
    }

    /// Whether at least one of `part` blocks of the class is free beside live ones, by a few words
    /// of listed runs.
    fn has_holes(&self, group: Group, class: SizeClass, info: &ClassInfo, part: u32) -> bool {
        let (runs, common) = (self.runs(), self.overview().common());
        let (start, end) =
            (self.layout.run_index(class, 0), self.layout.run_index(SizeClass(class.0 + 1), 0));
        let (salt, mut holes, mut blocks) = (salt(1), 0, 0);
        for i in 0..looks(group) {
            let salt = hash(salt.wrapping_add(i));
            if let Picked::Index(index) = runs.listed().pick(start, end, salt, common) {
                let w = scaled(hash(salt), info.words());
                // Relaxed: a hint.
                let word = runs.bits(runs.first_word(index - start) + w).load_relaxed();
                let full = full_word(info.blocks, w);
                // Cursors have tickets for fully free words.
                holes += if word == full { 0 } else { word.count_ones() };
                blocks += full.count_ones();
            }
        }
        let (holes, blocks) = (group.wrapping_sum(holes), group.wrapping_sum(blocks));
        holes > 0 && holes * part >= blocks
    }
}

/// Looks of each lane of a group, of which there are a few dozens together.
fn looks(group: Group) -> u32 {
    LOOKS.div_ceil(group.count()).min(MOST_LOOKS)
}
