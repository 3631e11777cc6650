//! Work that is still running when it is queried, and work that runs concurrently.
//!
//! This is a separate program, and its tests run one at a time: a blocking call of another test,
//! such as a free, waits for the whole device, and a query after it would find the kernel finished.
#![cfg(not(loom))]

#[path = "driver/kernels.rs"]
#[allow(dead_code, reason = "only some of the kernels are launched here")]
mod kernels;
#[path = "driver/support.rs"]
#[allow(dead_code, reason = "no test here differs by backend")]
mod support;

use kernels::{fill, raise, wait};
use std::alloc::Layout;
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::{devices, launch, module};
use warpheap::host_pools::{BumpPool, DeviceAllocator, DriverPool, ReusePolicies, SyncDriverAllocator};
use warpheap::{Device, DeviceBuffer, DeviceMemory, Module, Stream};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};

/// Held by the one test that uses the devices, until everything it created is dropped.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // Ignore poisoning: a panic of one test must not fail the others.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two streams, and the flag that a kernel of one waits for and a kernel of the other raises.
struct Pair {
    module: Module,
    first: Stream,
    second: Stream,
    flag: DeviceBuffer<u32>,
}

impl Pair {
    fn new(device: &Device) -> Pair {
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        Pair { module: module(device), first, second, flag: device.from_slice(&[0_u32]).unwrap() }
    }

    fn wait_on_first(&self) {
        launch(&self.first, &self.module, wait, 1, (self.flag.slice(),)).unwrap();
    }

    fn raise_on_second(&self) {
        launch(&self.second, &self.module, raise, 1, (self.flag.slice(),)).unwrap();
    }
}

#[test]
fn kernels_of_two_streams_run_at_the_same_time() {
    let _turn = turn();
    for device in devices() {
        let pair = Pair::new(&device);
        pair.wait_on_first();
        pair.raise_on_second();
        pair.first.synchronize().unwrap();
        let flag = pair.flag.copy_to_vec().unwrap();
        assert_eq!(flag, [2], "the first stream kept the second from running");
    }
}

#[test]
fn a_launch_does_not_wait_and_synchronize_does() {
    let _turn = turn();
    for device in devices() {
        let pair = Pair::new(&device);
        pair.wait_on_first();
        assert!(!pair.first.is_done().unwrap(), "the kernel ended before its flag was raised");
        pair.raise_on_second();
        pair.first.synchronize().unwrap();
        assert!(pair.first.is_done().unwrap());
        assert_eq!(pair.flag.copy_to_vec().unwrap(), [2]);
    }
}

#[test]
fn an_event_comes_true_when_its_stream_gets_there() {
    let _turn = turn();
    for device in devices() {
        let mut pair = Pair::new(&device);
        pair.wait_on_first();
        let event = pair.first.record().unwrap();
        // Dropping the stream does not wait for its kernel, which still needs the other stream.
        pair.first = device.stream().unwrap();
        assert!(!event.is_done().unwrap(), "the kernel before it waits for its flag");
        pair.raise_on_second();
        event.synchronize().unwrap();
        assert!(event.is_done().unwrap());
        assert_eq!(pair.flag.copy_to_vec().unwrap(), [2]);
    }
}

const FLOATS: Layout = Layout::new::<[f32; 4096]>();

/// The values of a block of [`FLOATS`].
fn memory(device: &Device, block: DevicePtr<u8>) -> DeviceMemory {
    // SAFETY: the block is inside an allocation of the device.
    unsafe { DeviceMemory::from_raw(device, block.0 as u64, FLOATS.size() as u64) }
}

/// Sets all values of a block to `value` on a stream.
fn set(stream: &Stream, module: &Module, block: DevicePtr<u8>, value: f32) {
    let values: DeviceSlice<u32> = memory(stream.device(), block).slice_at(0, 4096).unwrap();
    launch(stream, module, fill, 4096, (values, value.to_bits())).unwrap();
}

/// Returns an error unless all values are `value`.
fn check(device: &Device, block: DevicePtr<u8>, value: f32) -> Result<(), String> {
    let mut values = [0.0_f32; 4096];
    memory(device, block).read(0, &mut values).unwrap();
    let wrong: Vec<f32> = values.into_iter().filter(|found| *found != value).collect();
    match wrong.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} values are not {value}, the first of them {first}", wrong.len())),
    }
}

