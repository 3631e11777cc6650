//! Memory of the driver's stream-ordered pools.
//!
//! ```text
//!   live   address ─► base, layout          what a free is checked against, and what launches may name
//!   pool   | used | free, pending | free |  the driver's: from `reserved`, above the threshold back to the device at a synchronisation
//! ```
//!
//! I1: `live` holds exactly what the driver gave out and nobody gave back, and the device's
//! registry the same blocks. I2: a block leaves both before the driver may give its address out
//! again: before the driver's free, which puts it back if it fails.
//!
//! A short lock guards `live`; the driver is called without it, and orders the blocks itself.

mod builder;
mod control;
#[cfg(test)]
mod tests;

use super::live::{Block, Live};
use super::{DeviceAllocator, Usage, address_of, check_request, lock, words};
use crate::driver::{Device, PoolAttribute, PoolBackend, Range, Stream};
use crate::error::{Bytes, Error, InvalidFree, InvalidRequest, OutOfMemory, Result};
use std::alloc::Layout;
use std::fmt;
use std::sync::{Arc, Mutex};
use warpheap_device::kernel::DevicePtr;

pub use builder::DriverPoolBuilder;
pub use control::{DriverPoolStats, ReusePolicies};

/// How it calls itself in errors.
const NAME: &str = "a stream-ordered pool";
/// Blocks of the driver's start at multiples of this.
const DRIVER_ALIGN: u64 = 256;
/// The largest alignment that is served: 1 GiB.
const MAX_ALIGN: usize = 1 << 30;

/// A pool of the driver's (`cuMemAllocFromPoolAsync`, `cuMemFreeAsync`); on the CPU, one that
/// behaves alike.
///
/// Allocations and frees are work of their streams: a block that was freed serves the same stream
/// at once, and others as the [`ReusePolicies`] say. Memory above the release threshold goes back
/// to the device when someone waits for its work.
///
/// Dropping it destroys the pool, after blocks that are still allocated were given back: for those
/// it waits for the device, and a warning is logged. The device's own pool stays as it is.
#[must_use = "its memory is freed when it is dropped"]
pub struct DriverPool {
    device: Device,
    /// For what is still allocated at the end.
    home: Stream,
    pool: Arc<dyn PoolBackend>,
    /// The most bytes that it may reserve, if that is limited.
    most: Option<u64>,
    /// With the addresses that the driver gave out.
    live: Mutex<Live<u64>>,
}

impl DriverPool {
    /// Settings of a pool of its own, which by default keeps what it has until it is told
    /// otherwise, and may grow as far as there is memory.
    pub fn builder() -> DriverPoolBuilder {
        DriverPoolBuilder::default()
    }

    /// The pool that the device has from the start, with the settings that it has. All of the
    /// program shares it: also `cudaMallocAsync` of other libraries.
    ///
    /// # Errors
    /// [`Error::NotSupported`] where there is none, or what the driver answers.
    pub fn default_of(device: &Device) -> Result<DriverPool> {
        DriverPool::over(device, device.driver().default_pool()?, None)
    }

    /// The pool that the device's allocations come from that name none, as `cudaMallocAsync` makes
    /// them: its own, until the program sets another (`cuDeviceSetMemPool`).
    ///
    /// # Errors
    /// As for [`default_of`](Self::default_of).
    ///
    /// # Safety
    /// The pool is not destroyed (`cuMemPoolDestroy`) while this value exists.
    pub unsafe fn current_of(device: &Device) -> Result<DriverPool> {
        DriverPool::over(device, device.driver().current_pool()?, None)
    }

    /// Whether both are handles of one pool of the driver's.
    pub fn is_same(&self, other: &DriverPool) -> bool {
        self.pool.key() == other.pool.key()
    }

    fn over(device: &Device, pool: Arc<dyn PoolBackend>, most: Option<u64>) -> Result<DriverPool> {
        let home = device.default_stream()?;
        Ok(DriverPool { device: device.clone(), home, pool, most, live: Mutex::default() })
    }

    /// The most that it may reserve, in bytes; `None` if the device's memory is the limit.
    pub fn max_size(&self) -> Option<u64> {
        self.most
    }

    fn check_align(layout: Layout) -> Result<()> {
        if layout.align() <= MAX_ALIGN {
            return Ok(());
        }
        let why = format!("it aligns to {MAX_ALIGN} at most; ask for less");
        Err(InvalidRequest::Layout { allocator: NAME.into(), asked: words(layout), why }.into())
    }

    /// Fails where what is live leaves no room for so many bytes, whatever the driver would do.
    fn check_room(&self, layout: Layout, bytes: u64) -> Result<()> {
        let used = lock(&self.live).taken();
        match self.most {
            Some(most) if bytes > most.saturating_sub(used) => Err(Error::OutOfMemory(OutOfMemory::Pool {
                allocator: NAME.into(),
                requested: Bytes(layout.size() as u64),
                used: Bytes(used),
                reserved: Bytes(most),
                cached: Bytes(self.reserved_bytes().unwrap_or(used).saturating_sub(used)),
                largest: Bytes(most.saturating_sub(used)),
                advice: "give blocks back, or make it with more (DriverPoolBuilder::max_size)",
            })),
            _ => Ok(()),
        }
    }

