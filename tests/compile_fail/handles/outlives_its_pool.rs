//! A handle cannot outlive the pool that it borrows.
use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let stream = device.stream()?;
    let values = {
        let memory = SyncDriverAllocator::new(&device);
        PoolBuffer::from_slice(&memory, &[1_u32], &stream)?
    };
    drop(values);
    Ok(())
}
