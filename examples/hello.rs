//! A kernel in which every thread allocates a block, uses it, and frees it.
//! `cargo run --release --example hello`

use warpheap::device_pools::FreeList;
use warpheap::{Device, LaunchConfig};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{freelist, kernel, thread};

kernel! {
    /// Thread `i` squares `i` in a block of the pool.
    ///
    /// # Safety
    /// `out` and the pool are live, and no one else touches `out`.
    pub unsafe fn square(pool: freelist::FreeList, out: DeviceSlice<u64>) {
        let i = u64::from(thread::index_1d());
        let Some(block) = pool.alloc() else { return };
        let place = block.cast::<u64>();
        // SAFETY: the block is this thread's, 64 bytes long and aligned to 16.
        unsafe { place.write(i * i) };
        // SAFETY: written above, by this thread.
        let squared = unsafe { place.read() };
        // SAFETY: allocated above, and not used after.
        unsafe { pool.free(block) };
        // SAFETY: each thread writes its own element.
        unsafe { out.set(i, squared) };
    }
}

fn main() -> warpheap::Result<()> {
    let device = Device::cpu();
    let module = device.native_module()?;
    let stream = device.stream()?;

    let pool = FreeList::builder(1024, 64).build(&device)?;
    let out = device.zeroed::<u64>(1024)?;
    let grid = LaunchConfig::linear(1024, 256);
    // SAFETY: pool and buffer live until the stream is done, and no one else touches the buffer.
    unsafe { stream.launch(&module, square, &grid, (pool.handle(), out.slice()))? };
    stream.synchronize()?;

    assert_eq!(out.copy_to_vec()?[1000], 1_000_000);
    assert_eq!((pool.stats()?.live_blocks, pool.faults()?.count), (0, 0));
    println!("1024 threads allocated, squared and freed; every block is free again");
    Ok(())
}
