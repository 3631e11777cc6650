//! The end of every chain: driver memory, one driver allocation per block.
//!
//! I1: `live` holds exactly the blocks that are allocated and not yet freed, each with its memory.

use super::block_table::{Block, BlockTable};
use crate::driver::{Device, DeviceMemory, Stream};
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{address_of, check_request, explain, invalid_free};
use crate::lock::lock;
use crate::report::MemoryReport;
use crate::usage::Usage;
use std::alloc::Layout;
use std::fmt;
use std::sync::Mutex;
use warpheap_device::kernel::DevicePtr;

/// Name in error messages.
const NAME: &str = "the driver's memory";

/// Synchronous driver memory, on a GPU (`cuMemAlloc`, `cuMemFree`) and on the CPU.
///
/// An allocation takes effect at once, whatever the stream. A free waits for all work of the
/// device. Alignments are at least 256 B. Dropping it frees the blocks that are still live, which
/// waits as well.
pub struct SyncDriverAllocator {
    device: Device,
    live: Mutex<BlockTable<DeviceMemory>>,
}

impl SyncDriverAllocator {
    /// Allocates from the memory of `device`.
    pub fn new(device: &Device) -> SyncDriverAllocator {
        SyncDriverAllocator { device: device.clone(), live: Mutex::default() }
    }
}

// SAFETY: each block is a separate driver allocation (A1, I1), and a free waits for the device
// (A2). The device is set once (A3).
unsafe impl DeviceAllocator for SyncDriverAllocator {
    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(NAME, &self.device, layout, stream)?;
        let memory = self.device.alloc_memory(layout.size() as u64, layout.align());
        let memory = memory.map_err(|error| explain(error, layout, self))?;
        let ptr = memory.ptr();
        let block = Block { layout, bytes: memory.bytes(), data: memory };
        lock(&self.live).insert(address_of(ptr), block);
        Ok(ptr)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device.same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        let removed = lock(&self.live).remove(address, layout);
        let mut block = removed.map_err(|why| invalid_free(NAME, address, why))?;
        // Outside the lock: this waits for the device.
        let done = block.data.free();
        if done.is_err() {
            lock(&self.live).insert(address, block);
        }
        done
    }

    fn usage(&self) -> Usage {
        let used = lock(&self.live).bytes();
        Usage { used_bytes: used, reserved_bytes: used, largest_free_bytes: None }
    }

    fn report(&self) -> MemoryReport {
        MemoryReport::new(NAME, self.usage()).held_by_size(lock(&self.live).blocks()).concluded()
    }
}

impl fmt::Debug for SyncDriverAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SyncDriverAllocator({}, {:?})", self.device, self.usage())
    }
}
