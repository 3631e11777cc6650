//! The searches of the ladder's rungs, and the steps by which they find more memory.
//!
//! Flushing a cache moves its blocks to the shared state with the order of its stream. A fence puts
//! them behind an event, or marks them idle if the stream is idle. The free memory of the cache's
//! extents moves along; for a request of the stream itself, only pieces that may have free
//! neighbours do. No function here returns while it holds a lock.

use super::CachingPool;
use super::bins::refill_of;
use super::block_table::BlockId;
use super::class::Need;
use super::order_table::OrderTag;
use super::shared::{POLLS, Shared};
use super::slabs::room_for;
use super::source::{Short, Source};
use super::stream_cache::StreamCache;
use crate::driver::{Event, Stream};
use crate::error::Result;
use crate::host_pools::{DeviceAllocator, lock};
use std::sync::{Arc, TryLockError};

/// Maximum number of growths of a reservation for one allocation, if other threads take the free
/// memory at its end each time.
pub(super) const MOST_GROWTHS: usize = 8;

/// One climb of the ladder: the request, its stream and the stream's cache.
pub(super) struct Climb<'a> {
    pub need: Need,
    pub stream: &'a Stream,
    pub cache: &'a Arc<StreamCache>,
}

impl Climb<'_> {
    pub fn is_self(&self, other: &StreamCache) -> bool {
        self.cache.key == other.key
    }

    /// Whether flushing this bin may help: the bin of a small request's class, or all large bins
    /// for a large request.
    pub fn wants(&self, class: usize, first_large: usize) -> bool {
        if self.need.is_small { self.need.class == Some(class) } else { class >= first_large }
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// Moves the memory of ended streams behind their last points.
    pub(super) fn reap(&self, shared: &mut Shared) {
        for key in self.streams.ended.take() {
            let Some(cache) = self.streams.remove(key) else { continue };
            self.flush(shared, &cache, |_| true);
            shared.take_extents(&cache, true);
            shared.fence(key, self.device());
            shared.forget(key);
            cache.count(&mut shared.retired);
            cache.retire(&self.live);
        }
    }

    /// Moves a cache's blocks in the bins that `which` accepts to the shared state, with the order
    /// of its stream, or merges them into the extents that they were cut from.
    fn flush(&self, shared: &mut Shared, cache: &Arc<StreamCache>, which: impl Fn(usize) -> bool) {
        let blocks = cache.drain(which, &self.live);
        let order = shared.order_of(cache);
        shared.accept(blocks, order, &self.live);
    }

    /// Flushes all caches and their extents. Afterwards all of it is behind events.
    pub(super) fn flush_all(&self, shared: &mut Shared) {
        self.reap(shared);
        for cache in self.streams.all() {
            self.flush(shared, &cache, |_| true);
            shared.take_extents(&cache, true);
            shared.fence(cache.key, self.device());
        }
    }

    /// Finds a block of these orders; cuts a new slab if needed. In a pool of equal blocks, the
    /// last slab may be smaller.
    fn find(
        &self,
        shared: &mut Shared,
        orders: &[OrderTag],
        climb: &Climb<'_>,
        any_slab: bool,
    ) -> Option<BlockId> {
        let need = climb.need;
        let most = refill_of(need).min(self.settings.most_refill(need.bytes));
        if let Some(found) = shared.find(orders, need, most, climb.cache, &self.live) {
            return Some(found);
        }
        let class = need.class.filter(|_| need.is_small)?;
        let any_slab = any_slab || self.settings.is_fixed;
        let is_there = shared.add_slab(orders, class, any_slab, &self.live);
        if is_there { shared.find(orders, need, most, climb.cache, &self.live) } else { None }
    }

    /// Finds a block after coalescing adjacent pieces of the stream's order and idle pieces.
    fn find_gathered(
        &self,
        shared: &mut Shared,
        own: OrderTag,
        climb: &Climb<'_>,
        any_slab: bool,
    ) -> Option<BlockId> {
        let least = if any_slab { climb.need.bytes } else { room_for(climb.need) };
        shared.arena.gather(|order| order == own || order == OrderTag::IDLE, own, least);
        self.find(shared, &[own, OrderTag::IDLE], climb, any_slab)
    }

    /// Finds a block after also dissolving fully free slabs.
    fn find_dissolved(
        &self,
        shared: &mut Shared,
        own: OrderTag,
        climb: &Climb<'_>,
        any_slab: bool,
    ) -> Option<BlockId> {
        shared.dissolve(|order| order == own || order == OrderTag::IDLE, Some(own), &self.live);
        self.find_gathered(shared, own, climb, any_slab)
    }

    pub(super) fn find_shared(&self, climb: &Climb<'_>) -> Option<BlockId> {
        let mut shared = lock(&self.shared);
        self.reap(&mut shared);
        shared.poll(POLLS);
        let own = shared.order_of(climb.cache);
        shared.reclaim(climb.cache.key, own);
        let orders = [own, OrderTag::IDLE];
        self.find(&mut shared, &orders, climb, false).or_else(|| self.find_own(&mut shared, climb))
    }

    /// Finds a block in the stream's own extents, or in a slab that is cut there.
    fn find_own(&self, shared: &mut Shared, climb: &Climb<'_>) -> Option<BlockId> {
        let Climb { need, cache, .. } = climb;
        if !need.is_small {
            return need.class.and_then(|_| cache.cut_out(*need, &self.live));
        }
        let align = self.settings.classes.align(need.class?);
        if !shared.borrow(cache, room_for(*need), align) {
            return None;
        }
        let own = shared.order_of(cache);
        self.find(shared, &[own, OrderTag::IDLE], climb, false)
    }

    /// Grows the pool, unless another thread holds the source's lock: waiting for it may take as
    /// long as a kernel.
    pub(super) fn find_spare(&self, climb: &Climb<'_>) -> Result<Option<BlockId>> {
        let mut source = match self.source.try_lock() {
            Ok(source) => source,
            Err(TryLockError::Poisoned(source)) => source.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        Ok(self.find_grown(&mut source, climb)?.ok())
    }

    /// Finds memory that idle streams have freed. Busy streams keep memory that they will allocate
    /// again.
    pub(super) fn find_passed(&self, climb: &Climb<'_>) -> Option<BlockId> {
        if self.streams.count() <= 1 {
            return None;
        }
        let mut shared = lock(&self.shared);
        let is_idle =
            |cache: &StreamCache| cache.stream(self.device()).is_some_and(|stream| stream.is_idle());
        // A cache that was used since the last check will allocate its blocks again.
        self.flush_others(&mut shared, climb, |cache, wanted| wanted && !cache.was_used() && is_idle(cache));
        let own = shared.order_of(climb.cache);
        self.find_gathered(&mut shared, own, climb, false)
    }

    /// Flushes other streams' caches; memory that they have passed becomes idle. `which` selects
    /// the caches, first for the bins that help this request directly, then for all bins.
    fn flush_others(
        &self,
        shared: &mut Shared,
        climb: &Climb<'_>,
        which: impl Fn(&StreamCache, bool) -> bool,
    ) {
        let first_large = self.first_large();
        // Listed under the lock: a stream that has ended and was forgotten stays forgotten.
        for cache in self.streams.all().iter().filter(|cache| !climb.is_self(cache)) {
            if which(cache, true) {
                let all = which(cache, false);
                self.flush(shared, cache, |class| all || climb.wants(class, first_large));
                if all || !climb.need.is_small {
                    shared.take_extents(cache, true);
                }
                shared.fence(cache.key, self.device());
            }
        }
        shared.poll(usize::MAX);
    }

    /// The first class with blocks that are cut to the requested size.
    fn first_large(&self) -> usize {
        self.settings.classes.first_large()
    }

    pub(super) fn find_done(&self, climb: &Climb<'_>) -> Option<BlockId> {
        let mut shared = lock(&self.shared);
        let own = shared.order_of(climb.cache);
        let first_large = self.first_large();
        // Large pieces first: a slab costs more to build than to keep.
        self.flush(&mut shared, climb.cache, |class| class >= first_large);
        if let Some(found) = self.find_own(&mut shared, climb) {
            return Some(found);
        }
        shared.take_extents(climb.cache, false);
        if let Some(found) = self.find_gathered(&mut shared, own, climb, false) {
            return Some(found);
        }
        self.flush(&mut shared, climb.cache, |_| true);
        if let Some(found) = self.find_dissolved(&mut shared, own, climb, false) {
            return Some(found);
        }
        self.flush_others(&mut shared, climb, |_, wanted| wanted);
        if let Some(found) = self.find_dissolved(&mut shared, own, climb, false) {
            return Some(found);
        }
        // Flush large blocks for a small request, and the reverse.
        self.flush_others(&mut shared, climb, |_, _| true);
        shared.dissolve(|order| order == OrderTag::IDLE, None, &self.live);
        self.find_dissolved(&mut shared, own, climb, false)
    }

    pub(super) fn find_grown(
        &self,
        source: &mut Source,
        climb: &Climb<'_>,
    ) -> Result<Result<BlockId, Short>> {
        // While this thread waited for the source, another thread may have grown the pool.
        if let Some(found) = self.find_shared(climb) {
            return Ok(Ok(found));
        }
        let need = climb.need;
        let classes = self.settings.classes;
        let align = need.class.filter(|_| need.is_small).map_or(need.align, |class| classes.align(class));
        let own = {
            let mut shared = lock(&self.shared);
            // The growth of a reservation relies on the free memory at its end.
            shared.take_extents(climb.cache, false);
            shared.order_of(climb.cache)
        };
        let room = (room_for(need), need.bytes);
        for _ in 0..MOST_GROWTHS {
            let mut shared = match self.grow(source, own, room, align.max(classes.least()))? {
                Ok(shared) => shared,
                Err(short) => return Ok(Err(short)),
            };
            if let Some(found) = self.find_dissolved(&mut shared, own, climb, true) {
                return Ok(Ok(found));
            }
        }
        Ok(Err(Short::Raced))
    }

    /// Finds pending memory of other streams; this stream waits for it on the device.
    pub(super) fn steal(&self, climb: &Climb<'_>) -> Result<Option<BlockId>> {
        let mut shared = lock(&self.shared);
        self.flush_all(&mut shared);
        shared.poll(usize::MAX);
        let own = shared.order_of(climb.cache);
        if let Some(found) = self.find_dissolved(&mut shared, own, climb, true) {
            return Ok(Some(found));
        }
        for (order, event) in shared.pending() {
            if shared.serves(order, climb.need) {
                climb.stream.wait(&event)?;
                if let Some(found) = self.find(&mut shared, &[order], climb, true) {
                    return Ok(Some(found));
                }
            }
        }
        shared.follow_all(climb.stream, own)?;
        Ok(self.find_dissolved(&mut shared, own, climb, true))
    }

    /// Releases cached segments, then allocates from the upstream again.
    pub(super) fn release(&self, climb: &Climb<'_>) -> Result<Option<BlockId>> {
        let mut source = lock(&self.source);
        self.flush_all(&mut lock(&self.shared));
        if self.give_back(&mut source).0 == 0 {
            return Ok(None);
        }
        Ok(self.find_grown(&mut source, climb)?.ok())
    }

    /// Whether no memory is free in any cache or order, at one moment and including all frees up to
    /// it.
    pub(super) fn is_empty(&self) -> bool {
        let shared = lock(&self.shared);
        shared.is_empty() && self.streams.ended.is_empty() && self.streams.are_empty()
    }

    /// Waits on the host until all memory that was freed so far is idle.
    pub(super) fn wait_for_pending(&self) {
        let (unmarked, pending) = {
            let mut shared = lock(&self.shared);
            self.flush_all(&mut shared);
            (shared.unmarked(), shared.pending())
        };
        if !unmarked.is_empty() {
            self.device().driver().drain();
        }
        let done = |(order, event): (OrderTag, Event)| event.synchronize().is_ok().then_some(order);
        let done: Vec<OrderTag> = pending.into_iter().filter_map(done).chain(unmarked).collect();
        let mut shared = lock(&self.shared);
        done.into_iter().for_each(|order| shared.settle(order));
        shared.dissolve(|order| order == OrderTag::IDLE, None, &self.live);
    }
}
