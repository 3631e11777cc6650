//! What was freed on a stream, and is handed out to its later work without anyone's leave.
//!
//! ```text
//!   thread ── recent ──► cache of a stream ── bins, by class ──► blocks, the last freed on top
//!                 └ miss ─► map of all streams' caches
//! ```
//!
//! I1: a block in a bin is nobody's, and work that may use it was given to the cache's stream before. I2: a cache whose stream has
//! ended gets no more blocks; what it has may be in use until the stream's last point, and by then it is in the list of ended ones.
//!
//! The lock of a cache is a leaf: nothing else is locked under it, and no driver is called. Only threads that use one stream at a time, or take
//! from others' caches, meet there.

use super::super::lock;
use super::class::{Classes, Need};
use super::live::{BlockId, Live};
use super::stats::{Counts, Tally};
use crate::driver::{Device, EventBackend, Stream, StreamId, StreamWatcher, WeakStream};
use crate::error::Result;
use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Blocks of a bin above the slabs' limit that are looked at, from the last freed on.
const LOOKS: usize = 8;
/// Such a block serves what is smaller by up to one in so many of its bytes.
const SLACK: u64 = 64;
/// Blocks that a bin keeps, and bytes, as long as both allow; but one block of any size. What is kept does not merge with its
/// neighbours: more large blocks would strand memory between them.
const MOST_SMALL: u64 = 256;
const MOST_SMALL_BYTES: u64 = 4 << 20;
const MOST_LARGE: u64 = 32;
const MOST_LARGE_BYTES: u64 = 16 << 20;
/// Blocks that a cache knows again without the map of all: a power of two.
const OUT: usize = 64;
/// Caches that a thread finds again without the map.
const RECENT: usize = 16;

/// What a stream is to a pool: its number, or [`ANYONE`].
pub(super) type Key = u64;
/// Of a pool that does not order by streams: one cache for all.
pub(super) const ANYONE: Key = 0;

pub(super) struct StreamCache {
    pub key: Key,
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
    /// Whether there are some.
    pub some: AtomicBool,
    keys: Mutex<Vec<Key>>,
    /// The pool is gone.
    closed: AtomicBool,
}

impl Ended {
    pub fn take(&self) -> Vec<Key> {
        // ordering: acquire; pairs with the release in `ended`; the key is in the list by then.
        if !self.some.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.keys))
    }
}

struct Bins {
    /// Blocks that went out last, by a mix of their address: most come back here, and are not looked up in the map of all.
    out: [Option<(u64, BlockId)>; OUT],
    bins: Vec<Bin>,
    /// Of what is above all classes.
    huge: Tally,
}

#[derive(Default)]
struct Bin {
    blocks: Vec<BlockId>,
    tally: Tally,
}

/// Where a block is in `out`.
#[inline]
fn place_of(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - OUT.ilog2())) as usize
}

impl Bins {
    #[inline]
    fn keep(&mut self, id: BlockId, asked: u64, live: &Live) -> Vec<BlockId> {
        let slot = live.slot(id);
        let (bytes, class, is_small) = (slot.bytes(), slot.class(), slot.is_small());
        self.tally(class).free(bytes, asked);
        let Some(class) = class else { return vec![id] };
        let bin = &mut self.bins[class].blocks;
        bin.push(id);
        // One is always kept, and what the most is takes a division.
        if bin.len() > 1 && bin.len() > most(bytes, is_small) { overflow(bin) } else { Vec::new() }
    }

    fn tally(&mut self, class: Option<usize>) -> &mut Tally {
        match class {
            Some(class) => &mut self.bins[class].tally,
            None => &mut self.huge,
        }
    }
}

impl StreamCache {
    /// Of `stream`; of nobody if there is none.
    fn new(key: Key, stream: WeakStream, ended: Arc<Ended>, classes: Classes) -> StreamCache {
        let bins = Bins {
            out: [None; OUT],
            bins: (0..classes.count()).map(|_| Bin::default()).collect(),
            huge: Tally::default(),
        };
        StreamCache { key, stream, bins: Mutex::new(bins), end: Mutex::default(), ended }
    }

