//! Aged: decides whether lanes are to probe for single free blocks of a class.
//!
//! They probe if the free blocks lie beside live ones and few slabs are free. While slabs are free,
//! tickets of new spans are faster, and leave free blocks for later: a probe then finds one soon.
//!
//! Each lane of a group reads a few words at pseudo-random places, so the decision is based on a
//! sample.

use crate::heap::layout::bits::{WORD_BITS, full_word};
use crate::heap::layout::class::{ClassInfo, SizeClass};
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
const SHARE: u32 = 128;
/// A heap is aged only if a smaller share of it is free slabs.
const FREE: u32 = SHARE / 16;

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

    /// Whether lanes are to use single free blocks of the class before free slabs: few slabs are
    /// free, and probes find such blocks soon.
    pub(in crate::heap) fn is_aged(&self, group: Group, class: SizeClass, info: &ClassInfo) -> bool {
        let free = self.free_share(group);
        free < FREE && self.has_holes(group, class, info, if free == 0 { HOLES } else { MANY_HOLES })
    }

    /// Whether at least one in `part` blocks of the class is free beside live ones, estimated from
    /// a few words of listed runs. Fully free words do not count: cursors have tickets for them.
    fn has_holes(&self, group: Group, class: SizeClass, info: &ClassInfo, part: u32) -> bool {
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
                holes += if word == full { 0 } else { word.count_ones() };
                blocks += full.count_ones();
            }
        }
        let (holes, blocks) = (group.wrapping_sum(holes), group.wrapping_sum(blocks));
        holes > 0 && holes * part >= blocks
    }
}

/// The number of words that each lane of a group reads. A group reads a few dozen words altogether,
/// but a lone lane reads four, so that its decision is a guess.
fn looks(group: Group) -> u32 {
    LOOKS.div_ceil(group.count()).min(MOST_LOOKS)
}
