//! `assume_init` is unsafe: the caller promises that the values are initialised.

use warpheap::alloc::{DriverMemory, PoolBuffer};
use warpheap::{Device, Result};

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (DriverMemory::new(&device), device.stream()?);
    let values = PoolBuffer::<u32, _>::new_uninit(&memory, 1, &stream)?.assume_init();
    drop(values);
    Ok(())
}
