//! The pools under full and partial warps on the CPU: in parallel mode, and replayed under many
//! seeds.

mod bump;
mod freelist;
mod heap;
mod kernels;

use warpheap::simt::Mode;
use warpheap::{Device, LaunchConfig};
use warpheap_device::kernel::Kernel;

/// Devices to run on: one in parallel mode, and one in replay mode for each of `seeds` seeds.
fn devices(seeds: u64) -> impl Iterator<Item = (String, Device)> {
    let modes = std::iter::once(Mode::Parallel { workers: 2 });
    let modes = modes.chain((0..seeds).map(|seed| Mode::Replay { seed }));
    modes.map(|mode| (format!("{mode:?}"), Device::cpu_with(mode)))
}

/// Runs `threads` threads in blocks of 80: two full warps and a half per block. The last block has
/// the remainder.
fn run<K: Kernel>(device: &Device, kernel: K, threads: u32, args: K::Args) {
    let block = threads.min(80);
    let config =
        LaunchConfig { grid: [threads.div_ceil(block), 1, 1], block: [block, 1, 1], shared_bytes: 0 };
    let stream = device.stream().unwrap();
    let module = device.native_module().unwrap();
    // SAFETY: the tests keep their buffers and pools until the stream is synchronised, and access
    // them only between launches.
    unsafe { stream.launch(&module, kernel, &config, args) }.unwrap();
    stream.synchronize().unwrap();
}
