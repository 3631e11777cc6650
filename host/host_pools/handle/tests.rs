//! Waits between streams, and frees after a stream failure.

use super::*;
use crate::driver::fault_injection::{Faults, faulty_stream, gate};
use crate::driver::{Device, Stream};
use crate::error::{Error, Result};
use crate::host_pools::{BlockPool, Statistics, SyncDriverAllocator};
use std::alloc::Layout;
use std::sync::Arc;

type Pool = BlockPool<Statistics<SyncDriverAllocator>>;

fn pool(device: &Device) -> Pool {
    BlockPool::builder(Layout::new::<[u64; 8]>(), 4)
        .build_over(Statistics::new(SyncDriverAllocator::new(device)))
        .unwrap()
}

/// A device, a pool on it, and two streams that count calls and inject faults.
fn setup() -> (Device, Pool, [(Stream, Arc<Faults>); 2]) {
    let device = Device::cpu();
    let streams = [faulty_stream(&device), faulty_stream(&device)];
    let pool = pool(&device);
    (device, pool, streams)
}

fn buffer<'a>(pool: &'a Pool, stream: &Stream) -> PoolBuffer<u64, &'a Pool> {
    PoolBuffer::zeroed(pool, 8, stream).unwrap()
}

#[test]
fn a_free_waits_only_for_recorded_streams() {
    let (_, pool, [(alloc_stream, of_alloc), (other, of_other)]) = setup();
    drop(buffer(&pool, &alloc_stream));
    assert_eq!((of_alloc.waits(), of_alloc.records()), (0, 0), "no other stream was recorded");

    let values = buffer(&pool, &alloc_stream);
    for stream in [&other, &alloc_stream, &other, &other.clone()] {
        values.record_stream(stream).unwrap();
    }
    assert_eq!((of_alloc.waits(), of_other.records()), (0, 0), "recording a stream must not call the driver");
    drop(values);
    assert_eq!(
        (of_alloc.waits(), of_other.records(), of_other.waits()),
        (1, 1, 0),
        "one wait for each recorded stream"
    );

    let values = buffer(&pool, &alloc_stream);
    values.record_stream(&other).unwrap();
    values.deallocate_on(&other).unwrap();
    assert_eq!((of_alloc.waits(), of_other.waits()), (1, 1), "the stream of the free waits for alloc_stream");
    assert_eq!(pool.stats().free_blocks, 4);
}

#[test]
fn a_move_makes_the_new_stream_wait_once_for_each_other_stream() {
    let (device, pool, [(first, of_first), (second, of_second)]) = setup();
    let third = device.stream().unwrap();
    let mut values = buffer(&pool, &first);
    values.record_stream(&third).unwrap();
    values.move_to(&second).unwrap();
    assert_eq!((of_first.waits(), of_second.waits()), (0, 2));
    assert_eq!(values.stream().id(), second.id());
    drop(values);
    assert_eq!((of_first.waits(), of_second.waits()), (0, 2), "`move_to` has ordered the streams already");
    // The block was freed on `second`, which can allocate it without a wait.
    buffer(&pool, &second).deallocate().unwrap();
    assert_eq!((of_first.waits(), of_second.waits()), (0, 2));
}

#[test]
fn a_free_with_a_failing_stream_returns_the_unchanged_handle() {
    let (device, pool, [(alloc_stream, of_alloc), (other, of_other)]) = setup();
    let mut values = PoolBuffer::from_slice(&pool, &[7_u64, 8], &alloc_stream).unwrap();
    values.record_stream(&other).unwrap();
    for faults in [&of_alloc, &of_other] {
        faults.fail(true);
        for on in [None, Some(&alloc_stream)] {
            let failed = match on {
                None => values.deallocate(),
                Some(stream) => values.deallocate_on(stream),
            };
            let failed = failed.unwrap_err();
            assert!(matches!(failed.error(), Error::Driver { .. }), "{failed}");
            values = failed.into_handle();
        }
        assert_eq!(pool.stats().free_blocks, 3);
        assert!(values.move_to(&device.stream().unwrap()).is_err());
        assert_eq!(values.stream().id(), alloc_stream.id(), "a failed move must not change the stream");
        faults.fail(false);
    }
    assert_eq!(values.copy_to_vec().unwrap(), [7, 8]);
    let parts = values.into_raw();
    assert_eq!(parts.recorded.len(), 1, "`other` must still be recorded");
    // SAFETY: the parts of a handle, unchanged (P1 to P4).
    unsafe { PoolBuffer::from_raw(parts) }.deallocate().unwrap();
    assert_eq!(pool.stats().free_blocks, 4);
}

#[test]
fn copies_wait_for_recorded_streams() -> Result<()> {
    let (_, pool, [(alloc_stream, of_alloc), (other, of_other)]) = setup();
    let mut values = buffer(&pool, &alloc_stream);
    values.copy_to_vec()?;
    assert_eq!(of_alloc.waits(), 0);
    values.record_stream(&other)?;
    values.copy_to_vec()?;
    values.write(0, &[1])?;
    values.fill_bytes(1)?;
    assert_eq!((of_alloc.waits(), of_other.records()), (3, 3));
    let mut copy = buffer(&pool, &other);
    copy.copy_from(&values)?;
    assert_eq!(of_other.waits(), 1, "the copy waits for alloc_stream");
    values.deallocate()?;
    assert_eq!(of_alloc.waits(), 4, "the free waits for the copy");
    Ok(())
}

/// A copy uses the caller's memory, which the caller may free when the call returns an error.
#[test]
fn a_copy_has_ended_when_its_call_fails() {
    let device = Device::cpu();
    let pool = pool(&device);
    let (alloc_stream, of_alloc) = faulty_stream(&device);
    let mut values = PoolBuffer::from_slice(&pool, &[1_u64; 8], &alloc_stream).unwrap();
    for writes in [false, true] {
        let (event, gate) = gate(&device);
        alloc_stream.wait(&event).unwrap();
        of_alloc.fail_synchronize(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                gate.open();
            });
            let failed = if writes { values.write(0, &[5]).is_err() } else { values.copy_to_vec().is_err() };
            assert!(failed && gate.is_open() && alloc_stream.is_done().unwrap());
        });
        of_alloc.fail_synchronize(false);
    }
    assert_eq!(values.copy_to_vec().unwrap(), [5, 1, 1, 1, 1, 1, 1, 1]);
}
