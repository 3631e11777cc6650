//! Requests, frees and settings that fail in any state of the device.

use super::Bytes;

/// Details of [`Error::NotSupported`](super::Error::NotSupported): what is missing.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum NotSupported {
    /// The backend lacks the feature. Use another backend, or do without.
    #[error("{backend} has no {what}; {advice}")]
    Backend {
        /// The requested feature.
        what: &'static str,
        /// The backend.
        backend: &'static str,
        /// What to do.
        advice: &'static str,
    },

    /// The driver lacks a function that this crate calls. Update the driver.
    #[error("the CUDA driver has no {symbol}: it is older than CUDA 11.0; update it")]
    DriverTooOld {
        /// The missing function.
        symbol: &'static str,
    },
}

/// Details of [`Error::InvalidConfig`](super::Error::InvalidConfig): which setting is wrong.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum InvalidConfig {
    /// A pool cannot be built with this setting.
    #[error("cannot build a pool with {setting} = {given}: {why}")]
    Pool {
        /// The setting.
        setting: &'static str,
        /// Its value.
        given: String,
        /// The reason, and the values that are allowed.
        why: String,
    },

    /// Delays of threads cannot be switched on.
    #[error("cannot delay threads: {why}")]
    Delays {
        /// The reason, and what is possible.
        why: String,
    },

    /// A growable buffer cannot reserve this many bytes.
    #[error("cannot reserve {bytes} for a growable buffer: from 1 B to less than 16 EiB are possible")]
    GrowableBuffer {
        /// The requested size.
        bytes: Bytes,
    },
}

impl InvalidConfig {
    /// An invalid setting of a pool.
    pub(crate) fn pool(setting: &'static str, given: impl ToString, why: impl Into<String>) -> InvalidConfig {
        InvalidConfig::Pool { setting, given: given.to_string(), why: why.into() }
    }
}

/// Details of [`Error::InvalidRequest`](super::Error::InvalidRequest): what is wrong with the
/// request.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// A host allocator does not support the layout.
    #[error("{allocator} cannot allocate {requested}: {why}")]
    Layout {
        /// The allocator.
        allocator: String,
        /// Size and alignment.
        requested: String,
        /// The reason, and what to do.
        why: String,
    },

    /// A heap does not support the layout.
    #[error("a heap cannot allocate {requested}: {why}")]
    HeapLayout {
        /// Size and alignment.
        requested: String,
        /// The reason, and what to do.
        why: String,
    },

    /// The size in bytes overflows.
    #[error("{len} values of {element} exceed the address space; request fewer")]
    SizeOverflow {
        /// The number of values.
        len: usize,
        /// The size of each.
        element: Bytes,
    },

    /// The alignment is not a power of two, or too large.
    #[error("an alignment of {align} was requested; it must be a power of two of at most {max}")]
    Alignment {
        /// The requested alignment.
        align: usize,
        /// The maximum alignment.
        max: usize,
    },

    /// A slice would start at an address that is not aligned for its values.
    #[error(
        "a slice at offset {offset} starts at {address:#x}, but its values are aligned to {align} B; use an \
         offset at which the address is a multiple of that"
    )]
    Misaligned {
        /// The requested offset.
        offset: Bytes,
        /// The address at the offset.
        address: u64,
        /// The alignment of the values, in bytes.
        align: usize,
    },

    /// The time between two events was requested in the wrong order.
    #[error("the event passed as the earlier one happened later; swap the two")]
    EventOrder,

    /// The raw handle is another stream in each thread, which would be taken for one stream.
    #[error(
        "the stream is cudaStreamPerThread, another stream in each thread; pass 0 or a stream of your own"
    )]
    StreamPerThread,
}

/// Details of [`Error::InvalidFree`](super::Error::InvalidFree): what is wrong with the free.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum InvalidFree {
    /// A host allocator has no live block at this address, or the layout differs.
    #[error(
        "{allocator} cannot free {address:#x}: {why}; free each block once, with the layout that it was allocated with"
    )]
    Block {
        /// The allocator.
        allocator: String,
        /// The address passed to the free.
        address: u64,
        /// What is wrong with it.
        why: String,
    },

    /// A heap has no live blocks at some of the addresses. The others were freed.
    #[error(
        "{failed} of {requested} addresses were not freed, the others were; the first: {first}; free each \
         block of the heap once"
    )]
    Heap {
        /// The number of addresses that were not freed.
        failed: u64,
        /// The number of addresses in the call.
        requested: usize,
        /// The first of the failed ones, and what is wrong with it.
        first: String,
    },
}
