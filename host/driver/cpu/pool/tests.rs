//! Which memory is reused by which stream and when, what is released, and what is kept.

use super::*;
use crate::driver::backend::PoolOrigin;
use crate::driver::{Device, Event, Stream};
use crate::error::{InvalidRequest, OutOfMemory};
use crate::simt::{Executor, Mode};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::sync::mpsc::{Receiver, Sender, channel};

const MIB: u64 = 1 << 20;

struct Setup {
    device: Device,
    heap: Arc<Heap>,
    pool: CpuPool,
}

fn setup(max: Option<u64>) -> Setup {
    let heap = Arc::new(Heap::new("CPU", 64 * MIB));
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), MIB);
    Setup { device, pool: CpuPool::new(heap.clone(), Arc::default(), max), heap }
}

/// Blocks a stream on an event of another stream until released.
fn hold(device: &Device, stream: &Stream) -> Sender<()> {
    let (sender, receiver): (Sender<()>, Receiver<()>) = channel();
    let held = Held(Mutex::new(receiver));
    stream.wait(&Event::new(device.clone(), Arc::new(held))).unwrap();
    sender
}

struct Held(Mutex<Receiver<()>>);

impl crate::driver::EventBackend for Held {
    fn is_done(&self) -> Result<bool> {
        Ok(false)
    }

    fn synchronize(&self) -> Result<()> {
        // The job also ends when the sender is dropped.
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }

    fn elapsed(&self, _: &dyn crate::driver::EventBackend) -> Result<std::time::Duration> {
        Err(InvalidRequest::EventOrder.into())
    }
}

#[test]
fn a_pool_dropped_with_live_blocks_waits_for_the_device() {
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 4 * MIB);
    let stream = device.stream().unwrap();
    let pool = device.driver().pool(PoolOrigin::New { max: None }).unwrap();
    pool.alloc(4096, stream.queue()).unwrap();
    let held = hold(&device, &stream);
    let dropping = std::thread::spawn(move || drop(pool));
    // A premature completion would occur within a fraction of this.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let info = device.info().unwrap();
    assert!(info.memory_free < info.memory_total, "freed before the stream's work has ended");
    drop(held);
    dropping.join().unwrap();
    assert_eq!(device.info().unwrap().memory_free, info.memory_total);
}

fn give(pool: &CpuPool, address: u64, stream: &Stream) {
    // SAFETY: no work uses the block.
    unsafe { pool.free(address, stream.queue()) }.unwrap();
}

fn get(pool: &CpuPool, attribute: PoolAttribute) -> u64 {
    lock(&pool.state).segments.check();
    pool.get(attribute).unwrap()
}

#[test]
fn a_free_serves_its_own_stream_at_once_and_others_when_its_work_is_done() {
    let Setup { device, pool, .. } = setup(None);
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let held = hold(&device, &first);
    let block = pool.alloc(2 * MIB, first.queue()).unwrap();
    give(&pool, block, &first);
    let elsewhere = pool.alloc(2 * MIB, second.queue()).unwrap();
    assert_ne!(elsewhere, block, "the work before the free is not done");
    assert_eq!(pool.alloc(2 * MIB, first.queue()).unwrap(), block);
    give(&pool, block, &first);
    drop(held);
    first.synchronize().unwrap();
    assert_eq!(pool.alloc(2 * MIB, second.queue()).unwrap(), block, "opportunistically");
    assert_eq!(get(&pool, PoolAttribute::UsedCurrent), 4 * MIB);
}

#[test]
fn without_opportunistic_reuse_the_host_must_wait_first() {
    let Setup { device, pool, .. } = setup(None);
    pool.set(PoolAttribute::Opportunistic, 0).unwrap();
    pool.set(PoolAttribute::ReleaseThreshold, u64::MAX).unwrap();
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let block = pool.alloc(2 * MIB, first.queue()).unwrap();
    give(&pool, block, &first);
    first.synchronize().unwrap();
    let other = pool.alloc(2 * MIB, second.queue()).unwrap();
    assert_ne!(other, block, "the pool does not look");
    pool.settle();
    assert_eq!(pool.alloc(2 * MIB, second.queue()).unwrap(), block);
}

