//! Device memory cannot hold host references.
use warpheap::alloc::{DriverMemory, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (DriverMemory::new(&device), device.stream()?);
    drop(PoolBuffer::from_slice(&memory, &["text"], &stream)?);
    Ok(())
}
