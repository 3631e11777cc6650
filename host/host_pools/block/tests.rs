//! Failures of driver calls, and how often streams wait.

use super::*;
use crate::driver::fault_injection::{faulty_stream, gate};
use crate::host_pools::{Statistics, SyncDriverAllocator};

const BLOCK: Layout = Layout::new::<[u64; 8]>();

type Pool = BlockPool<Statistics<SyncDriverAllocator>>;

fn pool(device: &Device, blocks: usize) -> Pool {
    BlockPool::builder(BLOCK, blocks).build_over(Statistics::new(SyncDriverAllocator::new(device))).unwrap()
}

fn alloc(pool: &Pool, stream: &Stream) -> DevicePtr<u8> {
    pool.allocate(BLOCK, stream).unwrap()
}

fn free(pool: &Pool, ptr: DevicePtr<u8>, stream: &Stream) -> Result<()> {
    // SAFETY: no work uses the block (P1), and each test frees it once; a second free must be an
    // error (P2).
    unsafe { pool.deallocate(ptr, BLOCK, stream) }
}

/// The invariants of the underlying caching pool.
fn check(pool: &Pool) {
    pool.pool.check();
}

fn free_blocks(pool: &Pool) -> u64 {
    pool.stats().free_blocks
}

#[test]
fn only_other_streams_wait_and_only_for_pending_work() {
    let device = Device::cpu();
    let pool = pool(&device, 3);
    let ((first, of_first), (second, of_second)) = (faulty_stream(&device), faulty_stream(&device));
    let calls = || (of_first.waits(), of_first.records(), of_second.waits(), of_second.records());
    let one = alloc(&pool, &first);
    for _ in 0..100 {
        free(&pool, one, &first).unwrap();
        assert_eq!(alloc(&pool, &first).0, one.0, "what this stream freed comes first");
    }
    let rest = [alloc(&pool, &first), alloc(&pool, &first)];
    free(&pool, one, &first).unwrap();
    assert_eq!(calls(), (0, 0, 0, 0), "no point is marked while one stream is alone");
    // The first stream has work left. The second stream gets its block and waits for the event
    // after the free.
    let (event, gate) = gate(&device);
    first.wait(&event).unwrap();
    assert_eq!(alloc(&pool, &second).0, one.0);
    assert_eq!(calls(), (1, 1, 1, 0));
    assert!(!second.is_done().unwrap());
    assert!(pool.allocate(BLOCK, &second).is_err() && pool.allocate(BLOCK, &first).is_err());
    gate.open();
    second.synchronize().unwrap();
    for ptr in rest {
        free(&pool, ptr, &first).unwrap();
    }
    first.synchronize().unwrap();
    alloc(&pool, &second);
    assert_eq!((of_second.waits(), of_first.records()), (1, 1), "frees of an idle stream need no wait");
    check(&pool);
}

/// Exactly `blocks` blocks can be allocated, whichever stream's cache holds the free ones.
#[test]
fn blocks_in_caches_of_other_streams_can_be_allocated() {
    let device = Device::cpu();
    for blocks in [1, 2, 7, 100, 1000] {
        let pool = pool(&device, blocks);
        let streams = [(); 3].map(|()| device.stream().unwrap());
        for round in 0..6 {
            let all: Vec<_> = (0..blocks).map(|n| alloc(&pool, &streams[(n + round) % 3])).collect();
            let mut starts: Vec<_> = all.iter().map(|ptr| ptr.0.addr()).collect();
            starts.sort_unstable();
            starts.dedup();
            assert_eq!((starts.len(), free_blocks(&pool)), (blocks, 0));
            assert!(streams.iter().all(|stream| pool.allocate(BLOCK, stream).is_err()), "one too many");
            for (n, ptr) in (0..).zip(all) {
                free(&pool, ptr, &streams[(n * n + round) % 3]).unwrap();
                assert!(free(&pool, ptr, &streams[n % 3]).is_err(), "freed twice");
            }
            // All blocks for one stream.
            let all: Vec<_> = (0..blocks).map(|_| alloc(&pool, &streams[round % 3])).collect();
            assert!(pool.allocate(BLOCK, &streams[0]).is_err());
            all.into_iter().for_each(|ptr| free(&pool, ptr, &streams[0]).unwrap());
            check(&pool);
        }
        assert_eq!(pool.upstream().stats().allocs, 1);
    }
}

