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
    /// `out` and the pool are live, and only this kernel accesses `out`.
    pub unsafe fn square(pool: freelist::FreeList, out: DeviceSlice<u64>) {
        let i = u64::from(thread::index_1d());
        let Some(block) = pool.alloc() else { return };
        let value = block.cast::<u64>();
        // SAFETY: this thread owns the block, which has 64 bytes and is aligned to 16.
        unsafe { value.write(i * i) };
        // SAFETY: this thread wrote it.
        let squared = unsafe { value.read() };
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
    // SAFETY: pool and buffer outlive the kernel, and only the kernel accesses the buffer.
    unsafe { stream.launch(&module, square, &grid, (pool.handle(), out.slice()))? };
    stream.synchronize()?;

    assert_eq!(out.copy_to_vec()?[1000], 1_000_000);
    assert_eq!((pool.stats()?.live_blocks, pool.faults()?.count), (0, 0));
    println!("1024 threads allocated, squared and freed; every block is free again");
    Ok(())
}
