//! A write needs exclusive access to the handle.
use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (SyncDriverAllocator::new(&device), device.stream()?);
    let mut values = PoolBuffer::from_slice(&memory, &[1_u32], &stream)?;
    let shared = &values;
    values.copy_from_slice(&[2])?;
    shared.copy_to_vec()?;
    Ok(())
}
