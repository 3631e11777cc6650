//! A handle is `Sync` only if its values are.

use std::marker::PhantomData;
use std::rc::Rc;
use std::thread;
use warpheap::host_pools::PoolBox;

#[derive(Clone, Copy)]
struct OfThisThread(#[allow(dead_code)] PhantomData<Rc<u32>>);

fn share(value: &PoolBox<OfThisThread>) {
    thread::scope(|scope| {
        scope.spawn(|| value.address());
    });
}

fn main() {
    let _: fn(&PoolBox<OfThisThread>) = share;
}
