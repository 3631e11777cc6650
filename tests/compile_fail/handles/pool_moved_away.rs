//! A pool cannot be moved while a handle borrows it.
use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (SyncDriverAllocator::new(&device), device.stream()?);
    let values = PoolBuffer::from_slice(&memory, &[1_u32], &stream)?;
    drop(memory);
    drop(values);
    Ok(())
}
