//! A queue: the state that all handles of a stream share.

use super::stream::{EventBackend, StreamBackend};
use crate::error::Result;
use crate::lock::lock;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Identifies a stream. Ids are unique within the process and are not reused after a stream is
/// dropped. Clones of a handle have the same id. Two streams made from the same `CUstream` have
/// different ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(usize);

impl StreamId {
    fn next() -> StreamId {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        // ordering: relaxed; only uniqueness matters.
        StreamId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number, starting from 1, as displayed.
    #[inline]
    pub fn number(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Is notified when the last handle of a stream is dropped.
pub(crate) trait StreamWatcher: Send + Sync {
    /// No handle is left, so no more work is submitted to the stream. `last` records an event after
    /// all submitted work. It fails if the driver fails. Called once, by the thread that drops the
    /// handle. That thread may hold locks, so an implementation may take leaf locks only.
    fn ended(&self, last: &dyn Fn() -> Result<Arc<dyn EventBackend>>);
}

/// A stream of a backend, and its watchers. Dropped with the last handle of the stream.
pub(crate) struct Queue {
    id: StreamId,
    backend: Arc<dyn StreamBackend>,
    /// Notified when the stream ends.
    watchers: Mutex<Vec<Weak<dyn StreamWatcher>>>,
}

impl Queue {
    pub fn new(backend: Arc<dyn StreamBackend>) -> Queue {
        Queue { id: StreamId::next(), backend, watchers: Mutex::default() }
    }

    pub fn id(&self) -> StreamId {
        self.id
    }

    pub fn backend(&self) -> &dyn StreamBackend {
        &*self.backend
    }

    /// Notifies `watcher` when the stream ends, if `watcher` still exists then.
    pub fn watch(&self, watcher: Weak<dyn StreamWatcher>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|other| other.strong_count() > 0);
        watchers.push(watcher);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Without the lock, which a loop over a guard would keep during the calls.
        let watchers = self.watchers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for watcher in std::mem::take(watchers).iter().filter_map(Weak::upgrade) {
            watcher.ended(&|| self.backend.record());
        }
    }
}
