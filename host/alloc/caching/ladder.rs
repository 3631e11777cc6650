//! What a stream's own cache does not have: one rung after the other, until there is memory.
//!
//! ```text
//!   shared    free for this stream, or for anyone: no driver call, but to look at events that are pending
//!   done      other streams' free blocks that those have passed: a look at each that has some, or an event behind them. Once as much lies
//!             free as may (`spare_bytes`), before that what the stream itself keeps, merged
//!   grown     more of the upstream
//!   stolen    other streams' free blocks, which this stream waits for on the device
//!   released  cached segments go back, and the upstream is asked again
//!   waited    the host waits for all that is pending; then all of that once more
//!   hooked    the user's hook may give something back, and it all begins again
//! ```
//!
//! The upstream is asked before this stream is made to wait for another one's unfinished work, and after blocks whose work is done: so what a pool holds beyond
//! its live blocks is bounded by what is in flight and by what may lie free (`spare_bytes`), and streams stay apart while there is memory. Below that bound nothing is
//! merged that its stream will ask for again.
//!
//! No rung is climbed with a lock held but `grown` and `released`, which hold the source's.

use super::bins::refill_of;
use super::class::Need;
use super::segment::Order;
use super::shared::{Found, POLLS, Shared, room_for};
use super::source::{Short, Source};
use super::stream_cache::StreamCache;
use super::{CachingPool, NAME};
use crate::alloc::{DeviceAllocator, lock};
use crate::driver::{Event, Stream};
use crate::error::{Bytes, Error, Result};
use std::alloc::Layout;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How often the hook is asked for one allocation: a hook that always says yes does not hold a thread for ever.
const MOST_HOOKS: usize = 64;

/// How often a reservation grows for one allocation, if others take what was free at its end meanwhile.
const MOST_GROWTHS: usize = 8;

/// Blocks from this size on leave the stream's cache before a new piece is cut, once as much lies free as may.
const LARGE: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rung {
    Shared,
    Done,
    Grown,
    Stolen,
    Released,
    Waited,
    Hooked,
    Failed,
}

/// Who climbs, and for what.
struct Climb<'a> {
    need: Need,
    stream: &'a Stream,
    cache: &'a Arc<StreamCache>,
}

