//! Requests, frees and settings that no state of the device can serve.

use super::Bytes;

/// What is missing: the detail of [`Error::NotSupported`](super::Error::NotSupported).
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum NotSupported {
    /// The backend has no such feature. Use another backend, or do without.
    #[error("{backend} has no {what}; {advice}")]
    Backend {
        /// The feature that was asked for.
        what: &'static str,
        /// The backend.
        backend: &'static str,
        /// What to do about it.
        advice: &'static str,
    },

    /// The driver lacks a function that this crate calls. Update the driver.
    #[error("the CUDA driver has no {symbol}: it is too old (CUDA 11.0 is the oldest that has); update it")]
    DriverTooOld {
        /// The missing function.
        symbol: &'static str,
    },
}

/// Which setting is wrong: the detail of [`Error::InvalidConfig`](super::Error::InvalidConfig).
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum InvalidConfig {
    /// A pool cannot be built with this setting.
    #[error("cannot make a pool with {setting} = {given}: {why}")]
    Pool {
        /// The setting.
        setting: &'static str,
        /// Its value.
        given: String,
        /// The reason, and the values that are allowed.
        why: String,
    },
}

/// What is wrong with a request: the detail of [`Error::InvalidRequest`](super::Error::InvalidRequest).
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// A host allocator never serves this layout.
    #[error("{allocator} cannot allocate {asked}: {why}")]
    Layout {
        /// The allocator.
        allocator: String,
        /// Size and alignment.
        asked: String,
        /// The reason, and what to do.
        why: String,
    },

    /// A heap never serves this layout.
    #[error("a heap cannot allocate {asked}: {why}")]
    HeapLayout {
        /// Size and alignment.
        asked: String,
        /// The reason, and what to do.
        why: String,
    },

    /// The size in bytes overflows.
    #[error("{len} values of {element} are more bytes than an address can count; ask for fewer")]
    SizeOverflow {
        /// The number of values.
        len: usize,
        /// The size of each.
        element: Bytes,
    },

    /// The alignment is no power of two, or too large.
    #[error("an alignment of {align} was asked for; it must be a power of two of at most {most}")]
    Alignment {
        /// The alignment that was asked for.
        align: usize,
        /// The largest alignment that is served.
        most: usize,
    },

    /// The time between two events was asked for in the wrong order.
    #[error("the event said to be the earlier one happened later; swap the two")]
    EventOrder,
}

/// What is wrong with a free: the detail of [`Error::InvalidFree`](super::Error::InvalidFree).
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum InvalidFree {
    /// A host allocator has no live block at this address, or one of another layout.
    #[error(
        "{allocator} cannot take back {address:#x}: {why}; give back what its `allocate` returned, with the same layout, \
         and once"
    )]
    Block {
        /// The allocator.
        allocator: String,
        /// The address that was freed.
        address: u64,
        /// What is wrong with it.
        why: String,
    },

    /// A heap has no live blocks at some of the addresses. The others were freed.
    #[error(
        "{failed} of {asked} addresses were not given back, the others were: {first}; give back what the heap's \
         `allocate` returned on the host, or its `alloc` in a kernel, and once"
    )]
    Heap {
        /// The number of addresses that were not freed.
        failed: u64,
        /// The number of addresses in the call.
        asked: usize,
        /// The first of the failed ones, and what is wrong with it.
        first: String,
    },
}