    /// The error of an allocation, with the figures of the pool.
    fn explain(&self, error: Error, layout: Layout) -> Error {
        let Error::OutOfMemory(OutOfMemory::Device { device, free, total, .. }) = error else { return error };
        // Unknown figures must not hide the error itself.
        let figure = |which| {
            self.pool.get(which).map_or("an unknown number of bytes".into(), |n| Bytes(n).to_string())
        };
        let (used, reserved) = (figure(PoolAttribute::UsedCurrent), figure(PoolAttribute::ReservedCurrent));
        let most = self.most.map_or(String::new(), |most| format!(", of {} at most", Bytes(most)));
        let advice = format!(
            "{NAME} has {reserved}{most}, of which {used} are in use, or not in one piece; give blocks back and wait for their streams, \
             trim other pools (DriverPool::trim_to), or ask for less"
        );
        Error::OutOfMemory(OutOfMemory::Device {
            device,
            requested: Bytes(layout.size() as u64),
            free,
            total,
            advice,
        })
    }

    /// A new block, from which on it is live.
    fn enlist(&self, address: u64, block: Block<u64>) {
        self.device.registry().insert(Range { address, bytes: block.layout.size() as u64 });
        lock(&self.live).insert(address, block);
    }

    /// Gives a block back that is no longer live; after a failure it is again.
    ///
    /// # Safety
    /// That of [`DeviceAllocator::deallocate`].
    unsafe fn release(&self, address: u64, block: Block<u64>, stream: &Stream) -> Result<()> {
        // Before the memory goes: the next allocation may get the same address (I2).
        let entry = self.device.registry().remove(address);
        // SAFETY: the driver gave it out, and it is given back once (I1); the rest is the caller's
        // promise.
        let done = unsafe { self.pool.free(block.of, stream) };
        if done.is_err() {
            self.device.registry().put_back(address, entry);
            lock(&self.live).insert(address, block);
        }
        done
    }
}

// SAFETY: the driver's own blocks, which it orders by streams.
unsafe impl DeviceAllocator for DriverPool {
    fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(NAME, &self.device, layout, stream)?;
        DriverPool::check_align(layout)?;
        let align = layout.align() as u64;
        // Cannot overflow: a layout has less than 2^63 bytes.
        let taken = layout.size() as u64 + if align > DRIVER_ALIGN { align } else { 0 };
        self.check_room(layout, taken)?;
        let base = self.pool.alloc(taken, stream).map_err(|error| self.explain(error, layout))?;
        let address = base.next_multiple_of(align);
        self.enlist(address, Block { layout, taken, of: base });
        Ok(DevicePtr(std::ptr::with_exposed_provenance_mut(address as usize)))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device.same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        let removed = lock(&self.live).remove(address, layout);
        let block = removed.map_err(|why| InvalidFree::Block { allocator: NAME.into(), address, why })?;
        // SAFETY: the caller's promise.
        unsafe { self.release(address, block, stream) }
    }

    /// What live blocks take as far as is known here: the driver may round sizes up. Reserved is
    /// what the driver says.
    fn usage(&self) -> Usage {
        let used_bytes = lock(&self.live).taken();
        let reserved = self.pool.get(PoolAttribute::ReservedCurrent).inspect_err(|error| {
            tracing::debug!(%error, "the driver does not say how much a pool has");
        });
        let reserved_bytes = reserved.map_or(used_bytes, |bytes| bytes.max(used_bytes));
        Usage { used_bytes, reserved_bytes, largest_free_bytes: None }
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        let live = self.live.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (blocks, bytes) = (live.blocks(), live.taken());
        if blocks == 0 {
            return;
        }
        let all: Vec<_> = live.take_all().collect();
        // As for `DeviceMemory`: no later launch finds them, those that did are submitted, and the
        // device has done its work.
        for (address, _) in &all {
            self.device.registry().remove(*address);
        }
        self.device.registry().settle();
        self.device.driver().drain();
        let free = |(address, block): &(u64, Block<u64>)| {
            // SAFETY: the driver gave it out, it is given back once, and no work is in flight.
            let free = || unsafe { self.pool.free(block.of, &self.home) };
            // Nothing can free it later: a second try is the last.
            let error = free().or_else(|_| free()).err()?;
            Some((error, *address, block.taken))
        };
        let failed: Vec<_> = all.iter().filter_map(free).collect();
        // Last: a subscriber may panic.
        tracing::warn!(blocks, bytes, "a stream-ordered pool goes while some of its blocks are allocated");
        for (error, address, bytes) in failed {
            tracing::warn!(%error, address, bytes, "a block could not be given back to the driver");
        }
    }
}

impl fmt::Debug for DriverPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverPool({}, {:?})", self.device, self.usage())
    }
}
