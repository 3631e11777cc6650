//! The memory of a heap: all of it, or a reservation that grows.

use crate::driver::GrowableBuffer;
use crate::driver::{Device, DeviceMemory};
use crate::error::Result;
use warpheap_device::heap::{HeapLayout, MAX_ALIGN};

/// The memory that a heap allocates from.
#[derive(Debug)]
pub(super) enum Backing {
    /// All of the memory.
    Plain(DeviceMemory),
    /// A reservation that is mapped step by step.
    Growable(GrowableBuffer),
}

impl Backing {
    /// The memory of a heap: all of it, or a reservation with `initial` bytes mapped.
    pub fn new(device: &Device, layout: &HeapLayout, initial: Option<u64>) -> Result<Backing> {
        let Some(initial) = initial else {
            return device.alloc_memory(layout.bytes(), MAX_ALIGN as usize).map(Backing::Plain);
        };
        let mut buffer = GrowableBuffer::for_pool(device, layout.bytes(), MAX_ALIGN)?;
        buffer.grow_to(whole_slabs(layout, initial))?;
        Ok(Backing::Growable(buffer))
    }

    pub fn memory(&self) -> &DeviceMemory {
        match self {
            Backing::Plain(memory) => memory,
            Backing::Growable(buffer) => buffer.memory(),
        }
    }

    /// Number of slabs with memory: the first slabs of the layout.
    pub fn slabs(&self, layout: &HeapLayout) -> u32 {
        (self.memory().bytes() >> layout.slab_log2).min(layout.slabs.into()) as u32
    }
}

/// `bytes`, at most the heap's size, rounded up to a multiple of the slab size.
pub(super) fn whole_slabs(layout: &HeapLayout, bytes: u64) -> u64 {
    debug_assert!(bytes <= layout.bytes());
    bytes.next_multiple_of(layout.slab_bytes().into())
}
