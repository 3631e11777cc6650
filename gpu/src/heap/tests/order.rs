//! Each lane's use of its block is between the claim and the release of the block, whichever lanes
//! perform them (I3 of `runs`). A free is over when a lane returns from it.

use crate::heap::layout::bits::WORD_BITS;
use crate::heap::layout::class::SizeClass;
use crate::heap::paths::search::Found;
use crate::heap::structures::cursor::Span;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::machine::Coords;
use crate::test_lanes::{Order, interrupted, on_ordered_lanes};
use crate::units::LaneMask;
use core::alloc::Layout;
use core::ptr::NonNull;
use std::vec::Vec;

/// 256 blocks in eight words, in one slab.
const SMALL: SizeClass = SizeClass::of(64);
const LAYOUT: Layout = Layout::new::<[u64; 8]>();
/// The only run.
const RUN: u32 = 7;

/// Lanes that are a full warp, and some that are not.
const MASKS: [u32; 3] = [u32::MAX, 0x00ff_3f00, 1];

/// A heap of so many slabs with one run, which is the span of the cursor.
fn one_run(slabs: u32) -> OwnedHeap {
    let owned = heap(slabs, 1);
    owned.add_run(SMALL, RUN);
    let set = owned.core().free_slabs().set;
    (0..set.len()).for_each(|w| _ = set.remove_bits(w, u32::MAX));
    owned.core().cursor(SMALL, 0).restart(Span::new(owned.core().class(SMALL), RUN, 1));
    owned
}

fn order(owned: &OwnedHeap) -> Order<'_> {
    Order::new(|| owned.words(SMALL, RUN), || owned.core().overview().common().open())
}

/// Runs `run` on the lanes of a warp, whose blocks are those of the run.
fn check(owned: &OwnedHeap, mask: u32, run: impl Fn(&Order<'_>) + Sync) {
    check_with(order(owned), mask, run);
}

fn check_with(order: Order<'_>, mask: u32, run: impl Fn(&Order<'_>) + Sync) {
    on_ordered_lanes(Some(&order), mask, Coords::SOLE, |_| run(&order));
}

fn alloc(owned: &OwnedHeap, order: &Order<'_>) -> (NonNull<u8>, u32) {
    used(owned, order, owned.heap.alloc(LAYOUT))
}

/// [`alloc`] in two parts.
fn alloc_in_parts(owned: &OwnedHeap, order: &Order<'_>) -> (NonNull<u8>, u32) {
    let step = owned.heap.begin_alloc(LAYOUT);
    let block = if step.rest == 0 {
        NonNull::new(step.address as *mut u8)
    } else {
        // SAFETY: all lanes with a rest come here.
        unsafe { owned.heap.finish_alloc(LAYOUT, step) }
    };
    used(owned, order, block)
}

fn used(owned: &OwnedHeap, order: &Order<'_>, block: Option<NonNull<u8>>) -> (NonNull<u8>, u32) {
    let address = block.expect("there is a block");
    let (_, block) = owned.block_at(SMALL, address.as_ptr() as u64);
    order.uses(block);
    (address, block)
}

fn free(owned: &OwnedHeap, order: &Order<'_>, (address, block): (NonNull<u8>, u32)) {
    order.uses(block);
    // SAFETY: the block is not used any more.
    unsafe { owned.heap.free(address) };
    order.has_freed(block);
}

/// [`free`] in two parts.
fn free_in_parts(owned: &OwnedHeap, order: &Order<'_>, (address, block): (NonNull<u8>, u32)) {
    order.uses(block);
    // SAFETY: the block is not used any more.
    let step = unsafe { owned.heap.begin_free(address) };
    if step.rest != 0 {
        // SAFETY: all lanes with a rest come here.
        unsafe { owned.heap.finish_free_step(address, step) };
    }
    order.has_freed(block);
}

#[test]
fn the_parts_of_an_allocation_and_a_free_have_the_same_order() {
    // Once the run has its hints, and once it is in no set, so that the second part completes them.
    for (mask, has_hints) in MASKS.into_iter().flat_map(|mask| [(mask, true), (mask, false)]) {
        let owned = one_run(64);
        owned.core().cursor(SMALL, 0).take(5);
        if !has_hints {
            let runs = owned.core().runs();
            for (set, i) in [(runs.listed(), owned.layout.run_index(SMALL, RUN)), (runs.idle(), RUN)] {
                set.remove_bits(i / WORD_BITS, 1 << (i % WORD_BITS));
            }
        }
        check(&owned, mask, |order| {
            for _ in 0..3 {
                let block = alloc_in_parts(&owned, order);
                free_in_parts(&owned, order, block);
            }
        });
        assert_eq!(owned.free_blocks(SMALL, RUN).len(), 256);
    }
}

#[test]
fn a_use_of_a_block_is_between_its_claim_and_its_release() {
    // The tickets before, so that the blocks lie in one word, in two, and at the end of the span.
    for (mask, before) in MASKS.into_iter().flat_map(|mask| [0, 5, 224, 250].map(|before| (mask, before))) {
        let owned = one_run(64);
        owned.core().cursor(SMALL, 0).take(before);
        check(&owned, mask, |order| {
            for _ in 0..3 {
                let block = alloc(&owned, order);
                free(&owned, order, block);
            }
        });
        assert_eq!(owned.free_blocks(SMALL, RUN).len(), 256);
    }
}

