//! A handle is `Send` only if its values are.

use std::thread;
use warpheap::host_pools::PoolBuffer;

/// A value bound to its thread, such as the address of a thread-local variable.
#[derive(Clone, Copy)]
struct OfThisThread(#[allow(dead_code)] *const u8);

fn send(values: PoolBuffer<OfThisThread>) {
    thread::spawn(move || drop(values));
}

fn main() {
    let _: fn(PoolBuffer<OfThisThread>) = send;
}
