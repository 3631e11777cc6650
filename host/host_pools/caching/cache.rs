//! The caches of a pool, one for each stream: the blocks that were freed on it. Later allocations
//! on that stream need no synchronisation.
//!
//! ```text
//!   thread ── recent ──► cache of a stream ──► bins, by class:
//!                └ miss ─► map of all streams' caches        class 2   │ 2048 │ 2048 │ …
//!                                                            class 13  │ 2.5 MiB │ 3 MiB │ …
//! ```
//!
//! A thread finds its recently used caches without a lock.
//!
//! Under the lock of a cache only the locks of the block map are taken, and no driver call is made.
//! Only threads that use one stream at the same time, or that take blocks from other streams'
//! caches, contend for it.

use super::blocks::{BlockId, Claim, SHARED, Slot};
use super::class::Need;
use super::context::{Context, Settings};
use super::extents::Extents;
use super::stats::{Counts, Tally};
use crate::driver::{Device, EventBackend, Stream, StreamId, StreamWatcher, WeakStream};
use crate::error::Result;
use crate::lock::{lock, read, write};
use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, RwLock, Weak};

/// Key of a stream within a pool: its number, or [`ANY_STREAM`].
pub(super) type Key = u64;

/// Key in a pool that is not stream-ordered: one cache for all streams.
pub(super) const ANY_STREAM: Key = 0;

/// Number of caches that a thread remembers.
const MAX_RECENT: usize = 16;

/// All caches of a pool, by stream.
pub(super) struct Streams {
    /// Identifies the pool: no two pools have the same number.
    pool: usize,
    all: RwLock<HashMap<Key, Arc<StreamCache>, foldhash::fast::FixedState>>,
    pub ended: Arc<EndedStreams>,
    /// Caches of ended streams, which threads may still remember.
    removed: Mutex<Vec<Weak<StreamCache>>>,
    context: Arc<Context>,
    /// Number of caches created.
    created: AtomicUsize,
}

struct Recent {
    pool: usize,
    cache: Arc<StreamCache>,
}

thread_local! {
    /// By pool and stream. An unused cache stays until another one replaces it. After the pool was
    /// dropped, it is empty and holds nothing of the pool.
    static RECENT: RefCell<[Option<Recent>; MAX_RECENT]> = const { RefCell::new([const { None }; MAX_RECENT]) };
}

impl Streams {
    pub fn new(context: Arc<Context>) -> Streams {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // ordering: relaxed; only the uniqueness of the number matters.
        let pool = NEXT.fetch_add(1, Ordering::Relaxed);
        let (all, ended, removed) = Default::default();
        Streams { pool, all, ended, removed, context, created: AtomicUsize::new(0) }
    }

    fn key(&self, id: StreamId) -> Key {
        if self.context.settings.is_ordered { id.number() } else { ANY_STREAM }
    }

    /// Calls `access` with the stream's cache, which is created on first use.
    #[inline(always)]
    pub fn with<R>(&self, stream: &Stream, access: impl FnOnce(&StreamCache) -> R) -> R {
        let key = self.key(stream.id());
        let mut access = Some(access);
        let index = (key as usize ^ self.pool) % MAX_RECENT;
        let found = RECENT.try_with(|all| {
            let all = all.try_borrow().ok()?;
            let recent = all[index].as_ref()?;
            let is_it = recent.pool == self.pool && recent.cache.key == key;
            if is_it { access.take().map(|access| access(&recent.cache)) } else { None }
        });
        if let Ok(Some(done)) = found {
            return done;
        }
        let cache = self.get(stream);
        // Fails while the thread is being destroyed.
        let _ = RECENT.try_with(|all| {
            let recent = Some(Recent { pool: self.pool, cache: cache.clone() });
            let replaced = all.try_borrow_mut().map(|mut all| std::mem::replace(&mut all[index], recent));
            drop(replaced);
        });
        match access {
            Some(access) => access(&cache),
            // If `access` had been called above, there would be a result.
            None => unreachable!("a closure is called once"),
        }
    }