#[test]
fn a_full_pool_makes_the_stream_wait_or_fails() {
    for allowed in [true, false] {
        let Setup { device, pool, .. } = setup(Some(4 * MIB));
        pool.set(PoolAttribute::InternalDependencies, allowed.into()).unwrap();
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let held = hold(&device, &first);
        let blocks = [2 * MIB, 2 * MIB].map(|bytes| pool.alloc(bytes, first.queue()).unwrap());
        assert!(
            matches!(pool.alloc(1, second.queue()), Err(Error::OutOfMemory(OutOfMemory::Device { .. }))),
            "nothing is free"
        );
        give(&pool, blocks[1], &first);
        give(&pool, blocks[0], &first);
        let got = pool.alloc(MIB, second.queue());
        if allowed {
            assert_eq!(got.unwrap(), blocks[1], "what was freed first");
            assert!(!second.is_done().unwrap(), "it waits for the free");
        } else {
            assert!(matches!(got, Err(Error::OutOfMemory(OutOfMemory::Device { .. }))), "{got:?}");
            assert!(second.is_done().unwrap());
        }
        drop(held);
        second.synchronize().unwrap();
        assert_eq!(get(&pool, PoolAttribute::ReservedCurrent), 4 * MIB);
    }
}

#[test]
fn memory_above_the_threshold_is_released_at_a_synchronisation() {
    let Setup { device, heap, pool } = setup(None);
    let stream = device.stream().unwrap();
    pool.set(PoolAttribute::ReleaseThreshold, 6 * MIB).unwrap();
    let blocks = [4 * MIB; 3].map(|bytes| pool.alloc(bytes, stream.queue()).unwrap());
    for block in blocks {
        give(&pool, block, &stream);
    }
    stream.synchronize().unwrap();
    assert_eq!(get(&pool, PoolAttribute::ReservedCurrent), 12 * MIB);
    pool.settle();
    assert_eq!(get(&pool, PoolAttribute::ReservedCurrent), 8 * MIB, "less would be below the threshold");
    pool.set(PoolAttribute::ReleaseThreshold, 0).unwrap();
    pool.settle();
    assert_eq!((get(&pool, PoolAttribute::ReservedCurrent), heap.free_bytes()), (0, 64 * MIB));
    assert_eq!(get(&pool, PoolAttribute::ReservedHigh), 12 * MIB);
    pool.set(PoolAttribute::ReservedHigh, 0).unwrap();
    assert_eq!(get(&pool, PoolAttribute::ReservedHigh), 0);
    assert!(
        pool.set(PoolAttribute::UsedHigh, 1).is_err() && pool.set(PoolAttribute::UsedCurrent, 0).is_err()
    );
}

#[test]
fn a_trim_keeps_what_is_in_use_or_pending_and_what_it_is_told_to() {
    let Setup { device, pool, .. } = setup(None);
    let stream = device.stream().unwrap();
    let blocks = [4 * MIB; 4].map(|bytes| pool.alloc(bytes, stream.queue()).unwrap());
    give(&pool, blocks[0], &stream);
    give(&pool, blocks[1], &stream);
    stream.synchronize().unwrap();
    let held = hold(&device, &stream);
    give(&pool, blocks[2], &stream);
    pool.trim_to(9 * MIB).unwrap();
    assert_eq!(get(&pool, PoolAttribute::ReservedCurrent), 12 * MIB);
    pool.trim_to(0).unwrap();
    assert_eq!(get(&pool, PoolAttribute::ReservedCurrent), 8 * MIB, "one live, one pending");
    drop(held);
    stream.synchronize().unwrap();
    pool.trim_to(0).unwrap();
    assert_eq!(get(&pool, PoolAttribute::ReservedCurrent), 4 * MIB);
    give(&pool, blocks[3], &stream);
}

