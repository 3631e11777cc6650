//! How often streams wait, and blocks in caches of other streams.

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

impl<A: DeviceAllocator> BlockPool<A> {
    /// The invariants of the underlying caching pool.
    pub(crate) fn check(&self) {
        self.pool.check();
    }
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
    pool.check();
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
            pool.check();
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
    pool.check();
}
