//! A bump pool: one region, allocated from its start to its end, and reset.
//!
//! ```text
//! region     | block | block   | block |  free           |   one upstream allocation
//!                                      ^ cursor
//! overflow   block, block                                  upstream blocks, by policy
//! ```
//!
//! I1: `cursor` tracks the live blocks of the region, `overflow` the live blocks of the upstream.
//! I2: only a reset moves the cursor back; only [`reset_unchecked`](BumpPool::reset_unchecked) does
//! so with live blocks. I3: a stream gets blocks only after it was ordered after the last reset,
//! and that reset after all earlier use (`order`). I4: a failed allocation or reset leaves the
//! cursor unchanged.
//!
//! A short lock guards all of it: an allocation makes a few comparisons and a push. The driver is
//! called under the lock by a reset, and when a stream allocates for the first time after one. A
//! free records its event without the lock, while the block is `Moving`. The upstream is called
//! without the lock.

use super::block_table::{Block, BlockTable};
use crate::driver::{Device, Stream};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::{
    address_of, check_request, describe, explain, free_on_drop, invalid_free, invalid_setting, named, ptr_at,
};
use crate::host_pools::sync_driver::SyncDriverAllocator;
use crate::lock::lock;
use crate::report::{Extent, MemoryReport, Space, Withheld};
use crate::usage::Usage;
use cursor::{Cursor, Full};
use order::ResetOrder;
use serde::Serialize;
use std::alloc::Layout;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use warpheap_device::kernel::DevicePtr;

mod cursor;
mod order;
#[cfg(test)]
mod tests;

/// Builder for a [`BumpPool`].
#[derive(Clone, Debug)]
#[must_use = "call build or build_over"]
pub struct BumpPoolBuilder {
    name: Option<String>,
    region: Layout,
    policy: Overflow,
}

impl BumpPoolBuilder {
    /// A name for the pool, which its errors and reports contain. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Policy for a request that does not fit. Default: [`Overflow::Error`].
    pub fn overflow(mut self, policy: Overflow) -> Self {
        self.policy = policy;
        self
    }

    /// Builds a pool over the driver memory of `device`.
    ///
    /// # Errors
    /// The errors of [`build_over`](Self::build_over).
    pub fn build(&self, device: &Device) -> Result<BumpPool> {
        self.build_over(SyncDriverAllocator::new(device))
    }

    /// Builds a pool in one allocation of `upstream`.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for zero bytes; errors of the
    /// upstream.
    pub fn build_over<A: DeviceAllocator>(&self, upstream: A) -> Result<BumpPool<A>> {
        if self.region.size() == 0 {
            return Err(invalid_setting("region", describe(self.region), "the size must be at least 1 B"));
        }
        let kind = named("bump pool", self.name.as_deref());
        let name = format!("{kind} of {}", Bytes(self.region.size() as u64));
        BumpPool::new(upstream, name, self.region, self.policy)
    }
}

impl BumpPool {
    /// Returns the builder of a pool of `region.size()` bytes that start at a multiple of
    /// `region.align()`.
    pub fn builder(region: Layout) -> BumpPoolBuilder {
        BumpPoolBuilder { name: None, region, policy: Overflow::default() }
    }
}

/// Policy of a [`BumpPool`] for a request that does not fit into the rest of its region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The allocation fails.
    #[default]
    Error,
    /// The pool allocates a separate block from its upstream. A free returns that block to the
    /// upstream, independent of resets. [`BumpPoolStats`](super::BumpPoolStats) counts these
    /// blocks.
    Upstream,
}

/// A pool that allocates one region from its start to its end.
///
/// An allocation advances a cursor. A free is checked but frees no space. [`reset`](Self::reset)
/// starts at the first address again.
///
/// The pool takes 32 bytes on the host for each block since the last reset. Dropping it frees the
/// memory after all pending frees. If blocks are still allocated, it waits for the device and logs
/// a warning.
#[must_use = "its memory is freed when it is dropped"]
pub struct BumpPool<A: DeviceAllocator = SyncDriverAllocator> {
    /// The pool in messages.
    name: String,
    upstream: A,
    /// The stream on which the memory is allocated and freed.
    pool_stream: Stream,
    memory: DevicePtr<u8>,
    region: Layout,
    policy: Overflow,
    state: Mutex<State>,
}

struct State {
    pub cursor: Cursor,
    pub order: ResetOrder,
    pub overflow: BlockTable<()>,
    /// Number of upstream blocks allocated so far.
    pub overflows: u64,
    pub resets: u64,
}

impl<A: DeviceAllocator> BumpPool<A> {
    /// Creates a pool in one allocation of `upstream`.
    fn new(upstream: A, name: String, region: Layout, policy: Overflow) -> Result<BumpPool<A>> {
        let pool_stream = upstream.device().default_stream()?;
        let memory = upstream.allocate(region, &pool_stream)?;
        let cursor = Cursor::new(address_of(memory), region.size() as u64);
        let (order, overflow) = (ResetOrder::default(), BlockTable::default());
        let state = Mutex::new(State { cursor, order, overflow, overflows: 0, resets: 0 });
        let pool = BumpPool { name, upstream, pool_stream, memory, region, policy, state };
        // The allocation is ordered on that stream. After this wait the memory is usable on any
        // stream (I3).
        pool.pool_stream.settle()?;
        Ok(pool)
    }

