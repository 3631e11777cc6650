//! The free blocks of one stream by class, its extents and its counters.
//!
//! I1: a free block is in the bin of its class, once; a live block is in no bin. I2: a bin holds at
//! most [`bin_limit`] blocks, or one. It holds more until the thread that exceeded the limit has
//! removed the older half, or after several threads of a stream refilled it at once. I3: a block of
//! the cache's own extents that leaves its bin is merged into its extent; other blocks go to the
//! shared state.

use super::bin::{Bin, Entry, bin_limit};
use super::block_map::{BlockId, BlockMap, Claim};
use super::class::{Classes, Need};
use super::extents::Extents;
use super::slot::Slot;
use super::stats::{Counts, Tally};
use std::alloc::Layout;

/// Large blocks of at least this size are not cached once free memory has reached its limit: a
/// coalesced block serves later requests better.
const LARGE: u64 = 1 << 20;
/// Number of recently allocated blocks that are recognised without the block map. A power of two.
const RECENT: usize = 64;

/// Outcome of a free. It is small enough for a register; a list would go through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host_pools) enum FreeOutcome {
    Cached,
    /// Cached, and the class exceeds its limit ([`Bins::take_surplus`]).
    Overflow {
        class: u16,
        limit: u16,
    },
    /// The block is above all classes and was not cached.
    Huge(BlockId),
    /// The block is not known here, or is not live with that layout. Nothing was changed.
    Unknown,
}

pub(super) struct Bins {
    /// Recently allocated blocks, hashed by address: most are freed to this cache and need no
    /// lookup in the block map.
    recent: [Option<(u64, Claim)>; RECENT],
    bins: Vec<Bin>,
    /// Counters of blocks above all classes.
    huge: Tally,
    /// The first class with blocks that are cut to the requested size.
    first_large: usize,
    /// The extents that large blocks are cut from.
    pub extents: Extents,
    /// Whether the cache was used since the last check.
    used: bool,
}

#[inline]
fn recent_index(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - RECENT.ilog2())) as usize
}

impl Bins {
    /// Creates empty bins. `owner` is the number of the cache, as stored in the slots of blocks.
    pub fn new(classes: Classes, owner: u32) -> Bins {
        Bins {
            recent: [None; RECENT],
            bins: (0..classes.count()).map(|_| Bin::default()).collect(),
            huge: Tally::default(),
            first_large: classes.first_large(),
            extents: Extents::new(owner),
            used: false,
        }
    }

    /// Allocates a block. It is live on return. With `merges`, cached large blocks are merged
    /// before the allocation fails.
    #[inline(always)]
    pub fn alloc(&mut self, need: &Need, layout: Layout, merges: bool, live: &BlockMap) -> Option<u64> {
        let class = need.class?;
        let bin = &mut self.bins[class];
        let entry = if need.is_small { bin.blocks.pop() } else { bin.pop_large(need) };
        match entry {
            Some(entry) => {
                bin.tally.alloc(entry.bytes, layout.size() as u64);
                Some(self.make_live(entry.id, entry.address, layout, live))
            }
            None if need.is_small => None,
            None => self.alloc_from_extent(class, need, layout, merges, live),
        }
    }

    /// Makes a block live that the caller has counted.
    #[inline(always)]
    fn make_live(&mut self, id: BlockId, address: u64, layout: Layout, live: &BlockMap) -> u64 {
        let claim = live.set_live(id, layout);
        self.recent[recent_index(address)] = Some((address, claim));
        self.used = true;
        address
    }

    #[inline(never)]
    fn alloc_from_extent(
        &mut self,
        class: usize,
        need: &Need,
        layout: Layout,
        merges: bool,
        live: &BlockMap,
    ) -> Option<u64> {
        let found = match self.extents.cut(need, live) {
            None if merges => {
                self.merge_large(live);
                self.extents.cut(need, live)
            }
            found => found,
        };
        let (id, address) = found?;
        self.bins[class].tally.alloc(need.bytes, layout.size() as u64);
        Some(self.make_live(id, address, layout, live))
    }

    /// Merges cached large blocks into the cache's extents.
    fn merge_large(&mut self, live: &BlockMap) {
        for bin in &mut self.bins[self.first_large..] {
            for index in (0..bin.blocks.len()).rev() {
                let Entry { id, bytes, .. } = bin.blocks[index];
                if bytes >= LARGE && self.extents.owns(id, live) {
                    bin.blocks.swap_remove(index);
                    self.extents.free(id, live);
                }
            }
        }
    }

    /// Whether the cache was used since the last call.
    pub fn was_used(&mut self) -> bool {
        std::mem::take(&mut self.used)
    }

