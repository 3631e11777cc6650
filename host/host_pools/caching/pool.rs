//! The pool: its parts, and the frees that a stream's cache cannot complete.

use super::super::allocator::DeviceAllocator;
use super::super::request::{address_of, ptr_at};
use super::super::sync_driver::SyncDriverAllocator;
use super::bins::FreeOutcome;
use super::block_map::{BlockId, BlockMap};
use super::class::Need;
use super::settings::Settings;
use super::shared::Shared;
use super::slot::ClaimError;
use super::source::Source;
use super::stream_cache::StreamCache;
use super::streams::Streams;
use crate::driver::GrowableBuffer;
use crate::driver::Stream;
use crate::error::Result;
use crate::lock::lock;
use std::alloc::Layout;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use warpheap_device::kernel::DevicePtr;

/// A pool of blocks of any size, for programs that allocate and free continuously on streams.
///
/// A freed block is cached for the stream of the free. The next allocation of that size on this
/// stream gets it at once. Other streams get it after that stream has passed the point of the free.
/// If there is no other memory, they wait for that point on the device. The caller needs to do
/// nothing for this. A stream may be destroyed while blocks that were freed on it are pending.
///
/// Sizes up to 2 GiB are rounded to size classes ([`rounded`](Self::rounded)): powers of two from
/// 512 B, or finer classes (configurable). Up to 64 KiB (configurable) a block takes the full size
/// of its class. A larger block takes its size rounded up to a multiple of 512 B; its class only
/// selects the bin that caches it.
///
/// When memory runs out, the pool searches other streams' blocks, releases cached segments, waits
/// for pending work, and calls a hook, in that order, before the allocation fails.
/// [`CachingPoolStats::rungs`](super::CachingPoolStats::rungs) counts these steps.
///
/// Dropping the pool frees all its memory after all pending frees. If blocks are still allocated,
/// it waits for the device and logs a warning. On the host, a block takes some 100 bytes from when
/// it is cut until it is merged.
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
    pub(super) upstream: A,
    /// The stream on which segments are allocated and freed. It has no other work.
    pub(super) pool_stream: Stream,
    pub(super) settings: Settings,
    pub(super) streams: Streams,
    pub(super) live: BlockMap,
    pub(super) shared: Mutex<Shared>,
    pub(super) source: Mutex<Source>,
    /// Whether the free memory had reached its limit at the last check. A hint.
    pub(super) at_free_limit: AtomicBool,
    /// Whether the upstream was out of memory at the last request. If so, it is asked again only
    /// after every other step has failed. A hint.
    pub(super) upstream_exhausted: AtomicBool,
    pub(super) upstream_allocs: AtomicUsize,
    pub(super) upstream_frees: AtomicUsize,
    /// High-water mark of reserved bytes.
    pub(super) peak: AtomicUsize,
    /// Allocations per rung, indexed by [`Rung`](super::stats::Rung).
    pub(super) rungs: [AtomicUsize; 8],
}

