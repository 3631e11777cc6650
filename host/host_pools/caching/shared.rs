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
//! A piece that is an extent of a cache is used (not free). I1: each free piece and each free small
//! block has exactly one order, and `orders` knows it. I2: `owners` contains each cache that has an
//! extent, so that a block of the extent leads to its piece, also after the stream has ended.
//!
//! Lock order: after the lock of the source and before the leaf locks that [`super`] lists. While
//! it is held, the driver records and queries events, and streams are made to wait on the device.
//! None of that waits on the host, unless a queue of the driver is full.

use super::arena::{Arena, OrderTag};
use super::blocks::{BlockId, BlockInfo, SHARED};
use super::cache::{ANY_STREAM, Key, StreamCache, StreamEnd};
use super::class::Need;
use super::context::Context;
use super::slabs::{Slabs, slab_blocks};
use super::stats::Counts;
use crate::driver::{Device, Event, Stream};
use crate::error::Result;
use crate::report::{Extent, Space};
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of unfinished streams that are polled before a first search.
pub(super) const MAX_BUSY: usize = 16;

/// Maximum number of other free pieces of the stream that become extents together with the piece
/// that a request needs.
const MAX_OTHERS: usize = 32;

pub(super) struct Shared {
    pub arena: Arena,
    slabs: Slabs,
    orders: OrderTable,
    /// Caches that have extents, by owner number. The cache of an ended stream stays as long as one
    /// of its extents contains a block.
    owners: HashMap<u32, Arc<StreamCache>, FixedState>,
    context: Arc<Context>,
    /// Counts of the caches of streams that have ended.
    pub retired: Counts,
}

impl Shared {
    pub fn new(context: Arc<Context>) -> Shared {
        Shared {
            arena: Arena::default(),
            slabs: Slabs::new(context.clone()),
            orders: OrderTable::new(),
            owners: HashMap::default(),
            retired: Counts::new(context.settings.classes),
            context,
        }
    }

    /// The ordering tag of memory freed on that cache's stream.
    pub fn order_of(&mut self, cache: &Arc<StreamCache>) -> OrderTag {
        self.orders.of_cache(cache)
    }

    /// Frees blocks that are in no cache.
    pub fn free(&mut self, blocks: Vec<BlockId>, order: OrderTag) {
        for id in blocks {
            let slot = self.context.blocks.slot(id);
            match slot.class().filter(|_| slot.is_small()) {
                Some(class) => self.slabs.free(id, slot.piece(), class, order),
                None => {
                    let node = self.release_piece(id);
                    self.arena.free(node, order);
                }
            }
        }
    }

    /// Returns the piece of a large free block and forgets the block. If it was cut from an extent,
    /// the piece leaves the extent.
    fn release_piece(&mut self, id: BlockId) -> u32 {
        let slot = self.context.blocks.slot(id);
        let (owner, node) = (slot.owner(), slot.piece());
        let Some(cache) = self.owners.get(&owner).filter(|_| owner != SHARED) else {
            self.context.blocks.remove(id);
            return node;
        };
        let node = cache.bins().extents.release_block(&mut self.arena, id);
        self.drop_owner_if_empty(owner);
        node
    }

    fn drop_owner_if_empty(&mut self, owner: u32) {
        if self.owners.get(&owner).is_some_and(|cache| cache.bins().extents.is_empty()) {
            self.owners.remove(&owner);
        }
    }

    /// Shares the free pieces of the cache's extents, with the order of its stream. With
    /// `only_ends`, only pieces that may have free neighbours.
    pub fn free_extents(&mut self, cache: &Arc<StreamCache>, only_ends: bool) {
        if self.owners.contains_key(&cache.owner) {
            let order = self.order_of(cache);
            cache.bins().extents.free_to_shared(&mut self.arena, order, only_ends);
            self.drop_owner_if_empty(cache.owner);
        }
    }

    /// Shares memory for a slab from an extent of the cache, with the order of its stream. Returns
    /// `false` if no extent has enough free memory.
    pub fn free_part(&mut self, cache: &Arc<StreamCache>, bytes: u64, align: u64) -> bool {
        if !self.owners.contains_key(&cache.owner) {
            return false;
        }
        let order = self.order_of(cache);
        let part = cache.bins().extents.release_part(&mut self.arena, bytes, align);
        let Some(node) = part else { return false };
        self.arena.free(node, order);
        self.drop_owner_if_empty(cache.owner);
        true
    }

