//! Which lane of a warp frees which blocks, and what a fault of a free records.

use super::*;
use crate::heap::layout::entry::Entry;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::machine::Coords;
use crate::test_lanes::Done;
use core::alloc::Layout;
use std::vec;
use std::vec::Vec;

/// 256 blocks in eight words, in one slab.
const SMALL: SizeClass = SizeClass::of(64);

/// The bits that each lane of a warp is to set for its block.
fn gather(block: impl Fn(u32) -> u32 + Sync) -> Vec<u32> {
    gathered(block).results
}

fn gathered(block: impl Fn(u32) -> u32 + Sync) -> Done<u32> {
    let owned = heap(256, 1);
    let gather = |owned: &OwnedHeap, group: Group| {
        let run = Run { first: 3, class: SMALL, blocks: 256 };
        owned.core().gather(group.whole().unwrap(), Place { run, block: block(group.lane()), inside: 0 })
    };
    owned.on_lanes(u32::MAX, Coords::SOLE, gather)
}

/// The bits of all lanes: those in `bits`, and none for the other lanes.
fn bits_of(bits: &[(usize, u32)]) -> Vec<u32> {
    let mut all = vec![0; 32];
    bits.iter().for_each(|(lane, bits)| all[*lane] = *bits);
    all
}

#[test]
fn the_leader_frees_a_word_for_all_lanes() {
    assert_eq!(gather(|lane| 64 + lane), bits_of(&[(0, u32::MAX)]));
    assert_eq!(gather(|lane| 64 + (lane + 5) % 32), bits_of(&[(0, u32::MAX)]));
}

#[test]
fn two_lanes_free_the_blocks_of_two_words() {
    assert_eq!(gather(|lane| 76 + lane), bits_of(&[(0, u32::MAX << 12), (20, (1 << 12) - 1)]));
    // Alternately.
    let (even, odd) = (0x5555_5555, 0xaaaa_aaaa);
    assert_eq!(gather(|lane| 64 + lane % 2 * 32 + lane), bits_of(&[(0, even), (1, odd)]));
}

#[test]
fn a_lane_of_each_word_frees_its_blocks() {
    // Lane `n` has a block of word `n % 3`, or of word 7.
    let word = |lane: u32| if lane == 31 { 7 } else { lane % 3 };
    let expected = [0, 1, 2].map(|w: usize| {
        (w, (0..31).filter(|lane| lane % 3 == w as u32).fold(0, |bits, lane| bits | 1 << lane))
    });
    let expected = [expected.as_slice(), &[(31, 1 << 31)]].concat();
    assert_eq!(gather(|lane| 32 * word(lane) + lane), bits_of(&expected));
    // The first lane has a later word than the others.
    let expected = bits_of(&[(0, 1), (1, u32::MAX << 1)]);
    assert_eq!(gather(|lane| if lane == 0 { 160 } else { 32 + lane }), expected);
}

#[test]
fn blocks_in_order_take_two_collectives_and_those_of_two_words_six() {
    assert_eq!(gathered(|lane| 64 + lane).collectives, 2);
    assert_eq!(gathered(|lane| 76 + lane).collectives, 6);
    assert_eq!(gathered(|lane| 65 + lane % 31).collectives, 6);
}

#[test]
fn lanes_with_the_same_block_free_it_one_by_one() {
    // In one word, in two words, and in several.
    let own: Vec<_> = (0..32).map(|lane| 1 << if lane == 9 { 8 } else { lane }).collect();
    assert_eq!(gather(|lane| if lane == 9 { 8 } else { lane }), own);
    let both = |lane: u32| if lane == 9 { 8 } else { lane };
    assert_eq!(gather(|lane| both(lane) + lane / 16 * 32), own);
    let several = [&own[..16], &bits_of(&[(16, u32::MAX << 16)])[16..]].concat();
    assert_eq!(gather(|lane| both(lane) + lane / 16 * 160), several);
}

#[test]
fn an_address_behind_the_last_block_of_a_run_is_no_block() {
    let owned = heap(256, 1);
    let class = SizeClass::of(20);
    owned.add_run(class, 3);
    let place = |inside: u64| match owned
        .core()
        .locate(owned.core().slab_address(3) + inside, |entry| entry.load_relaxed())
    {
        Located::Block(place) => (place.block, place.is_start(), place.is_in_block()),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [0, 20 * 799, 20 * 799 + 19].map(place),
        [(0, true, true), (799, true, true), (799, false, true)]
    );
    assert_eq!([20 * 800, 20 * 810].map(place), [(800, false, false), (810, false, false)]);
}

#[test]
fn a_fault_has_the_entry_of_the_slab_that_was_freed() {
    let owned = heap(256, 1);
    owned.add_run(SMALL, 3);
    let inside = owned.core().slab_address(3) + 64 * 5 + 1;
    for address in [inside, owned.core().slab_address(256)] {
        // SAFETY: no thread uses memory at the address.
        unsafe { owned.heap.free(NonNull::new(address as *mut u8).unwrap()) };
    }
    let entry = Some(u64::from(Entry::of_class(SMALL, 0, 1).0));
    let faults: Vec<_> = owned.faults.faults().map(|fault| (fault.check, fault.seen.entry)).collect();
    assert_eq!(faults, [(FaultCheck::NotAStart, entry), (FaultCheck::Outside, None)]);
}

/// Allocates and frees a block by each lane of a warp. Returns the atomic operations of the frees.
fn frees(owned: &OwnedHeap, size: usize) -> Done<u64> {
    owned.on_lanes(u32::MAX, Coords::SOLE, |owned, _| {
        let block = owned.heap.alloc(Layout::from_size_align(size, 1).unwrap()).unwrap();
        // SAFETY: allocated above.
        unsafe { owned.heap.free(block) };
        block.addr().get() as u64
    })
}

#[test]
fn a_warp_frees_what_it_allocated_by_one_lane() {
    let owned = heap(4096, 1);
    frees(&owned, 64);
    // An atomic on the cursor, one on the bitmap, 32 loads of the entry by lanes that got a block,
    // and 32 by lanes that free it; an atomic on the bitmap and a look at two sets. Two counts.
    let done = frees(&owned, 64);
    assert_eq!(done.atomics, 1 + 1 + 32 + 32 + 3 + 2);
    let first = done.results[0];
    assert!(done.results.into_iter().eq((0..32).map(|lane| first + 64 * lane)));
}
