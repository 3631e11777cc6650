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
use warpheap::LaunchConfig;

const ONE_THREAD: LaunchConfig = LaunchConfig::linear(1, 1);

/// Held by the one test that has the devices to itself, until what it made is dropped.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // The panic of one test is its own; the others still take their turns.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn kernels_of_two_streams_run_at_the_same_time() {
    let _turn = turn();
    for device in devices() {
        let module = module(&device);
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let flag = device.from_slice(&[0_u32]).unwrap();
        // SAFETY: both kernels touch the flag by the same atomics.
        unsafe { first.launch(&module, wait, &ONE_THREAD, (flag.slice(),)) }.unwrap();
        // SAFETY: the same.
        unsafe { second.launch(&module, raise, &ONE_THREAD, (flag.slice(),)) }.unwrap();
        first.synchronize().unwrap();
        assert_eq!(flag.copy_to_vec().unwrap(), [2], "the first stream kept the second from running");
    }
}

#[test]
fn a_launch_does_not_wait_and_synchronize_does() {
    let _turn = turn();
    for device in devices() {
        let module = module(&device);
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let flag = device.from_slice(&[0_u32]).unwrap();
        // SAFETY: both kernels touch the flag by the same atomics, and the buffer lives until the end.
        unsafe { stream.launch(&module, wait, &ONE_THREAD, (flag.slice(),)) }.unwrap();
        assert!(!stream.is_done().unwrap(), "the kernel ended before its flag was raised");
        // SAFETY: the same.
        unsafe { other.launch(&module, raise, &ONE_THREAD, (flag.slice(),)) }.unwrap();
        stream.synchronize().unwrap();
        assert!(stream.is_done().unwrap());
        assert_eq!(flag.copy_to_vec().unwrap(), [2]);
    }
}

#[test]
fn an_event_comes_true_when_its_stream_gets_there() {
    let _turn = turn();
    for device in devices() {
        let module = module(&device);
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let flag = device.from_slice(&[0_u32]).unwrap();
        // SAFETY: both kernels touch the flag by the same atomics, and the buffer lives until the end.
        unsafe { stream.launch(&module, wait, &ONE_THREAD, (flag.slice(),)) }.unwrap();
        let event = stream.record().unwrap();
        // It does not wait for the kernel, which still needs the other stream.
        drop(stream);
        assert!(!event.is_done().unwrap(), "the kernel before it waits for its flag");
        // SAFETY: the same.
        unsafe { other.launch(&module, raise, &ONE_THREAD, (flag.slice(),)) }.unwrap();
        event.synchronize().unwrap();
        assert!(event.is_done().unwrap());
        assert_eq!(flag.copy_to_vec().unwrap(), [2]);
    }
}
