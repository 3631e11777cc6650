//! Both parts of allocations and frees, by the lanes of a warp.

use super::*;
use crate::fault::FaultCheck;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::machine::Coords;
use std::collections::BTreeSet;
use std::vec::Vec;

const SMALL: SizeClass = SizeClass::of(64);

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 1).unwrap()
}

/// Allocates a block of `size(lane)` bytes by each lane of `mask`, on the SM `sm`. Returns the
/// `rest` of the first part, and the address after the second one.
fn alloc(owned: &OwnedHeap, mask: u32, sm: u32, size: impl Fn(u32) -> usize + Sync) -> Vec<(u64, u64)> {
    let at = Coords { sm, sm_count: 8, ..Coords::SOLE };
    let alloc = |owned: &OwnedHeap, group: Group| {
        let layout = layout(size(group.lane()));
        let step = owned.heap.begin_alloc(layout);
        if step.rest == 0 {
            return (0, step.address);
        }
        // SAFETY: all lanes with a rest come here.
        let block = unsafe { owned.heap.finish_alloc(layout, step) };
        (step.rest, block.map_or(0, |block| block.addr().get() as u64))
    };
    owned.on_lanes(mask, at, alloc).results
}

/// Frees a block by each lane. Returns the `rest` of the first part.
fn free(owned: &OwnedHeap, mask: u32, address: impl Fn(u32) -> u64 + Sync) -> Vec<u64> {
    let free = |owned: &OwnedHeap, group: Group| {
        let block = NonNull::new(address(group.rank()) as *mut u8).unwrap();
        // SAFETY: no thread uses the block.
        let step = unsafe { owned.heap.begin_free(block) };
        if step.rest != 0 {
            // SAFETY: all lanes with a rest come here.
            unsafe { owned.heap.finish_free_step(block, step) };
        }
        step.rest
    };
    owned.on_lanes(mask, Coords::SOLE, free).results
}

/// The run and the number of each block of the class.
fn places(owned: &OwnedHeap, class: SizeClass, blocks: &[(u64, u64)]) -> BTreeSet<(u32, u32)> {
    blocks.iter().map(|(_, address)| owned.block_at(class, *address)).collect()
}

#[test]
fn the_first_part_allocates_for_a_warp_if_its_cursor_has_a_span() {
    let owned = heap(4096, 8);
    let first = alloc(&owned, u32::MAX, 5, |_| 64);
    // The cursor of the SM has no span yet: all lanes go on, with their class and shard.
    let shard = owned.layout.shard(5);
    assert!(shard > 0);
    let rest = SECOND_HALF | u64::from(SMALL.0) << CLASS_SHIFT | u64::from(shard) << SHARD_SHIFT;
    assert!(first.iter().all(|(found, address)| *found == rest && *address != 0), "{first:x?}");
    assert!(owned.core().cursor(SMALL, shard).span().runs() > 0);
    let second = alloc(&owned, u32::MAX, 5, |_| 64);
    assert!(second.iter().all(|(rest, address)| *rest == 0 && *address != 0), "{second:x?}");
    assert_eq!(places(&owned, SMALL, &[first, second].concat()).len(), 64);
}

#[test]
fn the_lanes_of_a_warp_with_several_classes_use_the_cursors_of_parts_of_warps() {
    let owned = heap(4096, 8);
    let size = |lane: u32| if lane.is_multiple_of(2) { 64 } else { 200 };
    let shard = owned.core().partial_warp_shard(owned.layout.shard(6));
    assert!(shard > 0 && shard < owned.layout.shard(6));
    let first = alloc(&owned, u32::MAX, 6, size);
    for (lane, (rest, address)) in (0..).zip(&first) {
        let class = SizeClass::of(size(lane) as u32);
        let expected = SECOND_HALF | u64::from(class.0) << CLASS_SHIFT | u64::from(shard) << SHARD_SHIFT;
        assert_eq!(*rest, expected, "lane {lane}");
        owned.block_at(class, *address);
    }
    let second = alloc(&owned, u32::MAX, 6, size);
    assert!(second.iter().all(|(rest, address)| *rest == 0 && *address != 0), "{second:x?}");
    assert_eq!(first.iter().chain(&second).map(|(_, address)| address).collect::<BTreeSet<_>>().len(), 64);
}

#[test]
fn parts_of_warps_and_sizes_without_a_class_are_left_to_the_second_part() {
    let owned = heap(256, 1);
    let large = owned.layout.small_bytes as usize + 1;
    for (mask, size) in [(0b1011, 64), (u32::MAX, large)] {
        let found = alloc(&owned, mask, 0, |_| size);
        assert!(found.iter().all(|(rest, address)| *rest == ALL && *address != 0), "{found:x?}");
    }
    // An address that is not 0, for which no memory is taken.
    assert_eq!(alloc(&owned, u32::MAX, 0, |_| 0), [(ALL, 1); 32]);
}

#[test]
fn the_second_part_keeps_the_blocks_of_the_first_one() {
    let owned = heap(256, 1);
    // Every other block of the word that the warp has tickets for is free.
    let free: Vec<u32> = (32..64).step_by(2).collect();
    owned.add_run_with(SMALL, 7, &free);
    owned.core().cursor(SMALL, 0).restart(Span::new(owned.core().class(SMALL), 7, 1).with_left(64));
    let found = alloc(&owned, u32::MAX, 0, |_| 64);
    assert!(found.iter().all(|(rest, _)| *rest != 0), "{found:x?}");
    let first: Vec<_> = places(&owned, SMALL, &found).into_iter().filter(|(run, _)| *run == 7).collect();
    assert_eq!((first.len(), owned.free_blocks(SMALL, 7).len()), (16, 0));
    owned.check(&[(SMALL.0, 256 - 16 + 32)].into());
}

