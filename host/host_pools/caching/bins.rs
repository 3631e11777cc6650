//! The free blocks of one stream by class, its extents and its counters.
//!
//! ```text
//! class 2   │ 2048 │ 2048 │ 2048            equal blocks of slabs: last in, first out
//! class 13  │ 2.5 MiB │ 3 MiB │ 2.2 MiB      cut to the requested size: the smallest that fits
//! ```
//!
//! I1: a free block is in the bin of its class, once; a live block is in no bin. I2: an entry holds
//! the size and address of its block's slot, which do not change while the block is in a bin. I3: a
//! bin holds at most [`most`] blocks, or one. It holds more until the thread that exceeded the
//! limit has removed the older half, or after several threads of a stream refilled it at once. I4:
//! a block of the cache's own extents that leaves its bin is merged into its extent; other blocks
//! go to the shared state.

use super::block_table::{BlockId, BlockTable, Claim, SHARED};
use super::class::{Classes, Need};
use super::local::Local;
use super::order_table::OrderTag;
use super::segment::Arena;
use super::stats::{Counts, Tally};
use std::alloc::Layout;

/// A block above the slab limit serves a smaller request if it exceeds that request by at most
/// 1/16.
const SLACK: u64 = 16;
/// Limits on blocks and on bytes of a bin; both apply, but one block of any size is always kept. A
/// cached block does not coalesce with its neighbours: a higher limit on large blocks would strand
/// the memory between them.
const MOST_SMALL: u64 = 256;
const MOST_SMALL_BYTES: u64 = 4 << 20;
const MOST_LARGE: u64 = 32;
const MOST_LARGE_BYTES: u64 = 16 << 20;
/// Large blocks of at least this size are not cached once free memory has reached its limit: a
/// coalesced block serves later requests better.
const LARGE: u64 = 1 << 20;
/// Block numbers that are taken or returned at a time: all streams share one list of them.
const NUMBERS: usize = 32;
/// Recently allocated blocks that are recognised without the block map. A power of two.
const OUT: usize = 64;

/// Outcome of a free. It is small enough for a register; a list would go through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host_pools) enum FreeOutcome {
    Kept,
    /// Kept, and the class exceeds its limit ([`Bins::overflow`]).
    Over {
        class: u16,
        most: u16,
    },
    /// The block is above all classes and was not kept.
    Huge(BlockId),
    /// The block is not known here, or is not live with that layout. Nothing was changed.
    Unknown,
}

pub(super) struct Bins {
    /// Recently allocated blocks, hashed by address: most are freed to this cache and need no
    /// lookup in the block map.
    out: [Option<(u64, Claim)>; OUT],
    bins: Vec<Bin>,
    /// Counters of blocks above all classes.
    huge: Tally,
    /// The first class with blocks that are cut to the requested size.
    first_large: usize,
    /// The owner number of these bins, as stored in the slots of blocks; [`SHARED`] for a cache
    /// without extents.
    owner: u32,
    /// The extents that large blocks are cut from.
    local: Local,
    /// Unused numbers for such blocks.
    numbers: Vec<BlockId>,
    /// Whether the cache was used since the last check.
    used: bool,
}

/// Exactly two cache lines, aligned to a line.
#[derive(Default)]
#[repr(align(64))]
struct Bin {
    /// The most recently freed block is last.
    blocks: Vec<Entry>,
    tally: Tally,
}

#[derive(Clone, Copy)]
struct Entry {
    id: BlockId,
    address: u64,
    bytes: u64,
}

/// The index of a block in `out`.
#[inline]
fn place_of(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - OUT.ilog2())) as usize
}

impl Bins {
    pub fn new(classes: Classes, owner: u32) -> Bins {
        let bins = (0..classes.count()).map(|_| Bin::default()).collect();
        Bins {
            out: [None; OUT],
            bins,
            huge: Tally::default(),
            first_large: classes.first_large(),
            owner,
            local: Local::default(),
            numbers: Vec::new(),
            used: false,
        }
    }

    /// Allocates a block. It is live on return.
    #[inline(always)]
    pub fn take(&mut self, need: &Need, layout: Layout, is_tight: bool, live: &BlockTable) -> Option<u64> {
        let class = need.class?;
        let bin = &mut self.bins[class];
        let entry = if need.is_small { bin.blocks.pop() } else { bin.take_large(need) };
        match entry {
            Some(entry) => Some(self.send(class, entry, layout, live)),
            None if need.is_small => None,
            None => self.cut(class, need, layout, is_tight, live),
        }
    }

    /// Makes a block live and counts it.
    #[inline(always)]
    fn send(
        &mut self,
        class: usize,
        Entry { id, address, bytes }: Entry,
        layout: Layout,
        live: &BlockTable,
    ) -> u64 {
        let claim = live.set_live(id, layout);
        self.bins[class].tally.alloc(bytes, layout.size() as u64);
        self.out[place_of(address)] = Some((address, claim));
        self.used = true;
        address
    }

