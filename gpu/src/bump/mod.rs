//! A bump arena: memory is allocated front to back and freed all at once by a reset.
//!
//! ```text
//!  root      one counter: memory in no lease | remaining |
//!  shard[s]  one per SM: a part of the pool  | lease: end, remaining | tail: end, remaining |
//!
//!  pool      [ lease of 0 |###---][ lease of 1 |#-----][ lease of 0, used up ][ ... root's ... ]
//! ```
//!
//! A warp allocates for all its lanes from the lease of its SM's shard with one atomic subtraction.
//! Only the warps of one SM contend for a word. Half of the pool is leased from the start. When a
//! lease is exhausted, the shard gets another one from the root. When the root is empty, warps
//! allocate from other shards. An arena without sharding has a single shard, which is dry from the
//! start.
//!
//! Everything is counted in granules (the least alignment). Invariants:
//!
//! - I1. The allocated granules, `wasted`, the root's remaining granules and those of every lease
//!   and tail are disjoint; together they are the pool.
//! - I2. A counter below zero belongs to the one thread that took it there (the *crosser*). Until
//!   that thread swaps in the next value, every other subtraction fails, and the swap discards it.
//! - I3. A counter at or above zero is exact: it includes no failed subtraction.
//! - I4. A dry shard (no lease, and none to come) stays dry, and its tail only shrinks.
//! - I5. `ceiling` is above the size of every request that could still succeed. It only falls.
//!
//! Writers. `remaining` and `lease`: any thread by subtraction, the crosser by a swap, and (`lease`
//! only) any thread by compare-and-swap from a value at or above zero. All are read-modify-writes:
//! what a thread's fence has put before its write is before every later value too. `tail`: the
//! crosser, and any thread by compare-and-swap. The host writes everything between launches.
//!
//! An allocation fails only if no lease, no tail and not the root holds its size in one piece. A
//! failed allocation changes none of them (I3). `wasted` counts what sharding loses: remainders of
//! leases that do not fit the next request and that are not kept because a larger remainder is kept
//! already. Requests of a single size that divides 512 granules lose nothing. Requests of another
//! single size lose less than one request per shard.
//!
//! Progress: a warp that finds a counter below zero waits for the crosser, `SETTLE_POLLS` polls at
//! most, then allocates from the root or fails. Every call ends in bounded time.

mod alloc;
mod corrupt;
mod find;
mod lease;
mod refill;
mod root;

use crate::kernel::DeviceHandle;
use crate::sync::{AtomicU64, NATIVE_LAYOUT, Site};
use crate::thread;
pub use lease::RESIDENT_WARPS;
use lease::{Lease, Piece};

/// Maximum polls of a counter while the crosser settles it. A crosser needs two round trips to
/// memory; this allows for thousands.
const SETTLE_POLLS: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 3 };
/// The pause between two polls.
const POLL_NANOS: u32 = 100;

/// What a crosser has done to its shard before it takes memory from the root and stores the next
/// lease.
const LEND: Site = Site::new("bump/lend");
/// The look at a shard's tail, after the look at its lease.
const SEE_TAIL: Site = Site::new("bump/see-tail");
/// The look at the shards, after the look at the root.
const SEE_LENT: Site = Site::new("bump/see-lent");
/// Every named ordering of this structure, for model checkers.
pub const SITES: [&str; 3] = ["bump/lend", "bump/see-tail", "bump/see-lent"];

/// The maximum size of a pool in granules: 512 GiB at 16 bytes each.
pub const MAX_GRANULES: u64 = lease::MAX_END;

/// The pool-wide state, alone in its cache line to avoid false sharing.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Root {
    remaining: AtomicU64,
    ceiling: AtomicU64,
    wasted: AtomicU64,
}

/// The memory that one SM allocates from, alone in its cache line to avoid false sharing.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Shard {
    lease: AtomicU64,
    tail: AtomicU64,
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
    let share = if share < lease::MAX_LEASE { share } else { lease::MAX_LEASE };
    share - share % LEASE_UNIT
}

