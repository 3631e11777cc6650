//! Blocks that were freed on one stream. Later allocations on that stream need no synchronisation.
//!
//! I1: a block in a bin is free, and all work that may use it was submitted to the cache's stream
//! before. I2: after its stream has ended, a cache receives no more blocks. Its blocks may be in
//! use until the stream's last point; by then the cache is in the list of ended streams.
//!
//! The lock of a cache is a leaf: no other lock is taken under it, and no driver call is made. Only
//! threads that use one stream at the same time, or that take blocks from other streams' caches,
//! contend for it.

use super::super::lock;
use super::bins::{Bins, FreeOutcome};
use super::block_table::{BlockId, BlockTable, Claim};
use super::class::{Classes, Need};
use super::order_table::OrderTag;
use super::segment::Arena;
use super::stats::Counts;
use crate::driver::{Device, EventBackend, Stream, StreamWatcher, WeakStream};
use crate::error::Result;
use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Key of a stream within a pool: its number, or [`ANYONE`].
pub(super) type Key = u64;
/// Key in a pool that is not stream-ordered: one cache for all streams.
pub(super) const ANYONE: Key = 0;

pub(super) struct StreamCache {
    pub key: Key,
    /// Stored in the slots of blocks that are cut from the cache's extents.
    pub owner: u32,
    stream: WeakStream,
    bins: Mutex<Bins>,
    end: Mutex<End>,
    ended: Arc<Ended>,
}

/// State of a stream's last point.
#[derive(Default)]
pub(super) enum End {
    /// The stream exists, or is about to end.
    #[default]
    NotYet,
    At(Arc<dyn EventBackend>),
    /// The driver could not record an event.
    Unknown,
}

/// Streams that have ended and still have caches to flush.
#[derive(Default)]
pub(super) struct Ended {
    keys: Mutex<Vec<Key>>,
    /// The pool has been dropped.
    closed: AtomicBool,
}

impl Ended {
    pub fn take(&self) -> Vec<Key> {
        std::mem::take(&mut lock(&self.keys))
    }

    /// Whether the list of ended streams is empty.
    pub fn is_empty(&self) -> bool {
        lock(&self.keys).is_empty()
    }

