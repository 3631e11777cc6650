//! The arena's handle, and the words that it gives access to.

use super::lease::{MAX_END, MAX_GROUP};
use super::state::{Root, Shard};
use crate::kernel::DeviceHandle;
use crate::sync::{NATIVE_LAYOUT, Site};
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
pub const SITES: [&str; 3] = ["bump/lend", "bump/see-tail", "bump/see-lent"];

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
