//! Values that must stay on their thread keep their handle there.
use warpheap::alloc::{DriverMemory, PoolBuffer};
use warpheap::{Device, Result};

/// An address of this thread's, for instance.
#[derive(Clone, Copy)]
struct OfThisThread(#[allow(dead_code)] *const u8);

fn main() -> Result<()> {
    let device = Device::cpu();
    let (memory, stream) = (DriverMemory::new(&device), device.stream()?);
    let values = PoolBuffer::<OfThisThread, _>::new_uninit(&memory, 1, &stream)?;
    std::thread::scope(|scope| {
        scope.spawn(move || drop(values));
    });
    Ok(())
}
