//! Out of memory: the details of [`Error::OutOfMemory`](super::Error::OutOfMemory).

use super::Bytes;

/// The resource that is exhausted.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum OutOfMemory {
    /// The device is out of memory. Free memory on the device, or run fewer programs on it.
    #[error("cannot allocate {requested} on {device}: {free} of {total} are free; {advice}")]
    Device {
        /// The device's name.
        device: String,
        /// The requested size.
        requested: Bytes,
        /// Free memory.
        free: Bytes,
        /// Total memory.
        total: Bytes,
        /// Advice.
        advice: String,
    },

    /// A host allocator is out of memory, or too fragmented. Free some of its blocks and try again.
    #[error(
        "{allocator} cannot allocate {requested}: {used} of {reserved} are in use, {cached} are cached, and the largest \
         free block has {largest}; {advice}"
    )]
    Pool {
        /// The allocator.
        allocator: String,
        /// The requested size.
        requested: Bytes,
        /// Bytes in use.
        used: Bytes,
        /// Bytes that the allocator holds, used or free; the maximum of a limit.
        reserved: Bytes,
        /// Bytes that are free and not returned upstream; for a limit, those of the allocator that
        /// it wraps.
        cached: Bytes,
        /// The largest block that can be allocated at the moment.
        largest: Bytes,
        /// Advice.
        advice: &'static str,
    },

    /// A growable object reached the end of its reserved addresses. Reserve more when it is built.
    #[error("cannot grow {what} to {requested}: its reservation has {reserved} and cannot grow; {advice}")]
    Reservation {
        /// The object that was to grow.
        what: &'static str,
        /// The requested size.
        requested: Bytes,
        /// The size of the reservation.
        reserved: Bytes,
        /// Advice.
        advice: &'static str,
    },

    /// The system is out of addresses, or does not allow their use. Reserve fewer.
    #[error("cannot {what} {bytes} of addresses on {device}: {why}; {advice}")]
    AddressSpace {
        /// The operation, a verb.
        what: &'static str,
        /// The number of addresses.
        bytes: Bytes,
        /// The device's name.
        device: String,
        /// The system's reason.
        why: String,
        /// Advice.
        advice: &'static str,
    },
}