    /// The stream's cache, created on first use.
    #[cold]
    pub fn get(&self, stream: &Stream) -> Arc<StreamCache> {
        let key = self.key(stream.id());
        if let Some(cache) = read(&self.all).get(&key) {
            return cache.clone();
        }
        let mut all = write(&self.all);
        let make = || {
            let is_ordered = self.context.settings.is_ordered;
            let weak = if is_ordered { stream.downgrade() } else { WeakStream::default() };
            // ordering: relaxed; under the lock of the map. Beyond 2^32 a cache has no extents.
            let owner = self.created.fetch_add(1, Ordering::Relaxed) + 1;
            let owner = u32::try_from(owner).unwrap_or(SHARED);
            let cache = StreamCache::new((key, owner), weak, self.ended.clone(), self.context.clone());
            let cache = Arc::new(cache);
            if is_ordered {
                let watcher: Arc<dyn StreamWatcher> = cache.clone();
                stream.watch(Arc::downgrade(&watcher));
            }
            cache
        };
        all.entry(key).or_insert_with(make).clone()
    }

    /// All caches, in the order in which their streams were created.
    pub fn all(&self) -> Vec<Arc<StreamCache>> {
        let mut all: Vec<_> = read(&self.all).values().cloned().collect();
        all.sort_unstable_by_key(|cache| cache.key);
        all
    }

    /// Whether no stream's cache keeps a block, checked over all caches at one moment.
    pub fn is_empty(&self) -> bool {
        // The read lock prevents the creation of caches in the meantime.
        let all = read(&self.all);
        // No other code locks two caches.
        let locked: Vec<_> = all.values().map(|cache| cache.bins()).collect();
        locked.iter().all(|bins| bins.is_empty())
    }

    /// Number of streams that have a cache.
    pub fn count(&self) -> usize {
        read(&self.all).len()
    }

    /// Removes the cache of a stream that has ended.
    pub fn remove(&self, key: Key) -> Option<Arc<StreamCache>> {
        let cache = write(&self.all).remove(&key)?;
        let mut removed = lock(&self.removed);
        removed.retain(|cache| cache.strong_count() > 0);
        removed.push(Arc::downgrade(&cache));
        Some(cache)
    }

    /// Empties all caches that threads may remember after the pool was dropped.
    pub fn empty_remembered(&self) {
        let removed = lock(&self.removed);
        let removed = removed.iter().filter_map(Weak::upgrade);
        self.all().into_iter().chain(removed).for_each(|cache| cache.bins().close());
    }
}

/// Blocks that were freed on one stream.
///
/// I1: a block in a bin is free, and all work that may use it was submitted to the cache's stream
/// before. I2: after its stream has ended, a cache receives no more blocks. Its blocks may be in
/// use until the stream's last point; by then the cache is in the list of ended streams.
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

    /// The pool is being dropped: it ignores streams that end later.
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
        context: Arc<Context>,
    ) -> StreamCache {
        let bins = Mutex::new(Bins::new(context, owner));
        StreamCache { key, owner, stream, bins, end: Mutex::default(), ended }
    }

    /// Allocates a cached block. The block is live on return.
    #[inline(always)]
    pub fn alloc(&self, need: &Need, layout: Layout) -> Option<u64> {
        lock(&self.bins).alloc(need, layout)
    }

    /// Frees a block that this cache allocated recently.
    #[inline]
    pub fn free_recent(&self, address: u64, layout: Layout) -> FreeOutcome {
        lock(&self.bins).free_recent(address, layout)
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

/// Large blocks of at least this size are not cached once free memory has reached its limit: a
/// coalesced block serves later requests better.
const LARGE: u64 = 1 << 20;
/// Number of recently allocated blocks that are recognised without the block map. A power of two.
const RECENT_BLOCKS: usize = 64;

/// Outcome of a free. It is small enough for a register; a list would go through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host_pools) enum FreeOutcome {
    Cached,
    /// Cached, and the class exceeds its limit ([`Bins::take_surplus`]).
    Overflow {
        class: u16,
        limit: u16,
    },
    /// The block is above all classes and was not cached.
    Huge(BlockId),
    /// The block is not known here, or is not live with that layout. Nothing was changed.
    Unknown,
}