#[test]
fn free_memory_that_is_too_small_is_released_for_more() {
    let Setup { device, heap, pool } = setup(None);
    let stream = device.stream().unwrap();
    pool.set(PoolAttribute::ReleaseThreshold, u64::MAX).unwrap();
    let blocks = [8 * MIB; 8].map(|bytes| pool.alloc(bytes, stream.queue()).unwrap());
    assert_eq!(heap.free_bytes(), 0);
    for block in blocks {
        give(&pool, block, &stream);
    }
    stream.synchronize().unwrap();
    pool.alloc(60 * MIB, stream.queue()).unwrap();
    assert!(pool.alloc(5 * MIB, stream.queue()).is_err() && pool.alloc(u64::MAX, stream.queue()).is_err());
    pool.alloc(4 * MIB, stream.queue()).unwrap();
    drop(pool);
    assert_eq!(heap.free_bytes(), 64 * MIB);
}

#[test]
fn its_end_waits_for_what_is_pending() {
    let Setup { device, heap, pool } = setup(None);
    let stream = device.stream().unwrap();
    let held = hold(&device, &stream);
    let block = pool.alloc(MIB, stream.queue()).unwrap();
    give(&pool, block, &stream);
    // Streams may be dropped while frees are pending.
    drop(stream);
    std::thread::scope(|scope| {
        let end = scope.spawn(move || drop(pool));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!end.is_finished() && heap.free_bytes() < 64 * MIB);
        drop(held);
    });
    assert_eq!(heap.free_bytes(), 64 * MIB);
}

#[test]
fn wrong_frees_fail_as_in_a_driver() {
    let Setup { device, pool, .. } = setup(None);
    let stream = device.stream().unwrap();
    let block = pool.alloc(MIB, stream.queue()).unwrap();
    for address in [0, block + 512, u64::MAX] {
        // SAFETY: the free fails.
        let outcome = unsafe { pool.free(address, stream.queue()) };
        assert!(matches!(outcome, Err(Error::Driver { .. })));
    }
    give(&pool, block, &stream);
    // SAFETY: the free fails.
    assert!(unsafe { pool.free(block, stream.queue()) }.is_err());
}

#[test]
fn segments_stay_consistent_under_random_requests() {
    for seed in 0..10 {
        let Setup { device, heap, pool } = setup(Some(32 * MIB));
        let streams = [device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap()];
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut below = |n: u64| rng.next_u64() % n;
        let mut live: Vec<(u64, u64)> = Vec::new();
        for _ in 0..1500 {
            let stream = &streams[below(3) as usize];
            match below(20) {
                0 => pool.trim_to(below(16) * MIB).unwrap(),
                1 => pool.settle(),
                2 => pool.set(PoolAttribute::ReleaseThreshold, below(32) * MIB).unwrap(),
                3..12 => {
                    let max = 1 << (4 + below(18));
                    let bytes = 1 + below(max);
                    let Ok(at) = pool.alloc(bytes, stream.queue()) else { continue };
                    assert!(at.is_multiple_of(GRAIN));
                    let apart = |(start, size): &(u64, u64)| at + bytes <= *start || start + size <= at;
                    assert!(live.iter().all(apart), "seed {seed}: {at:#x}");
                    live.push((at, bytes));
                }
                _ if !live.is_empty() => {
                    let (at, _) = live.swap_remove(below(live.len() as u64) as usize);
                    give(&pool, at, stream);
                }
                _ => {}
            }
            let used = get(&pool, PoolAttribute::UsedCurrent);
            assert!(used >= live.iter().map(|(_, bytes)| bytes).sum());
            let reserved = get(&pool, PoolAttribute::ReservedCurrent);
            assert!(used <= reserved && reserved <= 32 * MIB && heap.free_bytes() == 64 * MIB - reserved);
        }
        live.iter().for_each(|(at, _)| give(&pool, *at, &streams[0]));
        device.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        assert_eq!(heap.free_bytes(), 64 * MIB, "seed {seed}");
    }
}
