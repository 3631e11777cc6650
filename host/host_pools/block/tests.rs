//! Failures of driver calls, and how often streams wait.

use super::*;
use crate::driver::fault_injection::{faulty_stream, gate};
use crate::host_pools::{Statistics, SyncDriverAllocator};

const BLOCK: Layout = Layout::new::<[u64; 8]>();

type Pool = BlockPool<Statistics<SyncDriverAllocator>>;

fn pool(device: &Device, blocks: usize) -> Pool {
    BlockPool::builder(BLOCK, blocks).build_over(Statistics::new(SyncDriverAllocator::new(device))).unwrap()
}

fn take(pool: &Pool, stream: &Stream) -> DevicePtr<u8> {
    pool.allocate(BLOCK, stream).unwrap()
}

fn give(pool: &Pool, ptr: DevicePtr<u8>, stream: &Stream) -> Result<()> {
    // SAFETY: no work uses the block (P1), and each test frees it once; a second free must be an
    // error (P2).
    unsafe { pool.deallocate(ptr, BLOCK, stream) }
}

/// The invariants of the underlying caching pool.
fn check(pool: &Pool) {
    pool.pool.check();
}

fn free(pool: &Pool) -> u64 {
    pool.stats().free_blocks
}

#[test]
fn only_another_stream_waits_and_only_if_it_has_to() {
    let device = Device::cpu();
    let pool = pool(&device, 3);
    let ((first, of_first), (second, of_second)) = (faulty_stream(&device), faulty_stream(&device));
    let calls = || (of_first.waits(), of_first.records(), of_second.waits(), of_second.records());
    let one = take(&pool, &first);
    for _ in 0..100 {
        give(&pool, one, &first).unwrap();
        assert_eq!(take(&pool, &first).0, one.0, "what this stream freed comes first");
    }
    let rest = [take(&pool, &first), take(&pool, &first)];
    give(&pool, one, &first).unwrap();
    assert_eq!(calls(), (0, 0, 0, 0), "no point is marked while one stream is alone");
    // The first stream has work left. The second stream gets its block and waits for the point
    // behind the free.
    let (event, gate) = gate(&device);
    first.wait(&event).unwrap();
    assert_eq!(take(&pool, &second).0, one.0);
    assert_eq!(calls(), (1, 1, 1, 0));
    assert!(!second.is_done().unwrap());
    assert!(pool.allocate(BLOCK, &second).is_err() && pool.allocate(BLOCK, &first).is_err());
    gate.open();
    second.synchronize().unwrap();
    for ptr in rest {
        give(&pool, ptr, &first).unwrap();
    }
    first.synchronize().unwrap();
    take(&pool, &second);
    assert_eq!(
        (of_second.waits(), of_first.records()),
        (1, 1),
        "what a stream without work has freed is anyone's"
    );
    check(&pool);
}

/// Exactly `blocks` blocks can be allocated, whichever stream's cache holds the free ones.
#[test]
fn the_caches_of_other_streams_hold_no_block_back() {
    let device = Device::cpu();
    for blocks in [1, 2, 7, 100, 1000] {
        let pool = pool(&device, blocks);
        let streams = [(); 3].map(|()| device.stream().unwrap());
        for round in 0..6 {
            let all: Vec<_> = (0..blocks).map(|n| take(&pool, &streams[(n + round) % 3])).collect();
            let mut starts: Vec<_> = all.iter().map(|ptr| ptr.0.addr()).collect();
            starts.sort_unstable();
            starts.dedup();
            assert_eq!((starts.len(), free(&pool)), (blocks, 0));
            assert!(streams.iter().all(|stream| pool.allocate(BLOCK, stream).is_err()), "one too many");
            for (n, ptr) in (0..).zip(all) {
                give(&pool, ptr, &streams[(n * n + round) % 3]).unwrap();
                assert!(give(&pool, ptr, &streams[n % 3]).is_err(), "freed twice");
            }
            // All blocks for one stream.
            let all: Vec<_> = (0..blocks).map(|_| take(&pool, &streams[round % 3])).collect();
            assert!(pool.allocate(BLOCK, &streams[0]).is_err());
            all.into_iter().for_each(|ptr| give(&pool, ptr, &streams[0]).unwrap());
            check(&pool);
        }
        assert_eq!(pool.upstream().stats().allocs, 1);
    }
}

/// A pool with as many blocks as all threads hold together never runs out of memory.
#[test]
fn threads_that_together_hold_no_more_than_there_is_are_never_refused() {
    const THREADS: usize = 16;
    let device = Device::cpu();
    let pool = pool(&device, 2 * THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, device) = (&pool, &device);
            scope.spawn(move || {
                let streams = [device.stream().unwrap(), device.stream().unwrap()];
                for round in 0..2000 {
                    let two = [take(pool, &streams[round % 2]), take(pool, &streams[(round / 2) % 2])];
                    assert_ne!(two[0].0, two[1].0);
                    two.into_iter()
                        .for_each(|ptr| give(pool, ptr, &streams[(round / 3 + thread) % 2]).unwrap());
                }
            });
        }
    });
    assert_eq!(free(&pool), 2 * THREADS as u64);
    check(&pool);
}

#[test]
fn a_block_that_could_not_be_waited_for_is_as_free_as_before() {
    let device = Device::cpu();
    let pool = pool(&device, 2);
    let (first, (second, of_second)) = (device.stream().unwrap(), faulty_stream(&device));
    let two = [take(&pool, &first), take(&pool, &first)];
    let (event, gate) = gate(&device);
    first.wait(&event).unwrap();
    for ptr in two {
        give(&pool, ptr, &first).unwrap();
    }
    of_second.fail(true);
    for _ in 0..3 {
        assert!(matches!(pool.allocate(BLOCK, &second), Err(Error::Driver { .. })));
        assert_eq!(free(&pool), 2);
        check(&pool);
    }
    of_second.fail(false);
    let again = [take(&pool, &second), take(&pool, &first)];
    assert_ne!(again[0].0, again[1].0);
    assert!(pool.allocate(BLOCK, &second).is_err());
    gate.open();
    for ptr in again {
        give(&pool, ptr, &second).unwrap();
    }
}

/// A free makes no driver call that could fail. If the driver cannot record an event on a stream,
/// another stream waits on the host.
#[test]
fn a_block_of_a_stream_without_points_is_waited_for_on_the_host() {
    let device = Device::cpu();
    let pool = pool(&device, 1);
    let ((stream, of_stream), (second, of_second)) = (faulty_stream(&device), faulty_stream(&device));
    let ptr = take(&pool, &stream);
    of_stream.fail(true);
    give(&pool, ptr, &stream).unwrap();
    assert_eq!(take(&pool, &second).0, ptr.0);
    assert_eq!(of_second.waits(), 0);
    of_stream.fail(false);
    give(&pool, ptr, &stream).unwrap();
    assert!(give(&pool, ptr, &stream).unwrap_err().to_string().contains("is already free"));
    check(&pool);
}

#[test]
fn at_its_end_all_streams_that_blocks_were_freed_on_are_waited_for() {
    let device = Device::cpu();
    let pool = pool(&device, 4);
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let all: Vec<_> = (0..4).map(|_| take(&pool, &first)).collect();
    let (event, gate) = gate(&device);
    first.wait(&event).unwrap();
    for (ptr, stream) in all.into_iter().zip([&first, &second, &first, &second]) {
        give(&pool, ptr, stream).unwrap();
    }
    std::thread::scope(|scope| {
        let goes = scope.spawn(|| drop(pool));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!goes.is_finished());
        gate.open();
    });
    assert_eq!(device.memory_in_use(), (0, 0));
}
