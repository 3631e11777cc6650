//! A lock-free pool of blocks of one size.
//!
//! ```text
//!  region[r]   | cursor | free |                        one word, alone in its cache line
//!  bitmap      | words of region 0 | words of region 1 | ...      bit set: block taken
//!  pool        | block 0 | block 1 | ...
//! ```
//!
//! To allocate, a warp *reserves* as many blocks as it has lanes from the count of one region, with one
//! atomic that also moves the region's cursor, and then *claims* that many bits near the cursor, mostly
//! all at once in one word. To free, it *releases* the bits and then credits the count. A warp starts at
//! the region of its number and goes on to the others when that one has too little.
//!
//! A warp that reserved more than there was *owes* the rest: it keeps what others free before it notices,
//! and cancels what is still owed.
//!
//! Let `bits(r)` be the clear bits of region `r`, `free(r)` its count, `reserved(r)` the blocks reserved
//! in it and not yet claimed, `released(r)` those released and not yet credited. Invariants:
//!
//! - I1. `bits(r) = free(r) + reserved(r) + released(r)`, blocks owed among the reserved: whoever has a
//!   reservation and owes nothing finds a clear bit.
//! - I2. A set bit has one owner: the thread whose atomic OR turned it from 0 to 1.
//! - I3. What an owner wrote to its block happens before the release of its bit, and the next claim of
//!   that bit happens before what the next owner writes.
//! - I4. `cursor(r)` moves with every reservation in `r`, so that two equal looks at all cursors show that
//!   nothing was reserved in between.
//! - I5. `-free(r)` blocks are owed and not filled while that is above zero. A cancellation raises the
//!   count to zero at most, so a block that is freed while others owe is theirs, and they keep it.
//!
//! Who writes: any thread, by atomic read-modify-writes alone. The host writes everything between launches.
//!
//! A null answer is exact: it is given only after two looks at every region, one after the other, that
//! found no count above zero and all cursors unmoved. Each region was then empty all the time between its
//! two looks (I4, I5), so when the second began, all were. One exception keeps the answer's time bounded: a
//! group that has spent its `PATIENCE` on looks in vain, because others were faster each time, is refused
//! too. Warps of one region share a [proof](crate::proofs):
//!
//! - I6. It counts for every warp that arrived before it began.
//!
//! Misuse is seen by what the release finds: a bit that is already clear is a double free, which counts
//! nothing and is recorded. A block freed twice with another allocation of it in between cannot be told
//! apart from its owner's free.
//!
//! There is no ABA: no word holds a link, and claims and releases of a bit mean the same whatever happened
//! in between. Progress: lock-free with blocks to give; a claim that misses a bit lost it to another claim
//! (I1). A warp that finds its region empty waits for a proof under way, `WAITS` polls at most.

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
use crate::proofs::Proofs;
use crate::sync::{AtomicU32, AtomicU64, NATIVE_LAYOUT, Site};
use crate::units::BlockIndex;

/// The pause between two looks at what another thread is changing.
const POLL_NANOS: u32 = 100;

/// The claim of a block's bit.
const CLAIM: Site = Site::new("freelist/claim");
/// The release of a block's bit.
const RELEASE: Site = Site::new("freelist/release");
/// The arrival of a warp that found its region empty.
const ARRIVE: Site = Site::new("freelist/arrive");
/// The beginning of a proof that the pool is empty.
const PROVE: Site = Site::new("freelist/prove");
/// Every named ordering of this structure, for checkers.
pub const SITES: [&str; 4] = ["freelist/claim", "freelist/release", "freelist/arrive", "freelist/prove"];

/// The count and the cursor of one region, alone in its cache line: eight of them in one line cost five
/// times as much when all warps ask.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Region {
    word: AtomicU64,
    /// Those of emptiness by warps of this region.
    proofs: Proofs,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Region>() == 128);

#[cfg(not(target_arch = "nvptx64"))]
impl Region {
    /// A region of `blocks` blocks, all free.
    pub fn new(blocks: u32) -> Self {
        Region { word: AtomicU64::new(reserve::Word::new(blocks).0), proofs: Proofs::new() }
    }

    /// As it lies in device memory, for the host to write.
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        let [begun, verdict] = self.proofs.to_words();
        words[..3].copy_from_slice(&[self.word.load_relaxed(), begun, verdict]);
        words
    }

    /// As it lay in device memory, for the host to read.
    pub fn from_words(words: [u64; 16]) -> Self {
        let [word, begun, verdict, ..] = words;
        Region { word: AtomicU64::new(word), proofs: Proofs::from_words([begun, verdict]) }
    }

    /// Free blocks, by the count; negative while threads that asked for too much owe blocks.
    pub fn free(&self) -> i32 {
        reserve::Word(self.word.load_relaxed()).free()
    }
}

/// A pool of equal blocks, as kernels hold it.
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

// SAFETY: `repr(C)` of addresses and integers; the layout is asserted above. Every thread may use the pool at once.
unsafe impl DeviceHandle for FreeList {
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        found(self.base as u64, self.geometry.bytes());
    }
}

impl FreeList {
    /// A handle of the pool made of these parts.
    ///
    /// # Safety
    /// `base` starts `geometry.bytes()` bytes, aligned as blocks shall be; `regions` are
    /// `geometry.regions()` [`Region`]s, region `i` made for `geometry.blocks_in(i)` blocks; `bitmap` are
    /// `geometry.words()` words, clear but for the bits past the capacity (`geometry.initial_word`);
    /// `faults` is a log; `shared` is where a copy of this handle lies or will lie before its first use. All
    /// stay there while the handle or a copy of it is used.
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

    /// The copy of this handle in memory, for code off the fast path: a call there passes its address, while
    /// a handle passed by value would be written to every thread's stack.
    #[inline(always)]
    fn shared(&self) -> &FreeList {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.shared }
    }

    /// Sizes and counts.
    #[inline(always)]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Where its memory starts.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// The block at this place; an address outside of the pool for one that the pool does not have.
    #[inline(always)]
    pub fn address_of(&self, block: BlockIndex) -> *mut u8 {
        let offset = u64::from(block.0) * self.geometry.stride();
        self.base.wrapping_add(offset as usize)
    }

    #[inline(always)]
    fn region(&self, r: u32) -> &Region {
        debug_assert!(r < self.geometry.regions());
        // SAFETY: `r` is below the number of regions, by the callers.
        let region = unsafe { self.regions.add(r as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*region }
    }

    #[inline(always)]
    fn word(&self, w: u32) -> &AtomicU32 {
        debug_assert!(w < self.geometry.words());
        // SAFETY: `w` is below the number of words, by the callers.
        let word = unsafe { self.bitmap.add(w as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*word }
    }

    #[inline(always)]
    fn faults(&self) -> &FaultLog {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.faults }
    }
}