fn give(allocator: &dyn DeviceAllocator, block: DevicePtr<u8>, stream: &Stream) {
    // SAFETY: only work on this stream uses the block.
    unsafe { allocator.deallocate(block, FLOATS, stream) }.unwrap();
}

/// Without an event between two streams, the check of the values reports that the second stream did
/// not wait.
#[test]
fn a_missing_dependency_between_streams_is_reported() {
    let _turn = turn();
    for device in devices() {
        let pair = Pair::new(&device);
        let pool = DriverPool::builder().build(&device).unwrap();
        let block = pool.allocate(FLOATS, &pair.first).unwrap();
        let fill_both = |is_ordered: bool| {
            set(&pair.first, &pair.module, block, 1.0);
            if is_ordered {
                pair.second.wait(&pair.first.record().unwrap()).unwrap();
            }
            set(&pair.second, &pair.module, block, 2.0);
        };
        fill_both(true);
        assert_eq!(check(&device, block, 2.0), Ok(()), "on {device}");
        pair.wait_on_first();
        fill_both(false);
        pair.raise_on_second();
        let found = check(&device, block, 2.0).unwrap_err();
        assert_eq!(found, "4096 values are not 2, the first of them 1", "on {device}");
        give(&pool, block, &pair.first);
    }
}

#[test]
fn memory_that_is_pending_on_one_stream_is_not_anothers() {
    let _turn = turn();
    for device in devices() {
        let pair = Pair::new(&device);
        let pool = DriverPool::builder().reuse(ReusePolicies::none()).build(&device).unwrap();
        let block = pool.allocate(FLOATS, &pair.first).unwrap();
        pair.wait_on_first();
        give(&pool, block, &pair.first);
        let other = pool.allocate(FLOATS, &pair.second).unwrap();
        let again = pool.allocate(FLOATS, &pair.first).unwrap();
        let is_done = pair.first.is_done().unwrap();
        pair.raise_on_second();
        pair.first.synchronize().unwrap();
        assert!(!is_done, "something waited on the host");
        assert_ne!(other.0, block.0, "on {device}");
        give(&pool, again, &pair.first);
        give(&pool, other, &pair.second);
    }
}

/// On the CPU only: the documentation of the driver does not specify this case.
#[test]
fn a_full_pool_makes_the_stream_wait_for_another_ones_free() {
    let _turn = turn();
    let device = Device::cpu();
    let (pair, third) = (Pair::new(&device), device.stream().unwrap());
    let pool = DriverPool::builder().max_size(FLOATS.size() as u64).build(&device).unwrap();
    let block = pool.allocate(FLOATS, &third).unwrap();
    pair.wait_on_first();
    third.wait(&pair.first.record().unwrap()).unwrap();
    give(&pool, block, &third);
    let again = device.stream().unwrap();
    let got = pool.allocate(FLOATS, &again);
    let is_done = again.is_done().unwrap();
    pair.raise_on_second();
    again.synchronize().unwrap();
    assert_eq!(got.unwrap().0, block.0, "there is no other memory");
    assert!(!is_done, "the stream waits, the host does not");
    give(&pool, block, &again);
}

/// The reset, and allocations after it, wait on the device for the kernel that precedes the free of
/// the region.
#[test]
fn the_reset_of_a_bump_pool_waits_on_the_device_alone() {
    let _turn = turn();
    for device in devices() {
        let pair = Pair::new(&device);
        let (resets, user) = (device.stream().unwrap(), device.stream().unwrap());
        let pool = BumpPool::builder(FLOATS).build_over(SyncDriverAllocator::new(&device)).unwrap();
        let block = pool.allocate(FLOATS, &pair.first).unwrap();
        set(&pair.first, &pair.module, block, 1.0);
        pair.wait_on_first();
        set(&pair.first, &pair.module, block, 2.0);
        give(&pool, block, &pair.first);
        pool.reset(&resets).unwrap();
        let again = pool.allocate(FLOATS, &user).unwrap();
        set(&user, &pair.module, again, 3.0);
        let are_done = [resets.is_done().unwrap(), user.is_done().unwrap()];
        pair.raise_on_second();
        assert_eq!((again.0, are_done), (block.0, [false; 2]), "on {device}");
        assert_eq!(check(&device, again, 3.0), Ok(()), "on {device}");
        give(&pool, again, &user);
    }
}
