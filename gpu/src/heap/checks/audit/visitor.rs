//! The findings of an audit.

use super::Violation;
use crate::heap::layout::bits::{WORD_BITS, full_word};
use crate::heap::layout::class::{ClassInfo, SizeClass};
use crate::heap::structures::heap_core::HeapCore;

/// Receives the findings of an audit: cursors and sets, then slabs in address order.
pub trait Visitor {
    /// A violated invariant.
    fn violation(&mut self, violation: Violation);
    /// Called for each run of a size class.
    fn run(&mut self, _: &RunAudit<'_>) {}
    /// Called for each large allocation.
    fn large(&mut self, _: LargeAudit) {}
    /// Called for each free slab.
    fn free(&mut self, _slab: u32, _: FreeSlab) {}
    /// Called for each span of a cursor or a ring that lies in the heap.
    fn span(&mut self, _: SpanAudit) {}
}

/// A span of a cursor: consecutive slabs in which the cursor searches for free blocks. Some of the
/// slabs may belong to other classes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanAudit {
    /// The size class of the cursor.
    pub class: SizeClass,
    /// The shard of the cursor.
    pub shard: u32,
    /// The first slab.
    pub slab: u32,
    /// The number of slabs.
    pub slabs: u32,
    /// Whether the cursor allocates from this span now. Otherwise the span is only in its ring.
    pub is_current: bool,
}

/// The state of a free slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSlab {
    /// Not used since the heap was reset.
    Fresh,
    /// Free, but used since the heap was reset.
    Used,
    /// It has no memory yet.
    Withheld,
    /// Not in the free set, which is a violation.
    Lost,
}

/// A large allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeAudit {
    /// Its first slab.
    pub slab: u32,
    /// Its number of slabs.
    pub slabs: u32,
    /// Its address.
    pub address: u64,
}

/// A run of a class and the state of its blocks.
#[derive(Clone, Copy, Debug)]
pub struct RunAudit<'a> {
    pub(super) heap: &'a HeapCore,
    /// Its first slab.
    pub slab: u32,
    /// Its size class.
    pub class: SizeClass,
    /// The layout of the blocks of the class.
    pub info: ClassInfo,
    /// Number of free blocks.
    pub free: u32,
    /// Number of live blocks.
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

    pub(super) fn live_bits(&self, w: u32) -> u32 {
        let layout = &self.heap.layout;
        let word = u64::from(self.slab) * u64::from(layout.words_per_slab()) + u64::from(w);
        if word >= layout.block_words() {
            // Only if the visitor changed the fields.
            return 0;
        }
        full_word(self.info.blocks, w) & !self.heap.runs().bits(word as u32).load_relaxed()
    }
}
