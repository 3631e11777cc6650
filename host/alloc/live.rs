//! Blocks that were given out, by address: what a free is checked against.
//!
//! I1: `blocks` holds exactly what was inserted and not removed, by the first address. I2: no two of them overlap.
//! I3: `taken` is the sum of what they take.

use super::words;
use std::alloc::Layout;
use std::collections::BTreeMap;

pub(super) struct Live<T> {
    blocks: BTreeMap<u64, Block<T>>,
    taken: u64,
}

/// A block, and what its allocator knows about it.
pub(super) struct Block<T> {
    pub layout: Layout,
    /// Bytes, with what the size was rounded up by.
    pub taken: u64,
    pub of: T,
}

impl<T> Default for Live<T> {
    fn default() -> Live<T> {
        Live { blocks: BTreeMap::new(), taken: 0 }
    }
}

impl<T> Live<T> {
    pub fn insert(&mut self, address: u64, block: Block<T>) {
        self.taken += block.taken;
        self.blocks.insert(address, block);
    }

    /// The block that starts there, no longer live; or why there is none.
    pub fn remove(&mut self, address: u64, layout: Layout) -> Result<Block<T>, String> {
        let below = self.blocks.range(..=address).next_back();
        let Some((start, found)) = below.filter(|(start, of)| address - **start < of.layout.size() as u64)
        else {
            return Err("no live block is there: it is of another allocator, or was given back before".into());
        };
        if *start != address {
            return Err(format!("it lies inside of the block of {} at {start:#x}", words(found.layout)));
        }
        if found.layout != layout {
            return Err(format!("it was allocated as {}, not as {}", words(found.layout), words(layout)));
        }
        let block = self.blocks.remove(&address).ok_or("it was given back before")?;
        self.taken -= block.taken;
        Ok(block)
    }

    /// How many there are.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// What they take, in bytes.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// All of them, which are no longer live then.
    pub fn take_all(&mut self) -> impl Iterator<Item = (u64, Block<T>)> + use<T> {
        self.taken = 0;
        std::mem::take(&mut self.blocks).into_iter()
    }
}
