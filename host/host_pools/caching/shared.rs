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

mod orders;

use super::arena::Arena;
use super::block_map::{BlockId, BlockMap};
use super::class::{Classes, Need};
use super::order_table::OrderTable;
use super::order_tag::OrderTag;
use super::slabs::{Slabs, slab_blocks};
use super::slot::{BlockInfo, SHARED};
use super::stats::Counts;
use super::stream_cache::StreamCache;
use crate::report::{Extent, Space};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of unfinished streams that are polled before a first search.
pub(super) const MAX_BUSY: usize = 16;

/// Maximum number of other free pieces of the stream that become extents together with the piece
/// that a request needs.
const MAX_OTHERS: usize = 32;

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

    /// Frees blocks that are in no cache.
    pub fn free(&mut self, blocks: Vec<BlockId>, order: OrderTag, live: &BlockMap) {
        for id in blocks {
            let slot = live.slot(id);
            match slot.class().filter(|_| slot.is_small()) {
                Some(class) => self.slabs.free(id, slot.piece(), class, order),
                None => {
                    let node = self.release_piece(id, live);
                    self.arena.free(node, order);
                }
            }
        }
    }

    /// Returns the piece of a large free block and forgets the block. If it was cut from an extent,
    /// the piece leaves the extent.
    fn release_piece(&mut self, id: BlockId, live: &BlockMap) -> u32 {
        let (owner, node) = (live.slot(id).owner(), live.slot(id).piece());
        let Some(cache) = self.owners.get(&owner).filter(|_| owner != SHARED) else {
            live.remove(id);
            return node;
        };
        let node = cache.bins().extents.release_block(&mut self.arena, id, live);
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
    fn adopt(&mut self, node: u32, need: Need, cache: &Arc<StreamCache>, live: &BlockMap) -> Option<BlockId> {
        let (start, bytes) = (self.arena.start(node), self.arena.bytes(node));
        let min = start.next_multiple_of(need.align) - start + need.bytes;
        let wanted = min.max(self.extent);
        // A piece that only this stream can use becomes an extent undivided. So does a
        // piece if its remainder would be smaller than an extent.
        let is_own = self.arena.order(node) != Some(OrderTag::IDLE) || self.orders.has_one_stream();
        let is_undivided = is_own || bytes - wanted.min(bytes) < self.extent;
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
        bins.extents.cut(&need, live).map(|(id, _)| id)
    }

    /// Allocates a block of one of `orders` for a cache. For a small class, up to `max - 1`
    /// further blocks go to the cache.
    pub fn find(
        &mut self,
        orders: &[OrderTag],
        need: Need,
        max: usize,
        cache: &Arc<StreamCache>,
        live: &BlockMap,
    ) -> Option<BlockId> {
        if let (true, Some(class)) = (need.is_small, need.class) {
            return orders.iter().find_map(|order| {
                let mut more = self.slabs.alloc(*order, class, max, live);
                let id = more.pop()?;
                // Under this lock, a thread that flushes all caches finds these blocks in the
                // cache.
                cache.bins().refill(class, &more, live);
                Some(id)
            });
        }
        let fits = orders.iter().filter_map(|order| self.arena.fit(*order, need.bytes, need.align));
        let node = fits.min_by_key(|node| self.arena.bytes(*node))?;
        if need.class.is_some() && cache.owner != SHARED {
            return self.adopt(node, need, cache, live);
        }
        let node = self.arena.cut(node, need.bytes, need.align);
        let (address, owner, piece) = (self.arena.start(node), SHARED, node);
        let Need { bytes, class, .. } = need;
        Some(live.insert(BlockInfo { address, bytes, owner, piece, class, is_small: false }))
    }

    /// Cuts a slab for a class from a piece of one of `orders`. With `any_size`, the slab is as
    /// large as fits.
    pub fn add_slab(&mut self, orders: &[OrderTag], class: usize, any_size: bool, live: &BlockMap) -> bool {
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
    /// gets `to`. A slab stays if `accepts` rejects the order of one of its blocks.
    pub fn dissolve(&mut self, accepts: impl Fn(OrderTag) -> bool, to: Option<OrderTag>, live: &BlockMap) {
        for (node, order) in self.slabs.dissolve(accepts, to, live) {
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
    pub fn space(&self, live: &BlockMap, has_slabs: bool) -> Space {
        let used = live.slots().into_iter().filter(|slot| slot.is_live()).map(|slot| {
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
    pub fn largest(&self, live: &BlockMap) -> u64 {
        let free = live.slots().into_iter().filter(|slot| !slot.is_live()).map(|slot| slot.bytes());
        free.max().unwrap_or(0).max(self.space(live, true).largest_free())
    }
}

#[cfg(test)]
impl Shared {
    /// I1, and the invariants of the parts.
    pub fn check(&self, live: &BlockMap) {
        let all = self.arena.orders().chain(self.slabs.orders());
        all.for_each(|order| assert!(self.orders.has(order), "I1: {order:?}"));
        self.orders.check();
        self.arena.check();
        self.owners.values().for_each(|cache| cache.bins().extents.check(&self.arena));
        self.slabs.check(live, |node| self.arena.order(node).is_none());
    }
}