/// The free blocks of one stream by class, its extents and its counters.
///
/// I1: a free block is in the bin of its class, once; a live block is in no bin. I2: a bin holds at
/// most [`bin_limit`] blocks, or one. It holds more until the thread that exceeded the limit has
/// removed the older half, or after several threads of a stream refilled it at once. I3: a block of
/// the cache's own extents that leaves its bin is merged into its extent; other blocks go to the
/// shared state.
pub(super) struct Bins {
    /// Recently allocated blocks, hashed by address: most are freed to this cache and need no
    /// lookup in the block map.
    recent: [Option<(u64, Claim)>; RECENT_BLOCKS],
    bins: Vec<Bin>,
    /// Counters of blocks above all classes.
    huge: Tally,
    /// The first class with blocks that are cut to the requested size.
    first_large: usize,
    /// The extents that large blocks are cut from.
    pub extents: Extents,
    /// Whether the cache was used since the last check.
    used: bool,
    context: Arc<Context>,
}

#[inline]
pub(super) fn recent_index(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - RECENT_BLOCKS.ilog2())) as usize
}

impl Bins {
    /// Creates empty bins. `owner` is the number of the cache, as stored in the slots of blocks.
    pub fn new(context: Arc<Context>, owner: u32) -> Bins {
        let classes = context.settings.classes;
        Bins {
            recent: [None; RECENT_BLOCKS],
            bins: (0..classes.count()).map(|_| Bin::default()).collect(),
            huge: Tally::default(),
            first_large: classes.first_large(),
            extents: Extents::new(context.clone(), owner),
            used: false,
            context,
        }
    }

    /// Allocates a block. It is live on return.
    #[inline(always)]
    pub fn alloc(&mut self, need: &Need, layout: Layout) -> Option<u64> {
        let class = need.class?;
        let bin = &mut self.bins[class];
        let entry = if need.is_small { bin.blocks.pop() } else { bin.pop_large(need) };
        match entry {
            Some(entry) => {
                bin.tally.alloc(entry.bytes, layout.size() as u64);
                Some(self.make_live(entry.id, entry.address, layout))
            }
            None if need.is_small => None,
            None => self.alloc_from_extent(class, need, layout),
        }
    }

    /// Makes a block live that the caller has counted.
    #[inline(always)]
    fn make_live(&mut self, id: BlockId, address: u64, layout: Layout) -> u64 {
        let claim = self.context.blocks.set_live(id, layout);
        self.recent[recent_index(address)] = Some((address, claim));
        self.used = true;
        address
    }

    /// Allocates a block from the extents. At the limit of free memory, cached large blocks are
    /// merged before the allocation fails.
    #[inline(never)]
    fn alloc_from_extent(&mut self, class: usize, need: &Need, layout: Layout) -> Option<u64> {
        let found = match self.extents.cut(need) {
            None if self.context.at_free_limit() => {
                self.merge_large();
                self.extents.cut(need)
            }
            found => found,
        };
        let (id, address) = found?;
        self.bins[class].tally.alloc(need.bytes, layout.size() as u64);
        Some(self.make_live(id, address, layout))
    }

    /// Merges cached large blocks into the cache's extents.
    fn merge_large(&mut self) {
        for bin in &mut self.bins[self.first_large..] {
            for index in (0..bin.blocks.len()).rev() {
                let Entry { id, bytes, .. } = bin.blocks[index];
                if bytes >= LARGE && self.extents.owns(id) {
                    bin.blocks.swap_remove(index);
                    self.extents.free(id);
                }
            }
        }
    }

    /// Drops all blocks and the context of the pool.
    fn close(&mut self) {
        static CLOSED: LazyLock<Arc<Context>> =
            LazyLock::new(|| Arc::new(Context::new(Settings::of_equal(String::new(), 1, 1))));
        *self = Bins::new(CLOSED.clone(), SHARED);
    }

