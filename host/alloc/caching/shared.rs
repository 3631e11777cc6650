//! What all streams share: the free pieces of the segments, the slabs, and whose they are.
//!
//! ```text
//!   order 0: anyone's    large pieces, small blocks by class
//!   order 3: stream 7's  large pieces, small blocks by class       its cache has overflowed, or was emptied
//!   order 5: behind an event …                                     of a stream; anyone's once the event has happened
//!   order 6: unmarked …                                            anyone's once the device was waited for
//! ```
//!
//! Extents of caches are pieces that are out. I1: pieces and small blocks are of an order that `orders` knows, and of one each. I2: `owners` has each cache
//! that has an extent, so that a block of it finds its piece, also after its stream has ended.
//!
//! Its lock comes after that of the source and before the leaves that [`super`] lists. Under it the
//! driver is asked to mark points and to look at them, and streams are made to wait on the device: none of that waits on the host, unless a
//! driver's queue is full.

use super::class::{Classes, Need};
use super::live::{BlockId, Live, SHARED};
use super::orders::{Order, Orders};
use super::segment::Arena;
use super::slabs::{Slabs, slab_blocks};
use super::stats::Counts;
use super::stream_cache::{Key, StreamCache};
use crate::driver::{Device, Event, Stream};
use crate::error::Result;
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Streams whose events are looked at before a first search.
pub(super) const POLLS: usize = 16;

/// Other free pieces of the stream that become extents together with the one that a request needs.
const MOST_OTHERS: usize = 32;

pub(super) struct Shared {
    pub arena: Arena,
    classes: Classes,
    slabs: Slabs,
    orders: Orders,
    /// Caches that have extents, by the numbers of these, also of streams that have ended: as long as a block is in one.
    owners: HashMap<u32, Arc<StreamCache>, FixedState>,
    /// The least that becomes an extent, as far as there is as much.
    extent: u64,
    /// Of the caches of streams that have ended.
    pub retired: Counts,
}

impl Shared {
    pub fn new(classes: Classes, extent: u64) -> Shared {
        Shared {
            arena: Arena::default(),
            classes,
            slabs: Slabs::new(classes),
            orders: Orders::new(),
            owners: HashMap::default(),
            extent,
            retired: Counts::new(classes),
        }
    }

    /// Whose what is freed on that cache's stream is.
    pub fn order_of(&mut self, cache: &Arc<StreamCache>) -> Order {
        self.orders.of_cache(cache)
    }

    /// Takes blocks that nobody has.
    pub fn accept(&mut self, blocks: Vec<BlockId>, order: Order, live: &Live) {
        for id in blocks {
            let slot = live.slot(id);
            match slot.class().filter(|_| slot.is_small()) {
                Some(class) => self.slabs.give(id, slot.home(), class, order),
                None => {
                    let node = self.node_of(id, live);
                    self.arena.give(node, order);
                }
            }
        }
    }

    /// The piece of a large block that nobody has, which is forgotten. One of an extent leaves that.
    fn node_of(&mut self, id: BlockId, live: &Live) -> u32 {
        let (owner, node) = (live.slot(id).owner(), live.slot(id).home());
        let Some(cache) = self.owners.get(&owner).filter(|_| owner != SHARED) else {
            live.remove(id);
            return node;
        };
        let node = cache.let_go(&mut self.arena, id, live);
        self.drop_empty(owner);
        node
    }

    fn drop_empty(&mut self, owner: u32) {
        if self.owners.get(&owner).is_some_and(|cache| !cache.has_extents()) {
            self.owners.remove(&owner);
        }
    }

    /// What is free in extents of the cache becomes shared, of its stream's order; or only what may have free neighbours.
    pub fn take_extents(&mut self, cache: &Arc<StreamCache>, all: bool) {
        if self.owners.contains_key(&cache.owner) {
            let order = self.order_of(cache);
            cache.let_go_free(&mut self.arena, order, all);
            self.drop_empty(cache.owner);
        }
    }

