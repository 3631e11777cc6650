//! The free blocks of one stream, by class, and what it counts.
//!
//! ```text
//!   class 2   │ 2048 │ 2048 │ 2048        equal blocks of slabs: the last freed first
//!   class 13  │ 2.5 MiB │ 3 MiB │ 2.2 MiB    cut to measure: of those that fit, the least too large
//! ```
//!
//! I1: a block is in the bin of its own class, once, and in none while it is live. I2: an entry has the size and the address of its
//! block's slot, which do not change while the block is here. I3: a bin has at most [`most`] blocks, or one; and more until who gave
//! one too many has taken the older half out, or where several threads of a stream filled it at once.

use super::class::{Classes, Need};
use super::live::{BlockId, Claim, Live};
use super::stats::{Counts, Tally};
use std::alloc::Layout;

/// A block above the slabs' limit serves what is smaller by up to one in so many of what is asked for.
const SLACK: u64 = 16;
/// Blocks that a bin keeps, and bytes, as long as both allow; but one block of any size. What is kept does not merge with its
/// neighbours: more large blocks would strand memory between them.
const MOST_SMALL: u64 = 256;
const MOST_SMALL_BYTES: u64 = 4 << 20;
const MOST_LARGE: u64 = 32;
const MOST_LARGE_BYTES: u64 = 16 << 20;
/// Blocks that are known again without the map of all: a power of two.
const OUT: usize = 64;

/// What became of a block that was given back. It goes through a register, where a list would go through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    Kept,
    /// The same, and there are more of this class than it keeps now ([`Bins::overflow`]).
    Over {
        class: u16,
        most: u16,
    },
    /// It is above all classes, and not kept.
    Huge(BlockId),
    /// It is not known here, or not live with that layout: nothing happened.
    Unknown,
}

pub(super) struct Bins {
    /// Blocks that went out last, by a mix of their address: most come back here, and are not looked up in the map of all.
    out: [Option<(u64, Claim)>; OUT],
    bins: Vec<Bin>,
    /// Of what is above all classes.
    huge: Tally,
}

/// Two lines of the cache, and no part of a third one.
#[derive(Default)]
#[repr(align(64))]
struct Bin {
    /// The last freed at the end.
    blocks: Vec<Entry>,
    tally: Tally,
}

#[derive(Clone, Copy)]
struct Entry {
    id: BlockId,
    address: u64,
    bytes: u64,
}

/// Where a block is in `out`.
#[inline]
fn place_of(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - OUT.ilog2())) as usize
}

impl Bins {
    pub fn new(classes: Classes) -> Bins {
        let bins = (0..classes.count()).map(|_| Bin::default()).collect();
        Bins { out: [None; OUT], bins, huge: Tally::default() }
    }

    /// A block for a request, live.
    #[inline]
    pub fn take(&mut self, need: Need, layout: Layout, live: &Live) -> Option<u64> {
        let bin = &mut self.bins[need.class?];
        let entry = if need.is_small { bin.blocks.pop() } else { bin.take_large(need) }?;
        let claim = live.set_live(entry.id, layout);
        bin.tally.alloc(entry.bytes, layout.size() as u64);
        self.out[place_of(entry.address)] = Some((entry.address, claim));
        Some(entry.address)
    }

    /// A block that went out from here not long ago, once.
    #[inline]
    pub fn known(&mut self, address: u64) -> Option<Claim> {
        self.out[place_of(address)].take_if(|(known, _)| *known == address).map(|(_, claim)| claim)
    }

    /// Keeps a block that nobody has.
    #[inline]
    pub fn keep(&mut self, id: BlockId, asked: u64, live: &Live) -> Back {
        let slot = live.slot(id);
        let entry = Entry { id, address: slot.address(), bytes: slot.bytes() };
        let Some(class) = slot.class() else {
            self.huge.free(entry.bytes, asked);
            return Back::Huge(id);
        };
        let bin = &mut self.bins[class];
        bin.tally.free(entry.bytes, asked);
        bin.blocks.push(entry);
        // One is always kept, and what the most is takes a division.
        let kept = bin.blocks.len();
        if kept == 1 {
            return Back::Kept;
        }
        let most = most(entry.bytes, slot.is_small());
        if kept > most { Back::Over { class: class as u16, most: most as u16 } } else { Back::Kept }
    }

