//! The handle of a pool, and the state of its regions.

use super::geometry::{Geometry, Location, WORD_BLOCKS};
use crate::fault::FaultLog;
use crate::kernel::DeviceHandle;
use crate::scans::Scans;
use crate::sync::{AtomicU32, AtomicU64, NATIVE_LAYOUT, Site};
use crate::units::BlockIndex;
use core::ptr::NonNull;

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
pub const ORDERINGS: [&str; 4] =
    ["freelist/claim", "freelist/release", "freelist/arrive", "freelist/begin-scan"];

/// The reservation of blocks, after the look at the count.
pub(super) const RESERVE: Site = Site::new("freelist/reserve");
/// The cancellation of what a warp owes, after the look at the count.
pub(super) const CANCEL: Site = Site::new("freelist/cancel");
/// [`CANCEL`] after it has failed too often: without a load before.
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

/// Half the range of the count is room for failing reservations, at most one per resident warp.
const BIAS: u64 = 1 << 31;
const CURSOR_SHIFT: u32 = 32;

/// The state of a region: a count that says whether it has free blocks, and a cursor that says
/// where to look for them.
///
/// ```text
/// 63       32 31              0
/// | cursor   | free + BIAS     |
/// ```
///
/// The cursor counts blocks and wraps. It is in the upper half, so its overflow does not change the
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub u64);

impl Word {
    pub const fn new(free: u32) -> Self {
        Word(BIAS + free as u64)
    }

    /// Free blocks. Below zero: the number of blocks that threads owe (I5).
    #[inline(always)]
    pub const fn free(self) -> i32 {
        (self.0 as u32 ^ BIAS as u32) as i32
    }

    #[inline(always)]
    pub const fn cursor(self) -> u32 {
        (self.0 >> CURSOR_SHIFT) as u32
    }

    /// The addend that reserves `n` blocks: the cursor advances, the count drops.
    #[inline(always)]
    pub const fn step(n: u32) -> u64 {
        ((n as u64) << CURSOR_SHIFT).wrapping_sub(n as u64)
    }
}

/// The count and the cursor of one region. One region per cache line avoids false sharing: eight
/// regions in one line cost five times as much when all warps allocate.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Region {
    pub(super) word: AtomicU64,
    /// Scans for free blocks, shared by the warps of this region.
    pub(super) scans: Scans,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Region>() == 128);

#[cfg(not(target_arch = "nvptx64"))]
impl Region {
    /// A region of `blocks` blocks, all free.
    pub fn new(blocks: u32) -> Self {
        Region { word: AtomicU64::new(Word::new(blocks).0), scans: Scans::new() }
    }

    /// The in-memory representation for device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[0] = self.word.load_relaxed();
        words[1..3].copy_from_slice(&self.scans.to_words());
        words
    }

    /// Decodes the representation in device memory, which the host has read.
    pub fn from_words(words: [u64; 16]) -> Self {
        let [word, begun, result, ..] = words;
        Region { word: AtomicU64::new(word), scans: Scans::from_words([begun, result]) }
    }

    /// Free blocks according to the count. Negative while threads that reserved too much owe
    /// blocks.
    pub fn free(&self) -> i32 {
        Word(self.word.load_relaxed()).free()
    }
}

impl FreeList {
    /// Marks a live block as free without its owner's knowledge: clears its bit and credits its
    /// region. The pool will allocate the block a second time. Returns whether the block was live.
    ///
    /// # Safety
    /// Never safe for the block's owner: that is the purpose. No other thread uses the pool during
    /// the call.
    #[doc(hidden)]
    pub unsafe fn corrupt_unclaim(&self, block: NonNull<u8>) -> bool {
        let offset = (block.as_ptr() as u64).wrapping_sub(self.base as u64);
        let Location::Block(index) = self.geometry.locate(offset) else { return false };
        let (word, bit) = (index / WORD_BLOCKS, 1 << (index % WORD_BLOCKS));
        // Relaxed: no other thread uses the pool.
        let was_live = self.word(word).and_relaxed(!bit) & bit != 0;
        if was_live {
            self.credit(self.geometry.region_of_word(word), 1);
        }
        was_live
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_region_arrives_on_the_device_as_it_is() {
        let words = Region::new(77).to_words();
        let copy = Region::from_words(words);
        assert_eq!((copy.free(), copy.to_words()), (77, words));
    }

    #[test]
    fn a_cursor_that_wraps_leaves_the_count_alone() {
        let mut word = Word((u32::MAX as u64) << CURSOR_SHIFT | (BIAS + 100));
        word.0 = word.0.wrapping_add(Word::step(32));
        assert_eq!((word.cursor(), word.free()), (31, 68));
    }

    #[test]
    fn a_count_below_zero_leaves_the_cursor_alone() {
        let mut word = Word::new(5);
        for _ in 0..20_000 {
            word.0 = word.0.wrapping_add(Word::step(32));
        }
        assert_eq!((word.cursor(), word.free()), (20_000 * 32, 5 - 20_000 * 32));
    }
}
