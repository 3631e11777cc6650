//! What the parts of a caching pool share: its checked settings, the context, the state under the
//! lock of the source, and why an allocation fails.

use super::blocks::BlockMap;
use super::class::Classes;
use crate::driver::GrowableBuffer;
use crate::error::{Error, InvalidRequest, Result};
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

/// State guarded by the source's lock.
pub(super) struct Source {
    /// Replaces blocks of the upstream, if set.
    pub reservation: Option<GrowableBuffer>,
}

/// Why an allocation, or the growth that it needs, failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The limit of the pool.
    Limit,
    /// The upstream or the device is out of memory.
    Upstream(UpstreamError),
    /// Other threads took the free memory that the growth relied on, on each attempt.
    Raced,
    /// Another error of the upstream or the driver: not for lack of memory.
    Fault(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Fault(error)
    }
}

/// What was found, or `None` for lack of memory.
pub(super) fn none_if_short<T>(found: Result<T, Failure>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Fault(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The upstream's out-of-memory error. Displayed briefly, because it is embedded in a message of
/// this pool.
#[derive(Debug)]
pub(super) struct UpstreamError(pub Error);

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.brief().fmt(f)
    }
}

/// Whether an error means out of memory, rather than a fault.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    const OUT_OF_MEMORY: u32 = 2;
    match error {
        Error::OutOfMemory(_) | Error::InvalidRequest(InvalidRequest::Layout { .. }) => true,
        Error::Driver { code, .. } => *code == OUT_OF_MEMORY,
        _ => false,
    }
}
