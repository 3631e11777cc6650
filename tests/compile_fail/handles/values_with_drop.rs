//! Device memory cannot hold values with a destructor, because none would run.
use warpheap::host_pools::{SyncDriverAllocator, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (SyncDriverAllocator::new(&device), device.stream()?);
    drop(PoolBuffer::<String, _>::new_uninit(&memory, 1, &stream)?);
    Ok(())
}
