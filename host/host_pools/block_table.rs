//! Live blocks by address. Every free is checked against them.
//!
//! I1: `blocks` holds exactly the blocks that were inserted and not removed, keyed by start
//! address. I2: no two blocks overlap. I3: `bytes` is the sum of the blocks' `bytes`.

use super::request::{inside_block, wrong_layout};
use std::alloc::Layout;
use std::collections::BTreeMap;

pub(super) struct BlockTable<T> {
    blocks: BTreeMap<u64, Block<T>>,
    bytes: u64,
}

/// A block and the allocator's data about it.
pub(super) struct Block<T> {
    pub layout: Layout,
    /// Bytes, including rounding.
    pub bytes: u64,
    pub data: T,
}

impl<T> Default for BlockTable<T> {
    fn default() -> BlockTable<T> {
        BlockTable { blocks: BTreeMap::new(), bytes: 0 }
    }
}

impl<T> BlockTable<T> {
    pub fn insert(&mut self, address: u64, block: Block<T>) {
        self.bytes += block.bytes;
        self.blocks.insert(address, block);
    }

    /// Removes the live block that starts at `address`. Fails with the reason if there is none.
    pub fn remove(&mut self, address: u64, layout: Layout) -> Result<Block<T>, String> {
        let below = self.blocks.range(..=address).next_back();
        match below.filter(|(start, block)| address - **start < block.layout.size() as u64) {
            Some((start, block)) if *start != address => return Err(inside_block(*start, block.layout)),
            Some((_, block)) if block.layout != layout => return Err(wrong_layout(block.layout, layout)),
            _ => {}
        }
        let no_block = "no live block is there: it belongs to another allocator, or was freed before";
        let block = self.blocks.remove(&address).ok_or(no_block)?;
        self.bytes -= block.bytes;
        Ok(block)
    }

    /// Number of live blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of all live blocks, including rounding.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Start and bytes of the live blocks.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.blocks.iter().map(|(start, block)| (*start, block.bytes))
    }

    /// Removes all blocks and returns them.
    pub fn drain(&mut self) -> impl Iterator<Item = (u64, Block<T>)> + use<T> {
        self.bytes = 0;
        std::mem::take(&mut self.blocks).into_iter()
    }
}
