//! What virtual memory and a stream-ordered pool must implement.

use super::info::Range;
use super::queue::Queue;
use crate::error::Result;

/// Physical memory that may not be mapped yet. Made by [`VirtualMemory::create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pages(pub u64);

/// Address ranges that are reserved first and backed with memory later, step by step. Every length,
/// and every offset in a reservation, is a multiple of the granularity.
pub(crate) trait VirtualMemory: Send + Sync {
    /// The granularity in bytes, a power of two.
    fn granularity(&self) -> u64;
    /// Reserves addresses without memory. They must not be accessed until memory is mapped. The
    /// first address is a multiple of `align`, a power of two. `bytes` is not 0.
    fn reserve(&self, bytes: u64, align: u64) -> Result<Range>;
    /// Frees a range from [`reserve`](Self::reserve). Nothing is mapped there.
    unsafe fn unreserve(&self, range: Range) -> Result<()>;
    /// Allocates memory with arbitrary contents. `bytes` is not 0.
    fn create(&self, bytes: u64) -> Result<Pages>;
    /// Frees memory from [`create`](Self::create). It is not mapped.
    unsafe fn release(&self, pages: Pages) -> Result<()>;
    /// Maps all of `pages` to reserved addresses. They must not be accessed until
    /// [`allow`](Self::allow).
    unsafe fn map(&self, range: Range, pages: Pages) -> Result<()>;
    /// Undoes one [`map`](Self::map) entirely. No work in flight uses the range.
    unsafe fn unmap(&self, range: Range) -> Result<()>;
    /// Allows kernels and copies to read and write the range of one [`map`](Self::map).
    unsafe fn allow(&self, range: Range) -> Result<()>;
}

/// Attributes of a driver pool. The first four can be set. The high-water marks can only be set to
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolAttribute {
    /// 0 or 1: memory freed on one stream can be allocated on another stream that has waited for an
    /// event recorded after the free.
    FollowEvents,
    /// 0 or 1: freed memory can be allocated on another stream once the work before the free is
    /// done.
    Opportunistic,
    /// 0 or 1: rather than fail, an allocation may take memory freed on another stream and make its
    /// own stream wait for that free.
    InternalDependencies,
    /// Release threshold: bytes that the pool keeps when the host synchronises with the device.
    ReleaseThreshold,
    /// Bytes that the pool holds from the device.
    ReservedCurrent,
    /// High-water mark of [`ReservedCurrent`](Self::ReservedCurrent) since it was last set to 0.
    ReservedHigh,
    /// Bytes currently allocated from the pool.
    UsedCurrent,
    /// High-water mark of [`UsedCurrent`](Self::UsedCurrent) since it was last set to 0.
    UsedHigh,
}

/// A stream-ordered pool of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PoolOrigin {
    /// A new pool of at most `max` bytes.
    New { max: Option<u64> },
    /// The default pool of the device, which the whole program shares.
    Default,
    /// The pool for allocations that name no pool. The default pool unless the program sets
    /// another.
    Current,
}

/// A stream-ordered memory pool of the driver. Dropping it releases its free memory at once, and
/// its allocated memory when that is freed.
pub(crate) trait PoolBackend: Send + Sync {
    /// Allocates `bytes`, not 0, for work submitted to the stream from now on. The address is a
    /// multiple of 256.
    fn alloc(&self, bytes: u64, stream: &Queue) -> Result<u64>;
    /// Frees memory from [`alloc`](Self::alloc), ordered after all work submitted to `stream` so
    /// far.
    unsafe fn free(&self, address: u64, stream: &Queue) -> Result<()>;
    /// Releases unused memory to the device until the pool holds `keep` bytes, allocated ones
    /// included.
    fn trim_to(&self, keep: u64) -> Result<()>;
    fn get(&self, attribute: PoolAttribute) -> Result<u64>;
    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()>;
    /// Identifies the pool. All handles of one pool have the same key, and no other pool has it
    /// while a handle exists.
    fn key(&self) -> usize;
}
