//! `from_raw` is unsafe: the caller promises that the parts belong to a handle.
use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (SyncDriverAllocator::new(&device), device.stream()?);
    let parts = PoolBuffer::from_slice(&memory, &[1_u32], &stream)?.into_raw();
    drop(PoolBuffer::from_raw(parts));
    Ok(())
}
