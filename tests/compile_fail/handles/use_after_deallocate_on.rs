//! A deallocated handle cannot be used.
use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (SyncDriverAllocator::new(&device), device.stream()?);
    let values = PoolBuffer::from_slice(&memory, &[1_u32], &stream)?;
    values.deallocate_on(&stream)?;
    values.copy_to_vec()?;
    Ok(())
}
