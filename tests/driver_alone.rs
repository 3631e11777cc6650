//! What is still running at the moment of a query, and what runs at the same time.
//!
//! A program of its own, whose tests take turns: a blocking call of another test, such as a free, waits for the
//! whole device, and a query behind it would come when the kernel that it asks about has ended.
#![cfg(not(loom))]

#[path = "driver/kernels.rs"]
#[allow(dead_code, reason = "only some of the kernels are launched here")]
mod kernels;
#[path = "driver/support.rs"]
#[allow(dead_code, reason = "no test here differs by backend")]
mod support;

use kernels::{raise, wait};
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::{devices, module};
use warpheap::{Device, DeviceBuffer, LaunchConfig, Module, Stream};

const ONE_THREAD: LaunchConfig = LaunchConfig::linear(1, 1);

/// Held by the one test that has the devices to itself, until what it made is dropped.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // The panic of one test is its own; the others still take their turns.
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
        // SAFETY: both kernels touch the flag by the same atomics, and it lives until both have ended.
        unsafe { self.first.launch(&self.module, wait, &ONE_THREAD, (self.flag.slice(),)) }.unwrap();
    }

    fn raise_on_second(&self) {
        // SAFETY: the same.
        unsafe { self.second.launch(&self.module, raise, &ONE_THREAD, (self.flag.slice(),)) }.unwrap();
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
        // The stream goes, and that does not wait for its kernel, which still needs the other stream.
        pair.first = device.stream().unwrap();
        assert!(!event.is_done().unwrap(), "the kernel before it waits for its flag");
        pair.raise_on_second();
        event.synchronize().unwrap();
        assert!(event.is_done().unwrap());
        assert_eq!(pair.flag.copy_to_vec().unwrap(), [2]);
    }
}
