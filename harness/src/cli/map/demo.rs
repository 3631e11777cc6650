//! Heaps to draw. The pictures and reports of `docs/guide/map.md`, `docs/guide/out-of-memory.md`
//! and `docs/gallery.md` show them.

use super::super::args::DemoHeap;
use std::alloc::Layout;
use warpheap::device_pools::{Heap, HeapMap};
use warpheap::{Device, Result};
use warpheap_device::kernel::DevicePtr;

/// One of this many blocks of a fragmented heap stays allocated. A run of the class has more
/// blocks.
const SURVIVORS: usize = 16;
/// Bytes of the blocks that fragment a heap.
const TEMPORARY: usize = 4096;
/// Bytes of the blocks that are never freed.
const LEAKED: usize = 256;

type Block = DevicePtr<u8>;

/// Makes a heap of `bytes` and returns its map, or several.
pub fn maps(device: &Device, kind: DemoHeap, bytes: u64) -> Result<Vec<HeapMap>> {
    let demo = Demo { heap: Heap::builder(bytes).build(device)? };
    match kind {
        DemoHeap::Fresh => Ok(vec![demo.map("a new heap")?]),
        DemoHeap::Mixed => demo.mixed(),
        DemoHeap::Fragmented => demo.fragmented(),
        DemoHeap::Full => demo.full(),
        DemoHeap::Timeline => demo.timeline(),
        DemoHeap::Leak => demo.leak(),
    }
}

struct Demo {
    heap: Heap,
}

impl Demo {
    fn map(&self, label: &str) -> Result<HeapMap> {
        Ok(self.heap.snapshot()?.map(label))
    }

    /// Allocates blocks of `size` that fill the part `part` of the heap, at most one more than
    /// there is free memory for. Returns them in address order.
    fn fill(&self, part: f64, size: usize) -> Result<Vec<Block>> {
        let count = (self.heap.capacity() as f64 * part / size as f64) as usize;
        let most = self.heap.stats()?.free_bytes as usize / size + 1;
        let layout = Layout::from_size_align(size, 1).expect("a small size");
        let blocks = self.heap.allocate_many(&vec![layout; count.clamp(1, most)])?;
        let mut blocks: Vec<_> = blocks.into_iter().flatten().collect();
        blocks.sort_unstable_by_key(|block| block.0 as usize);
        Ok(blocks)
    }

    fn free(&self, blocks: impl IntoIterator<Item = Block>) -> Result<()> {
        let blocks: Vec<_> = blocks.into_iter().collect();
        // SAFETY: no kernel uses the blocks.
        unsafe { self.heap.deallocate_many(&blocks) }
    }

    /// Large allocations, `count` of them, each of the part `part` of the heap.
    fn large(&self, count: usize, part: f64) -> Result<Vec<Block>> {
        let size = (self.heap.capacity() as f64 * part) as usize;
        let large = (0..count).map(|_| self.fill(part * 1.01, size)).collect::<Result<Vec<_>>>()?;
        Ok(large.concat())
    }

    fn mixed(&self) -> Result<Vec<HeapMap>> {
        self.fill(0.05, 64)?;
        let half = self.fill(0.06, 256)?;
        self.fill(0.05, 1024)?;
        let (large, most) = (self.large(4, 0.06)?, self.fill(0.08, 4096)?);
        self.free(half.into_iter().step_by(2))?;
        self.free(large.into_iter().skip(1).take(1))?;
        let kept = most.len() / 5;
        self.free(most.into_iter().skip(kept))?;
        Ok(vec![self.map("blocks of several sizes")?])
    }

    fn full(&self) -> Result<Vec<HeapMap>> {
        self.fill(0.1, 64)?;
        self.large(2, 0.1)?;
        // Halves fill what larger sizes leave.
        for size in [8192, 1024, 256, 16] {
            self.fill(1.0, size)?;
        }
        Ok(vec![self.map("out of memory")?])
    }

    /// Fills the heap with blocks of one size and frees most of them. Returns the others.
    fn fragment(&self, blocks: Vec<Block>) -> Result<Vec<Block>> {
        let (survivors, temporary): (Vec<_>, Vec<_>) =
            (0..).zip(blocks).partition(|(index, _)| *index % SURVIVORS == 0);
        self.free(temporary.into_iter().map(|(_, block)| block))?;
        Ok(survivors.into_iter().map(|(_, block)| block).collect())
    }