    /// Bytes of the region.
    pub fn capacity(&self) -> u64 {
        self.region.size() as u64
    }

    /// Start address of the region.
    pub fn address(&self) -> u64 {
        address_of(self.memory)
    }

    /// Policy for a request that does not fit.
    pub fn overflow(&self) -> Overflow {
        self.policy
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Allocates a block of the region, if it fits.
    fn alloc_in_region(&self, layout: Layout, stream: &Stream) -> Result<Result<DevicePtr<u8>, Full>> {
        let mut state = self.state();
        let start = match state.cursor.place(layout) {
            Ok(start) => start,
            Err(full) => return Ok(Err(full)),
        };
        state.order.join(stream)?;
        state.cursor.take(start, layout);
        // The host never dereferences this address.
        Ok(Ok(DevicePtr(self.memory.0.wrapping_add((start - self.address()) as usize))))
    }

    #[cold]
    fn alloc_upstream(&self, layout: Layout, stream: &Stream, full: Full) -> Result<DevicePtr<u8>> {
        if self.policy == Overflow::Error {
            return Err(self.out_of_memory(layout, full));
        }
        let ptr = self.upstream.allocate(layout, stream)?;
        let mut state = self.state();
        state.overflow.insert(address_of(ptr), Block { layout, bytes: layout.size() as u64, data: () });
        state.overflows += 1;
        Ok(ptr)
    }

    fn out_of_memory(&self, layout: Layout, full: Full) -> Error {
        let used = self.state().cursor.at();
        let error = Error::OutOfMemory(OutOfMemory::Pool {
            allocator: self.name.clone(),
            requested: Bytes(layout.size() as u64),
            used: Bytes(used),
            reserved: Bytes(self.capacity()),
            cached: Bytes(self.capacity().saturating_sub(used)),
            largest: Bytes(full.largest),
            advice: "free all blocks and reset it, make it larger, or let it fall back on its upstream (Overflow::Upstream)",
            report: None,
        });
        explain(error, layout, self)
    }

    fn wrong_free(&self, address: u64, why: String) -> Error {
        invalid_free(&*self.name, address, why)
    }

    /// Frees a block of the region.
    fn free_in_region(&self, address: u64, layout: Layout, stream: &Stream) -> Result<()> {
        let mut state = self.state();
        let (began, resets) = (state.order.now(), state.resets);
        let index = state.cursor.begin_free(address, layout).map_err(|why| self.wrong_free(address, why))?;
        drop(state);
        let recorded = stream.record();
        let mut state = self.state();
        if state.resets != resets {
            // An unchecked reset has freed the block in the meantime.
            return Ok(());
        }
        state.cursor.end_free(index, recorded.is_ok());
        recorded.map(|event| state.order.freed(stream.id(), event, began))
    }

    /// Frees a block that is not in the region.
    ///
    /// # Safety
    /// P1 and P2 of [`DeviceAllocator::deallocate`].
    #[cold]
    unsafe fn free_upstream(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        let (address, mut state) = (address_of(ptr), self.state());
        let removed = match self.policy {
            Overflow::Error => {
                let (bytes, start) = (Bytes(self.capacity()), self.address());
                Err(format!("it is not in the {bytes} at {start:#x} of the pool"))
            }
            Overflow::Upstream => state.overflow.remove(address, layout),
        };
        let block = removed.map_err(|why| self.wrong_free(address, why))?;
        drop(state);
        // SAFETY: a live block of the upstream (P2, by I1); the caller's promise P1.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        if done.is_err() {
            self.state().overflow.insert(address, block);
        }
        done
    }
}

// SAFETY: the cursor allocates addresses above all other blocks (A1, A2 by I2), after all work
// that used them (A2 by I3). For overflow blocks, A1 and A2 hold for the upstream. A3 holds for the
// upstream; the region is device memory, which does not move with the pool.
unsafe impl<A: DeviceAllocator> DeviceAllocator for BumpPool<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(&self.name, self.device(), layout, stream)?;
        let taken = self.alloc_in_region(layout, stream)?;
        taken.or_else(|full| self.alloc_upstream(layout, stream, full))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let offset = address_of(ptr).checked_sub(self.address());
        if offset.is_some_and(|offset| offset < self.capacity()) {
            return self.free_in_region(address_of(ptr), layout, stream);
        }
        // SAFETY: the caller's promises P1 and P2.
        unsafe { self.free_upstream(ptr, layout, stream) }
    }

    fn usage(&self) -> Usage {
        self.usage_of(&self.state())
    }

    /// The space before the cursor counts as used until a reset.
    fn report(&self) -> MemoryReport {
        let state = self.state();
        let start = self.address();
        let region = Extent { start, bytes: self.capacity() };
        let space = Space::new(vec![region], vec![Extent { start, bytes: state.cursor.at() }]);
        let report = MemoryReport::new(&*self.name, self.usage_of(&state))
            .with_space(space, state.cursor.live_blocks().map(Extent::used));
        let blocks = state.cursor.live_blocks().chain(state.overflow.blocks());
        MemoryReport { withheld: Withheld::UntilReset, ..report.held_by_size(blocks) }.concluded()
    }
}

