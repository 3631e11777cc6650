//! Device memory cannot hold host references.
use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (SyncDriverAllocator::new(&device), device.stream()?);
    drop(PoolBuffer::from_slice(&memory, &["text"], &stream)?);
    Ok(())
}
