//! Where the ladder's rungs look, and what they do to find more.
//!
//! A cache that is flushed gives its blocks to what all share, of its stream's order; a fence puts these behind an event, or makes them
//! anyone's if the stream has nothing to do. Of its extents, what is free goes with that; for a request of the stream itself only
//! what may have free neighbours. Nothing here holds a lock when it returns.

use super::CachingPool;
use super::bins::refill_of;
use super::class::Need;
use super::live::BlockId;
use super::orders::Order;
use super::shared::{POLLS, Shared};
use super::slabs::room_for;
use super::source::{Short, Source};
use super::stream_cache::StreamCache;
use crate::alloc::{DeviceAllocator, lock};
use crate::driver::{Event, Stream};
use crate::error::Result;
use std::sync::{Arc, TryLockError};

/// How often a reservation grows for one allocation, if others take what was free at its end meanwhile.
pub(super) const MOST_GROWTHS: usize = 8;

/// Who climbs, and for what.
pub(super) struct Climb<'a> {
    pub need: Need,
    pub stream: &'a Stream,
    pub cache: &'a Arc<StreamCache>,
}

impl Climb<'_> {
    pub fn is_self(&self, other: &StreamCache) -> bool {
        self.cache.key == other.key
    }

    /// Which bins may help: its own, or for what is cut out of segments all that are.
    pub fn wants(&self, class: usize, first_large: usize) -> bool {
        if self.need.is_small { self.need.class == Some(class) } else { class >= first_large }
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// Streams that have ended leave what they had behind their last point.
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

    /// What a cache has in these bins becomes shared, of its stream's order, or free in the extents that it was cut out of.
    fn flush(&self, shared: &mut Shared, cache: &Arc<StreamCache>, which: impl Fn(usize) -> bool) {
        let blocks = cache.drain(which, &self.live);
        let order = shared.order_of(cache);
        shared.accept(blocks, order, &self.live);
    }

    /// The same of all caches; then all of it is behind events.
    pub(super) fn flush_all(&self, shared: &mut Shared) {
        self.reap(shared);
        for cache in self.streams.all() {
            self.flush(shared, &cache, |_| true);
            shared.take_extents(&cache, true);
            shared.fence(cache.key, self.device());
        }
    }

    /// A block of these orders, with a new slab if that is what it takes.
    /// A pool of equal blocks takes what there is room for at its end, too.
    fn find(
        &self,
        shared: &mut Shared,
        orders: &[Order],
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

    /// The same once pieces of these two orders that are side by side are one.
    fn find_gathered(
        &self,
        shared: &mut Shared,
        own: Order,
        climb: &Climb<'_>,
        any_slab: bool,
    ) -> Option<BlockId> {
        let least = if any_slab { climb.need.bytes } else { room_for(climb.need) };
        shared.arena.gather(|order| order == own || order == Order::IDLE, own, least);
        self.find(shared, &[own, Order::IDLE], climb, any_slab)
    }

    /// The same with slabs that nobody uses.
    fn find_dissolved(
        &self,
        shared: &mut Shared,
        own: Order,
        climb: &Climb<'_>,
        any_slab: bool,
    ) -> Option<BlockId> {
        shared.dissolve(|order| order == own || order == Order::IDLE, Some(own), &self.live);
        self.find_gathered(shared, own, climb, any_slab)
    }

    pub(super) fn find_shared(&self, climb: &Climb<'_>) -> Option<BlockId> {
        let mut shared = lock(&self.shared);
        self.reap(&mut shared);
        shared.poll(POLLS);
        let own = shared.order_of(climb.cache);
        shared.reclaim(climb.cache.key, own);
        let orders = [own, Order::IDLE];
        self.find(&mut shared, &orders, climb, false).or_else(|| self.find_own(&mut shared, climb))
    }

    /// A block out of the stream's own extents, or out of a slab that is made there.
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
        self.find(shared, &[own, Order::IDLE], climb, false)
    }

    /// More memory, unless somebody else is about to change how much there is, which may take as long as a kernel.
    pub(super) fn find_spare(&self, climb: &Climb<'_>) -> Result<Option<BlockId>> {
        let mut source = match self.source.try_lock() {
            Ok(source) => source,
            Err(TryLockError::Poisoned(source)) => source.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        Ok(self.find_grown(&mut source, climb)?.ok())
    }

    /// What streams that have nothing to do have freed. Others keep what they will ask for again.
    pub(super) fn find_passed(&self, climb: &Climb<'_>) -> Option<BlockId> {
        if self.streams.count() <= 1 {
            return None;
        }
        let mut shared = lock(&self.shared);
        let is_idle =
            |cache: &StreamCache| cache.stream(self.device()).is_some_and(|stream| stream.is_idle());
        // One that was used since the last look will ask again for what it has.
        self.flush_others(&mut shared, climb, |cache, wanted| wanted && !cache.was_used() && is_idle(cache));
        let own = shared.order_of(climb.cache);
        self.find_gathered(&mut shared, own, climb, false)
    }

    /// What other streams keep becomes shared, and anyone's as far as they have passed it: the bins that `which` says, of those that help with
    /// a request at once and of others.
    fn flush_others(
        &self,
        shared: &mut Shared,
        climb: &Climb<'_>,
        which: impl Fn(&StreamCache, bool) -> bool,
    ) {
        let first_large = self.first_large();
        // Listed under the lock: a stream that has ended and was forgotten stays so.
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

    /// The first class that is cut to measure.
    fn first_large(&self) -> usize {
        self.settings.classes.first_large()
    }

    pub(super) fn find_done(&self, climb: &Climb<'_>) -> Option<BlockId> {
        let mut shared = lock(&self.shared);
        let own = shared.order_of(climb.cache);
        let first_large = self.first_large();
        // Large pieces first: slabs take longer to make than to keep.
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
        // Large blocks for a small one, and the other way round.
        self.flush_others(&mut shared, climb, |_, _| true);
        shared.dissolve(|order| order == Order::IDLE, None, &self.live);
        self.find_dissolved(&mut shared, own, climb, false)
    }

    pub(super) fn find_grown(
        &self,
        source: &mut Source,
        climb: &Climb<'_>,
    ) -> Result<Result<BlockId, Short>> {
        // While this one waited for the source, somebody may have made it grow.
        if let Some(found) = self.find_shared(climb) {
            return Ok(Ok(found));
        }
        let need = climb.need;
        let classes = self.settings.classes;
        let align = need.class.filter(|_| need.is_small).map_or(need.align, |class| classes.align(class));
        let own = {
            let mut shared = lock(&self.shared);
            // A reservation counts on what is free at its end.
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

    /// What is pending, for this stream, which comes after it on the device.
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

    /// Gives segments back and asks the upstream again.
    pub(super) fn release(&self, climb: &Climb<'_>) -> Result<Option<BlockId>> {
        let mut source = lock(&self.source);
        self.flush_all(&mut lock(&self.shared));
        if self.give_back(&mut source).0 == 0 {
            return Ok(None);
        }
        Ok(self.find_grown(&mut source, climb)?.ok())
    }

    /// Whether nothing is free, in any cache or order: at one moment, of all that was freed by then.
    pub(super) fn is_empty(&self) -> bool {
        let shared = lock(&self.shared);
        shared.is_empty() && self.streams.ended.is_empty() && self.streams.are_empty()
    }

    /// Waits on the host until what was freed so far is anyone's.
    pub(super) fn wait_for_pending(&self) {
        let (unmarked, pending) = {
            let mut shared = lock(&self.shared);
            self.flush_all(&mut shared);
            (shared.unmarked(), shared.pending())
        };
        if !unmarked.is_empty() {
            self.device().driver().drain();
        }
        let done = |(order, event): (Order, Event)| event.synchronize().is_ok().then_some(order);
        let done: Vec<Order> = pending.into_iter().filter_map(done).chain(unmarked).collect();
        let mut shared = lock(&self.shared);
        done.into_iter().for_each(|order| shared.settle(order));
        shared.dissolve(|order| order == Order::IDLE, None, &self.live);
    }
}