impl<A: DeviceAllocator> CachingPool<A> {
    pub(super) fn new(
        upstream: A,
        reservation: Option<GrowableBuffer>,
        settings: Settings,
    ) -> Result<CachingPool<A>> {
        let pool_stream = upstream.device().stream()?;
        Ok(CachingPool {
            upstream,
            pool_stream,
            streams: Streams::new(settings.classes, settings.is_ordered),
            live: BlockMap::new(),
            shared: Mutex::new(Shared::new(settings.classes, settings.extent())),
            source: Mutex::new(Source { reservation }),
            settings,
            at_free_limit: AtomicBool::new(false),
            upstream_exhausted: AtomicBool::new(false),
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
    /// A reservation ([`CachingPoolBuilder::build`](super::CachingPoolBuilder::build)) is always
    /// limited, at most to the device's memory.
    pub fn max_bytes(&self) -> Option<u64> {
        let unlimited = self.settings.classes.round_to_block(u64::MAX >> 1);
        Some(self.settings.max_bytes).filter(|max| *max < unlimited)
    }

    /// The layout of the live block at `ptr`, as it was requested, for callers that free by address
    /// alone. `None` if no live block starts there.
    pub fn layout_of(&self, ptr: DevicePtr<u8>) -> Option<Layout> {
        self.live.layout_at(address_of(ptr))
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Releases cached memory to the upstream and returns the number of bytes released.
    ///
    /// Waits on the host for all pending frees of blocks. The stream caches are empty afterwards.
    /// Only fully free segments are released: a segment with a live block stays. A reservation
    /// shrinks at its end.
    ///
    /// # Errors
    /// An error of the upstream or the driver. Memory that could not be released stays cached.
    pub fn trim(&self) -> Result<u64> {
        self.wait_for_pending();
        let mut source = lock(&self.source);
        let (bytes, outcome) = self.release_segments(&mut source);
        self.upstream_exhausted.store(false, Relaxed);
        outcome.map(|()| bytes)
    }

    /// Allocates a block from the stream's cache, if it has one.
    // `inline(always)`, and `need` by reference: if `need` were copied through memory, it would be
    // loaded while its stores are still in flight.
    #[inline(always)]
    pub(in crate::host_pools) fn alloc_cached(
        &self,
        need: &Need,
        layout: Layout,
        stream: &Stream,
    ) -> Option<DevicePtr<u8>> {
        let merges = self.at_free_limit.load(Relaxed);
        let alloc = |cache: &StreamCache| cache.alloc(need, layout, merges, &self.live);
        self.streams.with(stream, alloc).map(ptr_at)
    }

    /// Frees a block that the stream's cache allocated recently, into that cache. The result says
    /// whether more must be done ([`free_slow`](Self::free_slow)).
    ///
    /// # Safety
    /// P1 and P2 of [`DeviceAllocator::deallocate`]. P3: the stream belongs to the pool's device.
    #[inline(always)]
    pub(in crate::host_pools) unsafe fn free_recent(
        &self,
        address: u64,
        layout: Layout,
        stream: &Stream,
    ) -> FreeOutcome {
        let merges = self.at_free_limit.load(Relaxed);
        let free = |cache: &StreamCache| cache.free_recent(address, layout, merges, &self.live);
        self.streams.with(stream, free)
    }

    /// Completes the free after [`free_recent`](Self::free_recent), for any block of the pool.
    /// Fails if no block of the pool matches the address and layout.
    #[inline(never)]
    pub(in crate::host_pools) fn free_slow(
        &self,
        outcome: FreeOutcome,
        address: u64,
        layout: Layout,
        stream: &Stream,
    ) -> Result<(), ClaimError> {
        match outcome {
            FreeOutcome::Cached => {}
            FreeOutcome::Overflow { .. } | FreeOutcome::Huge(_) => self.share_surplus(outcome, stream),
            FreeOutcome::Unknown => {
                let id = self.live.claim(address, layout)?;
                self.cache_block(id, layout, stream);
            }
        }
        Ok(())
    }

    /// Puts a free block into the stream's cache. Surplus blocks become shared.
    #[inline]
    fn cache_block(&self, id: BlockId, layout: Layout, stream: &Stream) {
        let requested = layout.size() as u64;
        let merges = self.at_free_limit.load(Relaxed);
        let block = (id, self.live.slot(id));
        let free = |cache: &StreamCache| cache.bins().free(block, requested, merges, &self.live);
        let outcome = self.streams.with(stream, free);
        if outcome != FreeOutcome::Cached {
            self.share_surplus(outcome, stream);
        }
    }

    /// Shares the blocks that a cache does not keep.
    #[cold]
    fn share_surplus(&self, outcome: FreeOutcome, stream: &Stream) {
        let cache = self.streams.get(stream);
        // Under this lock, a thread that flushes all caches finds these blocks either in the cache
        // or in the shared state.
        let mut shared = lock(&self.shared);
        let blocks = match outcome {
            FreeOutcome::Overflow { class, limit } => cache.bins().take_surplus(class, limit, &self.live),
            FreeOutcome::Huge(id) => vec![id],
            FreeOutcome::Cached | FreeOutcome::Unknown => return,
        };
        let order = shared.order_of(&cache);
        shared.free(blocks, order, &self.live);
    }
}
