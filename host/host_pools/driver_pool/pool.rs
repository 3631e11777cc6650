//! The pool: allocations, frees, and its drop.

use super::super::block_table::{Block, BlockTable};
use crate::driver::{Device, PoolAttribute, PoolBackend, PoolOrigin, Range, Stream};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{
    address_of, check_request, explain, invalid_free, invalid_layout, named, ptr_at,
};
use crate::lock::lock;
use crate::report::MemoryReport;
use crate::usage::Usage;
use std::alloc::Layout;
use std::fmt;
use std::sync::{Arc, Mutex};
use warpheap_device::kernel::DevicePtr;

/// Kind of the pool in messages.
pub(super) const KIND: &str = "stream-ordered pool";
/// Driver blocks start at multiples of this.
const DRIVER_ALIGN: u64 = 256;
/// The largest supported alignment: 1 GiB.
const MAX_ALIGN: usize = 1 << 30;

/// A pool of the driver (`cuMemAllocFromPoolAsync`, `cuMemFreeAsync`). On the CPU, an equivalent
/// pool.
///
/// Allocations and frees are work of their streams. A freed block can be reused on the same stream
/// at once, and on other streams according to the [`ReusePolicies`](super::ReusePolicies). Memory
/// above the release threshold returns to the device at a synchronisation.
///
/// Dropping this destroys the pool, after freeing blocks that are still allocated: for those it
/// waits for the device and logs a warning. The device's own pool is not destroyed.
#[must_use = "its memory is freed when it is dropped"]
pub struct DriverPool {
    /// The pool in messages.
    name: String,
    device: Device,
    /// The stream for freeing blocks that are still allocated on drop.
    pool_stream: Stream,
    pub(super) pool: Arc<dyn PoolBackend>,
    /// Limit of reserved bytes, if any.
    max_size: Option<u64>,
    /// Each block with its base address, as the driver returned it.
    pub(super) live: Mutex<BlockTable<u64>>,
}

impl DriverPool {
    /// The default pool of the device, with its current settings. The entire program shares it,
    /// including `cudaMallocAsync` of other libraries.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device has none, or an error of the driver.
    pub fn default_of(device: &Device) -> Result<DriverPool> {
        DriverPool::new(device, named(KIND, None), device.driver().pool(PoolOrigin::Default)?, None)
    }

    /// The current pool of the device: the source of allocations that name no pool, such as those
    /// of `cudaMallocAsync`. It is the default pool, until the program sets another
    /// (`cuDeviceSetMemPool`).
    ///
    /// # Errors
    /// The errors of [`default_of`](Self::default_of).
    ///
    /// # Safety
    /// The pool is not destroyed (`cuMemPoolDestroy`) while this value exists.
    pub unsafe fn current_of(device: &Device) -> Result<DriverPool> {
        DriverPool::new(device, named(KIND, None), device.driver().pool(PoolOrigin::Current)?, None)
    }

    /// Whether both are handles of the same driver pool.
    pub fn is_same(&self, other: &DriverPool) -> bool {
        self.pool.key() == other.pool.key()
    }

    pub(super) fn new(
        device: &Device,
        name: String,
        pool: Arc<dyn PoolBackend>,
        max_size: Option<u64>,
    ) -> Result<DriverPool> {
        let pool_stream = device.default_stream()?;
        Ok(DriverPool { name, device: device.clone(), pool_stream, pool, max_size, live: Mutex::default() })
    }

    /// Limit of reserved memory, in bytes; `None` if only the device memory limits it.
    pub fn max_size(&self) -> Option<u64> {
        self.max_size
    }

    fn check_align(&self, layout: Layout) -> Result<()> {
        if layout.align() <= MAX_ALIGN {
            return Ok(());
        }
        Err(invalid_layout(&*self.name, layout, format!("the maximum alignment is {MAX_ALIGN}")))
    }

    /// Fails if live blocks leave less than `bytes` below the limit, whatever the driver would do.
    fn check_room(&self, layout: Layout, bytes: u64) -> Result<()> {
        let used = lock(&self.live).bytes();
        match self.max_size {
            Some(max) if bytes > max.saturating_sub(used) => Err(Error::OutOfMemory(OutOfMemory::Pool {
                allocator: self.name.clone(),
                requested: Bytes(layout.size() as u64),
                used: Bytes(used),
                reserved: Bytes(max),
                cached: Bytes(self.reserved_bytes().unwrap_or(used).saturating_sub(used)),
                largest: Bytes(max.saturating_sub(used)),
                advice: "free blocks, or raise its limit (DriverPoolBuilder::max_size)",
                report: None,
            })),
            _ => Ok(()),
        }
    }

