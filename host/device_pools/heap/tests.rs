//! Overwrites every kind of metadata word and checks that the violated invariant is reported.

mod used;

use super::Heap;
use crate::driver::Device;
use used::{BYTES, sights, used_heap};
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{self, ClassInfo, CursorAudit};
use warpheap_device::kernel::DevicePtr;

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
    heap.assert_broken(heap.entry_at(live.slab), heap::Heap::free_entry(), "I5", "nor fresh");
    heap.assert_broken(heap.entry_at(live.slab), 0xfd_u32, "I5", "belongs to no run");
    heap.assert_broken(heap.entry_at(live.slab), live.class.0, "I5", "belongs to no run");
    heap.assert_broken_by(heap.entry_at(live.slab), 1 << 16, "I5", "belongs to no run");
    heap.assert_broken_by(heap.entry_at(live.slab), 1 << 8, "I5", "belongs to no run");
    let spans = seen.run(|run| run.in_cursor > 0);
    heap.assert_broken(heap.entry_at(spans.slab), spans.class.0 + 1, "I1", "no run of its class");
    let (free, class) = (seen.free[0], live.class.0);
    heap.assert_broken(heap.entry_at(free), class, "I5", "says that it is in use");
    heap.assert_broken(heap.entry_at(seen.fresh[0]), class, "I5", "says that it is in use");
    let large = seen.large[0];
    heap.assert_broken_by(heap.entry_at(large.slab), 1 << 8, "I5", "belongs to no run");
    heap.assert_broken(heap.entry_at(large.slab + 1), class, "I5", "inside a run or an allocation");
    let slabs = heap.layout.slabs;
    heap.assert_broken(heap.entry_at(slabs - 1), 0x2fe_u32, "I5", "extend past the end");
}

#[test]
fn counts() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let run = seen.run(|run| run.free > 0 && run.live > 0);
    heap.assert_broken_by(heap.count_at(run.slab), 1, "I7", "its count is");
    heap.assert_broken_by(heap.count_at(seen.free[0]), 1, "I6", "no run starts there");
    heap.assert_broken_by(heap.count_at(seen.fresh[0]), 1 << 16, "I6", "no run starts there");
    heap.assert_broken_by(heap.count_at(seen.large[0].slab), 1, "I6", "no run starts there");
}

#[test]
fn bits() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let run = seen.run(|run| run.live > 0 && run.free == 0 && run.in_cursor == 0);
    heap.assert_broken_by(heap.bits_at(run.slab, 0), 1, "I7", "its bits give");
    heap.assert_broken_by(heap.bits_at(run.slab, 0), 1, "I7", "is not in its class' partial set");
    let spans = seen.run(|run| run.in_cursor > 0);
    heap.assert_broken_by(heap.bits_at(spans.slab, 0), 1, "I2", "1 blocks are free and in a cursor");
    let odd = seen.run(|run| !run.blocks.is_multiple_of(32));
    heap.assert_broken_by(heap.bits_at(odd.slab, odd.blocks), bit(odd.blocks), "I2", "beyond the last block");
    heap.assert_broken_by(heap.bits_at(seen.fresh[0], 7), bit(7), "I6", "it has no class");
    heap.assert_broken_by(heap.bits_at(seen.large[0].slab, 7), bit(7), "I6", "it has no class");
}

#[test]
fn sets() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let free = seen.free[0];
    heap.assert_broken_by(heap.free_at(free), bit(free), "I5", "nor fresh");
    let fresh = seen.fresh[0];
    heap.assert_broken_by(heap.free_at(fresh), bit(fresh), "I5", "also fresh");
    let live = seen.run(|run| run.live > 0 && run.free > 0);
    heap.assert_broken_by(heap.free_at(live.slab), bit(live.slab), "I5", "says that it is in use");
    let partial = heap.partial_at(live.class, live.slab);
    heap.assert_broken_by(partial, bit(live.slab), "I7", "is not in its class' partial set");
    let idle = seen.run(|run| run.free == run.blocks);
    let idle_at = heap.idle_at(idle.class, idle.slab);
    heap.assert_broken_by(idle_at, bit(idle.slab), "I7", "not in its class' idle set");
    let words = heap.layout.slabs.div_ceil(32);
    let summary = heap.set_at(0, words + free / 32 / 32);
    heap.assert_broken(summary, 0_u32, "I2 of sets", "its bit in the summary is clear");
}

#[test]
fn slabs_that_the_heap_does_not_have() {
    let device = Device::cpu();
    // 100 slabs: the last word of a set has 28 unused bits.
    let mut heap = Heap::builder(100 << 14).build(&device).unwrap();
    assert_eq!(heap.layout.slabs, 100);
    heap.assert_broken_by(heap.free_at(100), bit(100), "I5", "but outside the heap");
    let class = SizeClass::of(64);
    heap.assert_broken_by(heap.partial_at(class, 101), bit(101), "I7", "slabs outside the heap");
    heap.assert_broken_by(heap.idle_at(class, 102), bit(102), "I7", "slabs outside the heap");
}

