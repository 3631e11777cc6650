//! The pool's handle, and the words that it gives access to.

use super::geometry::Geometry;
use super::region::Region;
use crate::fault::FaultLog;
use crate::kernel::DeviceHandle;
use crate::sync::{AtomicU32, NATIVE_LAYOUT, Site};
use crate::units::BlockIndex;

/// The pause between two polls of a word that another thread is changing.
pub(super) const POLL_NANOS: u32 = 100;

/// The claim of a block's bit.
pub(super) const CLAIM: Site = Site::new("freelist/claim");
/// The release of a block's bit.
pub(super) const RELEASE: Site = Site::new("freelist/release");
/// The arrival of a warp that found its region empty.
pub(super) const ARRIVE: Site = Site::new("freelist/arrive");
/// The beginning of a scan of all regions.
pub(super) const BEGIN_SCAN: Site = Site::new("freelist/begin-scan");
/// Every named ordering of this structure, for model checkers.
pub const SITES: [&str; 4] = ["freelist/claim", "freelist/release", "freelist/arrive", "freelist/begin-scan"];

/// The reservation of blocks, after the look at the count.
pub(super) const RESERVE: Site = Site::new("freelist/reserve");
/// The cancellation of what a warp owes, after the look at the count.
pub(super) const CANCEL: Site = Site::new("freelist/cancel");
/// The same after [`CANCEL`] has failed too often, without a look.
pub(super) const CANCEL_ALL: Site = Site::new("freelist/cancel-all");
/// The credit of released blocks, between their bits and the count.
pub(super) const CREDIT: Site = Site::new("freelist/credit");
/// The other points at which a stress test can delay a thread.
pub const POINTS: [&str; 4] =
    ["freelist/reserve", "freelist/cancel", "freelist/cancel-all", "freelist/credit"];

/// A pool of blocks of one size, in the form that kernels use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FreeList {
    pub(super) base: *mut u8,
    regions: *const Region,
    bitmap: *const AtomicU32,
    faults: *const FaultLog,
    pub(super) geometry: Geometry,
    shared: *const FreeList,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<FreeList>() == 80 && align_of::<FreeList>() == 8);

// SAFETY: `repr(C)` of addresses and integers; the layout is asserted above. All threads may use
// the pool concurrently.
unsafe impl DeviceHandle for FreeList {
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        found(self.base as u64, self.geometry.bytes());
    }
}

impl FreeList {
    /// A handle to the pool that consists of these parts.
    ///
    /// # Safety
    /// - `base` points to `geometry.bytes()` bytes, with the alignment that the blocks need.
    /// - `regions` points to `geometry.regions()` [`Region`]s; region `i` was made for
    ///   `geometry.blocks_in(i)` blocks.
    /// - `bitmap` points to `geometry.words()` words, clear except for the bits past the capacity
    ///   (`geometry.initial_word`).
    /// - `faults` points to a log.
    /// - `shared` is the address of a copy of this handle, which is written before its first use.
    ///
    /// All of them stay valid while the handle or a copy of it is used.
    pub unsafe fn from_raw_parts(
        base: *mut u8,
        geometry: Geometry,
        regions: *const Region,
        bitmap: *const AtomicU32,
        faults: *const FaultLog,
        shared: *const FreeList,
    ) -> Self {
        FreeList { base, regions, bitmap, faults, geometry, shared }
    }

    /// The copy of this handle in memory, for code off the fast path. A call there passes the
    /// handle's address; a handle passed by value would be written to every thread's stack.
    #[inline(always)]
    pub(super) fn shared(&self) -> &FreeList {
        // SAFETY: `from_raw_parts`' promise for `shared`.
        unsafe { &*self.shared }
    }

    /// The pool's sizes and counts.
    #[inline(always)]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The address of the first block.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// The address of a block. For an index outside the pool, the address lies outside the pool.
    #[inline(always)]
    pub fn address_of(&self, block: BlockIndex) -> *mut u8 {
        let offset = u64::from(block.0) * self.geometry.stride();
        self.base.wrapping_add(offset as usize)
    }

    #[inline(always)]
    pub(super) fn region(&self, r: u32) -> &Region {
        debug_assert!(r < self.geometry.regions());
        // SAFETY: callers pass an `r` below the number of regions.
        let region = unsafe { self.regions.add(r as usize) };
        // SAFETY: `from_raw_parts`' promise for `regions`.
        unsafe { &*region }
    }

    #[inline(always)]
    pub(super) fn word(&self, w: u32) -> &AtomicU32 {
        debug_assert!(w < self.geometry.words());
        // SAFETY: callers pass a `w` below the number of words.
        let word = unsafe { self.bitmap.add(w as usize) };
        // SAFETY: `from_raw_parts`' promise for `bitmap`.
        unsafe { &*word }
    }

    #[inline(always)]
    pub(super) fn faults(&self) -> &FaultLog {
        // SAFETY: `from_raw_parts`' promise for `faults`.
        unsafe { &*self.faults }
    }
}
