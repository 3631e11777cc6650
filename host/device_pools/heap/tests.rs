//! Overwrites every kind of metadata word and checks that the violated invariant is reported.

pub(super) mod used;

use super::Heap;
use crate::driver::Device;
use used::{BYTES, sights, used_heap};
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{self, ClassInfo};

const fn bit(of: u32) -> u32 {
    1 << (of % 32)
}

#[test]
fn a_used_heap_has_no_violations() {
    assert_eq!(used_heap().check().unwrap(), []);
}

#[test]
fn entries() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let live = seen.run(|run| run.live > 0 && run.free > 0);
    let runs = "I2 of runs";
    for entry in [heap::Heap::free_entry(), heap::Heap::fresh_entry()] {
        heap.assert_broken(heap.entry_at(live.slab), entry, "I1 of slabs", "not in the free set");
    }
    heap.assert_broken(heap.entry_at(live.slab), 0xfd_u32, runs, "belongs to no run");
    heap.assert_broken(heap.entry_at(live.slab), live.class.0, runs, "belongs to no run");
    heap.assert_broken_by(heap.entry_at(live.slab), 1 << 16, runs, "belongs to no run");
    heap.assert_broken_by(heap.entry_at(live.slab), 1 << 8, runs, "belongs to no run");
    let (free, class) = (seen.free[0], live.class.0);
    heap.assert_broken(heap.entry_at(free), class, "I1 of slabs", "says that it is in use");
    heap.assert_broken(heap.entry_at(seen.fresh[0]), class, "I1 of slabs", "says that it is in use");
    let large = seen.large[0];
    heap.assert_broken_by(heap.entry_at(large.slab), 1 << 8, runs, "belongs to no run");
    heap.assert_broken(heap.entry_at(large.slab + 1), class, runs, "inside a run or an allocation");
    let slabs = heap.layout.slabs;
    heap.assert_broken(heap.entry_at(slabs - 1), 0x2fe_u32, runs, "extend past the end");
}

#[test]
fn counts() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let run = seen.run(|run| run.free > 0 && run.live > 0);
    heap.assert_broken_by(heap.count_at(run.slab), 1, "I4 of runs", "its count is");
    for slab in [seen.free[0], seen.fresh[0], seen.large[0].slab] {
        heap.assert_broken_by(heap.count_at(slab), 1, "I4 of runs", "no run starts there");
    }
}

#[test]
fn bits() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let run = seen.run(|run| run.free == run.blocks && run.blocks >= 32);
    heap.assert_broken_by(heap.bits_at(run.slab, 0), 1, "I4 of runs", "words of its bits are fully free");
    let odd = seen.run(|run| !run.blocks.is_multiple_of(32));
    let beyond = bit(odd.blocks);
    heap.assert_broken_by(heap.bits_at(odd.slab, odd.blocks), beyond, "I1 of runs", "beyond the last block");
    heap.assert_broken_by(heap.bits_at(seen.fresh[0], 7), bit(7), "I1 of runs", "it has no class");
    heap.assert_broken_by(heap.bits_at(seen.large[0].slab, 7), bit(7), "I1 of runs", "it has no class");
}

#[test]
fn sets() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    for free in [seen.free[0], seen.fresh[0]] {
        heap.assert_broken_by(heap.free_at(free), bit(free), "I1 of slabs", "not in the free set");
    }
    let live = seen.run(|run| run.live > 0 && run.free > 0);
    heap.assert_broken_by(heap.free_at(live.slab), bit(live.slab), "I1 of slabs", "says that it is in use");
    let listed = heap.listed_at(live.class, live.slab);
    heap.assert_broken_by(listed, bit(live.slab), "I5 of runs", "is not listed");
    let idle = seen.run(|run| run.live == 0);
    heap.assert_broken_by(heap.idle_at(idle.slab), bit(idle.slab), "I6 of runs", "not idle");
    let words = heap.layout.slabs.div_ceil(32);
    let above = heap.free_at(32 * (words + seen.free[0] / 32 / 32));
    heap.assert_broken(above, 0_u32, "I2 of sets", "its bit in the level above is clear");
}

#[test]
fn slabs_that_the_heap_does_not_have() {
    let device = Device::cpu();
    // 100 slabs: the last word of a set has 28 unused bits.
    let mut heap = Heap::builder(100 << 14).build(&device).unwrap();
    assert_eq!(heap.layout.slabs, 100);
    heap.assert_broken_by(heap.free_at(100), bit(100), "I1 of sets", "slab 100, which is outside");
    for (word, slab) in [(heap.listed_at(SizeClass::of(64), 101), 101), (heap.idle_at(102), 102)] {
        heap.assert_broken_by(word, bit(slab), "I1 of sets", "outside the heap");
    }
}

#[test]
fn cursors_and_moves() {
    let mut heap = used_heap();
    let class = SizeClass::of(64);
    let cursor = heap.cursor_at(class, 0);
    heap.assert_broken(cursor, u64::MAX, "cursors", "which is outside the heap");
    heap.assert_broken(cursor, 0_u64, "I2 of cursors", "beyond the end of a cursor's span");
    let ring = heap.offsets.rings;
    heap.assert_broken(ring, u32::MAX, "cursors", "which is outside the heap");
    heap.assert_broken_by(heap.open_at(class), 1, "I1 of moves", "1 moves are open");
}

#[test]
fn classes() {
    let mut heap = used_heap();
    let offset = heap.offsets.classes + 3 * size_of::<ClassInfo>() as u64;
    heap.assert_broken_by(offset, 4, "I2 of runs", "the class table differs");
}

#[test]
fn slabs_without_memory() {
    let device = Device::cpu();
    let mut heap = Heap::builder(BYTES).shards(4).initial(30 << 20).build(&device).unwrap();
    assert_eq!(heap.check().unwrap(), []);
    let present = heap.present;
    heap.assert_broken_by(heap.free_at(present), bit(present), "I1 of slabs", "but has no memory");
}

/// A corrupted heap is analysed too, and the number of reported violations is bounded.
#[test]
fn metadata_that_is_overwritten() {
    let mut heap = used_heap();
    let offsets = heap.offsets;
    for (start, end) in [
        (offsets.cursors, offsets.entries),
        (offsets.entries, offsets.faults),
        (offsets.overview, offsets.end),
    ] {
        for byte in [0x00, 0x2a, 0x7f, 0xff] {
            heap.metadata.fill_part(start, end - start, byte).unwrap();
            let broken = heap.check().unwrap();
            // Without any bits all blocks are live, no count is wrong, and no hint is missing.
            let is_sound = (start, byte) == (offsets.overview, 0);
            assert_eq!(broken.is_empty(), is_sound, "{start:#x}: {byte:#x}");
            assert!(broken.len() <= 257, "{}", broken.len());
            heap.stats().unwrap();
            heap.leaks(3).unwrap();
            let map = heap.snapshot().unwrap().map("corrupted");
            assert_eq!(map.validate(), Ok(()), "{start:#x}: {byte:#x}");
        }
        heap.reset().unwrap();
        assert_eq!(heap.check().unwrap(), []);
    }
}