    /// Memory for a slab out of an extent of the cache, if one has it free; it is shared then, of the stream's order.
    pub fn borrow(&mut self, cache: &Arc<StreamCache>, bytes: u64, align: u64) -> bool {
        if !self.owners.contains_key(&cache.owner) {
            return false;
        }
        let order = self.order_of(cache);
        let Some(node) = cache.lend(&mut self.arena, bytes, align) else { return false };
        self.arena.give(node, order);
        self.drop_empty(cache.owner);
        true
    }

    /// A block for a cache, out of a new extent of it that is cut out of a free piece.
    fn adopt(&mut self, node: u32, need: Need, cache: &Arc<StreamCache>, live: &Live) -> Option<BlockId> {
        let (start, bytes) = (self.arena.start(node), self.arena.bytes(node));
        let least = start.next_multiple_of(need.align) - start + need.bytes;
        let wanted = least.max(self.extent);
        // A piece that only this stream can use becomes an extent whole. So does one whose rest would be too small to
        // be an extent.
        let is_own = self.arena.order(node) != Some(Order::IDLE) || self.orders.has_one_stream();
        let is_whole = is_own || bytes - wanted.min(bytes) < self.extent;
        let wanted = if is_whole { bytes } else { wanted };
        let own = self.orders.of_key(cache.key).filter(|_| is_own);
        let home = self.arena.cut(node, wanted, 1);
        self.owners.entry(cache.owner).or_insert_with(|| cache.clone());
        // The stream's largest other pieces become extents too: best fit then chooses among all of them.
        let others = own.map_or(Vec::new(), |own| self.arena.free_of(own));
        let mut homes = Vec::with_capacity(1 + MOST_OTHERS.min(others.len()));
        for node in others.into_iter().rev().take(MOST_OTHERS) {
            homes.push(self.arena.cut(node, self.arena.bytes(node), 1));
        }
        homes.push(home);
        cache.adopt(&mut self.arena, homes, need, live)
    }

    /// A block of one of these orders for a cache, which keeps up to `most - 1` others of a small class.
    pub fn find(
        &mut self,
        orders: &[Order],
        need: Need,
        most: usize,
        cache: &Arc<StreamCache>,
        live: &Live,
    ) -> Option<BlockId> {
        if let (true, Some(class)) = (need.is_small, need.class) {
            return orders.iter().find_map(|order| {
                let mut more = self.slabs.take(*order, class, most, live);
                let id = more.pop()?;
                // Under this lock: who empties all caches finds them there.
                cache.stock(class, &more, live);
                Some(id)
            });
        }
        let fits = orders.iter().filter_map(|order| self.arena.fit(*order, need.bytes, need.align));
        let node = fits.min_by_key(|node| self.arena.bytes(*node))?;
        if need.class.is_some() && cache.owner != SHARED {
            return self.adopt(node, need, cache, live);
        }
        let node = self.arena.cut(node, need.bytes, need.align);
        Some(live.insert(self.arena.start(node), need.bytes, node, (need.class, false)))
    }

    /// Cuts a slab for a class out of a piece of these orders. With `any_size`, one that is as large as there is room for.
    pub fn add_slab(&mut self, orders: &[Order], class: usize, any_size: bool, live: &Live) -> bool {
        let (bytes, align) = (self.classes.bytes(class), self.classes.align(class));
        let mut blocks = slab_blocks(bytes);
        loop {
            let fit =
                |order: &Order| self.arena.fit(*order, blocks * bytes, align).map(|node| (node, *order));
            if let Some((node, order)) = orders.iter().find_map(fit) {
                let node = self.arena.cut(node, blocks * bytes, align);
                self.slabs.add((node, self.arena.start(node)), blocks, class, order, live);
                return true;
            }
            if !any_size || blocks == 1 {
                return false;
            }
            blocks /= 2;
        }
    }

    /// Makes pieces of slabs whose blocks are all here: of those of one order beside anyone's, and with `to` of all, for that order.
    /// Without it, blocks of several orders stay; so they do if one of them is not one that `may`.
    pub fn dissolve(&mut self, may: impl Fn(Order) -> bool, to: Option<Order>, live: &Live) {
        for (node, order) in self.slabs.dissolve(may, to, live) {
            self.arena.give(node, order);
        }
    }

