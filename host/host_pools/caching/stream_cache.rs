//! Blocks that were freed on one stream. Later allocations on that stream need no synchronisation.
//!
//! I1: a block in a bin is free, and all work that may use it was submitted to the cache's stream
//! before. I2: after its stream has ended, a cache receives no more blocks. Its blocks may be in
//! use until the stream's last point; by then the cache is in the list of ended streams.
//!
//! Under the lock of a cache only the locks of the block map are taken, and no driver call is made.
//! Only threads that use one stream at the same time, or that take blocks from other streams'
//! caches, contend for it.

use super::bins::{Bins, FreeOutcome};
use super::block_map::BlockMap;
use super::class::{Classes, Need};
use super::order_tag::Key;
use crate::driver::{Device, EventBackend, Stream, StreamWatcher, WeakStream};
use crate::error::Result;
use crate::lock::lock;
use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) struct StreamCache {
    pub key: Key,
    /// Stored in the slots of blocks that are cut from the cache's extents.
    pub owner: u32,
    stream: WeakStream,
    bins: Mutex<Bins>,
    end: Mutex<StreamEnd>,
    ended: Arc<EndedStreams>,
}

/// State of a stream's last point.
#[derive(Clone, Default)]
pub(super) enum StreamEnd {
    /// The stream exists, or is about to end.
    #[default]
    NotYet,
    At(Arc<dyn EventBackend>),
    /// The driver could not record an event.
    Unknown,
}

/// Streams that have ended and still have caches to flush.
#[derive(Default)]
pub(super) struct EndedStreams {
    keys: Mutex<Vec<Key>>,
    /// The pool has been dropped.
    closed: AtomicBool,
}

impl EndedStreams {
    pub fn take(&self) -> Vec<Key> {
        std::mem::take(&mut lock(&self.keys))
    }

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
        ended: Arc<EndedStreams>,
        classes: Classes,
    ) -> StreamCache {
        let bins = Mutex::new(Bins::new(classes, owner));
        StreamCache { key, owner, stream, bins, end: Mutex::default(), ended }
    }

    /// Allocates a cached block. The block is live on return.
    #[inline(always)]
    pub fn alloc(&self, need: &Need, layout: Layout, merges: bool, live: &BlockMap) -> Option<u64> {
        lock(&self.bins).alloc(need, layout, merges, live)
    }

    /// Frees a block that this cache allocated recently.
    #[inline]
    pub fn free_recent(&self, address: u64, layout: Layout, merges: bool, live: &BlockMap) -> FreeOutcome {
        let mut bins = lock(&self.bins);
        let Some(claim) = bins.take_recent(address) else { return FreeOutcome::Unknown };
        match live.claim_known(claim, address, layout) {
            Some(slot) => bins.free((claim.id, slot), layout.size() as u64, merges, live),
            None => FreeOutcome::Unknown,
        }
    }

    /// Locks the bins. Calls that change extents also need the shared lock, under which their
    /// results stay valid.
    #[inline]
    pub fn bins(&self) -> MutexGuard<'_, Bins> {
        lock(&self.bins)
    }

    /// A handle of the cache's stream, if the stream still exists.
    pub fn stream(&self, device: &Device) -> Option<Stream> {
        self.stream.upgrade(device)
    }

    /// The stream's last point, once it has ended.
    pub fn end(&self) -> StreamEnd {
        lock(&self.end).clone()
    }
}

impl StreamWatcher for StreamCache {
    fn ended(&self, last: &dyn Fn() -> Result<Arc<dyn EventBackend>>) {
        // ordering: relaxed; a pool that is being dropped waits for its streams itself, and after
        // that no code reads what is written here.
        if self.ended.closed.load(Ordering::Relaxed) {
            return;
        }
        *lock(&self.end) = last().map_or(StreamEnd::Unknown, StreamEnd::At);
        lock(&self.ended.keys).push(self.key);
    }
}