impl Climb<'_> {
    fn is_self(&self, other: &StreamCache) -> bool {
        self.cache.key == other.key
    }

    /// Which bins may help: its own, or for what is cut out of segments all that are.
    fn wants(&self, class: usize, first_large: usize) -> bool {
        if self.need.is_small { self.need.class == Some(class) } else { class >= first_large }
    }
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// A block that the stream's cache does not have; its address.
    #[cold]
    pub(super) fn alloc_slow(&self, need: Need, layout: Layout, stream: &Stream) -> Result<u64> {
        let cache = self.streams.get(stream);
        let climb = Climb { need, stream, cache: &cache };
        let mut hooks = 0;
        loop {
            match self.climb(&climb)? {
                Ok((found, rung)) => {
                    self.count(if hooks > 0 { Rung::Hooked } else { rung });
                    return Ok(self.hand_out(&found, &climb, layout));
                }
                Err(_) if hooks < MOST_HOOKS && self.ask_hook(layout) => hooks += 1,
                Err(short) => {
                    self.count(Rung::Failed);
                    return Err(self.exhausted(layout, &short));
                }
            }
        }
    }

    fn hand_out(&self, found: &Found, climb: &Climb<'_>, layout: Layout) -> u64 {
        let slot = self.live.slot(found.id);
        slot.set_live(layout);
        climb.cache.refill(found.id, layout.size() as u64, &found.more, &self.live);
        slot.address()
    }

    fn count(&self, rung: Rung) {
        self.rungs[rung as usize].fetch_add(1, Relaxed);
    }

    fn ask_hook(&self, layout: Layout) -> bool {
        self.settings.hook.as_ref().is_some_and(|hook| hook.call(layout.size() as u64))
    }

    /// All rungs but the hook.
    fn climb(&self, climb: &Climb<'_>) -> Result<Result<(Found, Rung), Short>> {
        if let Some(found) = self.find_shared(climb) {
            return Ok(Ok((found, Rung::Shared)));
        }
        let mut failed = None;
        if self.has_spare(climb) {
            if let Some(found) = self.find_passed(climb) {
                return Ok(Ok((found, Rung::Done)));
            }
            match self.find_spare(climb) {
                Ok(Some(found)) => return Ok(Ok((found, Rung::Grown))),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        if let Some(found) = self.find_done(climb) {
            return Ok(Ok((found, Rung::Done)));
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let grown = self.find_grown(&mut lock(&self.source), climb)?;
        let short = match grown {
            Ok(found) => return Ok(Ok((found, Rung::Grown))),
            Err(short) => short,
        };
        if let Some(found) = self.steal(climb)? {
            return Ok(Ok((found, Rung::Stolen)));
        }
        if let Some(found) = self.release(climb)? {
            return Ok(Ok((found, Rung::Released)));
        }
        self.wait_for_pending();
        if let Some(found) = self.steal(climb)? {
            return Ok(Ok((found, Rung::Waited)));
        }
        Ok(self.release(climb)?.map(|found| (found, Rung::Waited)).ok_or(short))
    }

    /// Whether more may be asked of the upstream before what streams keep is merged: with it, what lies free is no more than may,
    /// and the upstream had some when it was asked last.
    fn has_spare(&self, climb: &Climb<'_>) -> bool {
        let usage = self.usage();
        let free = usage.reserved_bytes.saturating_sub(usage.used_bytes);
        let more = room_for(climb.need).max(self.settings.segment_bytes);
        let left = (free + more).saturating_sub(climb.need.bytes);
        let is_tight = self.is_short.load(Relaxed) || left > self.settings.spare(self.streams.count());
        self.is_tight.store(is_tight, Relaxed);
        !is_tight
    }

    /// Streams that have ended leave what they had behind their last point.
    pub(super) fn reap(&self, shared: &mut Shared) {
        for key in self.streams.ended.take() {
            let Some(cache) = self.streams.remove(key) else { continue };
            self.flush(shared, &cache, |_| true);
            shared.fence(key, self.device());
            shared.forget(key);
            cache.count(&mut shared.retired);
        }
    }

    /// What a cache has becomes shared, of its stream's order.
    fn flush(&self, shared: &mut Shared, cache: &Arc<StreamCache>, which: impl Fn(usize) -> bool) {
        let blocks = cache.drain(which);
        let order = shared.order_of(cache);
        shared.accept(blocks, order, &self.live);
    }

    /// The same of all caches; then all of it is behind events.
    pub(super) fn flush_all(&self, shared: &mut Shared) {
        self.reap(shared);
        for cache in self.streams.all() {
            self.flush(shared, &cache, |_| true);
            shared.fence(cache.key, self.device());
        }
    }

    /// A block of these orders, with a new slab if that is what it takes.
    fn find(&self, shared: &mut Shared, orders: &[Order], need: Need, any_slab: bool) -> Option<Found> {
        let most = refill_of(need);
        if let Some(found) = shared.find(orders, need, most, &self.live) {
            return Some(found);
        }
        let class = need.class.filter(|_| need.is_small)?;
        let is_there = shared.add_slab(orders, class, any_slab, &self.live);
        if is_there { shared.find(orders, need, most, &self.live) } else { None }
    }

    /// The same once pieces of these two orders that are side by side are one.
    fn find_gathered(&self, shared: &mut Shared, own: Order, need: Need, any_slab: bool) -> Option<Found> {
        let least = if any_slab { need.bytes } else { room_for(need) };
        shared.arena.gather(|order| order == own || order == Order::IDLE, own, least);
        self.find(shared, &[own, Order::IDLE], need, any_slab)
    }

    /// The same with slabs that nobody uses.
    fn find_dissolved(&self, shared: &mut Shared, own: Order, need: Need, any_slab: bool) -> Option<Found> {
        shared.dissolve(|order| order == own || order == Order::IDLE, Some(own), &self.live);
        self.find_gathered(shared, own, need, any_slab)
    }

    fn find_shared(&self, climb: &Climb<'_>) -> Option<Found> {
        let mut shared = lock(&self.shared);
        self.reap(&mut shared);
        shared.poll(POLLS);
        let own = shared.order_of(climb.cache);
        if !climb.need.is_small && self.is_tight.load(Relaxed) {
            // What merges with its neighbours serves better than a cut into something larger.
            let first = self.settings.classes.index(LARGE);
            self.flush(&mut shared, climb.cache, |class| class >= first);
        }
        self.find(&mut shared, &[own, Order::IDLE], climb.need, false)
    }

    /// More memory, if nobody else is about to change how much there is.
    fn find_spare(&self, climb: &Climb<'_>) -> Result<Option<Found>> {
        match self.source.try_lock() {
            Ok(mut source) => Ok(self.find_grown(&mut source, climb)?.ok()),
            Err(_) => Ok(None),
        }
    }

    /// What other streams have freed and passed.
    fn find_passed(&self, climb: &Climb<'_>) -> Option<Found> {
        let others = self.streams.all();
        if others.len() <= 1 {
            return None;
        }
        let mut shared = lock(&self.shared);
        self.flush_others(&mut shared, climb, &others);
        let own = shared.order_of(climb.cache);
        self.find_gathered(&mut shared, own, climb.need, false)
    }

    /// What other streams keep that may help becomes shared, and anyone's as far as they have passed it.
    fn flush_others(&self, shared: &mut Shared, climb: &Climb<'_>, others: &[Arc<StreamCache>]) {
        let first_large = self.first_large();
        for cache in others.iter().filter(|cache| !climb.is_self(cache)) {
            self.flush(shared, cache, |class| climb.wants(class, first_large));
            shared.fence(cache.key, self.device());
        }
        shared.poll(usize::MAX);
    }

    /// The first class that is cut to measure.
    fn first_large(&self) -> usize {
        self.settings.classes.index(self.settings.classes.slab_limit) + 1
    }

    fn find_done(&self, climb: &Climb<'_>) -> Option<Found> {
        let mut shared = lock(&self.shared);
        let own = shared.order_of(climb.cache);
        let first_large = self.first_large();
        // Large pieces first: slabs take longer to make than to keep.
        self.flush(&mut shared, climb.cache, |class| class >= first_large);
        if let Some(found) = self.find_gathered(&mut shared, own, climb.need, false) {
            return Some(found);
        }
        self.flush(&mut shared, climb.cache, |_| true);
        if let Some(found) = self.find_dissolved(&mut shared, own, climb.need, false) {
            return Some(found);
        }
        self.flush_others(&mut shared, climb, &self.streams.all());
        self.find_dissolved(&mut shared, own, climb.need, false)
    }

    fn find_grown(&self, source: &mut Source, climb: &Climb<'_>) -> Result<Result<Found, Short>> {
        // While this one waited for the source, somebody may have made it grow.
        if let Some(found) = self.find_shared(climb) {
            return Ok(Ok(found));
        }
        let need = climb.need;
        let classes = self.settings.classes;
        let align = need.class.filter(|_| need.is_small).map_or(need.align, |class| classes.align(class));
        let own = lock(&self.shared).order_of(climb.cache);
        let room = (room_for(need), need.bytes);
        for _ in 0..MOST_GROWTHS {
            let mut shared = match self.grow(source, own, room, align.max(classes.least()))? {
                Ok(shared) => shared,
                Err(short) => return Ok(Err(short)),
            };
            if let Some(found) = self.find_dissolved(&mut shared, own, need, true) {
                return Ok(Ok(found));
            }
        }
        Ok(Err(Short::Raced))
    }

    /// What is pending, for this stream, which comes after it on the device.
    fn steal(&self, climb: &Climb<'_>) -> Result<Option<Found>> {
        let mut shared = lock(&self.shared);
        self.flush_all(&mut shared);
        shared.poll(usize::MAX);
        let own = shared.order_of(climb.cache);
        if let Some(found) = self.find_dissolved(&mut shared, own, climb.need, true) {
            return Ok(Some(found));
        }
        for (order, event) in shared.pending() {
            if shared.serves(order, climb.need) {
                climb.stream.wait(&event)?;
                if let Some(found) = self.find(&mut shared, &[order], climb.need, true) {
                    return Ok(Some(found));
                }
            }
        }
        shared.follow_all(climb.stream, own)?;
        Ok(self.find_dissolved(&mut shared, own, climb.need, true))
    }

    /// Gives segments back and asks the upstream again.
    fn release(&self, climb: &Climb<'_>) -> Result<Option<Found>> {
        let mut source = lock(&self.source);
        self.flush_all(&mut lock(&self.shared));
        if self.give_back(&mut source).0 == 0 {
            return Ok(None);
        }
        Ok(self.find_grown(&mut source, climb)?.ok())
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

    fn exhausted(&self, layout: Layout, short: &Short) -> Error {
        let (usage, largest) = (self.usage(), lock(&self.shared).largest(&self.live));
        let (why, advice) = match short {
            Short::Limit => (
                format!("at most {}", Bytes(self.settings.most)),
                "give blocks back, raise its limit (max_bytes), or free something in a hook (on_exhausted)",
            ),
            Short::Raced => (
                format!("other threads took what it grew by, {MOST_GROWTHS} times"),
                "try again, give blocks back, or allocate from fewer threads at once",
            ),
            Short::Upstream(error) => (
                format!("its upstream has no more: {error}"),
                "give blocks back, leave the device to fewer programs, or free something in a hook (on_exhausted)",
            ),
        };
        Error::AllocExhausted {
            allocator: format!("{NAME} ({why})"),
            requested: Bytes(layout.size() as u64),
            used: Bytes(usage.used_bytes),
            reserved: Bytes(usage.reserved_bytes),
            cached: Bytes(usage.reserved_bytes.saturating_sub(usage.used_bytes)),
            largest: Bytes(largest),
            advice,
        }
    }
}
