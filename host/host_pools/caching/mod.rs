//! A caching pool: blocks of any size, cached for the stream that freed them.
//!
//! ```text
//! stream 7 ── cache: bins, extents ─┐ overflow                   ┌─ blocks of the upstream
//! stream 9 ── cache: bins, extents ─┼─────► shared ◄── segments ─┤ or
//! …                                 ┘ refill  (large pieces,     └─ one reservation that
//!                                              slabs)               grows at its end
//! ```
//!
//! - An allocation or a free that the stream's cache serves takes that cache's lock and no other.
//!   It makes no driver call and records no event. Uncontended, an allocate/free pair costs five
//!   atomic read-modify-writes: two for each lock of the cache and one to claim the block. A block
//!   that the cache no longer remembers is looked up in the global block map, which costs four
//!   more.
//! - Large blocks are cut from the cache's own extents and merge there (`local`), also under the
//!   cache's lock. An allocation costs one search and two updates of a tree, a free up to three
//!   updates, and each writes to the block map. The shared state is not touched.
//! - A request that the cache cannot serve is served from the shared state, where free neighbours
//!   merge, or by the fallback ladder (`ladder`).
//! - `class` defines the size classes and bins. Blocks up to the slab limit take their whole class.
//!   Larger blocks take the requested size, cut from a segment by best fit, so that 33 MiB do not
//!   take 64.
//!
//! I1: a byte of a segment is in one live block, in one cached block, free, or held by one thread
//! that moves it from one of these states to the next; never in two. I2: work that uses a block
//! runs after all work that may have used it before: on the same stream by stream order, on another
//! stream by an event. I3: `used + cached == reserved`.
//!
//! Lock order; a lock is taken only while holding none or locks that come before it: `source`
//! (grows and releases segments; the driver may be waited for), `shared`, then one at a time of:
//! the map of caches; a cache's bins and extents (all of them only to check whether a pool of equal
//! blocks is exhausted); a shard of the block map; its block numbers; a stream's end; the list of
//! ended streams. The hook and upstream allocators are called without holding `shared`.

mod answers;
mod bins;
mod block_table;
mod class;
mod config;
mod ladder;
mod local;
mod order_table;
mod search;
mod segment;
mod shared;
mod slabs;
mod source;
mod stats;
mod stream_cache;
mod streams;
#[cfg(test)]
mod tests;

pub(in crate::host_pools) use bins::FreeOutcome;
pub(in crate::host_pools) use block_table::ClaimError;
pub use config::CachingPoolBuilder;
pub use stats::{CachingClassStats, CachingPoolStats, RungStats};

use super::{DeviceAllocator, SyncDriverAllocator, Usage, address_of, check_request, lock};
use crate::device_pools::GrowableBuffer;
use crate::driver::{Device, Stream};
use crate::error::Result;
use block_table::{BlockId, BlockTable};
use class::Need;
use config::Settings;
use shared::Shared;
use source::Source;
use std::alloc::Layout;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use stream_cache::StreamCache;
use streams::Streams;
use warpheap_device::kernel::DevicePtr;

/// Name in error messages.
const NAME: &str = "a caching pool";

