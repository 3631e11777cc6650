//! The findings of an audit.

use super::Violation;
use crate::heap::Heap;
use crate::heap::class::SizeClass;
use crate::heap::class_info::{ClassInfo, full_word};
use crate::heap::layout::WORD_BITS;
use crate::heap::sets::low_bits;

/// Receives the findings of an audit, in this order: cursors, sets, then slabs by address.
pub trait Visitor {
    /// A broken invariant.
    fn violation(&mut self, violation: Violation);
    /// Called for each cursor.
    fn cursor(&mut self, _: CursorAudit) {}
    /// Called for each run of a size class.
    fn run(&mut self, _: &RunAudit<'_>) {}
    /// Called for each allocation of whole slabs.
    fn large(&mut self, _: LargeAudit) {}
    /// Called for each free slab.
    fn free(&mut self, _slab: u32, _: FreeSlab) {}
}

/// A cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorAudit {
    /// Its size class.
    pub class: SizeClass,
    /// Its shard.
    pub shard: u32,
    /// Blocks left in its span; `None` if the cursor is broken.
    pub left: Option<u32>,
    /// Searches for its next span that have ended.
    pub searches: u64,
    /// Whether the last of them found no memory.
    pub found_none: bool,
}

/// Where a free slab is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSlab {
    /// In the free set.
    InSet,
    /// Fresh: in a shard's partition, and never used.
    Fresh,
    /// It has no memory yet.
    Withheld,
    /// In neither, which is a violation.
    Lost,
}

/// An allocation of whole slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeAudit {
    /// Its first slab.
    pub slab: u32,
    /// Its number of slabs.
    pub slabs: u32,
    /// Its address.
    pub address: u64,
}

/// A run of a class, and where its blocks are.
#[derive(Clone, Copy, Debug)]
pub struct RunAudit<'a> {
    pub(super) heap: &'a Heap,
    /// Its first slab.
    pub slab: u32,
    /// Its size class.
    pub class: SizeClass,
    /// The layout of the blocks of the class.
    pub info: ClassInfo,
    /// Free blocks (I2).
    pub holes: u32,
    /// Blocks in a cursor (I1): the first ones of the run.
    pub in_cursor: u32,
    /// Live blocks (I3).
    pub live: u32,
}

impl RunAudit<'_> {
    /// The addresses of its live blocks, in ascending order.
    pub fn live_blocks(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.info.words()).flat_map(move |w| {
            let live = self.live_bits(w);
            let blocks = (0..WORD_BITS).filter(move |bit| live >> bit & 1 == 1);
            blocks.map(move |bit| self.heap.block_address(&self.info, self.slab, w * WORD_BITS + bit))
        })
    }

    /// The bits of the blocks in word `w` that are in the cursor.
    pub(super) fn held_bits(&self, w: u32) -> u32 {
        low_bits(self.in_cursor.saturating_sub(w * WORD_BITS))
    }

    pub(super) fn live_bits(&self, w: u32) -> u32 {
        let layout = &self.heap.layout;
        let word = u64::from(self.slab) * u64::from(layout.words_per_slab()) + u64::from(w);
        if word >= layout.block_words() {
            // Its fields were changed by the visitor.
            return 0;
        }
        let holes = self.heap.bits(word as u32).load_relaxed();
        full_word(self.info.blocks, w) & !holes & !self.held_bits(w)
    }
}
