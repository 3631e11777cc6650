//! Debug heaps, and launches of kernels that use them.

use warpheap::device_pools::{Heap, HeapStats};
use warpheap::simt::Mode;
use warpheap::{Device, DeviceBuffer, LaunchConfig};
use warpheap_device::fault::Fault;
use warpheap_device::kernel::Kernel;

pub const BYTES: u64 = 8 << 20;
/// Threads per block in [`Bench::run`].
pub const BLOCK: u32 = 64;

pub struct Bench {
    pub device: Device,
    pub heap: Heap,
    pub out: DeviceBuffer<u64>,
}

pub fn replays_and_cpu() -> impl Iterator<Item = Device> {
    let parallel = [1, 16].map(|workers| Device::cpu_with(Mode::Parallel { workers }));
    (0..4).map(|seed| Device::cpu_with(Mode::Replay { seed })).chain(parallel).chain([Device::cpu()])
}

/// All devices, including the GPU. With `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
pub fn all_devices() -> impl Iterator<Item = Device> {
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let gpu = Device::cuda(0).ok().filter(|_| warpheap::build_info::images().is_ok());
    assert!(!required || gpu.is_some(), "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU, or no kernels for it");
    replays_and_cpu().chain(gpu)
}

/// One debug heap of [`BYTES`] on each device, with `quarantine` blocks in quarantine.
pub fn benches(quarantine: u32) -> impl Iterator<Item = Bench> {
    replays_and_cpu().map(move |device| Bench::new(device, BYTES, quarantine))
}

impl Bench {
    pub fn new(device: Device, bytes: u64, quarantine: u32) -> Bench {
        let heap = Heap::builder(bytes).debug(true).quarantine(quarantine).build(&device).unwrap();
        Bench { out: device.zeroed(4096).unwrap(), device, heap }
    }

    /// Runs `kernel` with `threads` threads, in blocks of [`BLOCK`].
    pub fn run<K: Kernel>(&self, kernel: K, threads: u32, args: K::Args) {
        let stream = self.device.stream().unwrap();
        let grid = LaunchConfig {
            grid: [threads.div_ceil(BLOCK), 1, 1],
            block: [threads.min(BLOCK), 1, 1],
            shared_bytes: 0,
        };
        // SAFETY: heap and buffers live until the stream is synchronised, and nothing else uses
        // them.
        unsafe { stream.launch(&self.device.native_module().unwrap(), kernel, &grid, args) }.unwrap();
        stream.synchronize().unwrap();
    }

    pub fn faults(&self) -> Vec<Fault> {
        let faults = self.heap.faults().unwrap();
        assert_eq!(faults.count, faults.first.len() as u64, "few enough to be kept");
        faults.first
    }

    /// Returns the only recorded fault.
    pub fn fault(&self) -> Fault {
        let faults = self.faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0]
    }

    /// The line of the allocation site that a fault names.
    pub fn line_of(&self, fault: &Fault) -> u32 {
        self.heap.snapshot().unwrap().site(fault.detail).expect("a site").line
    }

    /// The statistics, after the heap passed its check. Every byte is counted once.
    pub fn stats(&self) -> HeapStats {
        assert_eq!(self.heap.check().unwrap(), []);
        stats(&self.heap)
    }
}

/// The statistics. Every byte is counted once.
pub fn stats(heap: &Heap) -> HeapStats {
    let stats = heap.stats().unwrap();
    let in_blocks = stats.live_bytes + stats.quarantined_bytes + stats.free_block_bytes + stats.cursor_bytes;
    let in_slabs = stats.large_bytes + stats.slack_bytes + stats.free_slab_bytes + stats.fresh_bytes;
    assert_eq!(in_blocks + in_slabs, stats.usage.reserved_bytes, "{stats:#?}");
    assert_eq!(stats.live_blocks, heap.leaks(0).unwrap().count);
    stats
}
