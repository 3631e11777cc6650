//! A bump arena: memory is handed out front to back and comes back all at once, by a reset.
//!
//! ```text
//!  root      one counter: what no one has yet            | remaining |
//!  shard[s]  one a multiprocessor: a lease of the pool   | lease: end, remaining | tail: end, remaining |
//!
//!  pool      [ lease of 0 |###---][ lease of 1 |#-----][ lease of 0, used up ][ ... root's ... ]
//! ```
//!
//! A warp takes what all its lanes ask for from the lease of its multiprocessor's shard with one atomic
//! subtraction, so no word is asked by more than the warps of one multiprocessor. Half of the pool is lent
//! out from the start; when a lease runs out, the shard takes another from the root, and when the root is
//! empty, warps take from other shards. In a pool without shards there
//! is one, and it is dry from the start.
//!
//! Everything is counted in granules (the least alignment). Invariants:
//!
//! - I1. Granted, `wasted`, the root's remaining, every lease's and every tail's remaining granules are
//!   disjoint, and together they are the pool.
//! - I2. A counter below zero belongs to the one thread that took it there (the *crosser*). Until that
//!   thread swaps the next value in, every other subtraction fails and is forgotten with it.
//! - I3. A counter at or above zero is exact: no failed subtraction is in it.
//! - I4. A dry shard stays dry, and its tail only shrinks.
//! - I5. `ceiling` is above the size of every request that could still be granted. It only falls.
//!
//! Who writes: `remaining` and `lease`, any thread by subtraction, the crosser by a swap, and (lease) any
//! thread by compare-and-swap from a value at or above zero. All are read-modify-writes, so that what one
//! thread's fence has put before its write is before every later value too. `tail`: the crosser, and any thread by
//! compare-and-swap. The host writes everything between launches.
//!
//! A request is refused only when no lease, no tail and not the root holds its size in one piece; a
//! refusal changes none of them (I3). What sharding loses is counted in `wasted`: leftovers of a lease
//! that do not fit the next request when a larger leftover is already kept. Requests of one size whose
//! size divides 512 granules lose nothing; of another size, less than one request a shard.
//!
//! Progress: a warp that finds a counter below zero waits for the crosser, `SETTLE_POLLS` times at most,
//! then takes from the root or is refused; so every call ends in bounded time.

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

/// How often a thread looks whether a crosser has settled a counter. A crosser needs two round trips to
/// memory; this is thousands.
const SETTLE_POLLS: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 3 };
/// The pause between two looks.
const POLL_NANOS: u32 = 100;

/// What a crosser has done to its shard, before it asks the root and stores the next lease.
const LEND: Site = Site::new("bump/lend");
/// The look at a shard's tail, after its lease.
const SEE_TAIL: Site = Site::new("bump/see-tail");
/// The look at the shards, after the root.
const SEE_LENT: Site = Site::new("bump/see-lent");
/// Every named ordering of this structure, for checkers.
pub const SITES: [&str; 3] = ["bump/lend", "bump/see-tail", "bump/see-lent"];

/// The largest pool in granules: 512 GiB at 16 bytes each.
pub const MAX_GRANULES: u64 = lease::MAX_END;

/// The pool-wide state, alone in its cache line.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Root {
    remaining: AtomicU64,
    ceiling: AtomicU64,
    wasted: AtomicU64,
}

/// What one multiprocessor allocates from, alone in its cache line.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Shard {
    lease: AtomicU64,
    tail: AtomicU64,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Root>() == 128);
const _: () = assert!(!NATIVE_LAYOUT || size_of::<Shard>() == 128);

/// What shards hold at first: half of the pool between them, in leases of a multiple of this many
/// granules, so that requests whose size divides it leave no tail.
const LEASE_UNIT: u64 = 512;

