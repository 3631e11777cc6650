//! Which stream waits for which, and driver failures in resets and frees.

use super::BumpPool;
use super::cursor::Cursor;
use super::order::ResetOrder;
use crate::driver::fault_injection::{faulty_stream, gate};
use crate::driver::{Device, Stream};
use crate::error::{Error, Result};
use crate::host_pools::DeviceAllocator;
use crate::host_pools::address_of;
use crate::host_pools::{DriverPool, Statistics, SyncDriverAllocator};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::time::Duration;
use warpheap_device::kernel::DevicePtr;

const BLOCK: Layout = Layout::new::<[u64; 8]>();

type Pool = BumpPool<Statistics<SyncDriverAllocator>>;

fn pool(device: &Device, blocks: usize) -> Pool {
    let region = Layout::from_size_align(BLOCK.size() * blocks, 256).unwrap();
    BumpPool::builder(region).build_over(Statistics::new(SyncDriverAllocator::new(device))).unwrap()
}

fn alloc(pool: &Pool, stream: &Stream) -> DevicePtr<u8> {
    pool.allocate(BLOCK, stream).unwrap()
}

fn free<A: DeviceAllocator>(pool: &BumpPool<A>, ptr: DevicePtr<u8>, stream: &Stream) -> Result<()> {
    // SAFETY: no work uses the block (P1, P2).
    unsafe { pool.deallocate(ptr, BLOCK, stream) }
}

fn check<A: DeviceAllocator>(pool: &BumpPool<A>) {
    pool.state().cursor.check();
}

#[test]
fn each_stream_waits_once_after_a_reset() {
    let device = Device::cpu();
    let pool = pool(&device, 8);
    let ((first, of_first), (second, of_second), (third, of_third)) =
        (faulty_stream(&device), faulty_stream(&device), faulty_stream(&device));
    let waits = || (of_first.waits(), of_second.waits(), of_third.waits());
    let blocks = [alloc(&pool, &first), alloc(&pool, &second), alloc(&pool, &third)];
    assert_eq!(waits(), (0, 0, 0), "nothing used the region before");
    for (ptr, stream) in blocks.into_iter().zip([&first, &second, &second]) {
        free(&pool, ptr, stream).unwrap();
    }
    assert_eq!(pool.state().order.events(), 2, "the last free of each stream");
    pool.reset(&third).unwrap();
    assert_eq!(waits(), (0, 0, 2), "the reset lies behind both");
    let again = [alloc(&pool, &third), alloc(&pool, &first), alloc(&pool, &first), alloc(&pool, &second)];
    assert_eq!(waits(), (1, 1, 2), "and the others behind the reset, but not the stream of the reset");
    assert_eq!(again.map(|ptr| ptr.0)[..3], blocks.map(|ptr| ptr.0));
    for ptr in again {
        free(&pool, ptr, &first).unwrap();
    }
    // No other stream freed: the stream waits for nothing, and is already ordered after the reset.
    pool.reset(&first).unwrap();
    assert_eq!(waits(), (1, 1, 2));
    // Without any use in between: ordered after the previous reset.
    pool.reset(&second).unwrap();
    assert_eq!(waits(), (1, 2, 2));
    check(&pool);
}

#[test]
fn failed_calls_leave_cursor_and_blocks_unchanged() {
    let device = Device::cpu();
    let pool = pool(&device, 4);
    let (good, (bad, of_bad)) = (device.stream().unwrap(), faulty_stream(&device));
    let ptr = alloc(&pool, &good);
    of_bad.fail(true);
    assert!(matches!(free(&pool, ptr, &bad), Err(Error::Driver { .. })));
    assert_eq!((pool.stats().live_blocks, pool.stats().granted), (1, 64));
    free(&pool, ptr, &good).unwrap();
    // First the wait fails, then the record: no stream waits for itself.
    assert!(matches!(pool.reset(&bad), Err(Error::Driver { .. })));
    let before = pool.stats();
    assert_eq!((before.granted, before.resets), (64, 0));
    pool.reset(&good).unwrap();
    assert!(matches!(pool.allocate(BLOCK, &bad), Err(Error::Driver { .. })));
    assert_eq!(pool.stats().granted, 0);
    check(&pool);
    of_bad.fail(false);
    assert_eq!(alloc(&pool, &bad).0, ptr.0);
    free(&pool, ptr, &bad).unwrap();
    of_bad.fail(true);
    assert!(pool.reset(&bad).is_err(), "its record");
    assert_eq!((pool.stats().granted, pool.stats().resets), (64, 1));
    assert_eq!(pool.state().order.events(), 1, "the free is still to be waited for");
    of_bad.fail(false);
    pool.reset(&bad).unwrap();
    assert_eq!((pool.stats().granted, pool.stats().resets), (0, 2));
}

