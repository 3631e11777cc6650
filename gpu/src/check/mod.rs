//! Proof that an allocator hands no byte to two owners, gathered while it runs.
//!
//! | module | what |
//! |---|---|
//! | [`record`] | a live block, as its owner remembers it, in device memory |
//! | [`log`] | what was found, where the host reads it after the launch |
//! | [`ownership`] | a word for every granule of a pool: who holds it |
//! | [`pattern`] | what an owner writes over its whole block and reads again before it gives it back |
//! | [`tally`] | what all threads have done, counted |
//! | [`workload`] | threads that allocate and free by a seed, and check every step |
//! | [`mix`] | which sizes and alignments they ask for |
//! | [`exchange`] | the same threads, handing blocks to each other while they run |
//! | [`census`] | all live blocks at once on a fresh map; a pool emptied to its last block |
//! | [`misuse`] | threads that do wrong on purpose, so that the checks can be checked |
//! | [`stress_kernels!`](crate::stress_kernels!) | the kernels that run these for a type of handle |
//!
//! Nothing here knows which allocator it checks, beyond [`DeviceAlloc`](crate::alloc::DeviceAlloc), and
//! nothing here panics: what is wrong is written down.

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

/// Who holds a block: the place of its [`Record`](record::Record) in the table of all records, plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Owner(pub u32);

impl Owner {
    /// No one.
    pub const NONE: Owner = Owner(0);

    /// The owner whose record is at `place`.
    #[inline(always)]
    pub const fn of_record(place: u32) -> Owner {
        Owner(place.wrapping_add(1))
    }

    /// The place of its record; `None` for no one.
    pub const fn record(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}