    /// Cuts a new extent for the cache from a free piece, and allocates a block from it.
    fn adopt(&mut self, node: u32, need: Need, cache: &Arc<StreamCache>) -> Option<BlockId> {
        let (start, bytes) = (self.arena.start(node), self.arena.bytes(node));
        let min = start.next_multiple_of(need.align) - start + need.bytes;
        let extent = self.context.settings.extent();
        let wanted = min.max(extent);
        // A piece that only this stream can use becomes an extent undivided. So does a
        // piece if its remainder would be smaller than an extent.
        let is_own = self.arena.order(node) != Some(OrderTag::IDLE) || self.orders.has_one_stream();
        let is_undivided = is_own || bytes - wanted.min(bytes) < extent;
        let wanted = if is_undivided { bytes } else { wanted };
        let own = self.orders.of_key(cache.key).filter(|_| is_own);
        let piece = self.arena.cut(node, wanted, 1);
        self.owners.entry(cache.owner).or_insert_with(|| cache.clone());
        // The stream's largest other pieces become extents too: best fit then chooses among all of
        // them.
        let others = own.map_or(Vec::new(), |own| self.arena.free_pieces(own));
        let mut pieces = Vec::with_capacity(1 + MAX_OTHERS.min(others.len()));
        for node in others.into_iter().rev().take(MAX_OTHERS) {
            pieces.push(self.arena.cut(node, self.arena.bytes(node), 1));
        }
        pieces.push(piece);
        // Under one lock of the cache, so that no other thread of the stream takes the new extents
        // in between.
        let mut bins = cache.bins();
        pieces.into_iter().for_each(|piece| bins.extents.adopt(&mut self.arena, piece));
        bins.extents.cut(&need).map(|(id, _)| id)
    }

    /// Allocates a block of one of `orders` for a cache. For a small class, up to `max - 1`
    /// further blocks go to the cache.
    pub fn find(
        &mut self,
        orders: &[OrderTag],
        need: Need,
        max: usize,
        cache: &Arc<StreamCache>,
    ) -> Option<BlockId> {
        if let (true, Some(class)) = (need.is_small, need.class) {
            return orders.iter().find_map(|order| {
                let mut more = self.slabs.alloc(*order, class, max);
                let id = more.pop()?;
                // Under this lock, a thread that flushes all caches finds these blocks in the
                // cache.
                cache.bins().refill(class, &more);
                Some(id)
            });
        }
        let fits = orders.iter().filter_map(|order| self.arena.fit(*order, need.bytes, need.align));
        let node = fits.min_by_key(|node| self.arena.bytes(*node))?;
        if need.class.is_some() && cache.owner != SHARED {
            return self.adopt(node, need, cache);
        }
        let node = self.arena.cut(node, need.bytes, need.align);
        let (address, owner, piece) = (self.arena.start(node), SHARED, node);
        let Need { bytes, class, .. } = need;
        Some(self.context.blocks.insert(BlockInfo { address, bytes, owner, piece, class, is_small: false }))
    }

