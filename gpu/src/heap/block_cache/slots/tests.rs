//! Slots of the second warp of a thread block, and its members.

use super::super::BlockCache;
use super::*;
use crate::fault::FaultCheck;
use crate::heap::layout::class::SizeClass;
use crate::heap::tests::heap::heap;
use crate::machine::Coords;
use crate::test_lanes::on_lanes;
use core::alloc::Layout;
use std::format;
use std::vec::Vec;

/// The first 16 threads of the second warp have slots.
const THREADS: u32 = 48;
type Small = Slots<THREADS, 2, ()>;

/// The first thread of the second warp.
const AT: Coords = Coords { thread_idx: [32, 0, 0], block_dim: [256, 1, 1], ..Coords::SOLE };

fn members() -> [u64; 2] {
    // SAFETY: words of the piece.
    [0, 1].map(|warp| unsafe { Small::members(warp).load_relaxed() })
}

#[test]
fn no_word_has_two_uses() {
    let mut words: Vec<_> = (0..THREADS)
        .flat_map(|thread| [0, 1].map(|slot| Small::bottom(thread).plus(slot * THREADS)))
        .chain([0, 1].map(Small::members))
        .collect();
    assert_eq!(words.len() as u32, Small::WORDS);
    while let Some(word) = words.pop() {
        assert!(!words.contains(&word));
    }
}

#[test]
fn a_thread_with_slots_is_a_member_until_it_leaves() {
    on_lanes(u32::MAX, AT, |group| {
        // SAFETY: all threads of the block execute this call.
        unsafe { Small::join() };
        assert_eq!(members(), [0, 0xffff]);
        group.sync();
        // SAFETY: a word of the piece; all lanes write the same.
        unsafe { Small::members(0).store_relaxed(u64::MAX) };
        group.sync();
        Small::leave();
        group.sync();
        assert_eq!(members(), [u64::MAX, 0]);
    });
}

#[test]
fn blocks_in_slots_are_freed_when_their_threads_leave() {
    let owned = heap(256, 1);
    let layout = Layout::from_size_align(64, 1).unwrap();
    let class = SizeClass::of(64);
    let live = |run| 256 - owned.free_blocks(class, run).len();
    let runs = owned.on_lanes(u32::MAX >> 16, AT, |owned, group| {
        // SAFETY: all threads of the block execute this call.
        let mut cache = unsafe { BlockCache::<THREADS, 2>::begin(&owned.heap, layout) };
        assert_eq!(cache.fill(3), 2);
        let block = cache.alloc(layout).unwrap();
        let (run, _) = owned.block_at(class, block.as_ptr() as u64);
        group.sync();
        if group.leads() {
            assert_eq!(256 - owned.free_blocks(class, run).len(), 32);
        }
        assert!(format!("{cache:?}").starts_with("BlockCache { part: Part {"));
        group.sync();
        drop(cache);
        run
    });
    // Each thread still holds one block, which it allocated from the cache.
    assert_eq!(live(runs.results[0]), 16);
}

#[test]
fn a_cache_serves_the_layouts_that_a_class_serves() {
    let owned = heap(256, 1);
    let class = |size, align| owned.core().class_of(Layout::from_size_align(size, align).unwrap());
    let largest = SizeClass::of(48 << 10);
    assert_eq!([class(1, 1), class(48 << 10, 1)], [Some(SizeClass(0)), Some(largest)]);
    assert_eq!([class(0, 1), class((48 << 10) + 1, 1), class(1, 1 << 15)], [None; 3]);
    assert_eq!(class(1, 1 << 14), Some(SizeClass::of(1 << 14)));
}

#[test]
fn a_cache_keeps_the_blocks_of_its_class_that_are_not_in_it_yet() {
    let owned = heap(256, 1);
    let [small, large] = [64, 100].map(|size| Layout::from_size_align(size, 1).unwrap());
    // SAFETY: the only thread of its block executes this call.
    let mut cache = unsafe { BlockCache::<4, 2>::begin(&owned.heap, small) };
    let mut free = |address: u64| {
        // SAFETY: no thread uses the memory.
        unsafe { cache.free(NonNull::new(address as *mut u8).unwrap()) };
    };
    let alloc = |layout| owned.heap.alloc(layout).unwrap().as_ptr() as u64;
    let [kept, other, second, third] = [small, large, small, small].map(alloc);
    let live = |size: u32, address| {
        let class = SizeClass::of(size);
        let (run, block) = owned.block_at(class, address);
        !owned.free_blocks(class, run).contains(&block)
    };
    let outside = owned.heap.base() as u64 + owned.heap.capacity();
    for address in [kept, kept, kept + 4, outside, other, second, third] {
        free(address);
    }
    assert_eq!(
        [live(64, kept), live(100, other), live(64, second), live(64, third)],
        [true, false, true, false]
    );
    let checks: Vec<_> = owned.faults.faults().map(|fault| (fault.check, fault.address)).collect();
    let expected =
        [(FaultCheck::InSlots, kept), (FaultCheck::NotAStart, kept + 4), (FaultCheck::Outside, outside)];
    assert_eq!(checks, expected);
    // A block of another class comes from the heap, blocks of the class from the slots.
    let mut alloc = |layout| cache.alloc(layout).unwrap().as_ptr() as u64;
    assert_eq!(
        owned.block_at(SizeClass::of(100), alloc(large)).0,
        owned.block_at(SizeClass::of(100), other).0
    );
    assert_eq!([alloc(small), alloc(small)], [second, kept]);
}
