//! Checks at run time that an allocator never hands a byte to two owners.
//!
//! | module | content |
//! |---|---|
//! | [`record`] | a live block as its owner remembers it, in device memory |
//! | [`log`] | findings, which the host reads after the launch |
//! | [`ownership`] | a word per granule of a pool: its owner |
//! | [`pattern`] | the pattern that an owner fills its block with and verifies before the free |
//! | [`tally`] | counters of what all threads have done |
//! | [`workload`] | threads that allocate and free from a seed, and check every step |
//! | [`mix`] | the distribution of sizes and alignments |
//! | [`exchange`] | threads that pass blocks to each other while they run |
//! | [`census`] | all live blocks at once on a fresh map; a pool allocated to its last block |
//! | [`misuse`] | threads that misuse an allocator on purpose, to test the checks |
//! | [`stress_kernels!`](crate::stress_kernels!) | the kernels that run these for a handle type |
//!
//! The checks know nothing about the allocator beyond [`DeviceAlloc`](crate::alloc::DeviceAlloc).
//! Nothing here panics: findings are recorded in the log.

pub mod census;
mod declare;
pub mod exchange;
pub mod hash;
pub mod log;
pub mod misuse;
pub mod mix;
pub mod ownership;
pub mod pattern;
pub mod record;
pub mod tally;
pub mod workload;

/// The owner of a block: the index of its [`Record`](record::Record) in the table of all records,
/// plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Owner(pub u32);

impl Owner {
    /// No owner.
    pub const NONE: Owner = Owner(0);

    /// The owner of the record at `place`.
    #[inline(always)]
    pub const fn of_record(place: u32) -> Owner {
        Owner(place.wrapping_add(1))
    }

    /// The index of the owner's record; `None` for [`NONE`](Self::NONE).
    pub const fn record(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}
