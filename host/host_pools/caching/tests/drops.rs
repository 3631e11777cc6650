//! What a pool waits for when it is dropped.

use super::*;
use crate::driver::Event;
use crate::driver::fault_injection::{faulty_stream, gate};
use crate::host_pools::{BumpPool, DriverPool};
use std::time::Duration;

/// The upstream frees in the order of streams, so it does not wait on the host. It outlives the
/// pools.
fn upstream(device: &Device) -> DriverPool {
    DriverPool::builder().build(device).unwrap()
}

fn caching(upstream: &DriverPool) -> CachingPool<&DriverPool> {
    CachingPool::builder().segment_bytes(2 << 20).build_over(upstream).unwrap()
}

#[test]
fn without_live_blocks_a_drop_does_not_wait_for_unfinished_work() {
    let device = Device::cpu();
    let (stream, upstream) = (device.stream().unwrap(), upstream(&device));
    let caching = caching(&upstream);
    let bump = BumpPool::builder(layout(MIB)).build_over(&upstream).unwrap();
    let (in_caching, in_bump) = (alloc(&caching, MIB, &stream), bump.allocate(layout(512), &stream).unwrap());
    let (event, gate) = gate(&device);
    stream.wait(&event).unwrap();
    free(&caching, in_caching, MIB, &stream);
    // SAFETY: no work uses the block (P1), and it is freed once (P2).
    unsafe { bump.deallocate(in_bump, layout(512), &stream) }.unwrap();
    drop(caching);
    drop(bump);
    assert!(!stream.is_done().unwrap(), "the stream still waits for the gate");
    gate.open();
    stream.synchronize().unwrap();
}

/// Drops a pool while a stream is blocked for some time. Returns whether the event that blocks it
/// has happened then.
fn waits<P>(pool: P, event: &Event, open: impl FnOnce() + Send + 'static) -> bool {
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        open();
    });
    drop(pool);
    let is_done = event.is_done().unwrap();
    opener.join().unwrap();
    is_done
}

/// The streams' work and the drop cannot be ordered on the device.
#[test]
fn a_drop_waits_for_the_device_if_the_driver_fails_to_order_it() {
    let device = Device::cpu();
    let upstream = upstream(&device);
    // A point of the stream cannot be recorded.
    let (pool, first) = (caching(&upstream), Watched::new(&device));
    let (ptr, (event, of_first)) = (alloc(&pool, MIB, first.stream()), gate(&device));
    first.stream().wait(&event).unwrap();
    first.calls.fail(true);
    free(&pool, ptr, MIB, first.stream());
    assert!(waits(pool, &event, move || of_first.open()), "no point is known");
    // The pool's stream cannot wait.
    let (mut pool, second) = (caching(&upstream), device.stream().unwrap());
    let (pool_stream, calls) = faulty_stream(&device);
    pool.pool_stream = pool_stream;
    let (ptr, (event, of_second)) = (alloc(&pool, MIB, &second), gate(&device));
    second.wait(&event).unwrap();
    free(&pool, ptr, MIB, &second);
    calls.fail(true);
    assert!(waits(pool, &event, move || of_second.open()), "the pool's stream did not wait");
}
