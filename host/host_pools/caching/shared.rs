//! State that all streams share: the free pieces of the segments, the slabs, and their ordering
//! tags.
//!
//! ```text
//! order 0: idle               large pieces, small blocks by class
//! order 3: owned by stream 7  large pieces, small blocks by class  from its cache: overflow, flush
//! order 5: behind an event …                                       idle after the event
//! order 6: unmarked …                                              idle after a device sync
//! ```
//!
//! A piece that is an extent of a cache is out (not free). I1: each free piece and each free small
//! block has exactly one order, and `orders` knows it. I2: `owners` contains each cache that has an
//! extent, so that a block of the extent leads to its piece, also after the stream has ended.
//!
//! Lock order: after the lock of the source and before the leaf locks that [`super`] lists. While
//! it is held, the driver records and queries events, and streams are made to wait on the device.
//! None of that waits on the host, unless a queue of the driver is full.

use super::block_table::{BlockId, BlockTable, SHARED};
use super::class::{Classes, Need};
use super::order_table::{OrderTable, OrderTag};
use super::segment::Arena;
use super::slabs::{Slabs, slab_blocks};
use super::stats::Counts;
use super::stream_cache::{Key, StreamCache};
use crate::driver::{Device, Event, Stream};
use crate::error::Result;
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of unfinished streams that are polled before a first search.
pub(super) const POLLS: usize = 16;

/// Maximum number of other free pieces of the stream that become extents together with the piece
/// that a request needs.
const MOST_OTHERS: usize = 32;

pub(super) struct Shared {
    pub arena: Arena,
    classes: Classes,
    slabs: Slabs,
    orders: OrderTable,
    /// Caches that have extents, by owner number. The cache of an ended stream stays as long as one
    /// of its extents contains a block.
    owners: HashMap<u32, Arc<StreamCache>, FixedState>,
    /// Minimum size of a new extent, if the piece is that large.
    extent: u64,
    /// Counts of the caches of streams that have ended.
    pub retired: Counts,
}

impl Shared {
    pub fn new(classes: Classes, extent: u64) -> Shared {
        Shared {
            arena: Arena::default(),
            classes,
            slabs: Slabs::new(classes),
            orders: OrderTable::new(),
            owners: HashMap::default(),
            extent,
            retired: Counts::new(classes),
        }
    }

    /// The ordering tag of memory freed on that cache's stream.
    pub fn order_of(&mut self, cache: &Arc<StreamCache>) -> OrderTag {
        self.orders.of_cache(cache)
    }

    /// Adds free blocks.
    pub fn accept(&mut self, blocks: Vec<BlockId>, order: OrderTag, live: &BlockTable) {
        for id in blocks {
            let slot = live.slot(id);
            match slot.class().filter(|_| slot.is_small()) {
                Some(class) => self.slabs.give(id, slot.piece(), class, order),
                None => {
                    let node = self.node_of(id, live);
                    self.arena.give(node, order);
                }
            }
        }
    }

