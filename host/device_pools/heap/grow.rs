//! Growth of a heap that has memory for only a part of its addresses.
//!
//! The metadata covers all addresses from the start. The entries of slabs without memory are marked
//! free, but the slabs are in no structure where a thread would find them. When they get memory,
//! the host adds them there between two launches. So kernels need no support for growth, and a heap
//! that never grows pays nothing.

use super::backing::{Backing, whole_slabs};
use super::offsets::MetadataOffsets;
use super::pool::Heap;
use crate::driver::DeviceMemory;
use crate::error::{Bytes, Error, OutOfMemory, Result};
use std::ops::Range;
use warpheap_device::heap::{FRESH_STRIDE, HeapLayout, Overview};

impl Heap {
    /// Waits for the device, then grows the heap's memory to `bytes`, rounded up as for
    /// [`initial`](super::HeapBuilder::initial), and returns its size. Kernels of later launches
    /// can use the new memory, also through older handles. Launches that use the heap wait until
    /// the growth is done. No block moves or changes. Does nothing if the heap is already large
    /// enough.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device has no memory or the heap's maximum size is exceeded;
    /// [`Error::NotReset`] after a failed reset; or an earlier failure of the device. Then nothing
    /// changes, with one exception: if a copy to the metadata fails after the memory was mapped,
    /// the heap has the memory, but some of the new slabs cannot be allocated before the next
    /// reset. A second call does not repair that.
    pub fn grow_to(&mut self, bytes: u64) -> Result<u64> {
        self.check_reset()?;
        let layout = self.layout;
        if bytes >> layout.slab_log2 > layout.slabs.into() {
            return Err(Error::OutOfMemory(OutOfMemory::Reservation {
                what: "a heap",
                requested: Bytes(bytes),
                reserved: Bytes(layout.bytes()),
                advice: "build it for more, with `initial` for what it has at first",
            }));
        }
        let wanted = whole_slabs(&layout, bytes);
        if wanted > self.present_bytes()
            && let Backing::Growable(buffer) = &mut self.backing
        {
            let _held = buffer.memory().block_launches()?;
            // First, so that an earlier failure is reported before anything changes.
            let mut words = FreeWords::read(&self.metadata, &self.offsets, &layout)?;
            buffer.grow_to(wanted)?;
            let old = std::mem::replace(&mut self.present, self.backing.slabs(&layout));
            words.add(&layout, old..self.present);
            // If this fails, some slabs are lost, but none is added twice.
            words.write(&mut self.metadata, &self.offsets)?;
            // Makes classes search for slabs again after a search that found only free blocks.
            let found = Overview::FOUND;
            self.metadata.fill_part(self.offsets.overview + found.start as u64, found.len() as u64, 0)?;
        }
        Ok(self.present_bytes())
    }

    /// Bytes of the usable slabs.
    fn present_bytes(&self) -> u64 {
        u64::from(self.present) << self.layout.slab_log2
    }
}

/// Where threads find unused slabs: a copy of these metadata words.
pub(super) struct FreeWords {
    /// The next fresh slab of each shard's partition.
    pub fresh: Vec<u32>,
    /// The set of free slabs: a bit for each, then a bit for each word of those.
    pub free: Vec<u32>,
}

impl FreeWords {
    /// Words without any slab.
    pub fn none(layout: &HeapLayout) -> FreeWords {
        let mut fresh = vec![0; layout.shards as usize * FRESH_STRIDE];
        for (shard, next) in (0..).zip(fresh.chunks_mut(FRESH_STRIDE)) {
            next[0] = layout.partition_start(shard + 1);
        }
        FreeWords { fresh, free: vec![0; layout.set_words() as usize] }
    }

    /// The words of a heap. Waits for the device.
    fn read(metadata: &DeviceMemory, offsets: &MetadataOffsets, layout: &HeapLayout) -> Result<FreeWords> {
        let mut words = FreeWords::none(layout);
        metadata.read(offsets.fresh, &mut words.fresh)?;
        metadata.read(offsets.slab_sets, &mut words.free)?;
        Ok(words)
    }

    fn write(&self, metadata: &mut DeviceMemory, offsets: &MetadataOffsets) -> Result<()> {
        metadata.write(offsets.fresh, &self.fresh)?;
        metadata.write(offsets.slab_sets, &self.free)
    }