/// A pool with as many blocks as all threads hold together never runs out of memory.
#[test]
fn a_pool_with_a_block_for_each_holder_never_runs_out() {
    const THREADS: usize = 16;
    let device = Device::cpu();
    let pool = pool(&device, 2 * THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, device) = (&pool, &device);
            scope.spawn(move || {
                let streams = [device.stream().unwrap(), device.stream().unwrap()];
                for round in 0..2000 {
                    let two = [alloc(pool, &streams[round % 2]), alloc(pool, &streams[(round / 2) % 2])];
                    assert_ne!(two[0].0, two[1].0);
                    two.into_iter()
                        .for_each(|ptr| free(pool, ptr, &streams[(round / 3 + thread) % 2]).unwrap());
                }
            });
        }
    });
    assert_eq!(free_blocks(&pool), 2 * THREADS as u64);
    check(&pool);
}

#[test]
fn a_block_stays_free_after_a_failed_wait() {
    let device = Device::cpu();
    let pool = pool(&device, 2);
    let (first, (second, of_second)) = (device.stream().unwrap(), faulty_stream(&device));
    let two = [alloc(&pool, &first), alloc(&pool, &first)];
    let (event, gate) = gate(&device);
    first.wait(&event).unwrap();
    for ptr in two {
        free(&pool, ptr, &first).unwrap();
    }
    of_second.fail(true);
    for _ in 0..3 {
        assert!(matches!(pool.allocate(BLOCK, &second), Err(Error::Driver { .. })));
        assert_eq!(free_blocks(&pool), 2);
        check(&pool);
    }
    of_second.fail(false);
    let again = [alloc(&pool, &second), alloc(&pool, &first)];
    assert_ne!(again[0].0, again[1].0);
    assert!(pool.allocate(BLOCK, &second).is_err());
    gate.open();
    for ptr in again {
        free(&pool, ptr, &second).unwrap();
    }
}

/// A free makes no driver call that could fail. If the driver cannot record an event on a stream,
/// another stream waits on the host.
#[test]
fn the_host_waits_if_no_event_can_be_recorded() {
    let device = Device::cpu();
    let pool = pool(&device, 1);
    let ((stream, of_stream), (second, of_second)) = (faulty_stream(&device), faulty_stream(&device));
    let ptr = alloc(&pool, &stream);
    of_stream.fail(true);
    free(&pool, ptr, &stream).unwrap();
    assert_eq!(alloc(&pool, &second).0, ptr.0);
    assert_eq!(of_second.waits(), 0);
    of_stream.fail(false);
    free(&pool, ptr, &stream).unwrap();
    assert!(free(&pool, ptr, &stream).unwrap_err().to_string().contains("is already free"));
    check(&pool);
}

#[test]
fn a_drop_waits_for_the_streams_of_all_frees() {
    let device = Device::cpu();
    let pool = pool(&device, 4);
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    let all: Vec<_> = (0..4).map(|_| alloc(&pool, &first)).collect();
    let (event, gate) = gate(&device);
    first.wait(&event).unwrap();
    for (ptr, stream) in all.into_iter().zip([&first, &second, &first, &second]) {
        free(&pool, ptr, stream).unwrap();
    }
    std::thread::scope(|scope| {
        let dropped = scope.spawn(|| drop(pool));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!dropped.is_finished());
        gate.open();
    });
    assert_eq!(device.memory_in_use(), (0, 0));
}