#[test]
fn cursors() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let cursor = *seen.cursors.iter().find(|cursor| cursor.left > Some(0)).unwrap();
    let CursorAudit { class, shard, .. } = cursor;
    let offset = heap.cursor_at(class, shard);
    let span = heap.long(offset);
    heap.assert_broken(offset, span + (1 << 32), "I1", "no run of its class");
    heap.assert_broken(offset, span | 0xffff << 32, "I1", "which is outside the heap");
    heap.assert_broken(heap.cursor_at(class, (shard + 1) % 4), span, "I1", "also in another cursor");
    heap.assert_broken(offset, span & !(1 << 31), "I8", "no group will store");
    heap.assert_broken(offset + 8, heap.long(offset + 8) + 1, "I8", "searches for memory began");
    heap.assert_broken(offset + 16, heap.long(offset + 16) + 2, "I8", "searches for memory began");
    let scans = heap.offsets.overview + 384;
    heap.assert_broken(scans, heap.long(scans) + 1, "I9", "scans of the whole heap began");
    heap.assert_broken(scans + 8, heap.long(scans + 8) + 2, "I9", "scans of the whole heap began");
    let seekers = heap.offsets.overview + 96;
    heap.assert_broken_by(seekers, 1 << 3, "I9", "searching for its spans");
    let used = heap.offsets.overview + 4 * u64::from(class.0 / 32);
    heap.assert_broken_by(used, bit(class.0), "I1", "its class is not marked as used");
}

/// The cursor would allocate a freed block a second time.
#[test]
fn a_cursor_with_a_freed_block() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    // In a run that is partly in a cursor, the block after the cursor's blocks was allocated last.
    let run = seen.run(|run| run.in_cursor > 0 && run.live > 0 && run.free == 0);
    let offset = u64::from(run.in_cursor) * u64::from(run.class.bytes());
    let block = heap.memory().address() + (u64::from(run.slab) << heap.layout.slab_log2) + offset;
    // SAFETY: no kernel uses the block.
    unsafe { heap.deallocate(DevicePtr(block as *mut u8)) }.unwrap();
    let slabs = heap.layout.class(run.class).slabs;
    let is_its = |cursor: &&CursorAudit| {
        let runs = cursor.left.unwrap().div_ceil(run.blocks);
        let end = (heap.long(heap.cursor_at(cursor.class, cursor.shard)) >> 32) as u32;
        cursor.class == run.class && runs > 0 && end == run.slab + runs * slabs
    };
    let cursor = seen.cursors.iter().find(is_its).expect("a cursor has those blocks");
    let offset = heap.cursor_at(run.class, cursor.shard);
    heap.assert_broken(offset, heap.long(offset) + 1, "I2", "1 blocks are free and in a cursor");
}

#[test]
fn fresh_slabs() {
    let mut heap = used_heap();
    let layout = heap.layout;
    let used =
        (0..layout.shards).filter(|shard| heap.word(heap.fresh_at(*shard)) > layout.partition_start(*shard));
    let shard = used.last().expect("some shard's partition was used");
    let (offset, next) = (heap.fresh_at(shard), heap.word(heap.fresh_at(shard)));
    let is_free = heap.word(heap.entry_at(next - 1)) == heap::Heap::free_entry();
    let words = if is_free { "in the free set and also fresh" } else { "says that it is in use" };
    heap.assert_broken(offset, next - 1, "I5", words);
    heap.assert_broken(offset, next + 1, "I5", "nor fresh");
    heap.assert_broken(
        heap.fresh_at(1),
        layout.partition_start(1) - 1,
        "I5",
        "which is before its partition",
    );
}

#[test]
fn classes() {
    let mut heap = used_heap();
    let offset = heap.offsets.classes + 3 * size_of::<ClassInfo>() as u64;
    heap.assert_broken_by(offset, 4, "I5", "the class table differs");
}

#[test]
fn slabs_without_memory() {
    let device = Device::cpu();
    let mut heap = Heap::builder(BYTES).shards(4).initial(30 << 20).build(&device).unwrap();
    assert_eq!(heap.check().unwrap(), []);
    let present = heap.present;
    heap.assert_broken_by(heap.free_at(present), bit(present), "I5", "but has no memory");
    let last = heap.layout.slabs - 1;
    heap.assert_broken(heap.fresh_at(3), last, "I5", "but has no memory");
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
            assert!(!broken.is_empty(), "{start:#x}: {byte:#x}");
            assert!(broken.len() <= 257, "{}", broken.len());
            heap.stats().unwrap();
            heap.leaks(3).unwrap();
        }
        heap.reset().unwrap();
        assert_eq!(heap.check().unwrap(), []);
    }
}
