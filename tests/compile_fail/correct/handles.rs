//! Correct versions of what the other files do wrong. This file must compile.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::thread;
use warpheap::host_pools::{PoolBox, PoolBuffer, SyncDriverAllocator};
use warpheap::{Device, Result};

pub fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (Arc::new(SyncDriverAllocator::new(&device)), device.stream()?);
    let mut values = PoolBuffer::from_slice(&*memory, &[1_u32], &stream)?;
    values.copy_from_slice(&[2])?;
    values.copy_to_vec()?;
    thread::scope(|scope| {
        scope.spawn(|| values.address());
    });
    thread::scope(|scope| {
        scope.spawn(move || drop(values));
    });

    let outlives = {
        let memory = memory.clone();
        PoolBuffer::from_slice(memory, &[1_u32], &stream)?
    };
    thread::spawn(move || drop(outlives));
    let values: PoolBuffer<MaybeUninit<u32>, _> = PoolBuffer::<u32, _>::new_uninit(&*memory, 1, &stream)?;
    // SAFETY: the values are not read, and any bytes are a `u32`.
    let values = unsafe { values.assume_init() };
    // SAFETY: the parts come from `into_raw` and are used once.
    let values = unsafe { PoolBuffer::from_raw(values.into_raw()) };
    values.deallocate_on(&stream)?;
    PoolBox::new(memory, 1_u32, &stream)?.deallocate()?;
    Ok(())
}
