//! The handle of an arena, its words: the root's and those of each shard, and the root's counter.

#[cfg(not(target_arch = "nvptx64"))]
use super::lease::Lease;
use super::lease::{MAX_END, MAX_GROUP, MAX_LEASE, Piece};
use crate::kernel::DeviceHandle;
use crate::sync::{AtomicU64, NATIVE_LAYOUT, Site};
use crate::thread;
use crate::units::WARP_SIZE;

/// Maximum polls of a counter while the crosser settles it. A crosser needs two round trips to
/// memory; this allows for thousands.
pub(super) const SETTLE_POLLS: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 3 };
/// The pause between two polls.
pub(super) const POLL_NANOS: u32 = 100;

/// What a crosser has done to its shard before it takes memory from the root and stores the next
/// lease.
pub(super) const LEND: Site = Site::new("bump/lend");
/// The look at a shard's tail, after the look at its lease.
pub(super) const SEE_TAIL: Site = Site::new("bump/see-tail");
/// The look at the shards, after the look at the root.
pub(super) const SEE_LENT: Site = Site::new("bump/see-lent");
/// Every named ordering of this structure, for model checkers.
pub const ORDERINGS: [&str; 3] = ["bump/lend", "bump/see-tail", "bump/see-lent"];

/// The subtraction from a lease.
pub(super) const SUBTRACT: Site = Site::new("bump/subtract");
/// The reset of a retired shard's lease, after the look at it.
pub(super) const RESET_RETIRED: Site = Site::new("bump/reset-retired");
/// The replacement of a shard's tail, after the look at it.
pub(super) const KEEP_TAIL: Site = Site::new("bump/keep-tail");
/// The store of a shard's next lease, after it was taken from the root.
pub(super) const STORE_LEASE: Site = Site::new("bump/store-lease");
/// The subtraction from the root, after the look at it.
pub(super) const TAKE_ROOT: Site = Site::new("bump/take-root");
/// The crosser's store of the root's counter.
pub(super) const SETTLE_ROOT: Site = Site::new("bump/settle-root");
/// The allocation from another shard's lease or tail, after the look at it.
pub(super) const CARVE: Site = Site::new("bump/carve");
/// The lowering of the ceiling, after a search that found nothing.
pub(super) const LOWER_CEILING: Site = Site::new("bump/lower-ceiling");
/// The other points at which a stress test can delay a thread.
pub const POINTS: [&str; 8] = [
    "bump/subtract",
    "bump/reset-retired",
    "bump/keep-tail",
    "bump/store-lease",
    "bump/take-root",
    "bump/settle-root",
    "bump/carve",
    "bump/lower-ceiling",
];

/// The maximum size of a pool in granules: 512 GiB at 16 bytes each.
pub const MAX_GRANULES: u64 = MAX_END;

/// A lane that needs more granules than this, by size or alignment, allocates from the root on its
/// own.
const MAX_LANE: u32 = 1 << 9;
/// An alignment may need as many additional granules as the size.
const _: () = assert!(2 * MAX_LANE * WARP_SIZE <= MAX_GROUP);

/// A bump arena, in the form that kernels use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bump {
    pub(super) base: *mut u8,
    pub(super) granules: u64,
    root: *const Root,
    shards: *const Shard,
    last_shard: u32,
    pub(super) granule_log2: u32,
    pub(super) granule_bytes: u32,
    pub(super) small_bytes: u32,
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
    ///   [`Shard::new`] for the same pool, or by [`Root::new`] for zero shards and
    ///   [`Shard::retired`].
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
            small_bytes: MAX_LANE << granule_log2,
            shared,
        }
    }

    /// The copy of this handle in memory, for code off the fast path. A call there passes the
    /// handle's address; a handle passed by value would be written to every thread's stack.
    #[inline(always)]
    pub(super) fn shared(&self) -> &Bump {
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
    pub(super) fn root(&self) -> &Root {
        // SAFETY: `from_raw_parts`' promise for `root`.
        unsafe { &*self.root }
    }

    #[inline(always)]
    pub(super) fn shard(&self, i: u32) -> &Shard {
        debug_assert!(i <= self.last_shard);
        // SAFETY: callers pass an `i` that is at most `last_shard`.
        let shard = unsafe { self.shards.add(i as usize) };
        // SAFETY: `from_raw_parts`' promise for `shards`.
        unsafe { &*shard }
    }

    #[inline(always)]
    pub(super) fn shard_count(&self) -> u32 {
        self.last_shard + 1
    }

    /// The shard of the SM that the caller runs on. Only a hint: the thread may move, and any shard
    /// is correct.
    #[inline(always)]
    pub(super) fn own_shard(&self) -> u32 {
        thread::sm_id().min(self.last_shard)
    }
}

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

impl Bump {
    /// Takes `wanted` granules from the root. If fewer are left, but at least `min`, takes up to
    /// `short`.
    ///
    /// Every access is relaxed: the counter publishes nothing but itself. The memory that it
    /// allocates had no owner since the reset, and the host orders the reset before the launch.
    #[inline(always)]
    pub(super) fn take_from_root(&self, wanted: u64, min: u64, short: u64) -> Piece {
        let counter = &self.root().remaining;
        for _ in 0..SETTLE_POLLS {
            match decode(counter.load_relaxed()) {
                Some(remaining) if remaining < min => return Piece::NOTHING,
                Some(_) => {}
                None => {
                    thread::nanosleep(POLL_NANOS);
                    continue;
                }
            }
            TAKE_ROOT.delay();
            // `None`: below zero; the crosser's store discards this subtraction (I2).
            let Some(remaining) = decode(counter.sub_relaxed(wanted)) else { continue };
            let start = self.granules - remaining;
            if remaining >= wanted {
                return Piece { start, len: wanted };
            }
            // This thread has crossed zero, so it owns the remainder (I2).
            let len = if remaining >= min { remaining.min(short) } else { 0 };
            SETTLE_ROOT.delay();
            // A swap, not a store: it continues the release sequences of earlier subtractions, so a
            // thread that reads this value synchronises with their LEND fences too.
            counter.swap_relaxed(encode(remaining - len));
            if len > 0 {
                return Piece { start, len };
            }
        }
        Piece::UNSETTLED
    }
}

impl Bump {
    /// Moves the arena's counter back: the last `bytes` that the root has leased count as not
    /// leased. The arena will allocate them a second time.
    ///
    /// # Safety
    /// Never safe for the owners: that is the purpose. At least `bytes` were leased, and no other
    /// thread uses the arena during the call.
    #[doc(hidden)]
    pub unsafe fn corrupt_rewind(&self, bytes: u64) {
        // Relaxed: no other thread uses the arena.
        self.root().remaining.add_relaxed(bytes >> self.granule_log2);
        self.root().ceiling.store_relaxed(u64::MAX);
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