    /// Whether nothing is free here, whosever it is.
    pub fn is_empty(&self) -> bool {
        self.arena.is_out() && self.slabs.is_out()
    }

    fn has(&self, order: Order) -> bool {
        self.arena.has(order) || self.slabs.has(order)
    }

    /// What was of one order is of another one.
    fn retag(&mut self, from: Order, to: Order) {
        self.arena.retag(from, to);
        self.slabs.retag(from, to);
    }

    /// What was behind an event, or unmarked, is of another order.
    fn hand_over(&mut self, from: Order, to: Order) {
        self.retag(from, to);
        self.orders.clear(from);
    }

    /// Puts what is of a stream's order behind an event, so that others can tell when it is theirs.
    pub fn fence(&mut self, key: Key, device: &Device) {
        let Some(own) = self.orders.of_key(key).filter(|own| self.has(*own)) else { return };
        if let Some(order) = self.orders.mark(key, device) {
            self.retag(own, order);
        }
    }

    /// Forgets a stream, whose order has been fenced.
    pub fn forget(&mut self, key: Key) {
        self.orders.forget(key);
    }

    /// What that stream has freed is its own by its order, whatever it was put behind for others.
    pub fn reclaim(&mut self, key: Key, own: Order) {
        self.orders.behind(key).into_iter().for_each(|order| self.hand_over(order, own));
    }

    /// The orders of which nobody knows where in a stream they are. Of all that were to be fenced, also those of streams that are about to end.
    pub fn unmarked(&self) -> Vec<Order> {
        let ending = self.orders.of_streams().filter(|order| self.has(*order));
        self.orders.unmarked().chain(ending).collect()
    }

    /// What is of that order is anyone's.
    pub fn settle(&mut self, order: Order) {
        self.hand_over(order, Order::IDLE);
    }

    /// Looks which events have happened, of up to `most` streams that are not done: what is behind them is anyone's.
    pub fn poll(&mut self, most: usize) {
        self.orders.passed(most).into_iter().for_each(|order| self.settle(order));
    }

    /// The orders behind events, the oldest first.
    pub fn pending(&self) -> Vec<(Order, Event)> {
        self.orders.pending()
    }

    /// Whether the order could serve a request.
    pub fn serves(&self, order: Order, need: Need) -> bool {
        let class = need.class.filter(|_| need.is_small);
        class.is_some_and(|class| self.slabs.has_class(order, class))
            || self.arena.fit(order, need.bytes, need.align).is_some()
    }

    /// Makes `stream` come after everything that is behind events, which is then of its order.
    pub fn follow_all(&mut self, stream: &Stream, own: Order) -> Result<()> {
        for (order, event) in self.pending() {
            if self.has(order) {
                stream.wait(&event)?;
            }
            self.hand_over(order, own);
        }
        Ok(())
    }

    /// Bytes of the longest stretch that nobody has, whosever order it is.
    pub fn largest(&self, live: &Live) -> u64 {
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        let mut largest = 0;
        for slot in live.all().into_iter().map(|id| live.slot(id)) {
            if !slot.is_live() {
                largest = largest.max(slot.bytes());
            } else if slot.is_small() {
                // The slab as a whole.
                taken.insert(self.arena.start(slot.home()), self.arena.bytes(slot.home()));
            } else {
                taken.insert(slot.address(), slot.bytes());
            }
        }
        for segment in self.arena.segments() {
            let (mut at, end) = (segment.start, segment.start + segment.bytes);
            for (start, bytes) in taken.range(at..end) {
                largest = largest.max(start.saturating_sub(at));
                at = start + bytes;
            }
            largest = largest.max(end.saturating_sub(at));
        }
        largest
    }
}

#[cfg(test)]
impl Shared {
    /// I1, and the invariants of its parts.
    pub fn check(&self, live: &Live) {
        let all = self.arena.orders().chain(self.slabs.orders());
        all.for_each(|order| assert!(self.orders.has(order), "I1: {order:?}"));
        self.orders.check();
        self.arena.check();
        self.owners.values().for_each(|cache| cache.check(&self.arena));
        self.slabs.check(live, |node| self.arena.order(node).is_none());
    }
}
