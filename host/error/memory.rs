//! Out of memory: the details of [`Error::OutOfMemory`](super::Error::OutOfMemory).

use super::Bytes;

/// What is exhausted.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum OutOfMemory {
    /// The device has not enough memory. Free memory on the device, or leave it to fewer programs.
    #[error("cannot allocate {requested} on {device}: {free} of {total} are free; {advice}")]
    Device {
        /// The device's name.
        device: String,
        /// How much was asked for.
        requested: Bytes,
        /// How much is free.
        free: Bytes,
        /// How much there is.
        total: Bytes,
        /// What to do about it.
        advice: String,
    },

    /// A host allocator has not enough memory, or not in one piece. Free blocks of it and try again.
    #[error(
        "{allocator} cannot allocate {requested}: {used} of {reserved} are in use, {cached} are kept for later, and the \
         largest free block has {largest}; {advice}"
    )]
    Pool {
        /// The allocator.
        allocator: String,
        /// How much was asked for.
        requested: Bytes,
        /// How much is in use.
        used: Bytes,
        /// How much the allocator holds, used or free; of a limit, how much it allows.
        reserved: Bytes,
        /// How much is free and not returned upstream; of a limit, by the allocator that it wraps.
        cached: Bytes,
        /// The largest block that can be allocated at the moment.
        largest: Bytes,
        /// What to do about it.
        advice: &'static str,
    },

    /// A growable object reached the end of its reserved addresses. Reserve more when it is built.
    #[error("cannot grow {what} to {asked}: {reserved} are reserved for it, once and for all; {advice}")]
    Reservation {
        /// What was to grow.
        what: &'static str,
        /// The size that was asked for.
        asked: Bytes,
        /// The size of the reservation.
        reserved: Bytes,
        /// What to do about it.
        advice: &'static str,
    },

    /// The system has not enough addresses, or does not allow their use. Reserve fewer.
    #[error("cannot {what} {bytes} of addresses on {device}: {why}; {advice}")]
    AddressSpace {
        /// The operation, a verb.
        what: &'static str,
        /// The number of addresses.
        bytes: Bytes,
        /// The device's name.
        device: String,
        /// What the system says.
        why: String,
        /// What to do about it.
        advice: &'static str,
    },
}
