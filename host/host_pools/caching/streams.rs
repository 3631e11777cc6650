//! The caches of a pool, by stream.
//!
//! ```text
//!   thread ── recent ──► cache of a stream
//!                 └ miss ─► map of all streams' caches
//! ```
//!
//! A thread finds its recently used caches without a lock.

use super::class::Classes;
use super::order_tag::{ANY_STREAM, Key};
use super::slot::SHARED;
use super::stream_cache::{EndedStreams, StreamCache};
use crate::driver::{Stream, StreamId, StreamWatcher, WeakStream};
use crate::lock::{read, write};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

/// Number of caches that a thread remembers.
const MAX_RECENT: usize = 16;

/// The caches of a pool.
pub(super) struct Streams {
    /// Identifies the pool: no two pools have the same number.
    pool: usize,
    all: RwLock<HashMap<Key, Arc<StreamCache>, foldhash::fast::FixedState>>,
    pub ended: Arc<EndedStreams>,
    is_ordered: bool,
    classes: Classes,
    /// Number of caches created.
    created: AtomicUsize,
}

struct Recent {
    pool: usize,
    cache: Arc<StreamCache>,
}

thread_local! {
    /// By pool and stream. An unused cache stays until another one replaces it. It holds no device
    /// memory.
    static RECENT: RefCell<[Option<Recent>; MAX_RECENT]> = const { RefCell::new([const { None }; MAX_RECENT]) };
}

impl Streams {
    pub fn new(classes: Classes, is_ordered: bool) -> Streams {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // ordering: relaxed; only the uniqueness of the number matters.
        let pool = NEXT.fetch_add(1, Ordering::Relaxed);
        Streams {
            pool,
            all: RwLock::default(),
            ended: Arc::default(),
            is_ordered,
            classes,
            created: AtomicUsize::new(0),
        }
    }

    fn key(&self, id: StreamId) -> Key {
        if self.is_ordered { id.number() } else { ANY_STREAM }
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
            let weak = if self.is_ordered { stream.downgrade() } else { WeakStream::default() };
            // ordering: relaxed; under the lock of the map. Beyond 2^32 a cache has no extents.
            let owner = self.created.fetch_add(1, Ordering::Relaxed) + 1;
            let owner = u32::try_from(owner).unwrap_or(SHARED);
            let cache = StreamCache::new((key, owner), weak, self.ended.clone(), self.classes);
            let cache = Arc::new(cache);
            if self.is_ordered {
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
        write(&self.all).remove(&key)
    }

    /// The pool is being dropped: it ignores streams that end later.
    pub fn close(&self) {
        self.ended.close();
    }
}
