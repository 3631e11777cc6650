//! The words of an arena: the root's and those of each shard.

use super::lease::MAX_LEASE;
#[cfg(not(target_arch = "nvptx64"))]
use super::lease::{Lease, Piece};
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

/// Zero granules remaining. Half the range is room for failing subtractions.
const BIAS: u64 = 1 << 62;

pub(super) const fn encode(granules: u64) -> u64 {
    BIAS + granules
}

/// Granules remaining; `None` while a crosser settles the counter.
pub(super) const fn decode(word: u64) -> Option<u64> {
    word.checked_sub(BIAS)
}

/// The pool-wide state, alone in its cache line to avoid false sharing.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Root {
    pub(super) remaining: AtomicU64,
    pub(super) ceiling: AtomicU64,
    pub(super) wasted: AtomicU64,
}

/// The memory that one SM allocates from, alone in its cache line to avoid false sharing.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Shard {
    pub(super) lease: AtomicU64,
    pub(super) tail: AtomicU64,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Root>() == 128);
const _: () = assert!(!NATIVE_LAYOUT || size_of::<Shard>() == 128);

/// The initial leases are multiples of this many granules, so that requests with a size that
/// divides it leave no tail. Together they are half of the pool.
const LEASE_UNIT: u64 = 512;

/// Length of each shard's initial lease in granules, for a pool of `granules` with `shards` shards.
pub const fn first_lease(granules: u64, shards: u32) -> u64 {
    if shards == 0 {
        return 0;
    }
    let share = granules / 2 / shards as u64;
    let share = if share < MAX_LEASE { share } else { MAX_LEASE };
    share - share % LEASE_UNIT
}

#[cfg(not(target_arch = "nvptx64"))]
impl Root {
    /// The root of a pool of `granules` with `shards` shards, each of which holds its initial
    /// lease.
    pub fn new(granules: u64, shards: u32) -> Self {
        let remaining = granules - u64::from(shards) * first_lease(granules, shards);
        Root {
            remaining: AtomicU64::new(encode(remaining)),
            ceiling: AtomicU64::new(u64::MAX),
            wasted: AtomicU64::new(0),
        }
    }

    /// The in-memory representation for device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[..3].copy_from_slice(&[
            self.remaining.load_relaxed(),
            self.ceiling.load_relaxed(),
            self.wasted.load_relaxed(),
        ]);
        words
    }

    /// Decodes the representation in device memory, which the host has read.
    pub fn from_words(words: [u64; 16]) -> Self {
        let [remaining, ceiling, wasted, ..] = words.map(AtomicU64::new);
        Root { remaining, ceiling, wasted }
    }

    /// Granules lost as remainders of leases.
    pub fn wasted(&self) -> u64 {
        self.wasted.load_relaxed()
    }

    /// Granules that are in no lease. `None` while a thread is changing the counter.
    pub fn remaining(&self) -> Option<u64> {
        decode(self.remaining.load_relaxed())
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Shard {
    /// Shard `i` of a pool of `granules` with `shards` shards, holding its initial lease.
    pub fn new(granules: u64, shards: u32, i: u32) -> Self {
        let len = first_lease(granules, shards);
        Self::with(Lease::of(Piece { start: u64::from(i) * len, len }))
    }

    /// A shard that never has a lease: the only shard of an arena without sharding, in which all
    /// warps allocate from the root.
    pub fn retired() -> Self {
        Self::with(Lease::RETIRED)
    }

    /// The in-memory representation for device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[..2].copy_from_slice(&[self.lease.load_relaxed(), self.tail.load_relaxed()]);
        words
    }

    /// Decodes the representation in device memory, which the host has read.
    pub fn from_words(words: [u64; 16]) -> Self {
        let [lease, tail, ..] = words.map(AtomicU64::new);
        Shard { lease, tail }
    }

    fn with(lease: Lease) -> Self {
        Shard { lease: AtomicU64::new(lease.0), tail: AtomicU64::new(Lease::NONE.0) }
    }

    /// Granules in its lease and its tail. `None` while a thread is changing them.
    pub fn remaining(&self) -> Option<u64> {
        let lease = Lease(self.lease.load_relaxed());
        let tail = Lease(self.tail.load_relaxed()).remaining()?;
        let in_lease = if lease.is_retired() { 0 } else { lease.remaining()? };
        Some(u64::from(in_lease) + u64::from(tail))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn first_leases_are_half_of_the_pool_in_whole_units() {
        let leases = [(1 << 20, 0), (6 * LEASE_UNIT, 3), (6 * LEASE_UNIT - 1, 3), (13 * LEASE_UNIT, 2)]
            .map(|(granules, shards)| first_lease(granules, shards));
        assert_eq!(leases, [0, LEASE_UNIT, 0, 3 * LEASE_UNIT]);
        assert_eq!(first_lease(1 << 40, 1), MAX_LEASE + 1 - LEASE_UNIT);
    }
}