    /// Whether the cache was used since the last call.
    pub fn was_used(&mut self) -> bool {
        std::mem::take(&mut self.used)
    }

    /// Frees a block that was allocated recently.
    #[inline]
    pub fn free_recent(&mut self, address: u64, layout: Layout) -> FreeOutcome {
        let Some(claim) = self.take_recent(address) else { return FreeOutcome::Unknown };
        match self.context.blocks.claim_known(claim, address, layout) {
            true => self.free(claim.id, layout.size() as u64),
            false => FreeOutcome::Unknown,
        }
    }

    /// Removes and returns the claim of a recently allocated block, if the address is known.
    #[inline]
    pub fn take_recent(&mut self, address: u64) -> Option<Claim> {
        self.recent[recent_index(address)].take_if(|(known, _)| *known == address).map(|(_, claim)| claim)
    }

    /// Caches a free block that was allocated with `requested` bytes. At the limit of free memory,
    /// a large block is merged into its extent instead.
    #[inline(always)]
    pub fn free(&mut self, id: BlockId, requested: u64) -> FreeOutcome {
        let slot = self.context.blocks.slot(id);
        let entry = Entry::new(id, slot);
        let Some(class) = slot.class() else {
            self.huge.free(entry.bytes, requested);
            return FreeOutcome::Huge(id);
        };
        self.used = true;
        let bin = &mut self.bins[class];
        bin.tally.free(entry.bytes, requested);
        if entry.bytes >= LARGE && self.context.at_free_limit() && self.extents.owns(id) {
            self.extents.free(id);
            return FreeOutcome::Cached;
        }
        bin.blocks.push(entry);
        // The first block is always kept: this skips the division that computes the limit.
        let cached = bin.blocks.len();
        if cached == 1 {
            return FreeOutcome::Cached;
        }
        let limit = bin_limit(entry.bytes, slot.is_small());
        if cached > limit { self.merge_older(class, limit) } else { FreeOutcome::Cached }
    }

    /// Merges the blocks of the cache's extents among the older half of a large class.
    #[inline(never)]
    fn merge_older(&mut self, class: usize, limit: usize) -> FreeOutcome {
        let blocks = &mut self.bins[class].blocks;
        if class >= self.first_large {
            // At most 16 blocks.
            for index in (0..blocks.len() / 2).rev() {
                if self.extents.owns(blocks[index].id) {
                    self.extents.free(blocks.remove(index).id);
                }
            }
        }
        match blocks.len() > limit {
            true => FreeOutcome::Overflow { class: class as u16, limit: limit as u16 },
            false => FreeOutcome::Cached,
        }
    }

    /// Removes the older half of a class, if it still has more than `limit` blocks: another thread
    /// may have done this in the meantime. Blocks of the cache's own extents are merged there; the
    /// others are returned.
    pub fn take_surplus(&mut self, class: u16, limit: u16) -> Vec<BlockId> {
        let blocks = &mut self.bins[usize::from(class)].blocks;
        if blocks.len() <= usize::from(limit) {
            return Vec::new();
        }
        let surplus = blocks.drain(..blocks.len() / 2).map(|entry| entry.id).collect();
        self.merge_own(surplus)
    }

    /// Removes all blocks of the classes that `which` accepts. Blocks of the cache's own extents
    /// are merged there; the others are returned.
    pub fn drain(&mut self, which: impl Fn(usize) -> bool) -> Vec<BlockId> {
        let all = self.bins.iter_mut().enumerate().filter(|(class, _)| which(*class));
        let blocks = all.flat_map(|(_, bin)| bin.blocks.drain(..)).map(|entry| entry.id).collect();
        self.merge_own(blocks)
    }

    /// Merges the blocks that belong to the cache's extents, and returns the others. All are free.
    fn merge_own(&mut self, mut blocks: Vec<BlockId>) -> Vec<BlockId> {
        blocks.retain(|id| {
            let is_own = self.extents.owns(*id);
            if is_own {
                self.extents.free(*id);
            }
            !is_own
        });
        blocks
    }

