//! A bin: the cached blocks of one class, and the limits on them.
//!
//! ```text
//! class 2   │ 2048 │ 2048 │ 2048            equal blocks of slabs: last in, first out
//! class 13  │ 2.5 MiB │ 3 MiB │ 2.2 MiB      cut to the requested size: the smallest that fits
//! ```

use super::block_map::BlockId;
use super::class::Need;
use super::slot::Slot;
use super::stats::Tally;

/// A block above the slab limit serves a smaller request if it exceeds that request by at most
/// 1/16.
const SLACK: u64 = 16;
/// Limits on blocks and on bytes of a bin; both apply, but one block of any size is always kept. A
/// cached block does not coalesce with its neighbours: a higher limit on large blocks would strand
/// the memory between them.
const MAX_SMALL: u64 = 256;
const MAX_SMALL_BYTES: u64 = 4 << 20;
const MAX_LARGE: u64 = 32;
const MAX_LARGE_BYTES: u64 = 16 << 20;

/// Exactly two cache lines, aligned to a line.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Bin {
    /// The most recently freed block is last.
    pub blocks: Vec<Entry>,
    pub tally: Tally,
}

/// A block with the size and address of its slot, which do not change while it is in a bin.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub id: BlockId,
    pub address: u64,
    pub bytes: u64,
}

impl Entry {
    #[inline]
    pub fn new(id: BlockId, slot: &Slot) -> Entry {
        Entry { id, address: slot.address(), bytes: slot.bytes() }
    }
}

impl Bin {
    /// Removes the smallest block that fits and is not too large.
    #[inline]
    pub fn pop_large(&mut self, need: &Need) -> Option<Entry> {
        let max = need.bytes + need.bytes / SLACK;
        let fits = |entry: &Entry| {
            (need.bytes..=max).contains(&entry.bytes) && entry.address & (need.align - 1) == 0
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

fn small_limit(bytes: u64) -> usize {
    MAX_SMALL.min(MAX_SMALL_BYTES / bytes).max(2) as usize
}

fn large_limit(bytes: u64) -> usize {
    MAX_LARGE.min(MAX_LARGE_BYTES / bytes).max(1) as usize
}

/// Maximum number of blocks of a size that a bin keeps.
#[inline]
pub(super) fn bin_limit(bytes: u64, is_small: bool) -> usize {
    if is_small { small_limit(bytes) } else { large_limit(bytes) }
}

/// Number of small blocks of one refill, including the one that was requested.
pub(super) fn refill_count(need: Need) -> usize {
    if need.is_small { small_limit(need.bytes) / 4 } else { 1 }
}