    /// A cached block for a request, live.
    pub fn take(&self, need: Need, layout: Layout, live: &Live) -> Option<u64> {
        let class = need.class?;
        let mut bins = lock(&self.bins);
        let bin = &mut bins.bins[class];
        let id = if need.is_small { bin.blocks.pop() } else { take_large(&mut bin.blocks, need, live) }?;
        let slot = live.slot(id);
        slot.set_live(layout);
        bin.tally.alloc(slot.bytes(), layout.size() as u64);
        bin.tally.hits += 1;
        let address = slot.address();
        bins.out[place_of(address)] = Some((address, id));
        Some(address)
    }

    /// Takes a block back that went out from here not long ago; `None` if it is not known here, or not live with that layout.
    pub fn take_back(&self, address: u64, layout: Layout, live: &Live) -> Option<Vec<BlockId>> {
        let mut bins = lock(&self.bins);
        let (known, id) = bins.out[place_of(address)].take()?;
        if known != address || !live.claim_known(id, address, layout) {
            return None;
        }
        Some(bins.keep(id, layout.size() as u64, live))
    }

    /// Keeps a block that nobody has, in the bin of its own size. What is too many comes out.
    pub fn keep(&self, id: BlockId, asked: u64, live: &Live) -> Vec<BlockId> {
        lock(&self.bins).keep(id, asked, live)
    }

    /// Counts a block that came from elsewhere, and keeps those that came with it.
    pub fn refill(&self, need: Need, bytes: u64, asked: u64, more: &[BlockId]) {
        let mut bins = lock(&self.bins);
        let tally = bins.tally(need.class);
        tally.alloc(bytes, asked);
        tally.misses += 1;
        if let Some(class) = need.class {
            // The next one to be handed out last, as they would be by themselves.
            bins.bins[class].blocks.extend(more.iter().rev());
        }
    }

    /// Takes out all cached blocks of the classes that `which` says.
    pub fn drain(&self, which: impl Fn(usize) -> bool) -> Vec<BlockId> {
        let mut bins = lock(&self.bins);
        let all = bins.bins.iter_mut().enumerate().filter(|(class, _)| which(*class));
        all.flat_map(|(_, bin)| std::mem::take(&mut bin.blocks)).collect()
    }