    /// Allocates a block from an extent.
    #[inline(never)]
    fn cut(
        &mut self,
        class: usize,
        need: &Need,
        layout: Layout,
        is_tight: bool,
        live: &BlockTable,
    ) -> Option<u64> {
        let need = *need;
        let found = match self.local.cut(need) {
            None if is_tight => {
                self.merge(live);
                self.local.cut(need)
            }
            found => found,
        };
        let (node, address) = found?;
        let id = self.name(node, address, need, live);
        Some(self.send(class, Entry { id, address, bytes: need.bytes }, layout, live))
    }

    /// Cuts a block from an extent. It is not live yet.
    pub fn cut_out(&mut self, need: Need, live: &BlockTable) -> Option<BlockId> {
        let (node, address) = self.local.cut(need)?;
        Some(self.name(node, address, need, live))
    }

    /// Creates a block for a piece that was cut.
    fn name(&mut self, node: u32, address: u64, need: Need, live: &BlockTable) -> BlockId {
        let id = self.numbers.pop().unwrap_or_else(|| {
            self.numbers = live.take_numbers(NUMBERS);
            self.numbers.pop().unwrap_or_else(|| unreachable!("it asked for some"))
        });
        live.insert_as(id, (address, need.bytes), (self.owner, node), (need.class, false));
        id
    }

    /// Returns a free block to the extent that it was cut from.
    #[inline(never)]
    fn unname(&mut self, id: BlockId, live: &BlockTable) {
        let node = live.slot(id).piece();
        live.forget(id);
        self.numbers.push(id);
        if self.numbers.len() > 2 * NUMBERS {
            live.give_numbers(self.numbers.drain(NUMBERS..));
        }
        self.local.give(node);
    }

    #[inline]
    fn is_own(&self, id: BlockId, live: &BlockTable) -> bool {
        self.owner != SHARED && live.slot(id).owner() == self.owner
    }

    /// Merges cached large blocks into the cache's extents.
    fn merge(&mut self, live: &BlockTable) {
        for class in self.first_large..self.bins.len() {
            for at in (0..self.bins[class].blocks.len()).rev() {
                let Entry { id, bytes, .. } = self.bins[class].blocks[at];
                if bytes >= LARGE && self.is_own(id, live) {
                    self.bins[class].blocks.swap_remove(at);
                    self.unname(id, live);
                }
            }
        }
    }

    /// Adopts a shared piece that is out as an extent.
    pub fn adopt(&mut self, shared: &mut Arena, piece: u32) {
        self.local.adopt(shared, piece);
    }

    /// Moves a free block from an extent to the shared segments, and returns the number of its
    /// piece there.
    pub fn let_go(&mut self, shared: &mut Arena, id: BlockId, live: &BlockTable) -> u32 {
        let node = live.slot(id).piece();
        live.remove(id);
        self.local.let_go(shared, node)
    }

    /// Moves all free pieces of extents to the shared segments with that order. With `all ==
    /// false`, only pieces that may have free neighbours there.
    pub fn let_go_free(&mut self, shared: &mut Arena, order: OrderTag, all: bool) {
        match all {
            true => self.local.let_go_free(shared, order),
            false => self.local.let_go_ends(shared, order),
        }
    }

    /// Moves a free piece of `bytes` from an extent to the shared segments, for a slab. Returns its
    /// number there.
    pub fn lend(&mut self, shared: &mut Arena, bytes: u64, align: u64) -> Option<u32> {
        let (node, _) = self.local.cut(Need { class: None, bytes, align, is_small: false })?;
        Some(self.local.let_go(shared, node))
    }

    /// Whether there are extents.
    pub fn has_extents(&self) -> bool {
        !self.local.is_empty()
    }

    /// Whether the cache was used since the last call.
    pub fn was_used(&mut self) -> bool {
        std::mem::take(&mut self.used)
    }

    /// Retires the cache: returns its unused block numbers.
    pub fn retire(&mut self, live: &BlockTable) {
        live.give_numbers(self.numbers.drain(..));
    }

    /// Removes and returns the claim of a recently allocated block, if the address is known.
    #[inline]
    pub fn known(&mut self, address: u64) -> Option<Claim> {
        self.out[place_of(address)].take_if(|(known, _)| *known == address).map(|(_, claim)| claim)
    }