    /// Adds the figures of the pool to an allocation error.
    fn with_figures(&self, error: Error, layout: Layout) -> Error {
        let Error::OutOfMemory(OutOfMemory::Device { device, free, total, .. }) = error else { return error };
        // Unknown figures must not hide the error itself.
        let figure = |which| {
            self.pool.get(which).map_or("an unknown number of bytes".into(), |n| Bytes(n).to_string())
        };
        let (used, reserved) = (figure(PoolAttribute::UsedCurrent), figure(PoolAttribute::ReservedCurrent));
        let limit = self.max_size.map_or(String::new(), |max| format!(", at most {}", Bytes(max)));
        let name = &self.name;
        let advice = format!(
            "{name} has reserved {reserved}{limit}, of which {used} are in use, or it is too fragmented; free blocks and wait for \
             their streams, trim other pools (DriverPool::trim_to), or request less"
        );
        Error::OutOfMemory(OutOfMemory::Device {
            device,
            requested: Bytes(layout.size() as u64),
            free,
            total,
            advice,
            report: None,
        })
    }

    fn alloc(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let align = layout.align() as u64;
        // Cannot overflow: a layout has less than 2^63 bytes.
        let bytes = layout.size() as u64 + if align > DRIVER_ALIGN { align } else { 0 };
        self.check_room(layout, bytes)?;
        let base =
            self.pool.alloc(bytes, stream.queue()).map_err(|error| self.with_figures(error, layout))?;
        let address = base.next_multiple_of(align);
        self.register(address, Block { layout, bytes, data: base });
        Ok(ptr_at(address))
    }

    /// Registers a new block, which is live from now on.
    fn register(&self, address: u64, block: Block<u64>) {
        self.device.registry().insert(Range { address, bytes: block.layout.size() as u64 });
        lock(&self.live).insert(address, block);
    }

    /// Frees a block that was removed from `live`. After a failure it is live again.
    ///
    /// # Safety
    /// P1 and P2 of [`DeviceAllocator::deallocate`].
    unsafe fn free(&self, address: u64, block: Block<u64>, stream: &Stream) -> Result<()> {
        // Before the driver's free: the next allocation may get the same address (I2).
        let entry = self.device.registry().remove(address);
        // SAFETY: the driver allocated the block, and it is freed once (I1); the caller's promises
        // P1 and P2.
        let done = unsafe { self.pool.free(block.data, stream.queue()) };
        if done.is_err() {
            self.device.registry().put_back(address, entry);
            lock(&self.live).insert(address, block);
        }
        done
    }
}

// SAFETY: each block is a driver allocation (A1), which the driver orders by streams (A2). The
// device is set once (A3).
unsafe impl DeviceAllocator for DriverPool {
    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(&self.name, &self.device, layout, stream)?;
        self.check_align(layout)?;
        self.alloc(layout, stream).map_err(|error| explain(error, layout, self))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device.same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        let removed = lock(&self.live).remove(address, layout);
        let block = removed.map_err(|why| invalid_free(&*self.name, address, why))?;
        // SAFETY: the caller's promises P1 and P2.
        unsafe { self.free(address, block, stream) }
    }

    /// Used bytes are those of live blocks as known here: the driver may round sizes up. Reserved
    /// bytes are those that the driver reports.
    fn usage(&self) -> Usage {
        let used_bytes = lock(&self.live).bytes();
        let reserved = self.pool.get(PoolAttribute::ReservedCurrent).inspect_err(|error| {
            tracing::debug!(%error, "the driver does not report how much a pool has reserved");
        });
        let reserved_bytes = reserved.map_or(used_bytes, |bytes| bytes.max(used_bytes));
        Usage { used_bytes, reserved_bytes, largest_free_bytes: None }
    }

    /// Only the driver knows the free ranges.
    fn report(&self) -> MemoryReport {
        let usage = self.usage();
        let limited_bytes = self.max_size.map(|_| usage.used_bytes);
        let report = MemoryReport::new(&*self.name, usage).held_by_size(lock(&self.live).blocks());
        MemoryReport { limit_bytes: self.max_size, limited_bytes, ..report }.concluded()
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        let live = self.live.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (blocks, bytes) = (live.len(), live.bytes());
        if blocks == 0 {
            return;
        }
        let all: Vec<_> = live.drain().collect();
        // Same sequence as in `DeviceMemory`: later launches no longer find the blocks, earlier
        // launches are submitted, and the device has completed its work.
        for (address, _) in &all {
            self.device.registry().remove(*address);
        }
        self.device.registry().settle();
        self.device.driver().drain();
        let free = |(address, block): &(u64, Block<u64>)| {
            // SAFETY: the driver allocated the block, it is freed once (I1), and no work is in
            // flight.
            let free = || unsafe { self.pool.free(block.data, self.pool_stream.queue()) };
            // No later free is possible: this retry is the last attempt.
            let error = free().or_else(|_| free()).err()?;
            Some((error, *address, block.bytes))
        };
        let failed: Vec<_> = all.iter().filter_map(free).collect();
        // Last, because a subscriber may panic.
        let name = &self.name;
        tracing::warn!(blocks, bytes, "{name} was dropped while some of its blocks were allocated");
        for (error, address, bytes) in failed {
            tracing::warn!(%error, address, bytes, "a block could not be freed");
        }
    }
}

impl fmt::Debug for DriverPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverPool({}, {:?})", self.device, self.usage())
    }
}