#[test]
fn the_same_for_blocks_of_several_words_in_another_order() {
    for step in [1, 3] {
        let owned = one_run(64);
        check(&owned, u32::MAX, |order| {
            let blocks: Vec<_> = (0..4).map(|_| alloc(&owned, order)).collect();
            for i in 0..4 {
                free(&owned, order, blocks[(i + step * crate::warp::lane_id() as usize) % 4]);
            }
        });
        assert_eq!(owned.free_blocks(SMALL, RUN).len(), 256);
    }
}

#[test]
fn the_same_for_blocks_that_a_search_finds() {
    for mask in MASKS {
        let owned = one_run(64);
        // No tickets are left, and there is no other span.
        owned.core().cursor(SMALL, 0).restart(Span::UNUSED.dry());
        owned.core().cursor(SMALL, 0).take(1);
        check(&owned, mask, |order| {
            let block = alloc(&owned, order);
            free(&owned, order, block);
        });
    }
}

#[test]
fn the_same_for_a_block_of_all_lanes() {
    for mask in MASKS {
        let owned = one_run(64);
        check_with(order(&owned).apart(), mask, |order| {
            (0..2).for_each(|_| share(&owned, order, LaneMask(mask)))
        });
    }
}

/// All lanes of a warp and a thread block share a block.
fn share(owned: &OwnedHeap, order: &Order<'_>, mask: LaneMask) {
    let uses = |address: NonNull<u8>| {
        let (_, block) = owned.block_at(SMALL, address.as_ptr() as u64);
        order.uses(block);
        block
    };
    // SAFETY: all lanes of the mask are here, as below.
    let address = unsafe { owned.heap.alloc_warp(mask, LAYOUT) }.expect("there is a block");
    let block = uses(address);
    // SAFETY: no lane uses the block any more.
    unsafe { owned.heap.free_warp(mask, address) };
    order.has_freed(block);
    // SAFETY: all threads of the block are here, as below.
    let address = unsafe { owned.heap.alloc_block(LAYOUT) }.expect("there is a block");
    let block = uses(address);
    // SAFETY: no thread uses the block any more.
    unsafe { owned.heap.free_block(address) };
    order.has_freed(block);
}

#[test]
fn what_lanes_do_for_a_span_is_during_a_move_and_after_the_claim_of_its_slabs() {
    for (mask, skips) in MASKS.into_iter().flat_map(|mask| [0, 2].map(|skips| (mask, skips))) {
        let owned = heap(256, 1);
        // If the slabs of the first words are not a row, another lane than the first one claims.
        for w in 0..skips {
            owned.core().free_slabs().set.remove_bits(w, 0x5555_5555);
        }
        let (runs, set) = (owned.core().runs(), owned.core().free_slabs().set);
        let first = |slab| runs.bits(runs.first_word(slab)).load_relaxed();
        // The blocks of all slabs, and the slabs.
        let free = || (0..256).map(first).chain((0..8).map(|w| set.word(w).load_relaxed())).collect();
        let order = Order::new(free, || owned.core().overview().common().open());
        let alloc = |owned: &OwnedHeap| owned.heap.alloc(Layout::from_size_align(4096, 1).unwrap());
        // A span of several runs.
        let run = |_| assert!(alloc(&owned).is_some());
        on_ordered_lanes(Some(&order), mask, Coords::SOLE, run);
    }
}

#[test]
fn all_lanes_of_a_failing_search_read_between_two_looks_at_the_moves() {
    for mask in MASKS {
        // Each set has a word for each lane.
        let owned = one_run(32 * WORD_BITS);
        let runs = owned.core().runs();
        for w in 0..8 {
            runs.count_claim(RUN, runs.claim(runs.first_word(RUN) + w, u32::MAX), u32::MAX);
        }
        let (start, end) =
            [SMALL, SizeClass(SMALL.0 + 1)].map(|class| owned.layout.run_index(class, 0)).into();
        runs.listed().remove_bits((start + RUN) / WORD_BITS, u32::MAX);
        runs.idle().remove_bits(RUN / WORD_BITS, 1 << (RUN % WORD_BITS));
        // The operations by which the leader first reads the levels of the list.
        let hints = interrupted(|_| (), || [end, start].map(|to| runs.listed().next(start, to))).steps;
        let order = order(&owned);
        let search = |owned: &OwnedHeap, group| owned.core().search(group, true, SMALL, 0, false);
        let done = on_ordered_lanes(Some(&order), mask, Coords::SOLE, |group| search(&owned, group));
        assert!(done.results.into_iter().all(|found| found == Found::Nothing));
        let (leader, operations) = (mask.trailing_zeros() as usize, order.operations());
        let of = |lane: usize| operations.iter().filter(move |(of, _)| *of == lane).map(|(_, seen)| seen);
        for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
            // Each lane looks at both words first, and the leader at the end, too.
            let before = 2 + if lane == leader { hints as usize } else { 0 };
            let (reads, last) = (of(lane).skip(before), of(leader).rev().nth(1).unwrap());
            assert!(reads.clone().count() > 0, "lane {lane} reads nothing");
            let is_behind = |seen: &[u32; 32]| seen[leader] >= hints + 2;
            assert!(reads.clone().all(is_behind), "lane {lane} reads before the first look");
            let all = of(lane).count() as u32 - 2 * u32::from(lane == leader);
            assert_eq!(last[lane], all, "lane {lane} reads after the last look");
        }
    }
}
