//! The caches of a pool, by stream.
//!
//! ```text
//!   thread ── recent ──► cache of a stream
//!                 └ miss ─► map of all streams' caches
//! ```
//!
//! A thread finds the caches that it used last without a lock.

use super::class::Classes;
use super::live::SHARED;
use super::stream_cache::{ANYONE, Ended, Key, StreamCache};
use crate::driver::{Stream, StreamId, StreamWatcher, WeakStream};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Caches that a thread finds again without the map.
const RECENT: usize = 16;

/// The caches of a pool.
pub(super) struct Streams {
    /// Which pool: no two have the same.
    pool: usize,
    all: RwLock<HashMap<Key, Arc<StreamCache>, foldhash::fast::FixedState>>,
    pub ended: Arc<Ended>,
    is_ordered: bool,
    classes: Classes,
    /// Caches that were made.
    made: AtomicUsize,
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
        Streams {
            pool,
            all: RwLock::default(),
            ended: Arc::default(),
            is_ordered,
            classes,
            made: AtomicUsize::new(0),
        }
    }

    fn key(&self, id: StreamId) -> Key {
        if self.is_ordered { id.number() } else { ANYONE }
    }

    /// Calls `use_it` with the stream's cache, which is made at the first time.
    #[inline(always)]
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
            // ordering: relaxed; under the lock of the map. Beyond 2^32 a cache has no extents.
            let owner = self.made.fetch_add(1, Ordering::Relaxed) + 1;
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

    /// All caches at the moment, in the order in which their streams were made.
    pub fn all(&self) -> Vec<Arc<StreamCache>> {
        let mut all: Vec<_> =
            self.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_unstable_by_key(|cache| cache.key);
        all
    }

    /// Whether no stream's cache keeps a block, all of them looked at at one moment.
    pub fn are_empty(&self) -> bool {
        // No cache is made meanwhile.
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        // Nobody else locks two caches.
        let locked: Vec<_> = all.values().map(|cache| cache.bins()).collect();
        locked.iter().all(|bins| bins.is_empty())
    }

    /// How many streams have one.
    pub fn count(&self) -> usize {
        self.all.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Of a stream that has ended: it is not found any more.
    pub fn remove(&self, key: Key) -> Option<Arc<StreamCache>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
    }

    /// The pool goes: streams that end later are of no interest.
    pub fn close(&self) {
        self.ended.close();
    }
}
