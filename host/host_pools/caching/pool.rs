//! The pool: allocations and frees that a stream's cache serves, statistics and errors.

use super::super::allocator::DeviceAllocator;
use super::super::request::{
    address_of, check_request, explain, inside_block, invalid_free, ptr_at, wrong_layout,
};
use super::super::sync_driver::SyncDriverAllocator;
use super::blocks::{BlockId, ClaimError};
use super::cache::{FreeOutcome, StreamCache, Streams};
use super::class::Need;
use super::context::{Context, Failure, Settings, Source, none_if_short};
use super::shared::Shared;
use super::stats::{CachingPoolStats, Counts, Rung, RungStats};
use crate::driver::{Device, GrowableBuffer, Stream};
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::report::{Extent, MemoryReport};
use crate::usage::Usage;
use std::alloc::Layout;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
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
    pub(super) context: Arc<Context>,
    pub(super) streams: Streams,
    pub(super) shared: Mutex<Shared>,
    pub(super) source: Mutex<Source>,
    /// Whether the upstream was out of memory at the last request. If so, it is asked again only
    /// after every other step has failed. A hint.
    pub(super) upstream_exhausted: AtomicBool,
    pub(super) upstream_allocs: AtomicUsize,
    pub(super) upstream_frees: AtomicUsize,
    /// High-water mark of reserved bytes.
    pub(super) peak: AtomicUsize,
    /// Allocations per rung, indexed by [`Rung`].
    pub(super) rungs: [AtomicUsize; 8],
}

impl<A: DeviceAllocator> CachingPool<A> {
    pub(super) fn new(
        upstream: A,
        reservation: Option<GrowableBuffer>,
        settings: Settings,
    ) -> Result<CachingPool<A>> {
        let pool_stream = upstream.device().stream()?;
        let context = Arc::new(Context::new(settings));
        Ok(CachingPool {
            upstream,
            pool_stream,
            streams: Streams::new(context.clone()),
            shared: Mutex::new(Shared::new(context.clone())),
            source: Mutex::new(Source { reservation }),
            context,
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
        self.context.settings.classes.round(bytes.max(1))
    }

    /// Limit of the memory that the pool takes from its upstream, in bytes. `None` if unlimited.
    /// A reservation ([`CachingPoolBuilder::build`](super::CachingPoolBuilder::build)) is always
    /// limited, at most to the device's memory.
    pub fn max_bytes(&self) -> Option<u64> {
        let unlimited = self.context.settings.classes.round_to_block(u64::MAX >> 1);
        Some(self.context.settings.max_bytes).filter(|max| *max < unlimited)
    }

    /// The layout of the live block at `ptr`, as it was requested, for callers that free by address
    /// alone. `None` if no live block starts there.
    pub fn layout_of(&self, ptr: DevicePtr<u8>) -> Option<Layout> {
        self.context.blocks.layout_at(address_of(ptr))
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
        let alloc = |cache: &StreamCache| cache.alloc(need, layout);
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
        let free = |cache: &StreamCache| cache.free_recent(address, layout);
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
                let id = self.context.blocks.claim(address, layout)?;
                self.cache_block(id, layout, stream);
            }
        }
        Ok(())
    }

    /// Puts a free block into the stream's cache. Surplus blocks become shared.
    #[inline]
    fn cache_block(&self, id: BlockId, layout: Layout, stream: &Stream) {
        let requested = layout.size() as u64;
        let free = |cache: &StreamCache| cache.bins().free(id, requested);
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
            FreeOutcome::Overflow { class, limit } => cache.bins().take_surplus(class, limit),
            FreeOutcome::Huge(id) => vec![id],
            FreeOutcome::Cached | FreeOutcome::Unknown => return,
        };
        let order = shared.order_of(&cache);
        shared.free(blocks, order);
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    #[cold]
    fn allocate_slow(&self, need: &Need, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        match self.alloc_by_ladder(*need, layout, stream) {
            Ok(address) => Ok(ptr_at(address)),
            Err(Failure::Fault(error)) => Err(error),
            Err(failure) => Err(explain(self.out_of_memory(layout, failure), layout, self)),
        }
    }
}

