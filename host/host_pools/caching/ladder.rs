//! The fallback ladder for requests that the stream's own cache cannot serve. Each rung is tried
//! until one finds memory; [`RungStats`](super::RungStats) counts the rung that did. From top to
//! bottom:
//!
//! - `shared`: memory that is free for this stream or idle. The only driver calls poll pending
//!   events. From the shared state a large request takes an extent for the stream's cache. A small
//!   request takes a slab, which may be cut from such an extent.
//! - `done`: memory that idle streams have freed. Once free memory has reached its limit
//!   (`spare_bytes`), the rung also searches the memory that the stream itself caches, after
//!   coalescing, and then memory that other streams have freed and passed, with an event recorded
//!   on each stream that has work left.
//! - `grown`: new memory of the upstream; before the second part of `done` if the limit permits it.
//! - `stolen`: free blocks of other streams; this stream waits for them on the device.
//! - `released`: cached segments are released, and the upstream is asked again.
//! - `waited`: the host waits for all pending work; then `stolen` and `released` are tried once
//!   more.
//! - `hooked`: the user's hook may free memory, and the ladder starts again.
//!
//! The upstream is asked after free blocks with completed work, and before this stream waits for
//! unfinished work of another stream. The memory that a pool holds beyond its live blocks is
//! therefore bounded by what is in flight plus `spare_bytes`, and streams stay independent while
//! there is memory. Below that bound, a stream that has work left keeps the memory that it will
//! allocate again.
//!
//! Flushing a cache moves its blocks to the shared state with the order of its stream. A fence puts
//! them behind an event, or marks them idle if the stream is idle. The free memory of the cache's
//! extents moves along; for a request of the stream itself, only pieces that may have free
//! neighbours do. No function here returns while it holds a lock.
//!
//! `grown` and `released` hold the source's lock while they ask the upstream. The shared lock is
//! held while other streams are polled.

use super::super::allocator::DeviceAllocator;
use super::arena::OrderTag;
use super::blocks::BlockId;
use super::cache::{StreamCache, refill_count};
use super::class::Need;
use super::context::{Failure, Source, none_if_short};
use super::growth::Growth;
use super::pool::CachingPool;
use super::shared::{MAX_BUSY, Shared};
use super::slabs::refill_bytes;
use super::stats::Rung;
use crate::driver::{Event, Stream};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::lock::lock;
use crate::nvtx::NamedRange;
use std::alloc::Layout;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, TryLockError};

/// Maximum number of hook calls for one allocation: a hook that always returns `true` must not
/// block a thread for ever.
const MAX_HOOKS: usize = 64;

/// Maximum number of attempts in a pool of equal blocks. Each one saw a free block that another
/// thread took first.
const MAX_ATTEMPTS: usize = 1024;

/// Maximum number of growths of a reservation for one allocation, if other threads take the free
/// memory at its end each time.
pub(super) const MAX_GROWTHS: usize = 8;

/// A request that is served by the ladder, its stream and the stream's cache.
struct Request<'a> {
    need: Need,
    stream: &'a Stream,
    cache: &'a Arc<StreamCache>,
    /// Whether the pool may grow before it coalesces what streams cache.
    grows_early: bool,
    /// Why it could not, if not for lack of memory.
    early_error: Option<Error>,
    /// Why no rung has found memory.
    failure: Failure,
}

impl Request<'_> {
    /// Whether flushing this bin may help: the bin of a small request's class, or all large bins
    /// for a large request.
    fn may_use(&self, class: usize, first_large: usize) -> bool {
        if self.need.is_small { self.need.class == Some(class) } else { class >= first_large }
    }
}