    /// Counts a live block that was not served from the cache.
    pub fn count_miss(&mut self, claim: Claim, requested: u64) {
        let slot = self.context.blocks.slot(claim.id);
        self.recent[recent_index(slot.address())] = Some((slot.address(), claim));
        let tally = slot.class().map_or(&mut self.huge, |class| &mut self.bins[class].tally);
        tally.alloc(slot.bytes(), requested);
        tally.misses += 1;
    }

    /// Caches the further blocks of a refill, in reverse: the first is allocated next.
    pub fn refill(&mut self, class: usize, more: &[BlockId]) {
        let entries = more.iter().rev().map(|id| Entry::new(*id, self.context.blocks.slot(*id)));
        self.bins[class].blocks.extend(entries);
    }

    /// Whether no block is cached and there is no extent.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.bins.iter().all(|bin| bin.blocks.is_empty())
    }

    /// Adds the counters.
    pub fn count(&self, counts: &mut Counts) {
        for (class, bin) in self.bins.iter().enumerate() {
            counts.add(Some(class), &bin.tally, bin.blocks.len());
        }
        counts.add(None, &self.huge, 0);
    }
}

/// A block above the slab limit serves a smaller request if it exceeds that request by at most
/// 1/16.
const SLACK: u64 = 16;
/// Limits on blocks and on bytes of a bin; both apply, but one block of any size is always kept. A
/// cached block does not coalesce with its neighbours: a higher limit on large blocks would strand
/// the memory between them.
const MAX_SMALL: u64 = 256;
const MAX_SMALL_BYTES: u64 = 4 << 20;
const MAX_LARGE: u64 = 32;
const MAX_LARGE_BYTES: u64 = 16 << 20;

/// The cached blocks of one class. Exactly two cache lines, aligned to a line.
///
/// ```text
/// class 2   │ 2048 │ 2048 │ 2048            equal blocks of slabs: last in, first out
/// class 13  │ 2.5 MiB │ 3 MiB │ 2.2 MiB      cut to the requested size: the smallest that fits
/// ```
#[derive(Default)]
#[repr(align(64))]
struct Bin {
    /// The most recently freed block is last.
    pub blocks: Vec<Entry>,
    pub tally: Tally,
}

/// A block with the size and address of its slot, which do not change while it is in a bin.
#[derive(Clone, Copy)]
struct Entry {
    pub id: BlockId,
    pub address: u64,
    pub bytes: u64,
}

impl Entry {
    #[inline]
    pub fn new(id: BlockId, slot: &Slot) -> Entry {
        Entry { id, address: slot.address(), bytes: slot.bytes() }
    }
}

impl Bin {
    /// Removes the smallest block that fits and is not too large.
    #[inline]
    pub fn pop_large(&mut self, need: &Need) -> Option<Entry> {
        let max = need.bytes + need.bytes / SLACK;
        let fits = |entry: &Entry| {
            (need.bytes..=max).contains(&entry.bytes) && entry.address & (need.align - 1) == 0
        };
        // The common case: the last block has exactly this size.
        if let Some(last) = self.blocks.pop_if(|last| last.bytes == need.bytes && fits(last)) {
            return Some(last);
        }
        let all = self.blocks.iter().enumerate().filter(|(_, entry)| fits(entry));
        let (found, _) = all.min_by_key(|(_, entry)| entry.bytes)?;
        Some(self.blocks.remove(found))
    }
}

fn small_limit(bytes: u64) -> usize {
    MAX_SMALL.min(MAX_SMALL_BYTES / bytes).max(2) as usize
}

fn large_limit(bytes: u64) -> usize {
    MAX_LARGE.min(MAX_LARGE_BYTES / bytes).max(1) as usize
}

/// Maximum number of blocks of a size that a bin keeps.
#[inline]
pub(super) fn bin_limit(bytes: u64, is_small: bool) -> usize {
    if is_small { small_limit(bytes) } else { large_limit(bytes) }
}

/// Number of small blocks of one refill, including the one that was requested.
pub(super) fn refill_count(need: Need) -> usize {
    if need.is_small { small_limit(need.bytes) / 4 } else { 1 }
}