/// Granules that each of `shards` shards holds at first in a pool of `granules`.
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
    /// The root of a pool of `granules` with `shards` shards, each holding its first lease.
    pub fn new(granules: u64, shards: u32) -> Self {
        let remaining = granules - u64::from(shards) * first_lease(granules, shards);
        Root {
            remaining: AtomicU64::new(root::encode(remaining)),
            ceiling: AtomicU64::new(u64::MAX),
            wasted: AtomicU64::new(0),
        }
    }

    /// As it lies in device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[..3].copy_from_slice(&[
            self.remaining.load_relaxed(),
            self.ceiling.load_relaxed(),
            self.wasted.load_relaxed(),
        ]);
        words
    }

    /// As it lay in device memory, for the host to read.
    pub fn from_words(words: [u64; 16]) -> Self {
        let [remaining, ceiling, wasted, ..] = words.map(AtomicU64::new);
        Root { remaining, ceiling, wasted }
    }

    /// Granules lost to leftovers of leases.
    pub fn wasted(&self) -> u64 {
        self.wasted.load_relaxed()
    }

    /// Granules that no lease has; `None` while a thread is changing it.
    pub fn remaining(&self) -> Option<u64> {
        root::decode(self.remaining.load_relaxed())
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Shard {
    /// Shard `i` of a pool of `granules` with `shards` shards, holding its first lease.
    pub fn new(granules: u64, shards: u32, i: u32) -> Self {
        let len = first_lease(granules, shards);
        Self::with(Lease::of(Piece { start: u64::from(i) * len, len }))
    }

    /// A shard that never has a lease: the only one of an arena whose warps all take from the root.
    pub fn dry() -> Self {
        Self::with(Lease::DRY)
    }

    /// As it lies in device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[..2].copy_from_slice(&[self.lease.load_relaxed(), self.tail.load_relaxed()]);
        words
    }

    /// As it lay in device memory, for the host to read.
    pub fn from_words(words: [u64; 16]) -> Self {
        let [lease, tail, ..] = words.map(AtomicU64::new);
        Shard { lease, tail }
    }

    fn with(lease: Lease) -> Self {
        Shard { lease: AtomicU64::new(lease.0), tail: AtomicU64::new(Lease::NONE.0) }
    }

    /// Granules in its lease and its tail; `None` while a thread is changing them.
    pub fn remaining(&self) -> Option<u64> {
        let lease = Lease(self.lease.load_relaxed());
        let tail = Lease(self.tail.load_relaxed()).remaining()?;
        let in_lease = if lease.is_dry() { 0 } else { lease.remaining()? };
        Some(u64::from(in_lease) + u64::from(tail))
    }
}

/// A bump arena, as kernels hold it.
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

// SAFETY: `repr(C)` of addresses and integers; the layout is asserted above. Every thread may use the arena at once.
unsafe impl DeviceHandle for Bump {
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        found(self.base as u64, self.capacity());
    }
}

impl Bump {
    /// A handle of the arena made of these parts. `granule_log2` is the base-2 logarithm of the least
    /// alignment in bytes.
    ///
    /// # Safety
    /// `base` is aligned to a granule and starts `granules` of them; `root` and the `shard_count` (at
    /// least one) `shards` were made by [`Root::new`] and [`Shard::new`] for the same pool, or by
    /// [`Root::new`] for no shards and [`Shard::dry`]; `shared` is where a
    /// copy of this handle lies or will lie before its first use. All stay there while the handle or a copy
    /// of it is used, and belong to this arena alone.
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

    /// The copy of this handle in memory, for code off the fast path: a call there passes its address, while
    /// a handle passed by value would be written to every thread's stack.
    #[inline(always)]
    fn shared(&self) -> &Bump {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.shared }
    }

    /// Bytes it was made with.
    #[inline(always)]
    pub const fn capacity(&self) -> u64 {
        self.granules << self.granule_log2
    }

    /// The least alignment, and the unit in which memory is handed out, in bytes.
    #[inline(always)]
    pub const fn granule_bytes(&self) -> u64 {
        self.granule_bytes as u64
    }

    /// Where its memory starts.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    #[inline(always)]
    fn root(&self) -> &Root {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.root }
    }

    #[inline(always)]
    fn shard(&self, i: u32) -> &Shard {
        debug_assert!(i <= self.last_shard);
        // SAFETY: `i` is at most `last_shard`, by the callers.
        let shard = unsafe { self.shards.add(i as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*shard }
    }

    #[inline(always)]
    fn shard_count(&self) -> u32 {
        self.last_shard + 1
    }

    /// The shard of the multiprocessor that the caller runs on, as far as it knows; any would be right.
    #[inline(always)]
    fn home(&self) -> u32 {
        thread::sm_id().min(self.last_shard)
    }
}