// SAFETY: live blocks do not overlap (A1, A2 by I1). A block is allocated after all work that may
// use it (A2 by I2). A3 holds for the upstream; segments are device memory, which does not move
// with the pool.
unsafe impl<A: DeviceAllocator> DeviceAllocator for CachingPool<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    #[inline]
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request(&self.context.settings.name, self.device(), layout, stream)?;
        // Through the pool: a local copy of the classes would be stored and loaded again.
        let Some(need) = self.context.settings.classes.need(layout) else {
            return Err(self.context.settings.classes.unsupported(&self.context.settings.name, layout));
        };
        match self.alloc_cached(&need, layout, stream) {
            Some(ptr) => Ok(ptr),
            None => self.allocate_slow(&need, layout, stream),
        }
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let address = address_of(ptr);
        if !self.context.settings.is_ordered {
            stream.settle()?;
        }
        // SAFETY: the caller's promises P1 and P2. The stream is of the device: checked above (P3).
        let outcome = unsafe { self.free_recent(address, layout, stream) };
        if outcome == FreeOutcome::Cached {
            return Ok(());
        }
        let freed = self.free_slow(outcome, address, layout, stream);
        freed.map_err(|error| self.invalid_free(address, layout, error))
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

    fn report(&self) -> MemoryReport {
        self.memory_report()
    }
}

impl<A: DeviceAllocator> Drop for CachingPool<A> {
    fn drop(&mut self) {
        self.streams.ended.close();
        let (unmarked, pending, counts) = {
            let mut shared = lock(&self.shared);
            self.flush_all(&mut shared);
            (shared.unmarked(), shared.pending(), self.counts(&shared))
        };
        // Ordered on the device, as far as the driver supports that.
        let ordered = pending.iter().try_for_each(|(_, event)| self.pool_stream.wait(event));
        let (blocks, bytes) = (counts.blocks(), counts.used());
        if blocks > 0 || !unmarked.is_empty() || ordered.is_err() {
            self.device().driver().drain();
        }
        if blocks > 0 {
            let pool = &self.context.settings.name;
            tracing::warn!(blocks, bytes, "{pool} was dropped while some of its blocks were allocated");
        }
        self.release_all();
        self.streams.empty_remembered();
    }
}

