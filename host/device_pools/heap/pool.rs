//! A heap: its memory, its metadata, and the handle for kernels.

use super::backing::Backing;
use super::calls::Calls;
use super::offsets::MetadataOffsets;
use crate::device_pools::shared::{Faults, check_reset};
use crate::driver::DeviceMemory;
use crate::error::Result;
use std::sync::Mutex;
use warpheap_device::fault::FAULT_LOG_WORDS;
use warpheap_device::heap::{self, HeapLayout};
use warpheap_device::kernel::Arg;

/// A heap in device memory; see [`warpheap_device::heap`].
#[derive(Debug)]
#[must_use = "its memory is freed when it is dropped"]
pub struct Heap {
    pub(super) backing: Backing,
    pub(super) metadata: DeviceMemory,
    pub(super) offsets: MetadataOffsets,
    pub(super) layout: HeapLayout,
    pub(super) handle: Arg<heap::Heap>,
    /// Number of usable slabs: the first slabs of the layout, all of which have memory.
    pub(super) present: u32,
    /// Salt of the records of a debug heap, changed by each reset.
    pub(super) salt: u64,
    pub(super) calls: Mutex<Option<Calls>>,
    /// Whether the metadata is valid: false during a reset, and after a failed one.
    pub(super) is_reset: bool,
}

impl Heap {
    /// The argument for kernels that take a [`heap::Heap`].
    pub fn handle(&self) -> Arg<heap::Heap> {
        self.handle
    }

    /// The address on the device of the heap's own copy of its handle: the heap, for kernels in
    /// other languages that call the functions of `warpheap-c-device`. Valid as long as the pool
    /// lives.
    pub fn device_address(&self) -> u64 {
        self.metadata.address() + self.offsets.handle
    }

    /// Bytes that can be allocated in total. A growable heap must have memory for all of them
    /// first.
    pub fn capacity(&self) -> u64 {
        self.layout.bytes()
    }

    /// The layout: sizes and counts.
    pub fn layout(&self) -> HeapLayout {
        self.layout
    }

    /// The memory that the heap allocates from, as much as is mapped at the moment.
    pub fn memory(&self) -> &DeviceMemory {
        self.backing.memory()
    }

    /// Fails if the last reset failed.
    pub(super) fn check_reset(&self) -> Result<()> {
        check_reset(self.is_reset, "a heap")
    }

    /// Bytes of the metadata, which is separate from the memory.
    pub fn metadata_bytes(&self) -> u64 {
        self.offsets.end
    }

    /// Waits for the device, then returns the faults that kernels caused.
    pub fn faults(&self) -> Result<Faults> {
        let mut words = vec![0; FAULT_LOG_WORDS];
        self.metadata.fetch(self.offsets.faults, &mut words)?;
        Ok(words.first_chunk::<FAULT_LOG_WORDS>().map(Faults::read).unwrap_or_default())
    }
}