/// A pool of blocks of any size, for programs that allocate and free continuously on streams.
///
/// A freed block is cached for the stream of the free. The next allocation of that size on this
/// stream gets it at once. Other streams get it after that stream has passed the point of the free.
/// If there is no other memory, they wait for that point on the device. The caller needs to do
/// nothing for this. A stream may be destroyed while blocks that were freed on it are pending.
///
/// Sizes up to 2 GiB are rounded to size classes ([`rounded`](Self::rounded)): powers of two from
/// 512 B, or finer classes (configurable). Up to 64 KiB (configurable) a block takes its whole
/// class. A larger block takes its size rounded up to a multiple of 512 B; its class only selects
/// the bin that caches it.
///
/// When memory runs out, the pool searches other streams' blocks, releases cached segments, waits
/// for pending work, and calls a hook, in that order, before the allocation fails.
/// [`CachingPoolStats::rungs`] counts these steps.
///
/// Dropping the pool frees all its memory after the work that blocks were freed behind. If blocks
/// are still allocated, it waits for the device and logs a warning. On the host, a block takes some
/// 100 bytes from when it is cut until it is merged.
///
/// ```
/// use std::alloc::Layout;
/// use warpheap::Device;
/// use warpheap::host_pools::{CachingPool, DeviceAllocator};
///
/// # fn main() -> warpheap::Result<()> {
/// let device = Device::cpu();
/// let stream = device.stream()?;
/// let pool = CachingPool::builder().max_bytes(1 << 30).build(&device)?;
/// let layout = Layout::from_size_align(1 << 20, 256).expect("a layout");
/// let first = pool.allocate(layout, &stream)?;
/// // SAFETY: allocated above, and no work uses it (P1, P2).
/// unsafe { pool.deallocate(first, layout, &stream)? };
/// assert_eq!(pool.allocate(layout, &stream)?.0, first.0, "from the stream's cache");
/// # unsafe { pool.deallocate(first, layout, &stream)? };
/// # Ok(())
/// # }
/// ```
#[must_use = "its memory is freed when it is dropped"]
pub struct CachingPool<A: DeviceAllocator = SyncDriverAllocator> {
    upstream: A,
    /// The stream on which segments are allocated and freed. It has no other work.
    pool_stream: Stream,
    settings: Settings,
    streams: Streams,
    live: BlockTable,
    shared: Mutex<Shared>,
    source: Mutex<Source>,
    /// Whether the free memory had reached its limit at the last check. A hint.
    is_tight: AtomicBool,
    /// Whether the upstream was out of memory at the last request. If so, it is asked again only
    /// after every other step has failed. A hint.
    is_short: AtomicBool,
    upstream_allocs: AtomicUsize,
    upstream_frees: AtomicUsize,
    /// High-water mark of reserved bytes.
    peak: AtomicUsize,
    /// Allocations per rung, indexed by [`ladder::Rung`].
    rungs: [AtomicUsize; 8],
}

/// The hook called when the pool is out of memory.
#[derive(Clone)]
struct Hook(Arc<dyn Fn(u64) -> bool + Send + Sync>);

impl Hook {
    fn new(hook: impl Fn(u64) -> bool + Send + Sync + 'static) -> Hook {
        Hook(Arc::new(hook))
    }

