//! State under the lock of the source of segments, and why the pool cannot grow.

use crate::driver::GrowableBuffer;
use crate::error::{Error, InvalidRequest};
use std::fmt;

/// State guarded by the source's lock.
pub(super) struct Source {
    /// Replaces blocks of the upstream, if set.
    pub reservation: Option<GrowableBuffer>,
}

/// Why the pool cannot grow.
#[derive(Debug)]
pub(super) enum GrowFailure {
    /// The limit of the pool.
    Limit,
    /// The upstream or the device is out of memory.
    Upstream(UpstreamError),
    /// Other threads took the free memory that the growth relied on, on each attempt.
    Raced,
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
