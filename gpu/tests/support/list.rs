//! A block pool whose memory is never accessed.

use warpheap_device::fault::FaultLog;
use warpheap_device::freelist::{FreeList, Geometry, Region};
use warpheap_device::sync::AtomicU32;

pub struct List {
    pub handle: Box<FreeList>,
    pub regions: Vec<Region>,
    pub bitmap: Vec<AtomicU32>,
    pub faults: Box<FaultLog>,
    _memory: Vec<u8>,
}

// SAFETY: the addresses in the handle belong to the pool.
unsafe impl Sync for List {}
// SAFETY: the addresses in the handle belong to the pool.
unsafe impl Send for List {}

impl List {
    /// A pool of `capacity` blocks, `stride` bytes apart, of which the first `taken` are allocated.
    pub fn new(capacity: u32, stride: u32, taken: u32) -> List {
        let geometry = Geometry::new(capacity, stride).unwrap();
        let taken_of = |first: u32, blocks: u32| taken.saturating_sub(first).min(blocks);
        let region = |r| {
            let blocks = geometry.blocks_in(r);
            Region::new(blocks - taken_of(geometry.first_word(r) * 32, blocks))
        };
        let word = |w| geometry.initial_word(w) | ((1u64 << taken_of(w * 32, 32)) - 1) as u32;
        let regions: Vec<Region> = (0..geometry.regions()).map(region).collect();
        let bitmap: Vec<AtomicU32> = (0..geometry.words()).map(|w| AtomicU32::new(word(w))).collect();
        let faults = Box::new(FaultLog::default());
        let mut memory = vec![0u8; geometry.bytes() as usize];
        let mut shared = Box::<FreeList>::new_uninit();
        let (regions_at, bitmap_at, faults_at) = (regions.as_ptr(), bitmap.as_ptr(), &raw const *faults);
        let (base, shared_at) = (memory.as_mut_ptr(), shared.as_ptr());
        // SAFETY: the pool keeps all parts, which do not move on the heap.
        let handle =
            unsafe { FreeList::from_raw_parts(base, geometry, regions_at, bitmap_at, faults_at, shared_at) };
        shared.write(handle);
        // SAFETY: written above.
        let handle = unsafe { shared.assume_init() };
        List { handle, regions, bitmap, faults, _memory: memory }
    }

    /// To be called when no thread uses the pool: the counts match the bits, and `taken` blocks are
    /// allocated.
    pub fn check(&self, taken: u32) {
        let geometry = self.handle.geometry();
        let mut all = 0;
        for (r, region) in (0..).zip(&self.regions) {
            let words = geometry.first_word(r)..geometry.first_word(r) + geometry.words_in(r);
            let clear: u32 = words.map(|w| self.bitmap[w as usize].load_relaxed().count_zeros()).sum();
            assert_eq!(region.free(), clear as i32, "region {r}");
            all += clear;
        }
        assert_eq!(geometry.capacity() - all, taken);
    }
}