    /// Adds slabs that were never used. A partition that is entirely among them is allocated in
    /// order; the other slabs are added to the free set, because the thread that takes the first
    /// slab of a partition may take all slabs after it.
    pub fn add(&mut self, layout: &HeapLayout, slabs: Range<u32>) {
        let slab_words = layout.slabs.div_ceil(u32::BITS) as usize;
        for (shard, next) in (0..).zip(self.fresh.chunks_mut(FRESH_STRIDE)) {
            let partition = layout.partition_start(shard)..layout.partition_start(shard + 1);
            let part = partition.start.max(slabs.start)..partition.end.min(slabs.end);
            if part == partition {
                next[0] = partition.start;
                continue;
            }
            for slab in part {
                let word = (slab / u32::BITS) as usize;
                self.free[word] |= 1 << (slab % u32::BITS);
                self.free[slab_words + word / 32] |= 1 << (word % 32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Device;
    use std::collections::BTreeSet;

    /// The slabs that threads would find. Asserts that each is found once.
    fn found(words: &FreeWords, layout: &HeapLayout) -> BTreeSet<u32> {
        let mut slabs = BTreeSet::new();
        let mut find = |slab| assert!(slabs.insert(slab), "slab {slab} is in two places");
        for (shard, next) in (0..).zip(words.fresh.chunks(FRESH_STRIDE)) {
            (next[0]..layout.partition_start(shard + 1)).for_each(&mut find);
        }
        let slab_words = layout.slabs.div_ceil(32) as usize;
        for (w, word) in words.free[..slab_words].iter().enumerate() {
            let summarised = words.free[slab_words + w / 32] >> (w % 32) & 1 == 1;
            assert_eq!(*word != 0, summarised, "word {w}");
            let bits = (0..32).filter(|bit| word >> bit & 1 == 1);
            bits.map(|bit| 32 * w as u32 + bit).for_each(&mut find);
        }
        slabs
    }

    #[test]
    fn each_slab_is_found_once_whatever_the_steps() {
        for (bytes, shards) in [(1 << 20, 1), (37 << 20, 3), (1 << 30, 9), ((3 << 30) + 12_345, 132)] {
            let layout = HeapLayout::spread(bytes, 132, shards).unwrap();
            for step in [1, 7, 32, layout.slabs / 5, layout.slabs / 2, layout.slabs] {
                let mut words = FreeWords::none(&layout);
                let (mut present, mut stride) = (0, step);
                while present < layout.slabs {
                    let more = (present + stride).min(layout.slabs);
                    words.add(&layout, present..more);
                    (present, stride) = (more, stride + stride / 2 + 1);
                    assert_eq!(found(&words, &layout), (0..present).collect());
                }
            }
        }
    }

    #[test]
    fn used_slabs_stay_in_use() {
        let layout = HeapLayout::spread(64 << 20, 4, 4).unwrap();
        let partition = layout.partition_start(1);
        let mut words = FreeWords::none(&layout);
        words.add(&layout, 0..partition + 5);
        // Three slabs of the first partition and all slabs of the free set are taken.
        words.fresh[0] += 3;
        words.free.fill(0);
        words.add(&layout, partition + 5..3 * partition);
        assert_eq!(found(&words, &layout), (3..partition).chain(partition + 5..3 * partition).collect());
    }

    /// The words with the result of the last exhaustive search for each class.
    fn words_found(heap: &Heap) -> Vec<u32> {
        let mut words = vec![0; Overview::FOUND.len() / 4];
        heap.metadata.read(heap.offsets.overview + Overview::FOUND.start as u64, &mut words).unwrap();
        words
    }

    #[test]
    fn a_class_without_slabs_looks_for_new_ones() {
        let mut heap = Heap::builder(8 << 20).initial(2 << 20).build(&Device::cpu()).unwrap();
        let layouts = vec![std::alloc::Layout::new::<[u64; 128]>(); 4096];
        assert!(heap.allocate_many(&layouts).unwrap().iter().any(Option::is_none));
        assert!(words_found(&heap).iter().any(|word| *word != 0), "a search found none");
        heap.grow_to(4 << 20).unwrap();
        assert!(words_found(&heap).iter().all(|word| *word == 0));
        assert!(heap.allocate_many(&layouts[..1]).unwrap()[0].is_some());
    }
}
