//! A lock-free pool of blocks of one size.
//!
//! ```text
//!  region[r]   | cursor | free |                        one word, alone in its cache line
//!  bitmap      | words of region 0 | words of region 1 | ...      bit set: block taken
//!  pool        | block 0 | block 1 | ...
//! ```
//!
//! To allocate, a warp *reserves* one block per lane from the count of one region, with one atomic
//! that also moves the region's cursor. It then *claims* that many bits near the cursor, usually
//! all at once in one word. To free, it *releases* the bits and then credits the count. A warp
//! starts at its first region, which follows from its warp index. If that region has too few blocks,
//! the warp searches the others.
//!
//! A warp that reserved more blocks than the region had *owes* the difference. It keeps blocks that
//! other threads free before it settles, and cancels what is still owed.
//!
//! Let `bits(r)` be the clear bits of region `r`, `free(r)` its count, `reserved(r)` the blocks
//! reserved in it and not yet claimed, `released(r)` those released and not yet credited.
//! Invariants:
//!
//! - I1. `bits(r) = free(r) + reserved(r) + released(r)`, where `reserved(r)` includes blocks owed.
//!   A thread that has a reservation and owes nothing finds a clear bit.
//! - I2. A set bit has one owner: the thread that turned it from 0 to 1 by its atomic OR.
//! - I3. The owner's writes to its block happen before the release of its bit, and the next claim
//!   of that bit happens before the next owner's writes.
//! - I4. `cursor(r)` moves with every reservation in `r`, so two equal looks at all cursors show
//!   that nothing was reserved in between.
//! - I5. `-free(r)` blocks are owed and not filled while that value is above zero. A cancellation
//!   raises the count to zero at most. A block that is freed while threads owe blocks belongs to
//!   those threads, and they keep it.
//!
//! Any thread writes the words, by atomic read-modify-writes only. The host writes everything
//! between launches.
//!
//! A null result is exact: it is returned only after two consecutive looks at every region that
//! found no count above zero and all cursors unmoved. Each region was then empty for the whole time
//! between its two looks (I4, I5), so all regions were empty when the second look began. One
//! exception bounds the time of a call: if a group has spent its `PATIENCE` on fruitless searches,
//! because other threads were faster each time, its allocation fails as well. Warps of one region
//! share a [scan](crate::scans):
//!
//! - I6. It counts for every warp that arrived before it began.
//!
//! Misuse is detected at the release: a bit that is already clear is a double free, which credits
//! nothing and is recorded. If the block was allocated again between two frees, the second free
//! cannot be distinguished from a free by its owner.
//!
//! There is no ABA problem: no word holds a link, and the claim or release of a bit means the same
//! whatever happened in between. Progress: lock-free while blocks are available; a claim that
//! misses a bit lost it to another claim (I1). A warp that finds its region empty waits for a scan
//! under way, `WAIT.polls` polls at most.

mod alloc;
mod claim;
mod corrupt;
mod empty;
mod free;
mod geometry;
mod reserve;

pub use geometry::{Geometry, Location, MAX_CAPACITY, MAX_STRIDE};

use crate::fault::FaultLog;
use crate::kernel::DeviceHandle;
use crate::scans::Scans;
use crate::sync::{AtomicU32, AtomicU64, NATIVE_LAYOUT, Site};
use crate::units::BlockIndex;

/// The pause between two polls of a word that another thread is changing.
const POLL_NANOS: u32 = 100;

/// The claim of a block's bit.
const CLAIM: Site = Site::new("freelist/claim");
/// The release of a block's bit.
const RELEASE: Site = Site::new("freelist/release");
/// The arrival of a warp that found its region empty.
const ARRIVE: Site = Site::new("freelist/arrive");
/// The beginning of a scan that the pool is empty.
const PROVE: Site = Site::new("freelist/prove");
/// Every named ordering of this structure, for model checkers.
pub const SITES: [&str; 4] = ["freelist/claim", "freelist/release", "freelist/arrive", "freelist/prove"];

/// The count and the cursor of one region. One region per cache line avoids false sharing: eight
/// regions in one line cost five times as much when all warps allocate.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Region {
    word: AtomicU64,
    /// Scans of emptiness, shared by the warps of this region.
    scans: Scans,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Region>() == 128);

#[cfg(not(target_arch = "nvptx64"))]
impl Region {
    /// A region of `blocks` blocks, all free.
    pub fn new(blocks: u32) -> Self {
        Region { word: AtomicU64::new(reserve::Word::new(blocks).0), scans: Scans::new() }
    }

    /// The in-memory representation for device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        let [begun, scan_result] = self.scans.to_words();
        words[..3].copy_from_slice(&[self.word.load_relaxed(), begun, scan_result]);
        words
    }

    /// Decodes the representation in device memory, which the host has read.
    pub fn from_words(words: [u64; 16]) -> Self {
        let [word, begun, scan_result, ..] = words;
        Region { word: AtomicU64::new(word), scans: Scans::from_words([begun, scan_result]) }
    }

    /// Free blocks according to the count. Negative while threads that reserved too much owe
    /// blocks.
    pub fn free(&self) -> i32 {
        reserve::Word(self.word.load_relaxed()).free()
    }
}

/// A pool of blocks of one size, in the form that kernels use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FreeList {
    base: *mut u8,
    regions: *const Region,
    bitmap: *const AtomicU32,
    faults: *const FaultLog,
    geometry: Geometry,
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
    fn shared(&self) -> &FreeList {
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
    fn region(&self, r: u32) -> &Region {
        debug_assert!(r < self.geometry.regions());
        // SAFETY: callers pass an `r` below the number of regions.
        let region = unsafe { self.regions.add(r as usize) };
        // SAFETY: `from_raw_parts`' promise for `regions`.
        unsafe { &*region }
    }

    #[inline(always)]
    fn word(&self, w: u32) -> &AtomicU32 {
        debug_assert!(w < self.geometry.words());
        // SAFETY: callers pass a `w` below the number of words.
        let word = unsafe { self.bitmap.add(w as usize) };
        // SAFETY: `from_raw_parts`' promise for `bitmap`.
        unsafe { &*word }
    }

    #[inline(always)]
    fn faults(&self) -> &FaultLog {
        // SAFETY: `from_raw_parts`' promise for `faults`.
        unsafe { &*self.faults }
    }
}
