//! Uninitialised values have a different type from initialised values.

use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (SyncDriverAllocator::new(&device), device.stream()?);
    let values: PoolBuffer<u32, _> = PoolBuffer::<u32, _>::new_uninit(&memory, 1, &stream)?;
    drop(values);
    Ok(())
}