    /// Returns the piece of a large free block and forgets the block. If it was cut from an extent,
    /// the piece leaves the extent.
    fn node_of(&mut self, id: BlockId, live: &BlockTable) -> u32 {
        let (owner, node) = (live.slot(id).owner(), live.slot(id).piece());
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

    /// Shares the free pieces of the cache's extents, with the order of its stream. With `all ==
    /// false`, only pieces that may have free neighbours.
    pub fn take_extents(&mut self, cache: &Arc<StreamCache>, all: bool) {
        if self.owners.contains_key(&cache.owner) {
            let order = self.order_of(cache);
            cache.let_go_free(&mut self.arena, order, all);
            self.drop_empty(cache.owner);
        }
    }

    /// Shares memory for a slab from an extent of the cache, with the order of its stream. Returns
    /// `false` if no extent has enough free memory.
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

    /// Cuts a new extent for the cache from a free piece, and allocates a block from it.
    fn adopt(
        &mut self,
        node: u32,
        need: Need,
        cache: &Arc<StreamCache>,
        live: &BlockTable,
    ) -> Option<BlockId> {
        let (start, bytes) = (self.arena.start(node), self.arena.bytes(node));
        let least = start.next_multiple_of(need.align) - start + need.bytes;
        let wanted = least.max(self.extent);
        // A piece that only this stream can use becomes an extent as a whole. So does a piece if
        // its remainder would be smaller than an extent.
        let is_own = self.arena.order(node) != Some(OrderTag::IDLE) || self.orders.has_one_stream();
        let is_whole = is_own || bytes - wanted.min(bytes) < self.extent;
        let wanted = if is_whole { bytes } else { wanted };
        let own = self.orders.of_key(cache.key).filter(|_| is_own);
        let piece = self.arena.cut(node, wanted, 1);
        self.owners.entry(cache.owner).or_insert_with(|| cache.clone());
        // The stream's largest other pieces become extents too: best fit then chooses among all of
        // them.
        let others = own.map_or(Vec::new(), |own| self.arena.free_of(own));
        let mut pieces = Vec::with_capacity(1 + MOST_OTHERS.min(others.len()));
        for node in others.into_iter().rev().take(MOST_OTHERS) {
            pieces.push(self.arena.cut(node, self.arena.bytes(node), 1));
        }
        pieces.push(piece);
        cache.adopt(&mut self.arena, pieces, need, live)
    }

    /// Allocates a block of one of `orders` for a cache. For a small class, up to `most - 1`
    /// further blocks go to the cache.
    pub fn find(
        &mut self,
        orders: &[OrderTag],
        need: Need,
        most: usize,
        cache: &Arc<StreamCache>,
        live: &BlockTable,
    ) -> Option<BlockId> {
        if let (true, Some(class)) = (need.is_small, need.class) {
            return orders.iter().find_map(|order| {
                let mut more = self.slabs.take(*order, class, most, live);
                let id = more.pop()?;
                // Under this lock, a thread that flushes all caches finds these blocks in the
                // cache.
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

    /// Cuts a slab for a class from a piece of one of `orders`. With `any_size`, the slab is as
    /// large as fits.
    pub fn add_slab(&mut self, orders: &[OrderTag], class: usize, any_size: bool, live: &BlockTable) -> bool {
        let (bytes, align) = (self.classes.bytes(class), self.classes.align(class));
        let mut blocks = slab_blocks(bytes);
        loop {
            let fit =
                |order: &OrderTag| self.arena.fit(*order, blocks * bytes, align).map(|node| (node, *order));
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

    /// Turns fully free slabs back into pieces. The blocks of a slab must have at most one order
    /// besides idle, which the piece gets. With `to`, they may have several orders, and the piece
    /// gets `to`. A slab stays if `may` rejects the order of one of its blocks.
    pub fn dissolve(&mut self, may: impl Fn(OrderTag) -> bool, to: Option<OrderTag>, live: &BlockTable) {
        for (node, order) in self.slabs.dissolve(may, to, live) {
            self.arena.give(node, order);
        }
    }

    /// Whether no memory is free here, of any order.
    pub fn is_empty(&self) -> bool {
        self.arena.is_out() && self.slabs.is_out()
    }

    fn has(&self, order: OrderTag) -> bool {
        self.arena.has(order) || self.slabs.has(order)
    }

    /// Changes the order of all free memory of `from` to `to`.
    fn retag(&mut self, from: OrderTag, to: OrderTag) {
        self.arena.retag(from, to);
        self.slabs.retag(from, to);
    }

    /// Moves free memory that was behind an event, or unmarked, to another order.
    fn hand_over(&mut self, from: OrderTag, to: OrderTag) {
        self.retag(from, to);
        self.orders.clear(from);
    }

    /// Puts free memory of the stream's order behind an event, so that other streams can tell when
    /// they may use it.
    pub fn fence(&mut self, key: Key, device: &Device) {
        let Some(own) = self.orders.of_key(key).filter(|own| self.has(*own)) else { return };
        if let Some(order) = self.orders.mark(key, device) {
            self.retag(own, order);
        }
    }

    /// Forgets a stream. Its order must have been fenced.
    pub fn forget(&mut self, key: Key) {
        self.orders.forget(key);
    }

    /// Returns memory that this stream freed, and that was put behind events for other streams, to
    /// the stream's own order.
    pub fn reclaim(&mut self, key: Key, own: OrderTag) {
        self.orders.behind(key).into_iter().for_each(|order| self.hand_over(order, own));
    }

    /// The orders without a known point in a stream. Called after all streams were fenced, it
    /// includes the orders of streams that are about to end.
    pub fn unmarked(&self) -> Vec<OrderTag> {
        let ending = self.orders.of_streams().filter(|order| self.has(*order));
        self.orders.unmarked().chain(ending).collect()
    }

    /// Marks free memory of that order idle.
    pub fn settle(&mut self, order: OrderTag) {
        self.hand_over(order, OrderTag::IDLE);
    }

    /// Polls the events of up to `most` unfinished streams. Memory behind completed events becomes
    /// idle.
    pub fn poll(&mut self, most: usize) {
        self.orders.passed(most).into_iter().for_each(|order| self.settle(order));
    }

    /// The orders behind events, oldest first.
    pub fn pending(&self) -> Vec<(OrderTag, Event)> {
        self.orders.pending()
    }

    /// Whether free memory of that order could serve a request.
    pub fn serves(&self, order: OrderTag, need: Need) -> bool {
        let class = need.class.filter(|_| need.is_small);
        class.is_some_and(|class| self.slabs.has_class(order, class))
            || self.arena.fit(order, need.bytes, need.align).is_some()
    }

    /// Makes `stream` wait for all events. The memory behind them moves to the stream's order.
    pub fn follow_all(&mut self, stream: &Stream, own: OrderTag) -> Result<()> {
        for (order, event) in self.pending() {
            if self.has(order) {
                stream.wait(&event)?;
            }
            self.hand_over(order, own);
        }
        Ok(())
    }

    /// Bytes of the longest contiguous free range, of any order.
    pub fn largest(&self, live: &BlockTable) -> u64 {
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        let mut largest = 0;
        for slot in live.all().into_iter().map(|id| live.slot(id)) {
            if !slot.is_live() {
                largest = largest.max(slot.bytes());
            } else if slot.is_small() {
                // The whole slab.
                taken.insert(self.arena.start(slot.piece()), self.arena.bytes(slot.piece()));
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
    /// I1, and the invariants of the parts.
    pub fn check(&self, live: &BlockTable) {
        let all = self.arena.orders().chain(self.slabs.orders());
        all.for_each(|order| assert!(self.orders.has(order), "I1: {order:?}"));
        self.orders.check();
        self.arena.check();
        self.owners.values().for_each(|cache| cache.check(&self.arena));
        self.slabs.check(live, |node| self.arena.order(node).is_none());
    }
}
