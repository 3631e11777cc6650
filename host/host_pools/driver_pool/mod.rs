//! Memory of the driver's stream-ordered pools.
//!
//! ```text
//! live   address ─► base, layout          checked by every free; the memory that launches may use
//! pool   | used | free, pending | free |  in the driver; free memory above the release threshold
//!                                         is released at a synchronisation
//! ```
//!
//! I1: `live` contains exactly the blocks that the driver allocated and that are not yet freed, and
//! the device's registry contains the same blocks. I2: a block is removed from both before the
//! driver may reuse its address: before the driver's free, and it is restored if that fails.
//!
//! A short lock guards `live`. The driver is called without it, and orders the blocks itself.

use super::block_table::{Block, BlockTable};
use crate::driver::{Device, PoolAttribute, PoolBackend, PoolOrigin, Range, Stream};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{
    address_of, check_request, explain, invalid_free, invalid_layout, invalid_setting, named, ptr_at,
};
use crate::lock::lock;
use crate::report::MemoryReport;
use crate::usage::Usage;
use serde::Serialize;
use std::alloc::Layout;
use std::fmt;
use std::sync::{Arc, Mutex};
use warpheap_device::kernel::DevicePtr;

#[cfg(test)]
mod tests;

/// Builder for a [`DriverPool`], created by [`DriverPool::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "call build"]
pub struct DriverPoolBuilder {
    name: Option<String>,
    release_threshold: Option<u64>,
    max_size: Option<u64>,
    reuse: ReusePolicies,
}

impl DriverPool {
    /// Returns the builder of a new pool. By default the pool keeps its memory until it is trimmed,
    /// and is limited only by the device memory.
    pub fn builder() -> DriverPoolBuilder {
        DriverPoolBuilder::default()
    }
}

impl DriverPoolBuilder {
    /// A name for the pool, which its errors and reports contain. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> DriverPoolBuilder {
        self.name = Some(name.into());
        self
    }

    /// Release threshold: bytes that the pool keeps, used or free, when the device is synchronised.
    /// Default: keep all. With 0, the driver's own default, all free memory is released each time.
    pub fn release_threshold(mut self, bytes: u64) -> DriverPoolBuilder {
        self.release_threshold = Some(bytes);
        self
    }

    /// Limit of the memory that the pool reserves, in bytes. The driver may round it up. Requires
    /// CUDA 12.2.
    pub fn max_size(mut self, bytes: u64) -> DriverPoolBuilder {
        self.max_size = Some(bytes);
        self
    }

    /// Policies for reusing memory that was freed on another stream.
    pub fn reuse(mut self, policies: ReusePolicies) -> DriverPoolBuilder {
        self.reuse = policies;
        self
    }

    /// Creates the pool on `device`. It has no memory yet.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a maximum size of 0 or above the
    /// device memory, and for a threshold above the maximum size;
    /// [`Error::NotSupported`](crate::Error::NotSupported) for a driver or a GPU without such
    /// pools; an error of the driver.
    pub fn build(&self, device: &Device) -> Result<DriverPool> {
        self.check(device)?;
        let backend = device.driver().pool(PoolOrigin::New { max: self.max_size })?;
        let pool = DriverPool::new(device, named(KIND, self.name.as_deref()), backend, self.max_size)?;
        pool.set_release_threshold(self.release_threshold.unwrap_or(u64::MAX))?;
        pool.set_reuse(self.reuse)?;
        Ok(pool)
    }

    fn check(&self, device: &Device) -> Result<()> {
        let Some(max) = self.max_size else { return Ok(()) };
        if max == 0 {
            let why = "it must be at least 1 B; leave it unset for no limit";
            return Err(invalid_setting("max_size", Bytes(max), why));
        }
        let total = device.info()?.memory_total;
        if max > total {
            return Err(invalid_setting("max_size", Bytes(max), format!("{device} has {}", Bytes(total))));
        }
        match self.release_threshold {
            Some(threshold) if threshold > max => {
                let why = format!("the pool never exceeds its max_size, {}", Bytes(max));
                Err(invalid_setting("release_threshold", Bytes(threshold), why))
            }
            _ => Ok(()),
        }
    }
}

/// When memory that was freed on one stream may be reused on another, before any synchronisation.
/// All are allowed by default, as in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReusePolicies {
    /// Reuse if the other stream has waited for an event that was recorded after the free. The
    /// CPU's pools do not check this.
    pub follow_event_dependencies: bool,
    /// Reuse if the work before the free is done. The choice of memory then depends on timing.
    pub allow_opportunistic: bool,
    /// Reuse if there is no other memory: the other stream is made to wait for the free.
    pub allow_internal_dependencies: bool,
}

