//! Checks at run time that an allocator never allocates a byte to two owners.
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
mod round;
pub mod tally;
mod worker;
pub mod workload;

pub use record::{Owner, Records};
