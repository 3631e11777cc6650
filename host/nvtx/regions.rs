//! The heaps and regions of one pool that the tool knows.
//!
//! ```text
//! heap      [ segment of the pool .................................. ]     may not be accessed
//! regions   [ block ]        [ block ][ block ]                            but these may
//! ```
//!
//! I1: heaps are disjoint, and so are regions. I2: each region lies in a heap. I3: the tool has
//! exactly these heaps and regions registered. I4: without a tool for memory, there are none.

use super::memory_name;
use super::tool::{HeapHandle, MemoryTool, tool};
use crate::lock::lock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The heaps and regions of one pool.
#[derive(Default)]
pub(crate) struct Regions(Mutex<State>);

#[derive(Default)]
struct State {
    /// Size and handle of each heap, by its address.
    heaps: BTreeMap<u64, (u64, HeapHandle)>,
    /// Each region, by its address.
    regions: BTreeMap<u64, Region>,
}

/// A block of the pool.
pub(crate) struct Region {
    pub bytes: u64,
    /// The tag of its allocation.
    pub name: Option<Arc<str>>,
}

/// The tool, if it has functions for memory.
#[inline]
pub(crate) fn memory_tool() -> Option<&'static MemoryTool> {
    tool().and_then(|tool| tool.memory())
}

impl State {
    /// The heap that contains all of the bytes.
    fn heap_of(&self, address: u64, bytes: u64) -> Option<HeapHandle> {
        let (start, (size, handle)) = self.heaps.range(..=address).next_back()?;
        (address - start <= *size && bytes <= size - (address - start)).then_some(*handle)
    }

    /// Removes the regions that overlap the range.
    fn remove_regions(&mut self, tool: &MemoryTool, range: Range<u64>) {
        while let Some((&start, region)) = self.regions.range(..range.end).next_back()
            && start + region.bytes > range.start
        {
            self.regions.remove(&start);
            tool.unregister_region(start);
        }
    }
}

impl Regions {
    /// Registers a segment of the pool.
    pub fn add_heap(&self, tool: &MemoryTool, address: u64, bytes: u64, name: &str) {
        let mut state = lock(&self.0);
        let handle = tool.register_heap(address, bytes, &memory_name(name));
        state.heaps.insert(address, (bytes, handle));
    }

    /// Removes a segment and its regions. Returns its size.
    pub fn remove_heap(&self, tool: &MemoryTool, address: u64) -> Option<u64> {
        let mut state = lock(&self.0);
        let (bytes, handle) = state.heaps.remove(&address)?;
        state.remove_regions(tool, address..address + bytes);
        tool.unregister_heap(handle);
        Some(bytes)
    }

    /// Registers a block of the pool, unless it lies in no heap. A region that it overlaps belonged
    /// to a block that the pool freed by a reset.
    pub fn add_region(&self, tool: &MemoryTool, address: u64, region: Region) {
        let mut state = lock(&self.0);
        let Some(heap) = state.heap_of(address, region.bytes) else { return };
        state.remove_regions(tool, address..address + region.bytes);
        tool.register_region(heap, address, region.bytes);
        if let Some(name) = &region.name {
            tool.name(address, &memory_name(name));
        }
        state.regions.insert(address, region);
    }

    /// Whether a block at this address is registered.
    pub fn has_region(&self, address: u64) -> bool {
        lock(&self.0).regions.contains_key(&address)
    }

    /// Removes and returns the block at this address, if it is registered.
    pub fn remove_region(&self, tool: &MemoryTool, address: u64) -> Option<Region> {
        let mut state = lock(&self.0);
        let region = state.regions.remove(&address)?;
        tool.unregister_region(address);
        Some(region)
    }
}
