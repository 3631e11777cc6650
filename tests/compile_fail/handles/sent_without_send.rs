//! Values that must stay on their thread keep their handle there.

use std::thread;
use warpheap::alloc::PoolBuffer;

/// An address of this thread's, for instance.
#[derive(Clone, Copy)]
struct OfThisThread(#[allow(dead_code)] *const u8);

fn send(values: PoolBuffer<OfThisThread>) {
    thread::spawn(move || drop(values));
}

fn main() {
    let _: fn(PoolBuffer<OfThisThread>) = send;
}
