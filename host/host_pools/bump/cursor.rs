//! The position of the next block, and the blocks of the region.
//!
//! ```text
//! base                                at                  base + bytes
//! | block | . | block     | . | block |                     |     . padding for alignment
//!   Freed       Live            Moving
//! ```
//!
//! I1: `blocks` are sorted by address, do not overlap, and end at or before `at`; `at <= bytes`.
//! I2: `live` is the number of blocks that are not `Freed`, and `live_bytes` the sum of their
//! sizes.

use crate::host_pools::request::{inside_block, wrong_layout};
use std::alloc::Layout;

pub(super) struct Cursor {
    base: u64,
    bytes: u64,
    at: u64,
    blocks: Vec<Block>,
    live: u64,
    live_bytes: u64,
}

struct Block {
    start: u64,
    layout: Layout,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    /// In transition from live to freed.
    Moving,
    Freed,
}

/// Index of a block. Valid until the next reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index(usize);

/// The region is full.
pub(super) struct Full {
    /// The largest size that fits with the requested alignment.
    pub largest: u64,
}

impl Cursor {
    /// Creates a cursor over `bytes` at `base`, which must not wrap around the address space.
    pub fn new(base: u64, bytes: u64) -> Cursor {
        Cursor { base, bytes, at: 0, blocks: Vec::new(), live: 0, live_bytes: 0 }
    }

    /// The start address that a block would get.
    pub fn place(&self, layout: Layout) -> Result<u64, Full> {
        let end = self.base + self.bytes;
        let start = (self.base + self.at).checked_next_multiple_of(layout.align() as u64);
        let largest = start.map_or(0, |start| end.saturating_sub(start));
        match start {
            Some(start) if layout.size() as u64 <= largest => Ok(start),
            _ => Err(Full { largest }),
        }
    }

    /// Allocates a block at `start`, the result of [`place`](Self::place).
    pub fn take(&mut self, start: u64, layout: Layout) {
        let size = layout.size() as u64;
        self.at = start - self.base + size;
        self.blocks.push(Block { start, layout, state: State::Live });
        self.live += 1;
        self.live_bytes += size;
    }

    /// Begins to free the live block that starts at `address` and has that layout. Fails with the
    /// reason if there is none.
    pub fn begin_free(&mut self, address: u64, layout: Layout) -> Result<Index, String> {
        let behind = self.blocks.partition_point(|block| block.start <= address);
        let found = behind.checked_sub(1).map(|index| (index, &mut self.blocks[index]));
        let inside = |block: &Block| address - block.start < block.layout.size() as u64;
        let Some((index, block)) = found.filter(|(_, block)| inside(block)) else {
            let why = "no block was allocated there since the last reset: it belongs to another allocator, or was allocated before";
            return Err(why.into());
        };
        match block.state {
            _ if block.start != address => Err(inside_block(block.start, block.layout)),
            State::Freed | State::Moving => Err("that block is already free, until the next reset".into()),
            State::Live if block.layout != layout => Err(wrong_layout(block.layout, layout)),
            State::Live => {
                block.state = State::Moving;
                Ok(Index(index))
            }
        }
    }

    /// Completes [`begin_free`](Self::begin_free): the block becomes freed on success, live again
    /// on failure.
    pub fn end_free(&mut self, Index(index): Index, succeeded: bool) {
        let block = &mut self.blocks[index];
        block.state = if succeeded { State::Freed } else { State::Live };
        if succeeded {
            self.live -= 1;
            self.live_bytes -= block.layout.size() as u64;
        }
    }

    /// Returns to the initial state.
    pub fn reset(&mut self) {
        (self.at, self.live, self.live_bytes) = (0, 0, 0);
        self.blocks.clear();
    }

    /// Bytes from the start of the region to the end of the last block.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes from there to the end of the region.
    pub fn left(&self) -> u64 {
        self.bytes - self.at
    }

    /// Number of blocks that are not freed, and their bytes.
    pub fn live(&self) -> (u64, u64) {
        (self.live, self.live_bytes)
    }

    /// Start and bytes of the blocks that are not freed.
    pub fn live_blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        let live = self.blocks.iter().filter(|block| block.state != State::Freed);
        live.map(|block| (block.start, block.layout.size() as u64))
    }

    #[cfg(test)]
    pub fn check(&self) {
        let ends = self.blocks.iter().map(|block| block.start - self.base + block.layout.size() as u64);
        let starts = self.blocks.iter().map(|block| block.start - self.base).skip(1).chain([self.at]);
        assert!(ends.zip(starts).all(|(end, next)| end <= next) && self.at <= self.bytes, "I1");
        let live = || self.blocks.iter().filter(|block| block.state != State::Freed);
        let bytes: u64 = live().map(|block| block.layout.size() as u64).sum();
        assert_eq!((live().count() as u64, bytes), self.live(), "I2");
    }
}
