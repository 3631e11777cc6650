//! Where the next block starts, and which blocks there are.
//!
//! ```text
//!   base                                at                  base + bytes
//!   | block | . | block     | . | block |                     |     . padding, for the next one's alignment
//!     Freed       Live            Moving
//! ```
//!
//! I1: `blocks` are in the order of their addresses, do not overlap, and end at or before `at`; `at <= bytes`.
//! I2: `live` counts those that are not `Freed`, and `live_bytes` their sizes.

use crate::alloc::words;
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
    /// It is on its way from live to freed.
    Moving,
    Freed,
}

/// Which of the blocks, until the next reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index(usize);

/// There is no room.
pub(super) struct Full {
    /// The most bytes that could be had with the alignment that was asked for.
    pub largest: u64,
}

impl Cursor {
    /// Over `bytes` at `base`, which do not reach past the last address.
    pub fn new(base: u64, bytes: u64) -> Cursor {
        Cursor { base, bytes, at: 0, blocks: Vec::new(), live: 0, live_bytes: 0 }
    }

    /// Where a block would start.
    pub fn place(&self, layout: Layout) -> Result<u64, Full> {
        let end = self.base + self.bytes;
        let start = (self.base + self.at).checked_next_multiple_of(layout.align() as u64);
        let largest = start.map_or(0, |start| end.saturating_sub(start));
        match start {
            Some(start) if layout.size() as u64 <= largest => Ok(start),
            _ => Err(Full { largest }),
        }
    }

    /// A block at `start`, where [`place`](Self::place) says that it would.
    pub fn take(&mut self, start: u64, layout: Layout) {
        let size = layout.size() as u64;
        self.at = start - self.base + size;
        self.blocks.push(Block { start, layout, state: State::Live });
        self.live += 1;
        self.live_bytes += size;
    }

    /// Marks the live block that starts there and has that layout as on its way; or says what is wrong with that.
    pub fn begin_free(&mut self, address: u64, layout: Layout) -> Result<Index, String> {
        let behind = self.blocks.partition_point(|block| block.start <= address);
        let found = behind.checked_sub(1).map(|index| (index, &mut self.blocks[index]));
        let inside = |block: &Block| address - block.start < block.layout.size() as u64;
        let Some((index, block)) = found.filter(|(_, block)| inside(block)) else {
            let why = "no block was allocated there since the last reset: it is of another allocator, or from before that";
            return Err(why.into());
        };
        match block.state {
            _ if block.start != address => {
                Err(format!("it lies inside of the block of {} at {:#x}", words(block.layout), block.start))
            }
            State::Freed | State::Moving => Err("that block is free already, until the next reset".into()),
            State::Live if block.layout != layout => {
                Err(format!("it was allocated as {}, not as {}", words(block.layout), words(layout)))
            }
            State::Live => {
                block.state = State::Moving;
                Ok(Index(index))
            }
        }
    }

    /// The end of [`begin_free`](Self::begin_free): freed if it went well, live as before otherwise.
    pub fn end_free(&mut self, Index(index): Index, went_well: bool) {
        let block = &mut self.blocks[index];
        block.state = if went_well { State::Freed } else { State::Live };
        if went_well {
            self.live -= 1;
            self.live_bytes -= block.layout.size() as u64;
        }
    }

    /// As at first.
    pub fn reset(&mut self) {
        (self.at, self.live, self.live_bytes) = (0, 0, 0);
        self.blocks.clear();
    }

    /// Bytes from the start to the end of the last block.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes behind that.
    pub fn left(&self) -> u64 {
        self.bytes - self.at
    }

    /// How many blocks are not freed, and their sizes.
    pub fn live(&self) -> (u64, u64) {
        (self.live, self.live_bytes)
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