impl<A: DeviceAllocator> BumpPool<A> {
    fn usage_of(&self, state: &State) -> Usage {
        let (_, live_bytes) = state.cursor.live();
        let overflow = state.overflow.bytes();
        Usage {
            used_bytes: live_bytes + overflow,
            reserved_bytes: self.capacity() + overflow,
            largest_free_bytes: Some(state.cursor.left()),
        }
    }
}

impl<A: DeviceAllocator> Drop for BumpPool<A> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let ((live, _), overflow) = (state.cursor.live(), state.overflow.len());
        // Ordered on the device, as far as the driver supports that.
        let ordered = state.order.gather(&self.pool_stream);
        if live > 0 || overflow > 0 || ordered.is_err() {
            self.upstream.device().driver().drain();
        }
        if live > 0 || overflow > 0 {
            tracing::warn!(live, overflow, "a bump pool was dropped while some of its blocks were allocated");
        }
        let blocks = state.overflow.drain().map(|(address, block)| (address, block.layout));
        for (address, layout) in blocks.chain([(address_of(self.memory), self.region)]) {
            let ptr = ptr_at(address);
            // SAFETY: upstream blocks, each freed once (P2, by I1), behind all work that may use
            // them (P1, by I3).
            unsafe { free_on_drop(&self.upstream, ptr, layout, &self.pool_stream) };
        }
    }
}

impl<A: DeviceAllocator> fmt::Debug for BumpPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}, {:?}", self.name, self.address(), self.stats())
    }
}

/// Statistics of a [`BumpPool`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BumpPoolStats {
    /// Bytes of the region and of the upstream blocks beside it.
    pub usage: Usage,
    /// Bytes of the region allocated since the last reset, including alignment padding.
    pub granted: u64,
    /// Live blocks of the region.
    pub live_blocks: u64,
    /// Bytes of these blocks.
    pub live_bytes: u64,
    /// Live upstream blocks, with [`Overflow::Upstream`](super::Overflow::Upstream).
    pub overflow_blocks: u64,
    /// Bytes of these blocks.
    pub overflow_bytes: u64,
    /// Number of upstream blocks ever allocated.
    pub overflows: u64,
    /// Number of resets.
    pub resets: u64,
}

impl State {
    /// Orders a reset after all use of the region, and later use after the reset. A failure changes
    /// nothing.
    fn reset(&mut self, stream: &Stream) -> Result<()> {
        self.order.gather(stream)?;
        self.order.restart(stream)?;
        self.cursor.reset();
        self.resets += 1;
        Ok(())
    }
}

impl<A: DeviceAllocator> BumpPool<A> {
    /// Resets the pool to its first address: the same requests get the same addresses again.
    ///
    /// The reset is work of `stream`. `stream` waits on the device for the points at which blocks
    /// were freed. Every stream that allocates afterwards waits for the reset. Nothing waits on the
    /// host. Blocks allocated from the upstream are not affected.
    ///
    /// # Errors
    /// [`Error::InUse`] while blocks of the region are allocated, [`Error::WrongDevice`], or an
    /// error of the driver. The pool is unchanged then.
    pub fn reset(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let mut state = self.state();
        let (blocks, bytes) = state.cursor.live();
        if blocks > 0 {
            return Err(Error::InUse {
                allocator: self.name.clone(),
                blocks,
                bytes: Bytes(bytes),
                reserved: Bytes(self.capacity()),
                advice: "free them first, or free all at once (BumpPool::reset_unchecked)",
            });
        }
        state.reset(stream)
    }

    /// Resets the pool while blocks are allocated: all of them are freed at once.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or an error of the driver. The pool is unchanged then.
    ///
    /// # Safety
    /// - P1: only work submitted to `stream` before this call, and work that `stream` was ordered
    ///   after, uses a block of the region.
    /// - P2: addresses from before are neither used nor freed again. Such a free is an error only
    ///   until the same address is allocated again with the same layout.
    pub unsafe fn reset_unchecked(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        self.state().reset(stream)
    }

    /// Current statistics.
    pub fn stats(&self) -> BumpPoolStats {
        let state = self.state();
        let (live_blocks, live_bytes) = state.cursor.live();
        BumpPoolStats {
            usage: self.usage_of(&state),
            granted: state.cursor.at(),
            live_blocks,
            live_bytes,
            overflow_blocks: state.overflow.len() as u64,
            overflow_bytes: state.overflow.bytes(),
            overflows: state.overflows,
            resets: state.resets,
        }
    }
}