#[cfg(not(target_arch = "nvptx64"))]
impl Root {
    /// The root of a pool of `granules` with `shards` shards, each of which holds its initial
    /// lease.
    pub fn new(granules: u64, shards: u32) -> Self {
        let remaining = granules - u64::from(shards) * first_lease(granules, shards);
        Root {
            remaining: AtomicU64::new(root::encode(remaining)),
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
        root::decode(self.remaining.load_relaxed())
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
    pub fn dry() -> Self {
        Self::with(Lease::DRY)
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
        let in_lease = if lease.is_dry() { 0 } else { lease.remaining()? };
        Some(u64::from(in_lease) + u64::from(tail))
    }
}

/// A bump arena, in the form that kernels use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bump {
    base: *mut u8,
    granules: u64,
    root: *const Root,
    shards: *const Shard,
    last_shard: u32,
    granule_log2: u32,
    granule_bytes: u32,
    small_bytes: u32,
    shared: *const Bump,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Bump>() == 56 && align_of::<Bump>() == 8);

// SAFETY: `repr(C)` of addresses and integers; the layout is asserted above. All threads may use
// the arena concurrently.
unsafe impl DeviceHandle for Bump {
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        found(self.base as u64, self.capacity());
    }
}

impl Bump {
    /// A handle to the arena that consists of these parts. `granule_log2` is the base-2 logarithm
    /// of the minimum alignment in bytes.
    ///
    /// # Safety
    /// - `base` points to `granules` granules and is aligned to a granule.
    /// - `root` and the `shard_count` (at least one) `shards` were made by [`Root::new`] and
    ///   [`Shard::new`] for the same pool, or by [`Root::new`] for zero shards and [`Shard::dry`].
    /// - `shared` is the address of a copy of this handle, which is written before its first use.
    ///
    /// All of them stay valid while the handle or a copy of it is used, and belong to this arena
    /// only.
    pub unsafe fn from_raw_parts(
        base: *mut u8,
        granules: u64,
        granule_log2: u32,
        root: *const Root,
        shards: *const Shard,
        shard_count: u32,
        shared: *const Bump,
    ) -> Self {
        Bump {
            base,
            granules,
            root,
            shards,
            last_shard: shard_count - 1,
            granule_log2,
            granule_bytes: 1 << granule_log2,
            small_bytes: alloc::MAX_LANE << granule_log2,
            shared,
        }
    }

    /// The copy of this handle in memory, for code off the fast path. A call there passes the
    /// handle's address; a handle passed by value would be written to every thread's stack.
    #[inline(always)]
    fn shared(&self) -> &Bump {
        // SAFETY: `from_raw_parts`' promise for `shared`.
        unsafe { &*self.shared }
    }

    /// The capacity in bytes.
    #[inline(always)]
    pub const fn capacity(&self) -> u64 {
        self.granules << self.granule_log2
    }

    /// The minimum alignment and the allocation unit, in bytes.
    #[inline(always)]
    pub const fn granule_bytes(&self) -> u64 {
        self.granule_bytes as u64
    }

    /// The address of the arena's memory.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    #[inline(always)]
    fn root(&self) -> &Root {
        // SAFETY: `from_raw_parts`' promise for `root`.
        unsafe { &*self.root }
    }

    #[inline(always)]
    fn shard(&self, i: u32) -> &Shard {
        debug_assert!(i <= self.last_shard);
        // SAFETY: callers pass an `i` that is at most `last_shard`.
        let shard = unsafe { self.shards.add(i as usize) };
        // SAFETY: `from_raw_parts`' promise for `shards`.
        unsafe { &*shard }
    }

    #[inline(always)]
    fn shard_count(&self) -> u32 {
        self.last_shard + 1
    }

    /// The shard of the SM that the caller runs on. Only a hint: the thread may move, and any shard
    /// is correct.
    #[inline(always)]
    fn own_shard(&self) -> u32 {
        thread::sm_id().min(self.last_shard)
    }
}
