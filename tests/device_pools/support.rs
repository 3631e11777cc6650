//! Devices, launches, and blocks of heaps.

use crate::driver_support::{self, is_cpu};
use std::alloc::Layout;
use warpheap::device_pools::{Heap, HeapStats};
use warpheap::simt::Mode;
use warpheap::{Device, LaunchConfig};
use warpheap_device::kernel::{DevicePtr, Kernel};

fn replays(seeds: u64) -> impl Iterator<Item = Mode> {
    (0..seeds).map(|seed| Mode::Replay { seed })
}

/// CPUs with their modes: one in parallel mode, and one in replay mode for each of `seeds` seeds.
pub fn cpus(seeds: u64) -> impl Iterator<Item = (String, Device)> {
    let modes = std::iter::once(Mode::Parallel { workers: 2 }).chain(replays(seeds));
    modes.map(|mode| (format!("{mode:?}"), Device::cpu_with(mode)))
}

/// One CPU in replay mode for each of `seeds` seeds, the default CPU, and the first GPU if there is
/// one and the kernels were built. The GPU is used by one test at a time: it is released at the end
/// of the loop. With `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
pub fn devices(seeds: u64) -> impl Iterator<Item = Device> {
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let are_built = warpheap::build_info::images().is_ok();
    assert!(!required || are_built, "WARPHEAP_REQUIRE_CUDA=1, but there are no kernels for a GPU");
    let others = driver_support::devices().filter(move |device| are_built || is_cpu(device));
    replays(seeds).map(Device::cpu_with).chain(others)
}

/// Runs `threads` threads, in blocks of two full warps and a half.
pub fn run<K: Kernel>(device: &Device, kernel: K, threads: u32, args: K::Args) {
    run_in_blocks(device, kernel, threads, 80, args);
}

/// Runs `threads` threads, rounded up to full blocks of `block` threads, and waits for them.
pub fn run_in_blocks<K: Kernel>(device: &Device, kernel: K, threads: u32, block: u32, args: K::Args) {
    let (stream, module) = (device.stream().unwrap(), device.native_module().unwrap());
    let config = LaunchConfig::linear(threads, threads.min(block));
    // SAFETY: the tests keep their buffers and pools until the stream is synchronised, and access
    // them only between launches.
    unsafe { stream.launch(&module, kernel, &config, args) }.unwrap();
    stream.synchronize().unwrap();
}

/// The layout of `bytes` bytes without an alignment.
pub fn layout_of(bytes: u64) -> Layout {
    Layout::from_size_align(bytes as usize, 1).unwrap()
}

/// Allocates `count` blocks of `size` bytes. No allocation may fail.
pub fn allocate(heap: &Heap, count: usize, size: u64) -> Vec<DevicePtr<u8>> {
    let blocks = heap.allocate_many(&vec![layout_of(size); count]).unwrap();
    blocks.into_iter().collect::<Option<_>>().expect("the heap has enough memory")
}

/// Frees blocks that no kernel uses.
pub fn free(heap: &Heap, blocks: &[DevicePtr<u8>]) {
    // SAFETY: no test frees blocks that a kernel uses.
    unsafe { heap.deallocate_many(blocks) }.unwrap();
}

/// The statistics, in which every byte is counted once.
pub fn stats(heap: &Heap) -> HeapStats {
    let stats = heap.stats().unwrap();
    let in_blocks = stats.live_bytes + stats.quarantined_bytes + stats.free_block_bytes;
    let in_slabs = stats.large_bytes + stats.slack_bytes + stats.free_slab_bytes + stats.fresh_bytes;
    assert_eq!(in_blocks + in_slabs, stats.usage.reserved_bytes, "{stats:#?}");
    assert!((0.0..1.0).contains(&stats.fragmentation), "{stats:#?}");
    let largest = stats.usage.largest_free_bytes.unwrap();
    assert!(largest <= stats.free_bytes && stats.free_bytes <= stats.usage.reserved_bytes, "{stats:#?}");
    let in_classes: u64 = stats.classes.iter().map(|class| class.live_blocks).sum();
    assert_eq!(in_classes + stats.large_blocks, stats.live_blocks, "{stats:#?}");
    assert_eq!(stats.live_blocks, heap.leaks(0).unwrap().count);
    stats
}

/// The statistics of a heap without debugging, after the heap passed its check.
pub fn checked_stats(heap: &Heap) -> HeapStats {
    assert_eq!(heap.check().unwrap(), []);
    let stats = stats(heap);
    assert_eq!(heap.leaks(0).unwrap().bytes, stats.live_bytes + stats.large_bytes);
    stats
}
