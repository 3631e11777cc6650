//! Live blocks by address. Every free is checked against them.
//!
//! I1: `blocks` holds exactly the blocks that were inserted and not removed, keyed by start
//! address. I2: no two blocks overlap. I3: `taken` is the sum of the blocks' `taken`.

use super::words;
use std::alloc::Layout;
use std::collections::BTreeMap;

pub(super) struct BlockTable<T> {
    blocks: BTreeMap<u64, Block<T>>,
    taken: u64,
}

/// A block and the allocator's data about it.
pub(super) struct Block<T> {
    pub layout: Layout,
    /// Bytes, including rounding.
    pub taken: u64,
    pub of: T,
}

impl<T> Default for BlockTable<T> {
    fn default() -> BlockTable<T> {
        BlockTable { blocks: BTreeMap::new(), taken: 0 }
    }
}

impl<T> BlockTable<T> {
    pub fn insert(&mut self, address: u64, block: Block<T>) {
        self.taken += block.taken;
        self.blocks.insert(address, block);
    }

    /// Removes the live block that starts at `address`. Fails with the reason if there is none.
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

    /// Number of live blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of all live blocks, including rounding.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Removes all blocks and returns them.
    pub fn take_all(&mut self) -> impl Iterator<Item = (u64, Block<T>)> + use<T> {
        self.taken = 0;
        std::mem::take(&mut self.blocks).into_iter()
    }
}
