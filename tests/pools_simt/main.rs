//! The pools, used by whole and partial warps on the CPU: in parallel, and under many seeds of the replay.

mod bump;
mod freelist;
mod heap;
mod kernels;

use warpheap::simt::Mode;
use warpheap::{Device, LaunchConfig};
use warpheap_device::kernel::Kernel;

/// Devices to run on: the parallel one, and one for each of so many seeds.
fn devices(seeds: u64) -> impl Iterator<Item = (String, Device)> {
    let modes = std::iter::once(Mode::Parallel { workers: 2 });
    let modes = modes.chain((0..seeds).map(|seed| Mode::Replay { seed }));
    modes.map(|mode| (format!("{mode:?}"), Device::cpu_with(mode)))
}

/// Runs `threads` threads in blocks of 80: two whole warps and a half, and what is left in the last.
fn run<K: Kernel>(device: &Device, kernel: K, threads: u32, args: K::Args) {
    let block = threads.min(80);
    let config =
        LaunchConfig { grid: [threads.div_ceil(block), 1, 1], block: [block, 1, 1], shared_bytes: 0 };
    let stream = device.stream().unwrap();
    let module = device.native_module().unwrap();
    // SAFETY: the tests keep their buffers and pools until here, and touch them only in between.
    unsafe { stream.launch(&module, kernel, &config, args) }.unwrap();
    stream.synchronize().unwrap();
}
