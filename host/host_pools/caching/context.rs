//! The checked settings of a caching pool, and the context that its parts share.

use super::blocks::BlockMap;
use super::class::Classes;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The hook called when the pool is out of memory.
#[derive(Clone)]
pub(super) struct Hook(pub Arc<dyn Fn(u64) -> bool + Send + Sync>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// The checked settings.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The pool in messages.
    pub name: String,
    pub classes: Classes,
    pub max_bytes: u64,
    pub segment_bytes: u64,
    pub spare_bytes: u64,
    pub max_spare: u64,
    /// Segment sizes are rounded up to a multiple of this.
    pub granularity: u64,
    pub is_ordered: bool,
    /// Set in a pool of equal blocks: it has one segment for its entire lifetime.
    pub is_fixed: bool,
    pub hook: Option<Hook>,
}

/// Upper limit of [`Settings::extent`].
const MAX_EXTENT: u64 = 16 << 20;
/// The fraction of the pool's limit that may be free before cached memory is coalesced: one part in
/// this many.
pub(super) const SPARE_DIVISOR: u64 = 32;

impl Settings {
    /// Bytes that may be free with this many streams before cached memory is coalesced.
    pub fn spare(&self, streams: usize) -> u64 {
        self.spare_bytes.saturating_mul(streams as u64).min(self.max_spare)
    }

    /// Settings of a pool of equal blocks of `bytes`, as many as fit into `max_bytes`.
    pub fn of_equal(name: String, bytes: u64, max_bytes: u64) -> Settings {
        Settings {
            name,
            classes: Classes::of_equal(bytes),
            max_bytes,
            segment_bytes: max_bytes,
            spare_bytes: 0,
            max_spare: 0,
            granularity: bytes,
            is_ordered: true,
            is_fixed: true,
            hook: None,
        }
    }

    /// Maximum number of blocks of a size that one refill takes. In a pool of equal blocks it is a
    /// small part of them, so that other streams need not wait for the rest.
    pub fn max_refill(&self, bytes: u64) -> usize {
        if self.is_fixed { (self.max_bytes / bytes / SPARE_DIVISOR).max(1) as usize } else { usize::MAX }
    }

    /// Size of the extent that a stream's cache takes, if the request needs no more.
    pub fn extent(&self) -> u64 {
        let part = self.classes.round_to_block((self.max_bytes / SPARE_DIVISOR).max(1));
        MAX_EXTENT.min(self.segment_bytes).min(part)
    }

    /// Limits the free memory to its fraction of the device memory.
    pub fn limit_spare(&mut self, device_bytes: u64) {
        self.max_spare = self.max_spare.min(device_bytes / SPARE_DIVISOR);
    }
}

/// What each part of a pool uses, whichever locks it holds.
pub(super) struct Context {
    pub settings: Settings,
    pub blocks: BlockMap,
    at_free_limit: AtomicBool,
}

impl Context {
    pub fn new(settings: Settings) -> Context {
        Context { settings, blocks: BlockMap::new(), at_free_limit: AtomicBool::new(false) }
    }

    /// Whether the free memory had reached its limit at the last check. Caches then merge large
    /// blocks instead of keeping them.
    #[inline]
    pub fn at_free_limit(&self) -> bool {
        // ordering: relaxed; a hint.
        self.at_free_limit.load(Relaxed)
    }

    pub fn set_at_free_limit(&self, at_free_limit: bool) {
        // ordering: relaxed; a hint.
        self.at_free_limit.store(at_free_limit, Relaxed);
    }
}