    /// Removes and returns the claim of a recently allocated block, if the address is known.
    #[inline]
    pub fn take_recent(&mut self, address: u64) -> Option<Claim> {
        self.recent[recent_index(address)].take_if(|(known, _)| *known == address).map(|(_, claim)| claim)
    }

    /// Caches a free block, given with its slot, that was allocated with `requested` bytes. With
    /// `merges`, a large block is merged into its extent instead.
    #[inline(always)]
    pub fn free(
        &mut self,
        (id, slot): (BlockId, &Slot),
        requested: u64,
        merges: bool,
        live: &BlockMap,
    ) -> FreeOutcome {
        let entry = Entry::new(id, slot);
        let Some(class) = slot.class() else {
            self.huge.free(entry.bytes, requested);
            return FreeOutcome::Huge(id);
        };
        self.used = true;
        let bin = &mut self.bins[class];
        bin.tally.free(entry.bytes, requested);
        if merges && entry.bytes >= LARGE && self.extents.owns(id, live) {
            self.extents.free(id, live);
            return FreeOutcome::Cached;
        }
        bin.blocks.push(entry);
        // The first block is always kept: this skips the division that computes the limit.
        let cached = bin.blocks.len();
        if cached == 1 {
            return FreeOutcome::Cached;
        }
        let limit = bin_limit(entry.bytes, slot.is_small());
        if cached > limit { self.merge_older(class, limit, live) } else { FreeOutcome::Cached }
    }

    /// Merges the blocks of the cache's extents among the older half of a large class.
    #[inline(never)]
    fn merge_older(&mut self, class: usize, limit: usize, live: &BlockMap) -> FreeOutcome {
        let blocks = &mut self.bins[class].blocks;
        if class >= self.first_large {
            // At most 16 blocks.
            for index in (0..blocks.len() / 2).rev() {
                if self.extents.owns(blocks[index].id, live) {
                    self.extents.free(blocks.remove(index).id, live);
                }
            }
        }
        match blocks.len() > limit {
            true => FreeOutcome::Overflow { class: class as u16, limit: limit as u16 },
            false => FreeOutcome::Cached,
        }
    }

    /// Removes the older half of a class, if it still has more than `limit` blocks: another thread
    /// may have done this in the meantime. Blocks of the cache's own extents are merged there; the
    /// others are returned.
    pub fn take_surplus(&mut self, class: u16, limit: u16, live: &BlockMap) -> Vec<BlockId> {
        let blocks = &mut self.bins[usize::from(class)].blocks;
        if blocks.len() <= usize::from(limit) {
            return Vec::new();
        }
        let surplus = blocks.drain(..blocks.len() / 2).map(|entry| entry.id).collect();
        self.merge_own(surplus, live)
    }

    /// Removes all blocks of the classes that `which` accepts. Blocks of the cache's own extents
    /// are merged there; the others are returned.
    pub fn drain(&mut self, which: impl Fn(usize) -> bool, live: &BlockMap) -> Vec<BlockId> {
        let all = self.bins.iter_mut().enumerate().filter(|(class, _)| which(*class));
        let blocks = all.flat_map(|(_, bin)| bin.blocks.drain(..)).map(|entry| entry.id).collect();
        self.merge_own(blocks, live)
    }

    /// Merges the blocks that belong to the cache's extents, and returns the others. All are free.
    fn merge_own(&mut self, mut blocks: Vec<BlockId>, live: &BlockMap) -> Vec<BlockId> {
        blocks.retain(|id| {
            let is_own = self.extents.owns(*id, live);
            if is_own {
                self.extents.free(*id, live);
            }
            !is_own
        });
        blocks
    }

    /// Counts a live block that was not served from the cache.
    pub fn count_miss(&mut self, claim: Claim, requested: u64, live: &BlockMap) {
        let slot = live.slot(claim.id);
        self.recent[recent_index(slot.address())] = Some((slot.address(), claim));
        let tally = slot.class().map_or(&mut self.huge, |class| &mut self.bins[class].tally);
        tally.alloc(slot.bytes(), requested);
        tally.misses += 1;
    }

    /// Caches the further blocks of a refill, in reverse: the first is allocated next.
    pub fn refill(&mut self, class: usize, more: &[BlockId], live: &BlockMap) {
        let entries = more.iter().rev().map(|id| Entry::new(*id, live.slot(*id)));
        self.bins[class].blocks.extend(entries);
    }

    /// Whether no block is cached and there is no extent.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.bins.iter().all(|bin| bin.blocks.is_empty())
    }

    /// Adds the counters.
    pub fn count(&self, counts: &mut Counts) {
        for (class, bin) in self.bins.iter().enumerate() {
            counts.add(Some(class), &bin.tally, bin.blocks.len());
        }
        counts.add(None, &self.huge, 0);
    }
}

#[cfg(test)]
mod tests;