#[test]
fn blocks_of_stale_tickets_are_set_free_by_the_second_part() {
    let owned = heap(256, 1);
    let info = *owned.core().class(SMALL);
    // The span of the cursor is now a run of another class.
    let other = SizeClass::of(96);
    owned.add_run(other, 7);
    owned.core().cursor(SMALL, 0).restart(Span::new(&info, 7, 1).with_left(64));
    let found = alloc(&owned, u32::MAX, 0, |_| 64);
    let stale: Vec<_> = found.iter().filter(|(rest, _)| rest >> WORD_SHIFT != 0).collect();
    assert!(!stale.is_empty() && places(&owned, SMALL, &found).iter().all(|(run, _)| *run != 7));
    assert_eq!(owned.free_blocks(other, 7).len(), owned.core().class(other).blocks as usize);
}

/// A heap with a run of the class at slab 3, of which all blocks are live; listed and idle or not.
fn with_live_run(has_hints: bool) -> OwnedHeap {
    let owned = heap(256, 1);
    owned.add_run_with(SMALL, 3, &[]);
    if !has_hints {
        let (index, runs) = (owned.layout.run_index(SMALL, 3), owned.core().runs());
        runs.listed().remove_bits(index / WORD_BITS, 1 << (index % WORD_BITS));
        runs.idle().remove_bits(0, 1 << 3);
    }
    owned
}

#[test]
fn the_first_part_frees_the_blocks_of_a_run_with_hints() {
    let owned = with_live_run(true);
    let start = owned.core().slab_address(3);
    assert_eq!(free(&owned, u32::MAX, |lane| start + 64 * u64::from(32 + lane)), [0; 32]);
    assert_eq!(free(&owned, 0b101, |lane| start + 64 * u64::from(80 + lane)), [0; 2]);
    assert_eq!(owned.words(SMALL, 3), [0, u32::MAX, 0b11 << 16, 0, 0, 0, 0, 0]);
    assert_eq!((owned.core().runs().free_words(3), owned.faults.count()), (1, 0));
}

#[test]
fn the_second_part_completes_the_hints() {
    // A full word: the run is to be idle, too. The other lanes wait.
    let owned = with_live_run(false);
    let start = owned.core().slab_address(3);
    let leader = |flags: u64, blocks: u64| {
        WARP | SECOND_HALF | flags | u64::from(SMALL.0) << CLASS_SHIFT | blocks << WORD_SHIFT
    };
    let mut expected = [WARP; 32];
    expected[0] = leader(IDLE, 256);
    assert_eq!(free(&owned, u32::MAX, |lane| start + 64 * u64::from(64 + lane)), expected);
    assert_eq!((owned.hints(SMALL, 3), owned.words(SMALL, 3)[2]), ((true, true), u32::MAX));
    // Blocks of two words, none of which is then full.
    let owned = with_live_run(false);
    let start = owned.core().slab_address(3);
    let mut expected = [WARP; 32];
    (expected[0], expected[16]) = (leader(0, 256), leader(0, 256));
    assert_eq!(free(&owned, u32::MAX, |lane| start + 64 * u64::from(16 + lane)), expected);
    assert_eq!(
        (owned.hints(SMALL, 3), owned.words(SMALL, 3)[..2].to_vec()),
        ((true, false), std::vec![!0 << 16, !0 >> 16])
    );
    // Lanes of a part of a warp do not wait.
    let owned = with_live_run(false);
    let start = owned.core().slab_address(3);
    assert_eq!(free(&owned, 1 << 9, |_| start + 64 * 70), [leader(0, 256) & !WARP]);
    assert_eq!((owned.hints(SMALL, 3), owned.words(SMALL, 3)[2]), ((true, false), 1 << 6));
}

#[test]
fn a_double_free_is_recorded_by_the_second_part() {
    let owned = with_live_run(true);
    let block = owned.core().slab_address(3) + 64 * 40;
    assert_eq!(free(&owned, 1, |_| block), [0]);
    let rest = SECOND_HALF | u64::from(SMALL.0) << CLASS_SHIFT | 256 << WORD_SHIFT;
    assert_eq!(free(&owned, 1, |_| block), [rest]);
    let faults: Vec<_> = owned.faults.faults().map(|fault| (fault.check, fault.address)).collect();
    assert_eq!(faults, [(FaultCheck::BitWasSet, block)]);
    assert_eq!(owned.free_blocks(SMALL, 3), [40]);
}

#[test]
fn what_is_no_block_of_a_run_is_left_to_the_second_part() {
    let owned = with_live_run(true);
    let start = owned.core().slab_address(3);
    let large = owned.heap.alloc(layout(3 << 16)).unwrap().addr().get() as u64;
    for (address, check) in [
        (large, None),
        (start + 8, Some(FaultCheck::NotAStart)),
        (owned.core().slab_address(256), Some(FaultCheck::Outside)),
    ] {
        let faults = owned.faults.count();
        assert_eq!(free(&owned, 1, |_| address), [ALL]);
        assert_eq!(owned.faults.faults().nth(faults as usize).map(|fault| fault.check), check);
    }
    assert!(owned.is_free_slab(((large - owned.core().slab_address(0)) >> owned.layout.slab_log2) as u32));
}