/// Finds a block, which is not live yet. `None` if the next rung is to be tried.
type Find<A> = fn(&CachingPool<A>, &mut Request<'_>) -> Result<Option<BlockId>>;

impl<A: DeviceAllocator> CachingPool<A> {
    /// The rungs from top to bottom, by the counter of each.
    const LADDER: [(Rung, Find<A>); 8] = [
        (Rung::Shared, Self::find_shared),
        (Rung::Done, Self::find_done_by_idle),
        (Rung::Grown, Self::find_grown_early),
        (Rung::Done, Self::find_done),
        (Rung::Grown, Self::find_grown),
        (Rung::Stolen, Self::find_stolen),
        (Rung::Released, Self::find_released),
        (Rung::Waited, Self::find_waited),
    ];

    /// The ladder of a pool of equal blocks, which does not grow.
    const LADDER_OF_EQUAL: [(Rung, Find<A>); 4] = [
        (Rung::Shared, Self::find_shared),
        (Rung::Done, Self::find_done),
        (Rung::Stolen, Self::find_stolen),
        (Rung::Waited, Self::find_waited_of_equal),
    ];

    /// Allocates a block that the stream's cache does not have, and returns its address.
    #[cold]
    pub(super) fn alloc_by_ladder(
        &self,
        need: Need,
        layout: Layout,
        stream: &Stream,
    ) -> Result<u64, Failure> {
        let cache = &self.streams.get(stream);
        let failure = Failure::Limit;
        let mut request = Request { need, stream, cache, grows_early: false, early_error: None, failure };
        let ladder = match self.context.settings.is_fixed {
            true => &Self::LADDER_OF_EQUAL[..],
            false => &Self::LADDER[..],
        };
        for hooks in 0..=MAX_HOOKS {
            for (rung, find) in ladder {
                if let Some(found) = find(self, &mut request)? {
                    self.count(if hooks > 0 { Rung::Hooked } else { *rung });
                    return Ok(self.make_live(found, cache, layout));
                }
            }
            if hooks == MAX_HOOKS || !self.call_hook(layout) {
                break;
            }
        }
        self.count(Rung::Failed);
        Err(request.failure)
    }

    fn make_live(&self, id: BlockId, cache: &StreamCache, layout: Layout) -> u64 {
        let claim = self.context.blocks.set_live(id, layout);
        cache.bins().count_miss(claim, layout.size() as u64);
        self.context.blocks.slot(id).address()
    }

    fn count(&self, rung: Rung) {
        self.rungs[rung as usize].fetch_add(1, Relaxed);
    }

    fn call_hook(&self, layout: Layout) -> bool {
        self.context.settings.hook.as_ref().is_some_and(|hook| (hook.0)(layout.size() as u64))
    }
}

/// The rungs, in their order.
impl<A: DeviceAllocator> CachingPool<A> {
    /// Finds memory that is free for this stream or idle.
    fn find_shared(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        Ok(self.search_shared(request))
    }

    /// Finds memory that idle streams have freed, if the pool may grow otherwise. Busy streams keep
    /// memory that they will allocate again.
    fn find_done_by_idle(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        request.grows_early = self.may_grow_early(request);
        if !request.grows_early || self.streams.count() <= 1 {
            return Ok(None);
        }
        let mut shared = lock(&self.shared);
        let is_idle =
            |cache: &StreamCache| cache.stream(self.device()).is_some_and(|stream| stream.is_idle());
        // A cache that was used since the last check will allocate its blocks again.
        self.flush_others(&mut shared, request, |cache, wanted| {
            wanted && !cache.bins().was_used() && is_idle(cache)
        });
        Ok(self.find_coalesced(&mut shared, request, false))
    }

    /// Grows the pool, unless another thread holds the source's lock: waiting for it may take as
    /// long as a kernel. An error is returned only if the pool's free memory does not suffice.
    fn find_grown_early(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        if !request.grows_early {
            return Ok(None);
        }
        let mut source = match self.source.try_lock() {
            Ok(source) => source,
            Err(TryLockError::Poisoned(source)) => source.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        none_if_short(self.grow_and_find(&mut source, request)).or_else(|error| {
            tracing::warn!(%error, "a caching pool could not grow and searches its free memory");
            request.early_error = Some(error);
            Ok(None)
        })
    }

    /// Finds memory that this stream caches, then memory that other streams have freed and passed.
    fn find_done(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        Ok(self.search_done(request))
    }

    /// Grows the pool, unless that failed already and not for lack of memory.
    fn find_grown(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        if let Some(error) = request.early_error.take() {
            return Err(error);
        }
        match self.grow_and_find(&mut lock(&self.source), request) {
            Ok(found) => Ok(Some(found)),
            Err(Failure::Fault(error)) => Err(error),
            Err(failure) => {
                request.failure = failure;
                Ok(None)
            }
        }
    }

    /// Finds pending memory of other streams; this stream waits for it on the device.
    fn find_stolen(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        let mut shared = lock(&self.shared);
        self.flush_all(&mut shared);
        shared.poll(usize::MAX);
        let own = shared.order_of(request.cache);
        if let Some(found) = self.find_dissolved(&mut shared, request, true) {
            return Ok(Some(found));
        }
        for (order, event) in shared.pending() {
            if shared.serves(order, request.need) {
                request.stream.wait(&event)?;
                if let Some(found) = self.find(&mut shared, &[order], request, true) {
                    return Ok(Some(found));
                }
            }
        }
        shared.follow_all(request.stream, own)?;
        Ok(self.find_dissolved(&mut shared, request, true))
    }

    /// Releases cached segments, then allocates from the upstream again.
    fn find_released(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        let mut source = lock(&self.source);
        self.flush_all(&mut lock(&self.shared));
        if self.release_segments(&mut source).0 == 0 {
            return Ok(None);
        }
        none_if_short(self.grow_and_find(&mut source, request))
    }

    /// Waits on the host for all pending work, then tries the two rungs before again.
    fn find_waited(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        self.wait_for_pending();
        match self.find_stolen(request)? {
            None => self.find_released(request),
            found => Ok(found),
        }
    }

    /// Waits until a block is found, or all blocks were live or in transit at one moment.
    fn find_waited_of_equal(&self, request: &mut Request<'_>) -> Result<Option<BlockId>> {
        for _ in 0..MAX_ATTEMPTS {
            if self.is_empty() {
                request.failure = Failure::Limit;
                return Ok(None);
            }
            // For blocks of a stream without a marked point, or blocks that were freed since.
            self.wait_for_pending();
            if let Some(found) = self.search_done(request) {
                return Ok(Some(found));
            }
            if let Some(found) = self.find_stolen(request)? {
                return Ok(Some(found));
            }
        }
        request.failure = Failure::Raced;
        Ok(None)
    }
}

/// The steps by which rungs find more memory.
impl<A: DeviceAllocator> CachingPool<A> {
    /// Waits on the host until all memory that was freed so far is idle.
    pub(super) fn wait_for_pending(&self) {
        let _range = NamedRange::with_name(|| format!("{}: wait", self.context.settings.name));
        let (unmarked, pending) = {
            let mut shared = lock(&self.shared);
            self.flush_all(&mut shared);
            (shared.unmarked(), shared.pending())
        };
        if !unmarked.is_empty() {
            self.device().driver().drain();
        }
        let completed = |(order, event): (OrderTag, Event)| event.settle().is_ok().then_some(order);
        let completed: Vec<_> = pending.into_iter().filter_map(completed).chain(unmarked).collect();
        let mut shared = lock(&self.shared);
        completed.into_iter().for_each(|order| shared.mark_idle(order));
        shared.dissolve(|order| order == OrderTag::IDLE, None);
    }

    /// Whether the pool may grow before it coalesces what streams cache: the growth keeps free
    /// memory within its limit, and the upstream had memory at the last request.
    fn may_grow_early(&self, request: &Request<'_>) -> bool {
        let usage = self.usage();
        let free = usage.reserved_bytes.saturating_sub(usage.used_bytes);
        let more = refill_bytes(request.need).max(self.context.settings.segment_bytes);
        let left = (free + more).saturating_sub(request.need.bytes);
        let at_free_limit =
            self.upstream_exhausted.load(Relaxed) || left > self.context.settings.spare(self.streams.count());
        self.context.set_at_free_limit(at_free_limit);
        !at_free_limit
    }

    /// The error for a request that no rung served.
    pub(super) fn out_of_memory(&self, layout: Layout, failure: Failure) -> Error {
        let (usage, largest) = (self.usage(), lock(&self.shared).largest());
        let (why, advice) = match failure {
            Failure::Fault(error) => return error,
            Failure::Limit => (
                format!("at most {}", Bytes(self.context.settings.max_bytes)),
                "free blocks, raise its limit (max_bytes), or free memory in a hook (on_exhausted)",
            ),
            Failure::Raced => (
                format!("other threads allocated the memory that it grew by, {MAX_GROWTHS} times"),
                "try again, free blocks, or allocate from fewer threads at once",
            ),
            Failure::Upstream(error) => (
                format!("its upstream is out of memory: {error}"),
                "free blocks, run fewer programs on the device, or free memory in a hook (on_exhausted)",
            ),
        };
        Error::OutOfMemory(OutOfMemory::Pool {
            allocator: format!("{} ({why})", self.context.settings.name),
            requested: Bytes(layout.size() as u64),
            used: Bytes(usage.used_bytes),
            reserved: Bytes(usage.reserved_bytes),
            cached: Bytes(usage.reserved_bytes.saturating_sub(usage.used_bytes)),
            largest: Bytes(largest),
            advice,
            report: None,
        })
    }

    /// Moves the memory of ended streams behind their last points.
    fn reap(&self, shared: &mut Shared) {
        for key in self.streams.ended.take() {
            let Some(cache) = self.streams.remove(key) else { continue };
            self.flush(shared, &cache, |_| true);
            shared.free_extents(&cache, false);
            shared.fence(key, self.device());
            shared.forget(key);
            let mut bins = cache.bins();
            bins.count(&mut shared.retired);
            bins.extents.return_numbers();
        }
    }

    /// Moves a cache's blocks in the bins that `which` accepts to the shared state, with the order
    /// of its stream, or merges them into the extents that they were cut from.
    fn flush(&self, shared: &mut Shared, cache: &Arc<StreamCache>, which: impl Fn(usize) -> bool) {
        let blocks = cache.bins().drain(which);
        let order = shared.order_of(cache);
        shared.free(blocks, order);
    }

    /// Flushes all caches and their extents. Afterwards all of it is behind events.
    pub(super) fn flush_all(&self, shared: &mut Shared) {
        self.reap(shared);
        for cache in self.streams.all() {
            self.flush(shared, &cache, |_| true);
            shared.free_extents(&cache, false);
            shared.fence(cache.key, self.device());
        }
    }

    /// Finds a block of these orders; cuts a new slab if needed. In a pool of equal blocks, the
    /// last slab may be smaller.
    fn find(
        &self,
        shared: &mut Shared,
        orders: &[OrderTag],
        request: &Request<'_>,
        any_size: bool,
    ) -> Option<BlockId> {
        let need = request.need;
        let max = refill_count(need).min(self.context.settings.max_refill(need.bytes));
        if let Some(found) = shared.find(orders, need, max, request.cache) {
            return Some(found);
        }
        let class = need.class.filter(|_| need.is_small)?;
        let any_size = any_size || self.context.settings.is_fixed;
        let is_added = shared.add_slab(orders, class, any_size);
        if is_added { shared.find(orders, need, max, request.cache) } else { None }
    }

    /// Finds a block after coalescing adjacent pieces of the stream's order and idle pieces.
    fn find_coalesced(&self, shared: &mut Shared, request: &Request<'_>, any_size: bool) -> Option<BlockId> {
        let own = shared.order_of(request.cache);
        let min = if any_size { request.need.bytes } else { refill_bytes(request.need) };
        shared.arena.coalesce(|order| order == own || order == OrderTag::IDLE, own, min);
        self.find(shared, &[own, OrderTag::IDLE], request, any_size)
    }

    /// Finds a block after also dissolving fully free slabs.
    fn find_dissolved(&self, shared: &mut Shared, request: &Request<'_>, any_size: bool) -> Option<BlockId> {
        let own = shared.order_of(request.cache);
        shared.dissolve(|order| order == own || order == OrderTag::IDLE, Some(own));
        self.find_coalesced(shared, request, any_size)
    }

    /// Finds memory that is free for this stream or idle, or in the stream's own extents.
    fn search_shared(&self, request: &Request<'_>) -> Option<BlockId> {
        let mut shared = lock(&self.shared);
        self.reap(&mut shared);
        shared.poll(MAX_BUSY);
        let own = shared.order_of(request.cache);
        shared.reclaim(request.cache.key, own);
        let orders = [own, OrderTag::IDLE];
        self.find(&mut shared, &orders, request, false).or_else(|| self.find_in_extents(&mut shared, request))
    }

    /// Finds a block in the stream's own extents, or in a slab that is cut there.
    fn find_in_extents(&self, shared: &mut Shared, request: &Request<'_>) -> Option<BlockId> {
        let Request { need, cache, .. } = request;
        if !need.is_small {
            return need.class.and_then(|_| cache.bins().extents.cut(need)).map(|(id, _)| id);
        }
        let align = self.context.settings.classes.align(need.class?);
        if !shared.free_part(cache, refill_bytes(*need), align) {
            return None;
        }
        let own = shared.order_of(cache);
        self.find(shared, &[own, OrderTag::IDLE], request, false)
    }

    /// Flushes other streams' caches; memory that they have passed becomes idle. `which` selects
    /// the caches, first for the bins that help this request directly, then for all bins.
    fn flush_others(
        &self,
        shared: &mut Shared,
        request: &Request<'_>,
        which: impl Fn(&StreamCache, bool) -> bool,
    ) {
        let first_large = self.first_large();
        // Listed under the lock: a stream that has ended and was forgotten stays forgotten.
        for cache in self.streams.all().iter().filter(|cache| cache.key != request.cache.key) {
            if which(cache, true) {
                let all = which(cache, false);
                self.flush(shared, cache, |class| all || request.may_use(class, first_large));
                if all || !request.need.is_small {
                    shared.free_extents(cache, false);
                }
                shared.fence(cache.key, self.device());
            }
        }
        shared.poll(usize::MAX);
    }

    fn first_large(&self) -> usize {
        self.context.settings.classes.first_large()
    }

    /// Searches the caches of this stream, then those of the others, each after coalescing more.
    fn search_done(&self, request: &Request<'_>) -> Option<BlockId> {
        let mut shared = lock(&self.shared);
        let first_large = self.first_large();
        // Large pieces first: a slab costs more to build than to keep.
        self.flush(&mut shared, request.cache, |class| class >= first_large);
        if let Some(found) = self.find_in_extents(&mut shared, request) {
            return Some(found);
        }
        shared.free_extents(request.cache, true);
        if let Some(found) = self.find_coalesced(&mut shared, request, false) {
            return Some(found);
        }
        self.flush(&mut shared, request.cache, |_| true);
        if let Some(found) = self.find_dissolved(&mut shared, request, false) {
            return Some(found);
        }
        self.flush_others(&mut shared, request, |_, wanted| wanted);
        if let Some(found) = self.find_dissolved(&mut shared, request, false) {
            return Some(found);
        }
        // Flush large blocks for a small request, and the reverse.
        self.flush_others(&mut shared, request, |_, _| true);
        shared.dissolve(|order| order == OrderTag::IDLE, None);
        self.find_dissolved(&mut shared, request, false)
    }

    /// Grows the pool by what the request needs, and finds the block there.
    fn grow_and_find(&self, source: &mut Source, request: &Request<'_>) -> Result<BlockId, Failure> {
        // While this thread waited for the source, another thread may have grown the pool.
        if let Some(found) = self.search_shared(request) {
            return Ok(found);
        }
        let (need, classes) = (request.need, self.context.settings.classes);
        let align = need.class.filter(|_| need.is_small).map_or(need.align, |class| classes.align(class));
        let align = align.max(classes.min_block());
        let own = {
            let mut shared = lock(&self.shared);
            // The growth of a reservation relies on the free memory at its end.
            shared.free_extents(request.cache, true);
            shared.order_of(request.cache)
        };
        let growth = Growth { bytes: refill_bytes(need), min: need.bytes, align };
        for _ in 0..MAX_GROWTHS {
            let mut shared = self.grow(source, own, growth)?;
            if let Some(found) = self.find_dissolved(&mut shared, request, true) {
                return Ok(found);
            }
        }
        Err(Failure::Raced)
    }

    /// Whether no memory is free in any cache or order, at one moment and including all frees up to
    /// it.
    pub(super) fn is_empty(&self) -> bool {
        let shared = lock(&self.shared);
        shared.is_empty() && self.streams.ended.is_empty() && self.streams.is_empty()
    }
}