    /// After most of the heap was freed, an allocation of an eighth of it fails.
    fn fragmented(&self) -> Result<Vec<HeapMap>> {
        self.fill(0.08, 64)?;
        self.large(2, 0.05)?;
        let blocks = self.fill(1.0, TEMPORARY)?;
        self.fragment(blocks)?;
        self.large(1, 0.125)?;
        Ok(vec![self.map("most blocks were freed, but an allocation fails")?])
    }

    fn timeline(&self) -> Result<Vec<HeapMap>> {
        let new = self.map("new")?;
        self.fill(0.08, 64)?;
        self.large(2, 0.05)?;
        let first = self.fill(0.3, TEMPORARY)?;
        let loading = self.map("loading")?;
        let blocks = [first, self.fill(1.0, TEMPORARY)?].concat();
        let peak = self.map("peak")?;
        let survivors = self.fragment(blocks)?;
        let fragmented = self.map("most are freed")?;
        self.free(survivors)?;
        Ok(vec![new, loading, peak, fragmented, self.map("all are freed")?])
    }

    /// Each step leaks blocks of [`LEAKED`] bytes, and frees all others. The last one fails.
    fn leak(&self) -> Result<Vec<HeapMap>> {
        let step = |number: usize| {
            self.fill(0.24, LEAKED)?;
            let others = self.fill(0.15, TEMPORARY)?;
            self.free(others)?;
            self.map(&format!("after step {number}"))
        };
        (1..=4).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo(kind: DemoHeap) -> Vec<HeapMap> {
        let maps = maps(&Device::cpu(), kind, 16 << 20).unwrap();
        maps.iter().for_each(|map| map.validate().unwrap());
        maps
    }

    #[test]
    fn heaps_are_what_their_names_say() {
        let fresh = demo(DemoHeap::Fresh)[0].totals();
        assert_eq!((fresh.fresh_bytes, fresh.fragmentation()), (16 << 20, 0.0));
        let mixed = demo(DemoHeap::Mixed)[0].totals();
        assert!(mixed.large_bytes > 1 << 20 && mixed.live_bytes > mixed.large_bytes, "{mixed:?}");
        assert!(mixed.free_block_bytes > 0 && mixed.free_slab_bytes > 0, "{mixed:?}");
        let full = demo(DemoHeap::Full);
        let sums = full[0].totals();
        assert!(sums.live_bytes > 15 << 20 && full[0].failed_allocations > 0, "{sums:?}");
    }

    #[test]
    fn a_fragmented_heap_has_much_free_memory_in_small_pieces() {
        let maps = demo(DemoHeap::Fragmented);
        let totals = maps[0].totals();
        assert!(totals.free_bytes > 10 << 20 && totals.largest_free_bytes < 1 << 20, "{totals:?}");
        assert!(totals.fragmentation() > 0.9, "{totals:?}");
    }

    #[test]
    fn the_reports_name_the_class_that_leaks_and_the_class_that_fragments() {
        let leak = demo(DemoHeap::Leak);
        assert!(leak.iter().map(|map| map.totals().live_bytes).is_sorted_by(|a, b| a < b));
        let report = leak[3].report();
        let words = ["Not fragmented: too little memory is free.", "Blocks of 256 B hold 100 %"];
        assert!(report.advice.iter().zip(words).all(|(advice, words)| advice.starts_with(words)), "{report}");
        let report = demo(DemoHeap::Fragmented)[0].report();
        let words = ["Fragmented: ", "Blocks of 4096 B separate them"];
        assert!(report.advice.iter().zip(words).all(|(advice, words)| advice.starts_with(words)), "{report}");
    }

    #[test]
    fn the_heap_over_time_fills_fragments_and_empties() {
        let totals: Vec<_> = demo(DemoHeap::Timeline).iter().map(HeapMap::totals).collect();
        let [new, loading, peak, fragmented, end] = totals[..] else { panic!("{totals:?}") };
        assert!(new.live_bytes < loading.live_bytes && loading.live_bytes < peak.live_bytes);
        assert!(fragmented.live_bytes < peak.live_bytes / 2);
        assert!(end.largest_free_bytes > 8 * fragmented.largest_free_bytes, "{fragmented:?} {end:?}");
    }
}