    /// Adds what it counted.
    pub fn count(&self, counts: &mut Counts) {
        let bins = lock(&self.bins);
        for (class, bin) in bins.bins.iter().enumerate() {
            counts.add(Some(class), &bin.tally, bin.blocks.len());
        }
        counts.add(None, &bins.huge, 0);
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

fn most_small(bytes: u64) -> usize {
    MOST_SMALL.min(MOST_SMALL_BYTES / bytes).max(2) as usize
}

fn most_large(bytes: u64) -> usize {
    MOST_LARGE.min(MOST_LARGE_BYTES / bytes).max(1) as usize
}

/// How many blocks of a size a bin keeps.
#[inline]
fn most(bytes: u64, is_small: bool) -> usize {
    if is_small { most_small(bytes) } else { most_large(bytes) }
}

/// How many small blocks come with one that is asked for, itself among them.
pub(super) fn refill_of(need: Need) -> usize {
    if need.is_small { most_small(need.bytes) / 4 } else { 1 }
}

/// The older half.
#[cold]
fn overflow(bin: &mut Vec<BlockId>) -> Vec<BlockId> {
    bin.drain(..bin.len() / 2).collect()
}

/// Of what was freed last, a block that fits and is not much too large.
#[inline]
fn take_large(blocks: &mut Vec<BlockId>, need: Need, live: &Live) -> Option<BlockId> {
    let fits = |id: &BlockId| {
        let (slot, most) = (live.slot(*id), need.bytes + need.bytes / SLACK);
        (need.bytes..=most).contains(&slot.bytes()) && slot.address() & (need.align - 1) == 0
    };
    let found = blocks.iter().rev().take(LOOKS).position(fits)?;
    Some(blocks.remove(blocks.len() - 1 - found))
}

impl StreamWatcher for StreamCache {
    fn ended(&self, last: &dyn Fn() -> Result<Arc<dyn EventBackend>>) {
        // ordering: relaxed; a pool that goes waits for its streams itself, and then nobody reads what is written here.
        if self.ended.closed.load(Ordering::Relaxed) {
            return;
        }
        *lock(&self.end) = last().map_or(End::Unknown, End::At);
        lock(&self.ended.keys).push(self.key);
        // ordering: release; pairs with the acquire in `take`.
        self.ended.some.store(true, Ordering::Release);
    }
}

/// The caches of a pool.
pub(super) struct Streams {
    /// Which pool: no two have the same.
    pool: usize,
    all: RwLock<HashMap<Key, Arc<StreamCache>, foldhash::fast::FixedState>>,
    pub ended: Arc<Ended>,
    is_ordered: bool,
    classes: Classes,
}

struct Recent {
    pool: usize,
    cache: Arc<StreamCache>,
}

thread_local! {
    /// By pool and stream. One that is not used any more stays until another takes its place, and holds no memory of a device.
    static FOUND: RefCell<[Option<Recent>; RECENT]> = const { RefCell::new([const { None }; RECENT]) };
}

impl Streams {
    pub fn new(classes: Classes, is_ordered: bool) -> Streams {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // ordering: relaxed; all that counts is that no two are alike.
        let pool = NEXT.fetch_add(1, Ordering::Relaxed);
        Streams { pool, all: RwLock::default(), ended: Arc::default(), is_ordered, classes }
    }

    fn key(&self, id: StreamId) -> Key {
        if self.is_ordered { id.number() } else { ANYONE }
    }

    /// Calls `use_it` with the stream's cache, which is made at the first time.
    #[inline]
    pub fn with<R>(&self, stream: &Stream, use_it: impl FnOnce(&StreamCache) -> R) -> R {
        let key = self.key(stream.id());
        let mut use_it = Some(use_it);
        let place = (key as usize ^ self.pool) % RECENT;
        let found = FOUND.try_with(|found| {
            let found = found.try_borrow().ok()?;
            let recent = found[place].as_ref()?;
            let is_it = recent.pool == self.pool && recent.cache.key == key;
            if is_it { use_it.take().map(|use_it| use_it(&recent.cache)) } else { None }
        });
        if let Ok(Some(done)) = found {
            return done;
        }
        let cache = self.get(stream);
        // A thread that is about to end remembers nothing any more.
        let _ = FOUND.try_with(|found| {
            let recent = Some(Recent { pool: self.pool, cache: cache.clone() });
            let before = found.try_borrow_mut().map(|mut found| std::mem::replace(&mut found[place], recent));
            drop(before);
        });
        match use_it {
            Some(use_it) => use_it(&cache),
            // It was called above, and then there was a result.
            None => unreachable!("a closure is called once"),
        }
    }

    /// The stream's cache.
    #[cold]
    pub fn get(&self, stream: &Stream) -> Arc<StreamCache> {
        let key = self.key(stream.id());
        if let Some(cache) = self.all.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return cache.clone();
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let weak = if self.is_ordered { stream.downgrade() } else { WeakStream::default() };
            let cache = Arc::new(StreamCache::new(key, weak, self.ended.clone(), self.classes));
            if self.is_ordered {
                let watcher: Arc<dyn StreamWatcher> = cache.clone();
                stream.watch(Arc::downgrade(&watcher));
            }
            cache
        };
        all.entry(key).or_insert_with(make).clone()
    }

    /// All caches at the moment, in the order in which their streams were made.
    pub fn all(&self) -> Vec<Arc<StreamCache>> {
        let mut all: Vec<_> =
            self.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_unstable_by_key(|cache| cache.key);
        all
    }

    /// Of a stream that has ended: it is not found any more.
    pub fn remove(&self, key: Key) -> Option<Arc<StreamCache>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
    }

    /// The pool goes: streams that end later are of no interest.
    pub fn close(&self) {
        // ordering: relaxed; as in `ended`.
        self.ended.closed.store(true, Ordering::Relaxed);
    }
}
