//! A handle that borrows its pool cannot be sent to a thread that may outlive the pool.
use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (SyncDriverAllocator::new(&device), device.stream()?);
    let values = PoolBuffer::from_slice(&memory, &[1_u32], &stream)?;
    std::thread::spawn(move || drop(values));
    Ok(())
}
