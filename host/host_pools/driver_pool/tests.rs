//! Errors with figures, handles of one pool, and the order of steps in a drop.

use super::DriverPool;
use crate::driver::Device;
use crate::driver::fault_injection::{Call, faulty_device, gate};
use crate::error::OutOfMemory;
use crate::error::{Bytes, Error, Result};
use crate::host_pools::DeviceAllocator;
use crate::host_pools::{PoolBuffer, SyncDriverAllocator, Tagged};
use crate::simt::{Executor, Mode};
use std::alloc::Layout;

#[test]
fn out_of_memory_errors_report_the_figures_of_the_pool() {
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 3 << 20);
    let stream = device.stream().unwrap();
    let pool = DriverPool::builder().build(&device).unwrap();
    let layout = |size| Layout::from_size_align(size, 256).unwrap();
    pool.allocate(layout(4096), &stream).unwrap();
    let error = pool.allocate(layout(2 << 20), &stream).unwrap_err();
    let Error::OutOfMemory(OutOfMemory::Device { requested, free, advice, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((*requested, *free), (Bytes(2 << 20), Bytes(1 << 20)));
    let figures = ["has reserved 2097152 B (2.0 MiB)", "4096 B (4.0 KiB) are in use", "trim_to"];
    assert!(figures.iter().all(|words| advice.contains(words)), "{error}");
    drop(pool);
    assert_eq!(device.memory_in_use(), (0, 0));
}

/// Only errors of allocators do: other memory of the device has no report.
#[test]
fn out_of_memory_errors_of_the_device_say_how_to_get_a_report() {
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 3 << 20);
    let stream = device.stream().unwrap();
    let layout = Layout::from_size_align(4 << 20, 256).unwrap();
    let (driver, pool) = (SyncDriverAllocator::new(&device), DriverPool::builder().build(&device).unwrap());
    let tagged = Tagged::new(&driver);
    let pools: [&dyn DeviceAllocator; 3] = [&driver, &pool, &tagged];
    let hint = " (WARPHEAP_OOM_REPORT=1 adds a report)";
    for pool in pools {
        let text = pool.allocate(layout, &stream).unwrap_err().to_string();
        assert!(text.ends_with(hint) && text.matches(hint).count() == 1, "{text}");
    }
    let Err(error) = device.alloc_memory(4 << 20, 256) else { panic!("it fails") };
    assert!(!error.to_string().contains(hint), "{error}");
}

#[test]
fn handles_of_one_driver_pool_are_the_same() {
    let device = Device::cpu();
    // SAFETY: nothing destroys the pool.
    let current = unsafe { DriverPool::current_of(&device) };
    let pools = [DriverPool::default_of(&device), current, DriverPool::builder().build(&device)];
    let [default, current, own] = pools.map(Result::unwrap);
    assert!(default.is_same(&current) && current.is_same(&default));
    assert!(!default.is_same(&own) && !default.is_same(&DriverPool::default_of(&Device::cpu()).unwrap()));
}

/// A subscriber that panics on each event.
struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("a subscriber panics");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A block is freed after the work that uses it, even if the warning about the block panics.
#[test]
fn a_drop_waits_and_frees_before_it_logs() {
    let (device, faults) = faulty_device(16 << 20);
    let stream = device.stream().unwrap();
    let pool = DriverPool::builder().build(&device).unwrap();
    std::mem::forget(PoolBuffer::<u8, _>::zeroed(&pool, 1000, &stream).unwrap());
    let (event, gate) = gate(&device);
    stream.wait(&event).unwrap();
    // With two dispatchers, a call site asks both, whichever thread gets there first.
    let [dispatch, _second] = [Panics, Panics].map(tracing::Dispatch::new);
    let going = std::thread::spawn(move || {
        let drops = std::panic::AssertUnwindSafe(|| drop(pool));
        tracing::dispatcher::with_default(&dispatch, || std::panic::catch_unwind(drops)).is_err()
    });
    // A premature free would happen within a fraction of this time.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!going.is_finished(), "gone before the stream's work has ended");
    assert_eq!(faults.calls_of(Call::PoolFree), 0);
    gate.open();
    assert!(going.join().unwrap(), "the subscriber panicked");
    assert_eq!(faults.calls_of(Call::PoolFree), 1);
    assert_eq!((faults.held(), device.memory_in_use()), (Vec::new(), (0, 0)));
}
