//! What all streams share: the free pieces of the segments, the slabs, and whose they are.
//!
//! ```text
//!   order 0: anyone's    large pieces, small blocks by class
//!   order 3: stream 7's  large pieces, small blocks by class       its cache has overflowed, or was emptied
//!   order 5: behind an event …                                     of a stream; anyone's once the event has happened
//!   order 6: unmarked …                                            anyone's once the device was waited for
//! ```
//!
//! I1: pieces and small blocks are of an order that `orders` knows, and of one each.
//!
//! Its lock comes after that of the source and before the leaves that [`super`] lists. Under it the
//! driver is asked to mark points and to look at them, and streams are made to wait on the device: none of that waits on the host, unless a
//! driver's queue is full.

use super::class::{Classes, Need};
use super::live::{BlockId, Live};
use super::orders::{Order, Orders};
use super::segment::Arena;
use super::slabs::{Slabs, slab_blocks};
use super::stats::Counts;
use super::stream_cache::{Key, StreamCache};
use crate::driver::{Device, Event, Stream};
use crate::error::Result;
use std::collections::HashSet;
use std::sync::Arc;

/// Streams whose events are looked at before a first search.
pub(super) const POLLS: usize = 16;

pub(super) struct Shared {
    pub arena: Arena,
    classes: Classes,
    slabs: Slabs,
    orders: Orders,
    /// Of the caches of streams that have ended.
    pub retired: Counts,
}

/// What a request found.
pub(super) struct Found {
    pub id: BlockId,
    /// Small blocks of the same class and order.
    pub more: Vec<BlockId>,
}

impl Shared {
    pub fn new(classes: Classes) -> Shared {
        Shared {
            arena: Arena::default(),
            classes,
            slabs: Slabs::new(classes),
            orders: Orders::new(),
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
                    let node = slot.home();
                    live.remove(id);
                    self.arena.give(node, order);
                }
            }
        }
    }

    /// A block of one of these orders; of a small class up to `most` of them.
    pub fn find(&mut self, orders: &[Order], need: Need, most: usize, live: &Live) -> Option<Found> {
        if let (true, Some(class)) = (need.is_small, need.class) {
            return orders.iter().find_map(|order| {
                let mut more = self.slabs.take(*order, class, most, live);
                more.pop().map(|id| Found { id, more })
            });
        }
        let fits = orders.iter().filter_map(|order| self.arena.fit(*order, need.bytes, need.align));
        let node = fits.min_by_key(|node| self.arena.bytes(*node))?;
        let node = self.arena.cut(node, need.bytes, need.align);
        let id = live.insert(self.arena.start(node), need.bytes, node, (need.class, false));
        Some(Found { id, more: Vec::new() })
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
            stream.wait(&event)?;
            self.hand_over(order, own);
        }
        Ok(())
    }

    /// Where the block of a piece starts that has the address.
    pub fn block_at(&self, node: u32, address: u64) -> u64 {
        let start = self.arena.start(node);
        let bytes = self.arena.bytes(node) / self.slabs.blocks_of(node);
        start + (address - start) / bytes * bytes
    }

    /// Bytes of the longest stretch that nobody has, whosever order it is.
    pub fn largest(&self, live: &Live) -> u64 {
        let mut taken: HashSet<u32> = HashSet::new();
        let mut largest = 0;
        for slot in live.all().into_iter().map(|id| live.slot(id)) {
            if slot.is_live() {
                taken.insert(slot.home());
            } else {
                largest = largest.max(slot.bytes());
            }
        }
        for segment in self.arena.segments() {
            let mut run = 0;
            for node in self.arena.pieces(segment) {
                run = if taken.contains(&node) { 0 } else { run + self.arena.bytes(node) };
                largest = largest.max(run);
            }
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
        self.slabs.check(live, |node| self.arena.order(node).is_none());
    }
}
