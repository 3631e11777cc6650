//! A handle is shared between threads only if its values may be.
use warpheap::alloc::{DriverMemory, PoolBuffer};
use warpheap::{Device, Result};

use std::marker::PhantomData;
use std::rc::Rc;
use warpheap::alloc::PoolBox;

#[derive(Clone, Copy)]
struct OfThisThread(#[allow(dead_code)] PhantomData<Rc<u32>>);

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (DriverMemory::new(&device), device.stream()?);
    let value = PoolBox::<OfThisThread, _>::new_uninit(&memory, &stream)?;
    std::thread::scope(|scope| {
        scope.spawn(|| value.address());
    });
    drop(PoolBuffer::from_slice(&memory, &[1_u32], &stream)?);
    Ok(())
}