#[test]
fn a_drop_waits_for_the_streams_of_all_frees() {
    let device = Device::cpu();
    let mut pool = pool(&device, 8);
    let (pool_stream, of_pool) = faulty_stream(&device);
    pool.pool_stream = pool_stream;
    let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
    for stream in [&first, &second, &first, &second] {
        free(&pool, alloc(&pool, stream), stream).unwrap();
    }
    pool.reset(&first).unwrap();
    free(&pool, alloc(&pool, &second), &second).unwrap();
    drop(pool);
    assert_eq!(of_pool.waits(), 2, "the reset, and the free since");
}

/// The pool's stream cannot wait for the stream of the free, which is blocked for some time.
#[test]
fn a_drop_waits_for_the_device_if_the_driver_fails_to_order_it() {
    let device = Device::cpu();
    let upstream = DriverPool::builder().build(&device).unwrap();
    let mut pool = BumpPool::builder(BLOCK).build_over(&upstream).unwrap();
    let (stream, (event, gate), (pool_stream, of_pool)) =
        (device.stream().unwrap(), gate(&device), faulty_stream(&device));
    pool.pool_stream = pool_stream;
    let ptr = pool.allocate(BLOCK, &stream).unwrap();
    stream.wait(&event).unwrap();
    free(&pool, ptr, &stream).unwrap();
    of_pool.fail(true);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        gate.open();
    });
    drop(pool);
    assert!(stream.is_done().unwrap(), "the drop did not wait");
    opener.join().unwrap();
}

/// Two concurrent frees on one stream: the order of their events is unknown.
#[test]
fn events_recorded_concurrently_on_one_stream_are_all_kept() {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let mut order = ResetOrder::default();
    let (one, two) = (order.now(), order.now());
    for began in [one, two] {
        order.freed(stream.id(), stream.record().unwrap(), began);
    }
    assert_eq!(order.events(), 2);
    order.freed(stream.id(), stream.record().unwrap(), order.now());
    assert_eq!(order.events(), 1, "that one lies behind both");
}

#[test]
fn a_block_being_freed_is_neither_live_nor_free() {
    let device = Device::cpu();
    let pool = pool(&device, 4);
    let stream = device.stream().unwrap();
    let ptr = alloc(&pool, &stream);
    let (began, index) = {
        let mut state = pool.state();
        (state.order.now(), state.cursor.begin_free(address_of(ptr), BLOCK).unwrap())
    };
    assert!(matches!(pool.reset(&stream), Err(Error::InUse { blocks: 1, .. })), "it is being freed");
    assert!(free(&pool, ptr, &stream).unwrap_err().to_string().contains("is already free"));
    let mut state = pool.state();
    state.cursor.end_free(index, true);
    state.order.freed(stream.id(), stream.record().unwrap(), began);
    drop(state);
    pool.reset(&stream).unwrap();
    check(&pool);
}

#[test]
fn the_cursor_keeps_its_invariants_under_random_requests() {
    for seed in 0..20 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut below = |n: u64| rng.next_u64() % n;
        // Includes the end of the address space.
        let base = [0x1000, 0x7f_0123_4567, u64::MAX - 0xffff][seed as usize % 3];
        let mut cursor = Cursor::new(base, 0xff00);
        let mut live = Vec::new();
        for _ in 0..2000 {
            let size = if below(20) == 0 { isize::MAX as u64 / 2 } else { 1 + below(500) };
            let layout = Layout::from_size_align(size as usize, 1 << below(14)).unwrap();
            match cursor.place(layout) {
                Ok(start) => {
                    assert!(start.is_multiple_of(layout.align() as u64) && start >= base + cursor.at());
                    cursor.take(start, layout);
                    live.push((start, layout));
                }
                Err(full) => assert!(full.largest < size && full.largest <= cursor.left()),
            }
            if below(3) == 0 && !live.is_empty() {
                let at = below(live.len() as u64) as usize;
                let (start, layout) = live[at];
                let index = cursor.begin_free(start, layout).unwrap();
                assert!(cursor.begin_free(start, layout).is_err(), "it is being freed");
                let succeeded = below(4) > 0;
                cursor.end_free(index, succeeded);
                if succeeded {
                    live.swap_remove(at);
                    assert!(cursor.begin_free(start, layout).is_err(), "it is free");
                }
            }
            cursor.check();
            if below(300) == 0 {
                cursor.reset();
                live.clear();
                assert_eq!((cursor.at(), cursor.live()), (0, (0, 0)));
            }
        }
    }
}
