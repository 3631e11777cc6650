//! What was freed on a stream, and is handed out to its later work without anyone's leave.
//!
//! I1: a block in a bin is nobody's, and work that may use it was given to the cache's stream before. I2: a cache whose stream has
//! ended gets no more blocks; what it has may be in use until the stream's last point, and by then it is in the list of ended ones.
//!
//! The lock of a cache is a leaf: nothing else is locked under it, and no driver is called. Only threads that use one stream at a time, or take
//! from others' caches, meet there.

use super::super::lock;
use super::bins::{Back, Bins};
use super::class::{Classes, Need};
use super::live::{BlockId, Claim, Live};
use super::orders::Order;
use super::segment::Arena;
use super::stats::Counts;
use crate::driver::{Device, EventBackend, Stream, StreamWatcher, WeakStream};
use crate::error::Result;
use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a stream is to a pool: its number, or [`ANYONE`].
pub(super) type Key = u64;
/// Of a pool that does not order by streams: one cache for all.
pub(super) const ANYONE: Key = 0;

pub(super) struct StreamCache {
    pub key: Key,
    /// In the slots of blocks that are cut out of its extents.
    pub owner: u32,
    stream: WeakStream,
    bins: Mutex<Bins>,
    end: Mutex<End>,
    ended: Arc<Ended>,
}

/// What is known of a stream's last point.
#[derive(Default)]
pub(super) enum End {
    /// The stream is there, or is about to end.
    #[default]
    NotYet,
    At(Arc<dyn EventBackend>),
    /// The driver could not mark it.
    Unknown,
}

/// Streams that have ended, and whose caches are still to be emptied.
#[derive(Default)]
pub(super) struct Ended {
    keys: Mutex<Vec<Key>>,
    /// The pool is gone.
    closed: AtomicBool,
}

impl Ended {
    pub fn take(&self) -> Vec<Key> {
        std::mem::take(&mut lock(&self.keys))
    }

    /// Whether all that have ended were taken.
    pub fn is_empty(&self) -> bool {
        lock(&self.keys).is_empty()
    }

    /// The pool goes.
    pub fn close(&self) {
        // ordering: relaxed; as where it is read.
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl StreamCache {
    /// Of `stream`; of nobody if there is none.
    pub fn new(
        (key, owner): (Key, u32),
        stream: WeakStream,
        ended: Arc<Ended>,
        classes: Classes,
    ) -> StreamCache {
        let bins = Mutex::new(Bins::new(classes, owner));
        StreamCache { key, owner, stream, bins, end: Mutex::default(), ended }
    }

    /// A cached block for a request, live.
    #[inline(always)]
    pub fn take(&self, need: &Need, layout: Layout, is_tight: bool, live: &Live) -> Option<u64> {
        lock(&self.bins).take(need, layout, is_tight, live)
    }

    /// Takes a block back that went out from here not long ago.
    #[inline]
    pub fn take_back(&self, address: u64, layout: Layout, is_tight: bool, live: &Live) -> Back {
        let mut bins = lock(&self.bins);
        let known = bins.known(address).filter(|claim| live.claim_known(*claim, address, layout));
        known.map_or(Back::Unknown, |claim| bins.keep(claim.id, layout.size() as u64, is_tight, live))
    }

    /// Keeps a block that nobody has, in the bin of its own class.
    #[inline]
    pub fn keep(&self, id: BlockId, asked: u64, is_tight: bool, live: &Live) -> Back {
        lock(&self.bins).keep(id, asked, is_tight, live)
    }

    /// Takes out what is too many of a class.
    pub fn overflow(&self, class: u16, most: u16, live: &Live) -> Vec<BlockId> {
        lock(&self.bins).overflow(class, most, live)
    }

    /// [`Bins::adopt`] for each of `homes`, then [`Bins::cut_out`], under the lock of what all
    /// share. Both are under one lock of the cache: no other thread of the stream takes the new
    /// extents in between.
    pub fn adopt(
        &self,
        shared: &mut Arena,
        homes: impl IntoIterator<Item = u32>,
        need: Need,
        live: &Live,
    ) -> Option<BlockId> {
        let mut bins = lock(&self.bins);
        homes.into_iter().for_each(|home| bins.adopt(shared, home));
        bins.cut_out(need, live)
    }

    /// As [`Bins::cut_out`].
    pub fn cut_out(&self, need: Need, live: &Live) -> Option<BlockId> {
        lock(&self.bins).cut_out(need, live)
    }

    /// As [`Bins::let_go`], under the lock of what all share.
    pub fn let_go(&self, shared: &mut Arena, id: BlockId, live: &Live) -> u32 {
        lock(&self.bins).let_go(shared, id, live)
    }

    /// As [`Bins::let_go_free`], under the lock of what all share.
    pub fn let_go_free(&self, shared: &mut Arena, order: Order, all: bool) {
        lock(&self.bins).let_go_free(shared, order, all);
    }

    /// As [`Bins::lend`], under the lock of what all share.
    pub fn lend(&self, shared: &mut Arena, bytes: u64, align: u64) -> Option<u32> {
        lock(&self.bins).lend(shared, bytes, align)
    }

    /// Whether it has extents. Only under the lock of what all share does it stay so.
    pub fn has_extents(&self) -> bool {
        lock(&self.bins).has_extents()
    }

    /// Whether it was used since the last look.
    pub fn was_used(&self) -> bool {
        lock(&self.bins).was_used()
    }

    /// The cache ends.
    pub fn retire(&self, live: &Live) {
        lock(&self.bins).retire(live);
    }

    /// Counts a block that came from elsewhere.
    pub fn count_miss(&self, claim: Claim, asked: u64, live: &Live) {
        lock(&self.bins).count_miss(claim, asked, live);
    }

    /// Keeps blocks that came with one that was asked for.
    pub fn stock(&self, class: usize, more: &[BlockId], live: &Live) {
        lock(&self.bins).stock(class, more, live);
    }

    /// Its bins, for who looks at those of all streams at one moment.
    pub fn bins(&self) -> MutexGuard<'_, Bins> {
        lock(&self.bins)
    }

    /// Takes out all cached blocks of the classes that `which` says.
    pub fn drain(&self, which: impl Fn(usize) -> bool, live: &Live) -> Vec<BlockId> {
        lock(&self.bins).drain(which, live)
    }

    /// Adds what it counted.
    pub fn count(&self, counts: &mut Counts) {
        lock(&self.bins).count(counts);
    }

    /// A handle of its stream, if there is still one.
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
    /// The invariants of its extents.
    pub fn check(&self, shared: &Arena) {
        lock(&self.bins).check(shared);
    }
}

impl StreamWatcher for StreamCache {
    fn ended(&self, last: &dyn Fn() -> Result<Arc<dyn EventBackend>>) {
        // ordering: relaxed; a pool that goes waits for its streams itself, and then nobody reads what is written here.
        if self.ended.closed.load(Ordering::Relaxed) {
            return;
        }
        *lock(&self.end) = last().map_or(End::Unknown, End::At);
        lock(&self.ended.keys).push(self.key);
    }
}