    /// Marks the pool as dropped.
    pub fn close(&self) {
        // ordering: relaxed; a hint that publishes no other data (see the load in `ended`).
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl StreamCache {
    /// Creates a cache for `stream`. The reference may be empty: then the cache belongs to no
    /// stream.
    pub fn new(
        (key, owner): (Key, u32),
        stream: WeakStream,
        ended: Arc<Ended>,
        classes: Classes,
    ) -> StreamCache {
        let bins = Mutex::new(Bins::new(classes, owner));
        StreamCache { key, owner, stream, bins, end: Mutex::default(), ended }
    }

    /// Allocates a cached block. The block is live on return.
    #[inline(always)]
    pub fn take(&self, need: &Need, layout: Layout, is_tight: bool, live: &BlockTable) -> Option<u64> {
        lock(&self.bins).take(need, layout, is_tight, live)
    }

    /// Frees a block that this cache allocated recently.
    #[inline]
    pub fn take_back(&self, address: u64, layout: Layout, is_tight: bool, live: &BlockTable) -> FreeOutcome {
        let mut bins = lock(&self.bins);
        let known = bins.known(address).filter(|claim| live.claim_known(*claim, address, layout));
        known.map_or(FreeOutcome::Unknown, |claim| bins.keep(claim.id, layout.size() as u64, is_tight, live))
    }

    /// Keeps a free block in the bin of its class.
    #[inline]
    pub fn keep(&self, id: BlockId, asked: u64, is_tight: bool, live: &BlockTable) -> FreeOutcome {
        lock(&self.bins).keep(id, asked, is_tight, live)
    }

    /// Removes the surplus blocks of a class.
    pub fn overflow(&self, class: u16, most: u16, live: &BlockTable) -> Vec<BlockId> {
        lock(&self.bins).overflow(class, most, live)
    }

    /// [`Bins::adopt`] for each of `pieces`, then [`Bins::cut_out`], under the shared
    /// lock. Both happen under one lock of the cache, so that no other thread of the stream takes
    /// the new extents in between.
    pub fn adopt(
        &self,
        shared: &mut Arena,
        pieces: impl IntoIterator<Item = u32>,
        need: Need,
        live: &BlockTable,
    ) -> Option<BlockId> {
        let mut bins = lock(&self.bins);
        pieces.into_iter().for_each(|piece| bins.adopt(shared, piece));
        bins.cut_out(need, live)
    }

    /// Forwards to [`Bins::cut_out`].
    pub fn cut_out(&self, need: Need, live: &BlockTable) -> Option<BlockId> {
        lock(&self.bins).cut_out(need, live)
    }

    /// Forwards to [`Bins::let_go`]. Called under the shared lock.
    pub fn let_go(&self, shared: &mut Arena, id: BlockId, live: &BlockTable) -> u32 {
        lock(&self.bins).let_go(shared, id, live)
    }

    /// Forwards to [`Bins::let_go_free`]. Called under the shared lock.
    pub fn let_go_free(&self, shared: &mut Arena, order: OrderTag, all: bool) {
        lock(&self.bins).let_go_free(shared, order, all);
    }

    /// Forwards to [`Bins::lend`]. Called under the shared lock.
    pub fn lend(&self, shared: &mut Arena, bytes: u64, align: u64) -> Option<u32> {
        lock(&self.bins).lend(shared, bytes, align)
    }

    /// Whether the cache has extents. The answer stays valid only under the shared lock.
    pub fn has_extents(&self) -> bool {
        lock(&self.bins).has_extents()
    }

    /// Whether the cache was used since the last call.
    pub fn was_used(&self) -> bool {
        lock(&self.bins).was_used()
    }

    /// Retires the cache.
    pub fn retire(&self, live: &BlockTable) {
        lock(&self.bins).retire(live);
    }

    /// Counts a block that was not served from the cache.
    pub fn count_miss(&self, claim: Claim, asked: u64, live: &BlockTable) {
        lock(&self.bins).count_miss(claim, asked, live);
    }

    /// Keeps the further blocks of a refill.
    pub fn stock(&self, class: usize, more: &[BlockId], live: &BlockTable) {
        lock(&self.bins).stock(class, more, live);
    }

    /// Locks the bins, for a check of the bins of all streams at one moment.
    pub fn bins(&self) -> MutexGuard<'_, Bins> {
        lock(&self.bins)
    }

    /// Removes all cached blocks of the classes that `which` accepts.
    pub fn drain(&self, which: impl Fn(usize) -> bool, live: &BlockTable) -> Vec<BlockId> {
        lock(&self.bins).drain(which, live)
    }

    /// Adds the cache's counts.
    pub fn count(&self, counts: &mut Counts) {
        lock(&self.bins).count(counts);
    }

    /// A handle of the cache's stream, if the stream still exists.
    pub fn stream(&self, device: &Device) -> Option<Stream> {
        self.stream.upgrade(device)
    }

    /// The stream's last point, once it has ended.
    pub fn end(&self) -> End {
        match &*lock(&self.end) {
            End::NotYet => End::NotYet,
            End::At(event) => End::At(event.clone()),
            End::Unknown => End::Unknown,
        }
    }
}

#[cfg(test)]
impl StreamCache {
    /// The invariants of the cache's extents.
    pub fn check(&self, shared: &Arena) {
        lock(&self.bins).check(shared);
    }
}

impl StreamWatcher for StreamCache {
    fn ended(&self, last: &dyn Fn() -> Result<Arc<dyn EventBackend>>) {
        // ordering: relaxed; a pool that is being dropped waits for its streams itself, and after
        // that no code reads what is written here.
        if self.ended.closed.load(Ordering::Relaxed) {
            return;
        }
        *lock(&self.end) = last().map_or(End::Unknown, End::At);
        lock(&self.ended.keys).push(self.key);
    }
}