impl<A: DeviceAllocator> fmt::Debug for CachingPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { used_bytes, reserved_bytes, .. } = self.usage();
        write!(f, "CachingPool({}, {used_bytes} B of {reserved_bytes} B in use)", self.device())
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// The sum over all caches, including those of ended streams.
    pub(super) fn counts(&self, shared: &Shared) -> Counts {
        let mut counts = shared.retired.clone();
        self.streams.all().iter().for_each(|cache| cache.bins().count(&mut counts));
        counts
    }

    /// Statistics since the pool was created.
    pub fn stats(&self) -> CachingPoolStats {
        let shared = lock(&self.shared);
        let counts = self.counts(&shared);
        let (used, reserved) = (counts.used(), shared.arena.reserved());
        let rung = |rung: Rung| self.rungs[rung as usize].load(Relaxed) as u64;
        CachingPoolStats {
            live_blocks: counts.blocks(),
            usage: Usage { used_bytes: used, reserved_bytes: reserved, largest_free_bytes: None },
            requested_bytes: counts.requested(),
            wasted_bytes: used.saturating_sub(counts.requested()),
            cached_bytes: reserved.saturating_sub(used),
            peak_reserved_bytes: self.peak.load(Relaxed) as u64,
            segments: shared.arena.segments().count() as u64,
            hits: counts.hits(),
            misses: counts.misses(),
            upstream_allocs: self.upstream_allocs.load(Relaxed) as u64,
            upstream_frees: self.upstream_frees.load(Relaxed) as u64,
            rungs: RungStats {
                shared: rung(Rung::Shared),
                done: rung(Rung::Done),
                grown: rung(Rung::Grown),
                stolen: rung(Rung::Stolen),
                released: rung(Rung::Released),
                waited: rung(Rung::Waited),
                hooked: rung(Rung::Hooked),
                failed: rung(Rung::Failed),
            },
            classes: counts.by_class(self.context.settings.classes),
        }
    }

    /// The state of the pool, with the live blocks by size. Memory that streams cache counts as
    /// free, as it is before an allocation fails.
    pub(super) fn memory_report(&self) -> MemoryReport {
        let usage = self.usage();
        let (space, live) = {
            let shared = lock(&self.shared);
            (shared.space(!self.context.settings.is_fixed), self.context.blocks.slots())
        };
        let live = live.into_iter().filter(|slot| slot.is_live());
        let live: Vec<_> = live.map(|slot| (slot.address(), slot.bytes())).collect();
        let report = MemoryReport::new(&*self.context.settings.name, usage);
        let report = report.with_space(space, live.iter().copied().map(Extent::used)).held_by_size(live);
        let failed = self.rungs[Rung::Failed as usize].load(Relaxed) as u64;
        MemoryReport { failed_allocations: Some(failed), limit_bytes: self.max_bytes(), ..report }.concluded()
    }

    /// The error for an invalid free.
    #[cold]
    pub(super) fn invalid_free(&self, address: u64, layout: Layout, error: ClaimError) -> Error {
        let why = match error {
            ClaimError::Free => "the block at that address is already free".into(),
            ClaimError::Layout(given) => wrong_layout(given, layout),
            ClaimError::Unknown => self.explain_unknown(address),
        };
        invalid_free(&*self.context.settings.name, address, why)
    }

    /// Describes an address at which no block starts.
    fn explain_unknown(&self, address: u64) -> String {
        let shared = lock(&self.shared);
        if shared.arena.segment_of(address).is_none() {
            let why = "the address is in no segment of the pool: it belongs to another allocator, or \
                       its segment was released";
            return why.into();
        }
        let has = |start: u64, bytes: u64| start <= address && address - start < bytes;
        let found = self.context.blocks.slots().into_iter().find(|slot| has(slot.address(), slot.bytes()));
        let live =
            found.and_then(|slot| Some((slot.address(), self.context.blocks.layout_at(slot.address())?)));
        match live {
            Some((start, layout)) => inside_block(start, layout),
            None => "no live block contains the address: its block was freed, or never allocated".into(),
        }
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// Creates a pool of equal blocks in one upstream allocation, which is freed when the pool is
    /// dropped. Also returns the start address.
    pub(in crate::host_pools) fn of_equal(
        upstream: A,
        name: String,
        block: Layout,
        region: Layout,
    ) -> Result<(CachingPool<A>, u64)> {
        let (bytes, align) = (region.size() as u64, region.align() as u64);
        let pool = CachingPool::new(upstream, None, Settings::of_equal(name, block.size() as u64, bytes))?;
        let start = pool.alloc_region(bytes, align)?;
        Ok((pool, start))
    }

    /// The size and class of every block of a pool of equal blocks.
    #[inline]
    pub(in crate::host_pools) fn need_of_equal(&self) -> Need {
        self.context.settings.classes.need_of_equal()
    }

    /// Allocates a block that the stream's cache does not have. `None` if all blocks are live, or
    /// other threads took each free block first.
    #[cold]
    pub(in crate::host_pools) fn alloc_equal(
        &self,
        layout: Layout,
        stream: &Stream,
    ) -> Result<Option<DevicePtr<u8>>> {
        Ok(none_if_short(self.alloc_by_ladder(self.need_of_equal(), layout, stream))?.map(ptr_at))
    }
}
