//! A stream that is blocked for long, and other streams with completed work.

use super::super::RungStats;
use super::super::shared::MAX_BUSY;
use super::*;
use crate::driver::fault_injection::gate;
use std::time::{Duration, Instant};

/// Blocks of the slow stream, each behind a separate event.
const PENDING: usize = MAX_BUSY + 4;

/// Lets a third stream allocate four blocks that another stream freed and has passed, listed behind
/// those of a slow stream. Returns the rungs that served it, and whether it waits for the slow
/// stream.
fn served(limit: usize) -> (RungStats, bool) {
    let device = Device::cpu();
    let builder =
        CachingPool::builder().segment_bytes(2 << 20).spare_bytes(0).max_bytes((limit * MIB) as u64);
    let pool = builder.build_over(SyncDriverAllocator::new(&device)).unwrap();
    let [slow, quick, other, third] = [(); 4].map(|()| device.stream().unwrap());
    let slow_blocks = [(); PENDING].map(|()| alloc(&pool, MIB, &slow));
    let quick_blocks = [(); 4].map(|()| alloc(&pool, MIB, &quick));
    let (event, gate) = gate(&device);
    slow.wait(&event).unwrap();
    for ptr in slow_blocks {
        free(&pool, ptr, MIB, &slow);
        // An allocation that looks for more memory puts what the slow stream has freed behind an
        // event.
        alloc(&pool, 2 * MIB, &other);
    }
    quick_blocks.into_iter().for_each(|ptr| free(&pool, ptr, MIB, &quick));
    quick.synchronize().unwrap();
    let before = pool.stats().rungs;
    for _ in 0..4 {
        alloc(&pool, MIB, &third);
    }
    let mut rungs = pool.stats().rungs;
    (rungs.grown, rungs.stolen) = (rungs.grown - before.grown, rungs.stolen - before.stolen);
    // The stream has no other work, and reaches that point unless it waits for the gate.
    let reached = third.record().unwrap();
    let deadline = Instant::now() + Duration::from_secs(if rungs.stolen > 0 { 1 } else { 300 });
    while !reached.is_done().unwrap() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let waits = !reached.is_done().unwrap();
    gate.open();
    (rungs, waits)
}

#[test]
fn completed_frees_are_found_behind_those_of_a_slow_stream() {
    // First the pool can still grow, then it cannot.
    for limit in [200, 64] {
        let (rungs, waits) = served(limit);
        assert_eq!((rungs.grown, rungs.stolen, waits), (0, 0, false), "limit {limit} MiB: {rungs:?}");
    }
}
