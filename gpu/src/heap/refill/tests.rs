//! Where an allocation goes that finds no block, and how long it waits.

use super::super::test_heap::{OwnedHeap, heap};
use super::*;
use crate::machine::Coords;
use crate::test_lanes::{Ran, interrupted};
use core::alloc::Layout;

/// Four blocks in one slab.
const LARGE: SizeClass = SizeClass::of(4096);

/// Allocates by a lone lane, in the cursors of shard 0. Returns the slab.
fn alloc(owned: &OwnedHeap) -> Ran<Option<u32>> {
    let layout = Layout::from_size_align(4096, 1).unwrap();
    interrupted(
        |_| (),
        || {
            let block = owned.heap.alloc(layout)?;
            Some(((block.as_ptr() as u64 - owned.heap.base() as u64) >> owned.layout.slab_log2) as u32)
        },
    )
}

#[test]
fn pauses_double_every_few_turns() {
    let ran = interrupted(|_| (), || [0, DOUBLING - 1, DOUBLING, 3 * DOUBLING, TURNS - 1].map(nap));
    assert_eq!(ran.pauses, [300, 300, 600, 2400, 300 << 7]);
}

#[test]
fn a_lane_draws_from_other_shards_while_its_span_is_replaced() {
    // From turn to turn, 4 shards further on, and then the next one.
    for (waiting, shard) in [(&[][..], 0), (&[0], 4), (&[0, 4], 5), (&[0, 4, 5], 6), (&[0, 4, 5, 6], 2)] {
        let owned = heap(4096, 8);
        assert_eq!(owned.layout.shards, 8);
        for shard in waiting {
            // Another group has crossed the end, and there is no next span yet.
            assert!(owned.heap.cursor(LARGE, *shard).take(1).is_crossed_by(1));
        }
        let ran = alloc(&owned);
        let place = owned.layout.partition_start(shard)..owned.layout.partition_start(shard + 1);
        assert!(place.contains(&ran.result.unwrap()), "{waiting:?}: slab {:?}", ran.result);
        assert_eq!(ran.pauses, [300; 4][..waiting.len()]);
    }
}

#[test]
fn an_allocation_that_finds_no_memory_fails_at_once() {
    let owned = heap(64, 1);
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    // The first ones remove the idle marks of all runs.
    let all = [(); 4].map(|()| alloc(&owned));
    assert!(all.iter().all(|ran| ran.result.is_none()) && owned.heap.failures() == 4);
    let last = &all[3];
    assert!(last.pauses.is_empty() && last.steps < 100, "{} operations", last.steps);
}

#[test]
fn an_allocation_waits_for_the_moves_of_other_threads() {
    let owned = heap(64, 1);
    (0..64).for_each(|run| owned.add_run_with(LARGE, run, &[]));
    while !alloc(&owned).pauses.is_empty() {}
    owned.heap.overview().common().begin();
    let ran = alloc(&owned);
    // All together, a few milliseconds.
    let nanos: u32 = ran.pauses.iter().sum();
    assert!(ran.result.is_none() && (1_200_000..2_400_000).contains(&nanos), "{nanos} ns");
}

#[test]
fn a_lane_that_has_a_block_does_not_search_for_another() {
    let owned = heap(64, 1);
    for run in 0..64 {
        let free: &[u32] = match run {
            10 => &[0],
            20 => &[1, 2],
            _ => &[],
        };
        owned.add_run_with(LARGE, run, free);
    }
    // One ticket is left for two lanes, and there is no other span.
    let span = Span::new(owned.heap.class(LARGE), 10, 1).with_left(1);
    owned.heap.cursor(LARGE, 0).replace(Span::UNUSED, span);
    let done = owned.on_lanes(0b11, Coords::SOLE, |owned, _| {
        let block = owned.heap.alloc(Layout::from_size_align(4096, 1).unwrap()).unwrap();
        owned.block_at(LARGE, block.as_ptr() as u64)
    });
    assert_eq!((done.results[0].0, done.results[1]), (20, (10, 0)));
    assert_eq!(owned.free_blocks(LARGE, 20).len(), 1);
}