    /// Cuts a slab for a class from a piece of one of `orders`. With `any_size`, the slab is as
    /// large as fits.
    pub fn add_slab(&mut self, orders: &[OrderTag], class: usize, any_size: bool) -> bool {
        let classes = self.context.settings.classes;
        let (bytes, align) = (classes.bytes(class), classes.align(class));
        let mut blocks = slab_blocks(bytes);
        loop {
            let fit =
                |order: &OrderTag| self.arena.fit(*order, blocks * bytes, align).map(|node| (node, *order));
            if let Some((node, order)) = orders.iter().find_map(fit) {
                let node = self.arena.cut(node, blocks * bytes, align);
                self.slabs.add((node, self.arena.start(node)), blocks, class, order);
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
    /// gets `to`. A slab stays if `accepts` rejects the order of one of its blocks.
    pub fn dissolve(&mut self, accepts: impl Fn(OrderTag) -> bool, to: Option<OrderTag>) {
        for (node, order) in self.slabs.dissolve(accepts, to) {
            self.arena.free(node, order);
        }
    }

    /// Whether no memory is free here, of any order.
    pub fn is_empty(&self) -> bool {
        self.arena.is_exhausted() && self.slabs.is_exhausted()
    }

    /// Whether free memory of that order could serve a request.
    pub fn serves(&self, order: OrderTag, need: Need) -> bool {
        let class = need.class.filter(|_| need.is_small);
        class.is_some_and(|class| self.slabs.has_class(order, class))
            || self.arena.fit(order, need.bytes, need.align).is_some()
    }

    /// The segments, and the used pieces: live blocks and, unless slabs are ignored, entire slabs
    /// with a live block.
    pub fn space(&self, has_slabs: bool) -> Space {
        let used =
            self.context.blocks.slots().into_iter().filter(|slot| slot.is_live()).map(|slot| {
                match slot.is_small() && has_slabs {
                    true => {
                        let slab = slot.piece();
                        Extent { start: self.arena.start(slab), bytes: self.arena.bytes(slab) }
                    }
                    false => Extent { start: slot.address(), bytes: slot.bytes() },
                }
            });
        let segments = self.arena.segments().map(|of| Extent { start: of.start, bytes: of.bytes });
        Space::new(segments.collect(), used.collect())
    }

    /// Bytes of the longest contiguous free range, of any order, or of the largest free block.
    pub fn largest(&self) -> u64 {
        let free =
            self.context.blocks.slots().into_iter().filter(|slot| !slot.is_live()).map(|slot| slot.bytes());
        free.max().unwrap_or(0).max(self.space(true).largest_free())
    }
}

/// How the ordering tags of shared memory change.
impl Shared {
    fn has(&self, order: OrderTag) -> bool {
        self.arena.has(order) || self.slabs.has(order)
    }

    /// Changes the order of all free memory of `from` to `to`.
    fn retag(&mut self, from: OrderTag, to: OrderTag) {
        self.arena.retag(from, to);
        self.slabs.retag(from, to);
    }

    /// Moves free memory that was behind an event, or unmarked, to another order.
    fn move_order(&mut self, from: OrderTag, to: OrderTag) {
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
        self.orders.behind(key).into_iter().for_each(|order| self.move_order(order, own));
    }

    /// The orders without a known point in a stream. Called after all streams were fenced, it
    /// includes the orders of streams that are about to end.
    pub fn unmarked(&self) -> Vec<OrderTag> {
        let ending = self.orders.of_streams().filter(|order| self.has(*order));
        self.orders.unmarked().chain(ending).collect()
    }

    /// Marks free memory of that order idle.
    pub fn mark_idle(&mut self, order: OrderTag) {
        self.move_order(order, OrderTag::IDLE);
    }

    /// Polls the events of up to `max_busy` unfinished streams. Memory behind completed events
    /// becomes idle.
    pub fn poll(&mut self, max_busy: usize) {
        self.orders.completed(max_busy).into_iter().for_each(|order| self.mark_idle(order));
    }

    /// The orders behind events, oldest first.
    pub fn pending(&self) -> Vec<(OrderTag, Event)> {
        self.orders.pending()
    }

    /// Makes `stream` wait for all events. The memory behind them moves to the stream's order.
    pub fn follow_all(&mut self, stream: &Stream, own: OrderTag) -> Result<()> {
        for (order, event) in self.pending() {
            if self.has(order) {
                stream.wait(&event)?;
            }
            self.move_order(order, own);
        }
        Ok(())
    }
}

#[cfg(test)]
impl Shared {
    /// I1, and the invariants of the parts.
    pub fn check(&self) {
        let all = self.arena.orders().chain(self.slabs.orders());
        all.for_each(|order| assert!(self.orders.has(order), "I1: {order:?}"));
        self.orders.check();
        self.arena.check();
        self.owners.values().for_each(|cache| cache.bins().extents.check(&self.arena));
        self.slabs.check(|node| self.arena.order(node).is_none());
    }
}

/// The ordering tags of free memory: on a stream, behind an event, or idle.
///
/// ```text
/// stream 7 ─► order 3 ── marked ──► order 5, behind an event of stream 7 ── completed ──► idle
///                       └ marking fails ─► order 6, unmarked ── device synchronised ─┘
/// ```
///
/// I1: memory of a stream's order may be in use by work that was submitted to this stream before;
/// memory behind an event, by work before that event; unmarked memory, by any work; idle memory, by
/// none. I2: an order is behind an event, unmarked, or a stream's own; exactly one of these.
struct OrderTable {
    of_stream: HashMap<Key, (OrderTag, Arc<StreamCache>), FixedState>,
    /// The stream is recorded as well: its events complete in the order in which they were
    /// recorded.
    behind: BTreeMap<OrderTag, (Key, Event)>,
    /// Orders of streams without a marked point (the driver call failed): idle once the device has
    /// completed all work submitted before.
    unmarked: Vec<OrderTag>,
    next: u64,
}

impl OrderTable {
    pub fn new() -> OrderTable {
        OrderTable {
            of_stream: HashMap::default(),
            behind: BTreeMap::new(),
            unmarked: Vec::new(),
            next: OrderTag::IDLE.0 + 1,
        }
    }

    fn add(&mut self) -> OrderTag {
        self.next += 1;
        OrderTag(self.next - 1)
    }

    /// The ordering tag of memory freed on that cache's stream.
    pub fn of_cache(&mut self, cache: &Arc<StreamCache>) -> OrderTag {
        if cache.key == ANY_STREAM {
            return OrderTag::IDLE;
        }
        if let Some((order, _)) = self.of_stream.get(&cache.key) {
            return *order;
        }
        let order = self.add();
        self.of_stream.insert(cache.key, (order, cache.clone()));
        order
    }

    /// The order of a stream, if memory was ever freed on it.
    pub fn of_key(&self, key: Key) -> Option<OrderTag> {
        self.of_stream.get(&key).map(|(order, _)| *order)
    }

    /// Whether at most one stream uses the pool and no memory of another stream is pending.
    pub fn has_one_stream(&self) -> bool {
        self.of_stream.len() <= 1 && self.behind.is_empty() && self.unmarked.is_empty()
    }

    /// The orders of all streams.
    pub fn of_streams(&self) -> impl Iterator<Item = OrderTag> {
        self.of_stream.values().map(|(order, _)| *order)
    }

    /// Marks the current point of a stream. Returns the order for the memory that it has freed
    /// before. `None` if the memory keeps the stream's order: the stream is about to end, and the
    /// thread that finds it ended calls this again. `None` also for an unknown stream.
    pub fn mark(&mut self, key: Key, device: &Device) -> Option<OrderTag> {
        let cache = self.of_stream.get(&key)?.1.clone();
        let event = match cache.stream(device) {
            // It has passed every point.
            Some(stream) if stream.is_idle() => return Some(OrderTag::IDLE),
            Some(stream) => stream.record().ok(),
            None => match cache.end() {
                StreamEnd::At(event) => Some(Event::new(device.clone(), event)),
                StreamEnd::NotYet => return None,
                // The driver failed to record its last point.
                StreamEnd::Unknown => None,
            },
        };
        let order = self.add();
        match event {
            Some(event) => drop(self.behind.insert(order, (key, event))),
            None => self.unmarked.push(order),
        }
        Some(order)
    }

    /// Forgets a stream that has ended.
    pub fn forget(&mut self, key: Key) {
        self.of_stream.remove(&key);
    }

    /// Forgets an order that no memory has any more.
    pub fn clear(&mut self, order: OrderTag) {
        self.behind.remove(&order);
        self.unmarked.retain(|other| *other != order);
    }

    /// The orders behind events of one stream.
    pub fn behind(&self, key: Key) -> Vec<OrderTag> {
        let own = |(order, (stream, _)): (&OrderTag, &(Key, Event))| (*stream == key).then_some(*order);
        self.behind.iter().filter_map(own).collect()
    }

    /// The orders without a known point in a stream.
    pub fn unmarked(&self) -> impl Iterator<Item = OrderTag> {
        self.unmarked.iter().copied()
    }

    /// The orders whose events have completed. Polls events until `max_busy` streams were found
    /// unfinished.
    pub fn completed(&self, max_busy: usize) -> Vec<OrderTag> {
        let (mut done, mut busy) = (Vec::new(), HashSet::new());
        for (order, (key, event)) in &self.behind {
            if busy.contains(key) {
                continue;
            }
            match event.backend().is_done() {
                Ok(true) => done.push(*order),
                _ => drop(busy.insert(*key)),
            }
            if busy.len() == max_busy {
                break;
            }
        }
        done
    }

    /// The orders behind events, oldest first.
    pub fn pending(&self) -> Vec<(OrderTag, Event)> {
        self.behind.iter().map(|(order, (_, event))| (*order, event.clone())).collect()
    }
}

#[cfg(test)]
impl OrderTable {
    /// Whether the order is known.
    pub fn has(&self, order: OrderTag) -> bool {
        let known = self.of_streams().chain(self.unmarked()).chain(self.behind.keys().copied());
        order == OrderTag::IDLE || known.into_iter().any(|other| other == order)
    }

    /// I2.
    pub fn check(&self) {
        let is_own = |order: &OrderTag| self.of_streams().any(|own| own == *order);
        assert!(!self.behind.keys().any(is_own) && !self.unmarked.iter().any(is_own), "I2");
        assert!(!self.unmarked.iter().any(|order| self.behind.contains_key(order)), "I2");
    }
}
