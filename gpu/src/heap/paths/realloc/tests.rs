//! Which parts of a heap serve a request, by its size.

use super::*;
use crate::heap::Heap;
use crate::heap::layout::entry::Entry;
use crate::heap::tests::heap::heap;
use crate::kernel::DeviceHandle;

#[test]
fn a_block_is_that_of_a_class_or_whole_slabs() {
    let owned = heap(256, 1);
    let bytes = |size, align| owned.core().block_bytes(size, align);
    assert_eq!([0, 1, 100, 48 << 10].map(|size| bytes(size, 1)), [0, 16, 112, 48 << 10]);
    let slabs = [(48 << 10) + 1, 64 << 10, (64 << 10) + 1].map(|size| bytes(size, 1) >> 14);
    assert_eq!(slabs, [4, 4, 5]);
    assert_eq!(([1 << 14, 1 << 15].map(|align| bytes(1, align))), [16, 1 << 14]);
    assert_eq!(bytes(u64::MAX, 1), !((1 << 14) - 1));
}

#[test]
fn the_heap_does_not_allocate_more_than_it_has() {
    let owned = heap(256, 1);
    let alloc =
        |size: usize, align: usize| owned.heap.alloc(Layout::from_size_align(size, align).unwrap()).is_some();
    assert_eq!(owned.heap.capacity(), 256 << 14);
    // 2^32 + 1 slabs would wrap around to one.
    for (size, align) in
        [(((1 << 32) + 1) << 14, 1), ((256 << 14) + 1, 1), (1 << 14, 4 << 20), (64 << 10, 4 << 20)]
    {
        assert!(!alloc(size, align), "{size} B");
    }
    assert!(alloc(256 << 14, 2 << 20));
}

#[test]
fn a_handle_names_the_memory_of_its_heap() {
    let owned = heap(64, 1);
    let mut found = None;
    owned.heap.for_each_range(&mut |start, bytes| assert_eq!(found.replace((start, bytes)), None));
    assert_eq!(found, Some((owned.heap.base() as u64, 64 << 14)));
}

#[test]
fn the_hints_of_shards_are_in_sectors_of_their_own() {
    let owned = heap(4096, 8);
    let at = |shard| (&raw const *owned.core().hint(shard)).addr();
    assert_eq!([1, 2, 7].map(|shard| at(shard) - at(0)), [32, 64, 7 * 32]);
    assert_eq!((&raw const *owned.core().failures_of(7)).addr(), at(7) + 4);
    for (shard, failed) in [(1, 2), (7, 3), (0, u32::MAX)] {
        owned.core().failures_of(shard).add_relaxed(failed);
    }
    assert_eq!(owned.heap.failures(), 4);
}

#[test]
fn a_slab_is_free_before_its_first_use_and_after_its_last_one() {
    let [fresh, free] = [Heap::fresh_entry(), Heap::free_entry()].map(Entry);
    assert!(fresh.is_free() && free.is_free() && fresh != free);
}
