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
fn served(most: usize) -> (RungStats, bool) {
    let device = Device::cpu();
    let builder = CachingPool::builder().segment_bytes(2 << 20).spare_bytes(0).max_bytes((most * MIB) as u64);
    let pool = builder.build_over(SyncDriverAllocator::new(&device)).unwrap();
    let [slow, quick, other, third] = [(); 4].map(|()| device.stream().unwrap());
    let take = |size: usize, stream: &Stream| pool.allocate(layout(size * MIB), stream).unwrap();
    let give = |ptr: DevicePtr<u8>, stream: &Stream| {
        // SAFETY: no work uses the block, and it is freed once (P1, P2).
        unsafe { pool.deallocate(ptr, layout(MIB), stream) }.unwrap();
    };
    let of_slow = [(); PENDING].map(|()| take(1, &slow));
    let of_quick = [(); 4].map(|()| take(1, &quick));
    let (event, gate) = gate(&device);
    slow.wait(&event).unwrap();
    for ptr in of_slow {
        give(ptr, &slow);
        // An allocation that looks for more memory puts what the slow stream has freed behind an
        // event.
        take(2, &other);
    }
    of_quick.into_iter().for_each(|ptr| give(ptr, &quick));
    quick.synchronize().unwrap();
    let before = pool.stats().rungs;
    for _ in 0..4 {
        take(1, &third);
    }
    let mut rungs = pool.stats().rungs;
    (rungs.grown, rungs.stolen) = (rungs.grown - before.grown, rungs.stolen - before.stolen);
    // The stream has no other work, and reaches that point unless it waits for the gate.
    let is_held_up = third.record().unwrap();
    let deadline = Instant::now() + Duration::from_secs(if rungs.stolen > 0 { 1 } else { 300 });
    while !is_held_up.is_done().unwrap() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let waits = !is_held_up.is_done().unwrap();
    gate.open();
    (rungs, waits)
}

#[test]
fn what_one_stream_is_done_with_is_found_behind_what_a_slow_one_holds() {
    // First the pool can still grow, then it cannot.
    for most in [200, 64] {
        let (rungs, waits) = served(most);
        assert_eq!((rungs.grown, rungs.stolen, waits), (0, 0, false), "at most {most} MiB: {rungs:?}");
    }
}