    /// Takes the older half of a class out, if there still are more than `most`: another thread may have done that meanwhile.
    pub fn overflow(&mut self, class: u16, most: u16) -> Vec<BlockId> {
        let blocks = &mut self.bins[usize::from(class)].blocks;
        if blocks.len() <= usize::from(most) {
            return Vec::new();
        }
        blocks.drain(..blocks.len() / 2).map(|entry| entry.id).collect()
    }

    /// Counts a block that came from elsewhere and is live, and keeps those that came with it, the next one to be handed out last.
    pub fn refill(&mut self, claim: Claim, asked: u64, more: &[BlockId], live: &Live) {
        let entry = |id: &BlockId| {
            let slot = live.slot(*id);
            Entry { id: *id, address: slot.address(), bytes: slot.bytes() }
        };
        let Entry { id, address, bytes } = entry(&claim.id);
        self.out[place_of(address)] = Some((address, claim));
        let tally = match live.slot(id).class() {
            Some(class) => {
                let bin = &mut self.bins[class];
                bin.blocks.extend(more.iter().rev().map(entry));
                &mut bin.tally
            }
            None => &mut self.huge,
        };
        tally.alloc(bytes, asked);
        tally.misses += 1;
    }

    /// Takes out all blocks of the classes that `which` says.
    pub fn drain(&mut self, which: impl Fn(usize) -> bool) -> Vec<BlockId> {
        let all = self.bins.iter_mut().enumerate().filter(|(class, _)| which(*class));
        all.flat_map(|(_, bin)| bin.blocks.drain(..)).map(|entry| entry.id).collect()
    }

    /// Adds what was counted.
    pub fn count(&self, counts: &mut Counts) {
        for (class, bin) in self.bins.iter().enumerate() {
            counts.add(Some(class), &bin.tally, bin.blocks.len());
        }
        counts.add(None, &self.huge, 0);
    }
}

impl Bin {
    /// Of the blocks that fit and are not much too large, the smallest.
    #[inline]
    fn take_large(&mut self, need: Need) -> Option<Entry> {
        let most = need.bytes + need.bytes / SLACK;
        let fits = |entry: &Entry| {
            (need.bytes..=most).contains(&entry.bytes) && entry.address & (need.align - 1) == 0
        };
        // Mostly that is the last one, of just that size.
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

/// How many blocks of a size a bin keeps.
#[inline]
fn most(bytes: u64, is_small: bool) -> usize {
    if is_small { most_small(bytes) } else { most_large(bytes) }
}

/// How many small blocks come with one that is asked for, itself among them.
pub(super) fn refill_of(need: Need) -> usize {
    if need.is_small { most_small(need.bytes) / 4 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Large blocks of these sizes, put into bins one after the other, and what came out meanwhile.
    fn bins(sizes: &[u64]) -> (Bins, Live, Classes, Vec<u64>) {
        let (classes, live) = (Classes::new(512, 1, 64 << 10).unwrap(), Live::new());
        let mut bins = Bins::new(classes);
        let mut out = Vec::new();
        for (n, bytes) in (0..).zip(sizes) {
            // At odd multiples of 512 B but for the first.
            let id =
                live.insert(n * 256 * MIB + n.min(1) * 512, *bytes, 0, (Some(classes.index(*bytes)), false));
            if let Back::Over { class, most } = bins.keep(id, *bytes, &live) {
                out.extend(bins.overflow(class, most).into_iter().map(|id| live.slot(id).bytes()));
            }
        }
        (bins, live, classes, out)
    }

    fn take(bins: &mut Bins, live: &Live, classes: Classes, bytes: u64, align: usize) -> Option<u64> {
        let layout = Layout::from_size_align(bytes as usize, align).unwrap();
        bins.take(classes.need(layout).unwrap(), layout, live)
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
        let Back::Over { class, most } = bins.keep(id, 1, &live) else { panic!("it is too many") };
        assert_eq!((usize::from(class), most), (classes.index(4 * MIB), 4));
        let over: Vec<u64> = bins.overflow(class, most).into_iter().map(|id| live.slot(id).bytes()).collect();
        assert_eq!(over, sizes[..3], "the older half");
    }
}