    fn call(&self, bytes: u64) -> bool {
        (self.0)(bytes)
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl CachingPool {
    /// Default settings of a caching pool.
    pub fn builder() -> CachingPoolBuilder {
        CachingPoolBuilder::default()
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    fn new(upstream: A, reservation: Option<GrowableBuffer>, settings: Settings) -> Result<CachingPool<A>> {
        let pool_stream = upstream.device().stream()?;
        Ok(CachingPool {
            upstream,
            pool_stream,
            streams: Streams::new(settings.classes, settings.is_ordered),
            live: BlockTable::new(),
            shared: Mutex::new(Shared::new(settings.classes, settings.extent())),
            source: Mutex::new(Source { reservation }),
            settings,
            is_tight: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            upstream_allocs: AtomicUsize::new(0),
            upstream_frees: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            rungs: Default::default(),
        })
    }

    /// Rounds a request of `bytes` up to its size class. A size above 2 GiB is returned unchanged;
    /// zero counts as one byte.
    pub fn rounded(&self, bytes: u64) -> u64 {
        self.settings.classes.round(bytes.max(1))
    }

    /// Limit of the memory that the pool takes from its upstream, in bytes. `None` if unlimited.
    pub fn max_bytes(&self) -> Option<u64> {
        Some(self.settings.most).filter(|most| *most < self.settings.classes.whole(u64::MAX >> 1))
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Releases cached memory to the upstream and returns the number of bytes released.
    ///
    /// Waits on the host for the work that blocks were freed behind. The stream caches are empty
    /// afterwards. Only fully free segments are released: a segment with a live block stays. A
    /// reservation shrinks at its end.
    ///
    /// # Errors
    /// An error of the upstream or the driver. Memory that could not be released stays cached.
    pub fn trim(&self) -> Result<u64> {
        self.wait_for_pending();
        let mut source = lock(&self.source);
        let (bytes, outcome) = self.give_back(&mut source);
        self.is_short.store(false, Relaxed);
        outcome.map(|()| bytes)
    }

    /// Creates a pool of equal blocks over one upstream allocation, which is freed when the pool is
    /// dropped. Also returns the start address.
    pub(in crate::host_pools) fn of_equal(
        upstream: A,
        block: Layout,
        region: Layout,
    ) -> Result<(CachingPool<A>, u64)> {
        let settings = Settings::of_equal(block.size() as u64, region.size() as u64);
        let pool = CachingPool::new(upstream, None, settings)?;
        let (bytes, align) = (region.size() as u64, region.align() as u64);
        let start = pool.take_whole(bytes, align)?;
        Ok((pool, start))
    }

    /// The size and class of every block of a pool of equal blocks.
    #[inline]
    pub(in crate::host_pools) fn need_of_equal(&self) -> Need {
        self.settings.classes.need_of_equal()
    }

    /// Allocates a block from the stream's cache, if it has one.
    // `inline(always)`, and `need` by reference: if `need` were copied through memory, it would be
    // loaded while its stores are still in flight.
    #[inline(always)]
    pub(in crate::host_pools) fn cached(
        &self,
        need: &Need,
        layout: Layout,
        stream: &Stream,
    ) -> Option<DevicePtr<u8>> {
        let is_tight = self.is_tight.load(Relaxed);
        let take = |cache: &StreamCache| cache.take(need, layout, is_tight, &self.live);
        self.streams.with(stream, take).map(Self::ptr)
    }

    /// Allocates a block that the stream's cache does not have. `None` if all blocks of a pool of
    /// equal blocks are live.
    #[cold]
    pub(in crate::host_pools) fn find_equal(
        &self,
        layout: Layout,
        stream: &Stream,
    ) -> Result<Option<DevicePtr<u8>>> {
        let found = self.alloc_slow(self.need_of_equal(), layout, stream)?;
        Ok(found.ok().map(Self::ptr))
    }

    #[cold]
    fn allocate_slow(&self, need: &Need, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let found = self.alloc_slow(*need, layout, stream)?;
        found.map(Self::ptr).map_err(|short| self.exhausted(layout, &short))
    }

    /// Frees a block that the stream's cache allocated recently, into that cache. The result says
    /// whether more must be done ([`take_back_slow`](Self::take_back_slow)).
    ///
    /// # Safety
    /// P1 and P2 of [`DeviceAllocator::deallocate`]. P3: the stream belongs to the pool's device.
    #[inline(always)]
    pub(in crate::host_pools) unsafe fn take_back(
        &self,
        address: u64,
        layout: Layout,
        stream: &Stream,
    ) -> FreeOutcome {
        let is_tight = self.is_tight.load(Relaxed);
        let take_back = |cache: &StreamCache| cache.take_back(address, layout, is_tight, &self.live);
        self.streams.with(stream, take_back)
    }

    /// Completes the free after [`take_back`](Self::take_back), for any block of the pool. Fails if
    /// no block of the pool matches the address and layout.
    #[inline(never)]
    pub(in crate::host_pools) fn take_back_slow(
        &self,
        back: FreeOutcome,
        address: u64,
        layout: Layout,
        stream: &Stream,
    ) -> Result<(), ClaimError> {
        match back {
            FreeOutcome::Kept => {}
            FreeOutcome::Over { .. } | FreeOutcome::Huge(_) => self.share(back, stream),
            FreeOutcome::Unknown => {
                let id = self.live.claim(address, layout)?;
                self.keep(id, layout, stream);
            }
        }
        Ok(())
    }

    fn ptr(address: u64) -> DevicePtr<u8> {
        DevicePtr(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    /// Puts a free block into the stream's cache. Surplus blocks become shared.
    #[inline]
    fn keep(&self, id: BlockId, layout: Layout, stream: &Stream) {
        let asked = layout.size() as u64;
        let is_tight = self.is_tight.load(Relaxed);
        let keep = |cache: &StreamCache| cache.keep(id, asked, is_tight, &self.live);
        let back = self.streams.with(stream, keep);
        if back != FreeOutcome::Kept {
            self.share(back, stream);
        }
    }

    /// Shares the blocks that a cache does not keep.
    #[cold]
    fn share(&self, back: FreeOutcome, stream: &Stream) {
        let cache = self.streams.get(stream);
        // Under this lock, a thread that flushes all caches finds these blocks either in the cache
        // or in the shared state.
        let mut shared = lock(&self.shared);
        let blocks = match back {
            FreeOutcome::Over { class, most } => cache.overflow(class, most, &self.live),
            FreeOutcome::Huge(id) => vec![id],
            FreeOutcome::Kept | FreeOutcome::Unknown => return,
        };
        let order = shared.order_of(&cache);
        shared.accept(blocks, order, &self.live);
    }
}

// SAFETY: live blocks do not overlap (A1, A2 by I1). A block is allocated after all work that may
// use it (A2 by I2).
unsafe impl<A: DeviceAllocator> DeviceAllocator for CachingPool<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    #[inline]
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(NAME, self.device(), layout, stream)?;
        let need = self.settings.classes.need(layout).ok_or_else(|| self.settings.classes.refuse(layout))?;
        match self.cached(&need, layout, stream) {
            Some(ptr) => Ok(ptr),
            None => self.allocate_slow(&need, layout, stream),
        }
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        if !self.settings.is_ordered {
            stream.synchronize()?;
        }
        // SAFETY: the caller's promises P1 and P2. The stream is of the device: checked above (P3).
        let back = unsafe { self.take_back(address, layout, stream) };
        if back == FreeOutcome::Kept {
            return Ok(());
        }
        let taken = self.take_back_slow(back, address, layout, stream);
        taken.map_err(|wrong| self.misuse(address, layout, wrong))
    }

    /// Reads each stream's cache, not the blocks. The largest free block would need a scan of all
    /// blocks; error messages report it.
    fn usage(&self) -> Usage {
        let shared = lock(&self.shared);
        Usage {
            used_bytes: self.counts(&shared).used(),
            reserved_bytes: shared.arena.reserved(),
            largest_free_bytes: None,
        }
    }
}

impl<A: DeviceAllocator> Drop for CachingPool<A> {
    fn drop(&mut self) {
        self.streams.close();
        let (unmarked, pending, counts) = {
            let mut shared = lock(&self.shared);
            self.flush_all(&mut shared);
            (shared.unmarked(), shared.pending(), self.counts(&shared))
        };
        // Ordered on the device, as far as the driver supports that.
        let ordered = pending.iter().try_for_each(|(_, event)| self.pool_stream.wait(event));
        let blocks = counts.blocks();
        if blocks > 0 || !unmarked.is_empty() || ordered.is_err() {
            self.device().driver().drain();
        }
        if blocks > 0 {
            let bytes = counts.used();
            match self.settings.is_fixed {
                true => tracing::warn!(blocks, bytes, "a pool goes while some of its blocks are allocated"),
                false => tracing::warn!(
                    blocks,
                    bytes,
                    "a caching pool goes while some of its blocks are allocated"
                ),
            }
        }
        self.give_all();
    }
}

impl<A: DeviceAllocator> fmt::Debug for CachingPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = lock(&self.shared);
        let (used, reserved) = (self.counts(&shared).used(), shared.arena.reserved());
        write!(f, "CachingPool({}, {used} B of {reserved} B in use)", self.device())
    }
}
