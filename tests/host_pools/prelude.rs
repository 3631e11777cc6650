//! What most of these tests use: names of the library, and short forms of common steps.

pub use crate::cases::{Any, BLOCKS, Case, Counted, cases, layout};
pub use crate::support::{devices, is_cpu, module};
pub use rand_pcg::Pcg64Mcg;
pub use rand_pcg::rand_core::{Rng, SeedableRng};
pub use std::alloc::Layout;
pub use std::num::NonZeroU64;
pub use std::sync::{Arc, Mutex};
pub use warpheap::error::{
    Dangling, InvalidConfig, InvalidFree, InvalidRequest, KernelFault, NotSupported, OutOfMemory,
};
pub use warpheap::host_pools::*;
pub use warpheap::{Device, DeviceMemory, Error, LaunchConfig, Module, Result, Stream, Usage};
pub use warpheap_device::kernel::{DevicePtr, DeviceSlice};

use crate::kernels::linger;

pub const MIB: usize = 1 << 20;
pub const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

pub type Block = (DevicePtr<u8>, Layout);

/// A CPU device and a stream of it.
pub fn cpu() -> (Device, Stream) {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    (device, stream)
}

pub fn driver(device: &Device) -> SyncDriverAllocator {
    SyncDriverAllocator::new(device)
}

pub fn block_pool(device: &Device, block: Layout, blocks: usize) -> BlockPool {
    BlockPool::builder(block, blocks).build(device).unwrap()
}

pub fn alloc(pool: &dyn DeviceAllocator, layout: Layout, stream: &Stream) -> Block {
    (pool.allocate(layout, stream).unwrap(), layout)
}

pub fn alloc_bytes(pool: &dyn DeviceAllocator, size: usize, stream: &Stream) -> Block {
    (pool.allocate(layout(size, 256), stream).unwrap(), layout(size, 256))
}

pub fn free(allocator: &dyn DeviceAllocator, (ptr, layout): Block, stream: &Stream) -> Result<()> {
    // SAFETY: if it is a block of the allocator, no other stream uses it.
    unsafe { allocator.deallocate(ptr, layout, stream) }
}

pub fn free_all(allocator: &dyn DeviceAllocator, blocks: impl IntoIterator<Item = Block>, stream: &Stream) {
    blocks.into_iter().for_each(|block| free(allocator, block, stream).unwrap());
}

/// The memory of a block, for access from the host.
pub fn memory(device: &Device, (ptr, layout): Block) -> DeviceMemory {
    // SAFETY: it lies in an allocation of the device.
    unsafe { DeviceMemory::from_raw(device, ptr.0 as u64, layout.size() as u64) }
}

/// The first word of a block, as a kernel argument.
pub fn first_word(device: &Device, block: Block) -> DeviceSlice<u32> {
    memory(device, block).slice_at(0, 1).unwrap()
}

/// Reads the first word of a block.
pub fn read_word(device: &Device, block: Block) -> u32 {
    let mut word = [0];
    memory(device, block).read(0, &mut word).unwrap();
    word[0]
}

/// Launches a kernel that adds to the first word only after `micros`. The callers order all other
/// uses of the word after it.
pub fn launch_linger(stream: &Stream, module: &Module, word: DeviceSlice<u32>, micros: u32) {
    // SAFETY: one thread, and the callers order all other uses of the word after it.
    unsafe { stream.launch(module, linger, &ONE, (word, micros)) }.unwrap();
}

/// Bytes of a pool that is out of memory: requested, used, reserved, and the largest free block.
pub fn figures(error: &Error) -> [u64; 4] {
    let Error::OutOfMemory(OutOfMemory::Pool { requested, used, reserved, largest, .. }) = error else {
        panic!("{error}")
    };
    [requested, used, reserved, largest].map(|bytes| bytes.0)
}
