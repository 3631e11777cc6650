//! The end of every chain: memory of the driver's, one of its allocations for each block.
//!
//! I1: `live` holds exactly the blocks that were given out and not given back, by their first address.
//! I2: `used` is the sum of their sizes.

use super::{DeviceAllocator, Usage, address_of, check_request, lock, words};
use crate::driver::{Device, DeviceMemory, Stream};
use crate::error::{Error, Result};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use warpheap_device::kernel::DevicePtr;

/// How it calls itself in errors.
const NAME: &str = "the driver's memory";

/// Synchronous memory of the driver's, on a GPU (`cuMemAlloc`, `cuMemFree`) and on the CPU.
///
/// It allocates at once, whatever the stream, and to give back waits for all work of the device. Alignments are at least 256.
/// Dropping it gives back what is still live, which waits as well.
pub struct DriverMemory {
    device: Device,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<u64, Block>,
    used: u64,
}

struct Block {
    memory: DeviceMemory,
    layout: Layout,
}

impl DriverMemory {
    /// The memory of `device`.
    pub fn new(device: &Device) -> DriverMemory {
        DriverMemory { device: device.clone(), state: Mutex::default() }
    }
}

impl State {
    fn insert(&mut self, block: Block) {
        self.used += block.memory.bytes();
        self.live.insert(block.memory.address(), block);
    }

    /// The block that starts there, no longer live; or why there is none.
    fn remove(&mut self, address: u64, layout: Layout) -> Result<Block, String> {
        let below = self.live.range(..=address).next_back();
        let Some((start, found)) = below.filter(|(start, of)| address - **start < of.memory.bytes()) else {
            return Err("no live block is there: it is of another allocator, or was given back before".into());
        };
        if *start != address {
            return Err(format!("it lies inside of the block of {} at {start:#x}", words(found.layout)));
        }
        if found.layout != layout {
            return Err(format!("it was allocated as {}, not as {}", words(found.layout), words(layout)));
        }
        let block = self.live.remove(&address).ok_or("it was given back before")?;
        self.used -= block.memory.bytes();
        Ok(block)
    }
}

// SAFETY: the driver's own allocations, each for one block; to free them waits for the device.
unsafe impl DeviceAllocator for DriverMemory {
    fn device(&self) -> &Device {
        &self.device
    }

    fn alloc(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(NAME, &self.device, layout, stream)?;
        let memory = self.device.alloc_memory(layout.size() as u64, layout.align())?;
        let ptr = memory.ptr();
        lock(&self.state).insert(Block { memory, layout });
        Ok(ptr)
    }

    unsafe fn dealloc(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device.same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        let removed = lock(&self.state).remove(address, layout);
        let mut block = removed.map_err(|why| Error::AllocFree { allocator: NAME.into(), address, why })?;
        // Not under the lock: it waits for the device.
        let done = block.memory.free();
        if done.is_err() {
            lock(&self.state).insert(block);
        }
        done
    }

    fn usage(&self) -> Usage {
        let used = lock(&self.state).used;
        Usage { used_bytes: used, reserved_bytes: used, largest_free_bytes: None }
    }
}

impl fmt::Debug for DriverMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverMemory({}, {:?})", self.device, self.usage())
    }
}