impl Default for ReusePolicies {
    fn default() -> ReusePolicies {
        ReusePolicies::all(true)
    }
}

impl ReusePolicies {
    fn all(allowed: bool) -> ReusePolicies {
        ReusePolicies {
            follow_event_dependencies: allowed,
            allow_opportunistic: allowed,
            allow_internal_dependencies: allowed,
        }
    }

    /// Memory is reused only on the stream that it was freed on, until a synchronisation. The same
    /// calls always get the same addresses, and no stream waits for another.
    pub fn none() -> ReusePolicies {
        ReusePolicies::all(false)
    }
}

/// Statistics of a driver pool, in bytes. Those of the device's own pool include use by other code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DriverPoolStats {
    /// Bytes that the pool reserves and bytes that are allocated from it, including rounding by the
    /// driver.
    pub usage: Usage,
    /// High-water mark of reserved bytes since [`DriverPool::reset_high_water`].
    pub peak_reserved_bytes: u64,
    /// High-water mark of allocated bytes since [`DriverPool::reset_high_water`].
    pub peak_used_bytes: u64,
    /// Bytes that the pool keeps when the device is synchronised.
    pub release_threshold: u64,
    /// Live blocks that were allocated through this [`DriverPool`].
    pub live_blocks: u64,
    /// Bytes of these blocks, including alignment padding.
    pub live_bytes: u64,
}

impl DriverPool {
    fn reserved_bytes(&self) -> Result<u64> {
        self.pool.get(PoolAttribute::ReservedCurrent)
    }

    /// Resets both high-water marks to the current values.
    ///
    /// # Errors
    /// An error of the driver; one of the marks may have been reset then.
    pub fn reset_high_water(&self) -> Result<()> {
        self.pool.set(PoolAttribute::ReservedHigh, 0)?;
        self.pool.set(PoolAttribute::UsedHigh, 0)
    }

    /// All statistics, queried one after the other.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn stats(&self) -> Result<DriverPoolStats> {
        let (live_blocks, live_bytes) = {
            let live = lock(&self.live);
            (live.len() as u64, live.bytes())
        };
        Ok(DriverPoolStats {
            usage: Usage {
                used_bytes: self.pool.get(PoolAttribute::UsedCurrent)?,
                reserved_bytes: self.reserved_bytes()?,
                largest_free_bytes: None,
            },
            peak_reserved_bytes: self.pool.get(PoolAttribute::ReservedHigh)?,
            peak_used_bytes: self.pool.get(PoolAttribute::UsedHigh)?,
            release_threshold: self.release_threshold()?,
            live_blocks,
            live_bytes,
        })
    }

    /// Releases free memory to the device, until the pool holds `bytes` or only memory in use.
    /// Pending frees count as in use: synchronise their streams first.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn trim_to(&self, bytes: u64) -> Result<()> {
        self.pool.trim_to(bytes)
    }

    /// Release threshold: bytes that the pool keeps, used or free, when the device is synchronised.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn release_threshold(&self) -> Result<u64> {
        self.pool.get(PoolAttribute::ReleaseThreshold)
    }

    /// Sets the release threshold; `u64::MAX` keeps all memory. On the device's own pool it applies
    /// to all users of that pool.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.pool.set(PoolAttribute::ReleaseThreshold, bytes)
    }

    /// Policies for reusing memory that was freed on another stream.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn reuse(&self) -> Result<ReusePolicies> {
        let is_on = |which| self.pool.get(which).map(|value| value != 0);
        Ok(ReusePolicies {
            follow_event_dependencies: is_on(PoolAttribute::FollowEvents)?,
            allow_opportunistic: is_on(PoolAttribute::Opportunistic)?,
            allow_internal_dependencies: is_on(PoolAttribute::InternalDependencies)?,
        })
    }

    /// Sets the reuse policies. On the device's own pool they apply to all users of that pool.
    ///
    /// # Errors
    /// An error of the driver; some of the policies may have been set then.
    pub fn set_reuse(&self, policies: ReusePolicies) -> Result<()> {
        self.pool.set(PoolAttribute::FollowEvents, policies.follow_event_dependencies.into())?;
        self.pool.set(PoolAttribute::Opportunistic, policies.allow_opportunistic.into())?;
        self.pool.set(PoolAttribute::InternalDependencies, policies.allow_internal_dependencies.into())
    }
}

/// Kind of the pool in messages.
const KIND: &str = "stream-ordered pool";
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
    pool: Arc<dyn PoolBackend>,
    /// Limit of reserved bytes, if any.
    max_size: Option<u64>,
    /// Each block with its base address, as the driver returned it.
    live: Mutex<BlockTable<u64>>,
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

    fn new(
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