    /// Caches a free block.
    #[inline(always)]
    pub fn keep(&mut self, id: BlockId, asked: u64, is_tight: bool, live: &BlockTable) -> FreeOutcome {
        let slot = live.slot(id);
        let entry = Entry { id, address: slot.address(), bytes: slot.bytes() };
        let Some(class) = slot.class() else {
            self.huge.free(entry.bytes, asked);
            return FreeOutcome::Huge(id);
        };
        self.used = true;
        let bin = &mut self.bins[class];
        bin.tally.free(entry.bytes, asked);
        if is_tight && entry.bytes >= LARGE && self.is_own(id, live) {
            self.unname(id, live);
            return FreeOutcome::Kept;
        }
        let bin = &mut self.bins[class];
        bin.blocks.push(entry);
        // The first block is always kept: this skips the division that computes `most`.
        let kept = bin.blocks.len();
        if kept == 1 {
            return FreeOutcome::Kept;
        }
        let most = most(entry.bytes, slot.is_small());
        if kept > most { self.shed(class, most, live) } else { FreeOutcome::Kept }
    }

    /// Removes the older half of a large class as far as its blocks belong to the cache's extents,
    /// and merges them there. Other blocks go to the shared state.
    #[inline(never)]
    fn shed(&mut self, class: usize, most: usize, live: &BlockTable) -> FreeOutcome {
        if class >= self.first_large {
            let older = self.bins[class].blocks.len() / 2;
            // At most 16 blocks.
            for at in (0..older).rev() {
                if self.is_own(self.bins[class].blocks[at].id, live) {
                    let entry = self.bins[class].blocks.remove(at);
                    self.unname(entry.id, live);
                }
            }
        }
        let is_over = self.bins[class].blocks.len() > most;
        if is_over { FreeOutcome::Over { class: class as u16, most: most as u16 } } else { FreeOutcome::Kept }
    }

    /// Removes the older half of a class, if it still has more than `most` blocks: another thread
    /// may have done this in the meantime. Blocks of the cache's own extents are merged there; the
    /// others are returned.
    pub fn overflow(&mut self, class: u16, most: u16, live: &BlockTable) -> Vec<BlockId> {
        let blocks = &mut self.bins[usize::from(class)].blocks;
        if blocks.len() <= usize::from(most) {
            return Vec::new();
        }
        let out = blocks.drain(..blocks.len() / 2).map(|entry| entry.id).collect();
        self.not_own(out, live)
    }

    /// Merges the blocks that belong to the cache's extents, and returns the others. All are free.
    fn not_own(&mut self, mut blocks: Vec<BlockId>, live: &BlockTable) -> Vec<BlockId> {
        blocks.retain(|id| {
            let is_own = self.is_own(*id, live);
            if is_own {
                self.unname(*id, live);
            }
            !is_own
        });
        blocks
    }

    /// Counts a live block that was not served from the cache.
    pub fn count_miss(&mut self, claim: Claim, asked: u64, live: &BlockTable) {
        let slot = live.slot(claim.id);
        self.out[place_of(slot.address())] = Some((slot.address(), claim));
        let tally = slot.class().map_or(&mut self.huge, |class| &mut self.bins[class].tally);
        tally.alloc(slot.bytes(), asked);
        tally.misses += 1;
    }

    /// Caches the further blocks of a refill, in reverse: the first is allocated next.
    pub fn stock(&mut self, class: usize, more: &[BlockId], live: &BlockTable) {
        let entry = |id: &BlockId| {
            let slot = live.slot(*id);
            Entry { id: *id, address: slot.address(), bytes: slot.bytes() }
        };
        self.bins[class].blocks.extend(more.iter().rev().map(entry));
    }

    /// Whether no block is cached and there is no extent.
    pub fn is_empty(&self) -> bool {
        self.local.is_empty() && self.bins.iter().all(|bin| bin.blocks.is_empty())
    }

    /// Removes all blocks of the classes that `which` accepts. Blocks of the cache's own extents
    /// are merged there; the others are returned.
    pub fn drain(&mut self, which: impl Fn(usize) -> bool, live: &BlockTable) -> Vec<BlockId> {
        let all = self.bins.iter_mut().enumerate().filter(|(class, _)| which(*class));
        let out = all.flat_map(|(_, bin)| bin.blocks.drain(..)).map(|entry| entry.id).collect();
        self.not_own(out, live)
    }

    /// Adds the counters.
    pub fn count(&self, counts: &mut Counts) {
        for (class, bin) in self.bins.iter().enumerate() {
            counts.add(Some(class), &bin.tally, bin.blocks.len());
        }
        counts.add(None, &self.huge, 0);
    }
}

impl Bin {
    /// Removes the smallest block that fits and is not too large.
    #[inline]
    fn take_large(&mut self, need: &Need) -> Option<Entry> {
        let most = need.bytes + need.bytes / SLACK;
        let fits = |entry: &Entry| {
            (need.bytes..=most).contains(&entry.bytes) && entry.address & (need.align - 1) == 0
        };
        // The common case: the last block has exactly this size.
        if let Some(last) = self.blocks.pop_if(|last| last.bytes == need.bytes && fits(last)) {
            return Some(last);
        }
        let all = self.blocks.iter().enumerate().filter(|(_, entry)| fits(entry));
        let (found, _) = all.min_by_key(|(_, entry)| entry.bytes)?;
        Some(self.blocks.remove(found))
    }
}

fn most_small(bytes: u64) -> usize {
    MOST_SMALL.min(MOST_SMALL_BYTES / bytes).max(2) as usize
}

fn most_large(bytes: u64) -> usize {
    MOST_LARGE.min(MOST_LARGE_BYTES / bytes).max(1) as usize
}

/// The number of blocks of a size that a bin keeps.
#[inline]
fn most(bytes: u64, is_small: bool) -> usize {
    if is_small { most_small(bytes) } else { most_large(bytes) }
}

/// The number of small blocks of one refill, including the one that was requested.
pub(super) fn refill_of(need: Need) -> usize {
    if need.is_small { most_small(need.bytes) / 4 } else { 1 }
}

#[cfg(test)]
impl Bins {
    /// The invariants of the extents.
    pub fn check(&self, shared: &Arena) {
        self.local.check(shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Bins after caching large blocks of these sizes one by one, and the sizes that overflowed.
    fn bins(sizes: &[u64]) -> (Bins, BlockTable, Classes, Vec<u64>) {
        let (classes, live) = (Classes::new(512, 1, 64 << 10).unwrap(), BlockTable::new());
        let mut bins = Bins::new(classes, SHARED);
        let mut out = Vec::new();
        for (n, bytes) in (0..).zip(sizes) {
            // At odd multiples of 512 B, except the first.
            let id =
                live.insert(n * 256 * MIB + n.min(1) * 512, *bytes, 0, (Some(classes.index(*bytes)), false));
            if let FreeOutcome::Over { class, most } = bins.keep(id, *bytes, false, &live) {
                out.extend(bins.overflow(class, most, &live).into_iter().map(|id| live.slot(id).bytes()));
            }
        }
        (bins, live, classes, out)
    }

    fn take(bins: &mut Bins, live: &BlockTable, classes: Classes, bytes: u64, align: usize) -> Option<u64> {
        let layout = Layout::from_size_align(bytes as usize, align).unwrap();
        bins.take(&classes.need(layout).unwrap(), layout, false, live)
    }

    #[test]
    fn of_the_large_blocks_that_fit_the_least_too_large_goes_out() {
        let (mut bins, live, classes, out) = bins(&[33 * MIB / 16, 3 * MIB, 35 * MIB / 16, 34 * MIB / 16]);
        assert!(out.is_empty());
        let mut size = |bytes, align| {
            let address = take(&mut bins, &live, classes, bytes, align)?;
            let other = (0..)
                .map(|n| address + 512 * n)
                .find(|other| place_of(*other) == place_of(address) && *other != address);
            assert!(bins.known(other?).is_none(), "who is not known takes nobody's place");
            let claim = bins.known(address).expect("it went out last");
            assert!(live.slot(claim.id).is_live() && bins.known(address).is_none());
            Some(live.slot(claim.id).bytes())
        };
        assert_eq!(size(34 * MIB / 16 - 5, 256), Some(34 * MIB / 16));
        assert_eq!(size(2 * MIB + 1, 1 << 20), Some(33 * MIB / 16), "the one that is aligned so");
        assert_eq!(size(2 * MIB + 1, 256), None, "a sixteenth at most");
        assert_eq!(size(34 * MIB / 16, 1 << 20), None, "not aligned");
        assert_eq!(size(34 * MIB / 16, 512), Some(35 * MIB / 16));
        assert_eq!(size(3 * MIB, 512), Some(3 * MIB));
        assert_eq!(size(3 * MIB, 512), None);
    }

    /// I3.
    #[test]
    fn a_bin_keeps_what_was_freed_last() {
        let (_, _, _, out) = bins(&[20 * MIB, 21 * MIB, 40 * MIB]);
        assert_eq!(out, [20 * MIB], "one of each class");
        let sizes: Vec<u64> = (0..5).map(|n| 3 * MIB + n * 512).collect();
        let (mut bins, live, classes, out) = bins(&sizes);
        assert!(out.is_empty(), "five of 3 MiB: {out:?}");
        let id = live.insert(1 << 50, 4 * MIB, 0, (Some(classes.index(4 * MIB)), false));
        let FreeOutcome::Over { class, most } = bins.keep(id, 1, false, &live) else {
            panic!("it is too many")
        };
        assert_eq!((usize::from(class), most), (classes.index(4 * MIB), 4));
        let over: Vec<u64> =
            bins.overflow(class, most, &live).into_iter().map(|id| live.slot(id).bytes()).collect();
        assert_eq!(over, sizes[..3], "the older half");
    }
}
