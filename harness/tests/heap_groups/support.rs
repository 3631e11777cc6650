//! A heap with its kernels and buffers, on each device and in each mode.

use warpheap::device_pools::Heap;
use warpheap::driver::Module;
use warpheap::simt::Mode;
use warpheap::{Device, DeviceBuffer, LaunchConfig, kernel_names};
use warpheap_device::kernel::{DevicePtr, Kernel};
use warpheap_harness::kernels::bench::{Counter, bench_heap_free_sparse};
use warpheap_harness::kernels::groups::{
    CACHE_THREADS, groups_block, groups_cache, groups_exhaust, groups_misuse, groups_vanish, groups_warp,
};
use warpheap_harness::kernels::stress::take_whole_heap;

/// The launched kernels.
const KERNELS: [&str; 8] = kernel_names![
    bench_heap_free_sparse,
    groups_block,
    groups_cache,
    groups_exhaust,
    groups_misuse,
    groups_vanish,
    groups_warp,
    take_whole_heap
];

/// The smallest heap, which soon runs out of memory.
const BYTES: u64 = 1 << 20;
/// Two and a half warps: some threads have no slots.
pub const BLOCK: u32 = 80;
pub const THREADS: u32 = 4 * BLOCK;

const _: () = assert!(CACHE_THREADS < BLOCK);

/// A device with its kernels, a heap, and the output buffers of the kernels.
pub struct Fixture {
    pub name: String,
    pub device: Device,
    module: Module,
    pub heap: Heap,
    failures: DeviceBuffer<u64>,
    pub marks: DeviceBuffer<u32>,
    pub out: DeviceBuffer<u64>,
}

impl Fixture {
    pub fn new(name: String, device: Device, module: Module) -> Fixture {
        let heap = Heap::builder(BYTES).build(&device).unwrap();
        Fixture {
            failures: device.zeroed(1).unwrap(),
            marks: device.zeroed((heap.capacity() / 16) as usize).unwrap(),
            out: device.zeroed(THREADS as usize).unwrap(),
            name,
            device,
            module,
            heap,
        }
    }

    pub fn counter(&self) -> Counter {
        DevicePtr(self.failures.address() as *mut _)
    }

    pub fn run<K: Kernel>(&self, kernel: K, threads: u32, args: K::Args) {
        let config = LaunchConfig {
            grid: [threads.div_ceil(BLOCK), 1, 1],
            block: [threads.min(BLOCK), 1, 1],
            shared_bytes: 0,
        };
        let stream = self.device.stream().unwrap();
        // SAFETY: all arguments of the kernels live in `self` or until the caller returns.
        unsafe { stream.launch(&self.module, kernel, &config, args) }.unwrap();
        stream.synchronize().unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    pub fn failures(&self) -> u64 {
        self.failures.copy_to_vec().unwrap()[0]
    }

    pub fn out(&self) -> Vec<u64> {
        self.out.copy_to_vec().unwrap()
    }

    /// Frees these blocks with plain calls.
    pub fn free(&self, blocks: &[u64]) {
        let mut all = blocks.to_vec();
        all.resize(THREADS as usize, 0);
        let blocks = self.device.from_slice(&all).unwrap();
        self.run(bench_heap_free_sparse, THREADS, (self.heap.handle(), blocks.slice()));
    }

    /// Whether all memory is free: the entire heap can be allocated as one block.
    pub fn is_all_free(&self) -> bool {
        let got = self.device.zeroed::<u64>(1).unwrap();
        self.run(take_whole_heap, 1, (self.heap.handle(), got.ptr()));
        got.copy_to_vec().unwrap()[0] == 1
    }

    /// Checks that no failure was recorded and that everything was freed.
    pub fn check(&self) {
        let faults = self.heap.faults().unwrap();
        assert_eq!(faults.count, 0, "{}: {:?}", self.name, faults.first.first());
        assert_eq!(self.failures(), 0, "{}", self.name);
        assert!(self.is_all_free(), "{}: blocks were lost", self.name);
    }
}

/// The parallel CPU, one replay for each of `seeds` seeds, and the GPU.
pub fn fixtures(seeds: u64) -> impl Iterator<Item = Fixture> {
    let modes = std::iter::once(Mode::Parallel { workers: 2 });
    let modes = modes.chain((0..seeds).map(|seed| Mode::Replay { seed }));
    let cpus = modes.map(|mode| {
        let device = Device::cpu_with(mode);
        let module = device.native_kernels(&KERNELS).unwrap();
        Fixture::new(format!("{mode:?}"), device, module)
    });
    cpus.chain(gpus())
}

/// The GPU with each of the program's kernel images that it can run.
fn gpus() -> Vec<Fixture> {
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let (Ok(device), Ok(images)) = (Device::cuda(0), warpheap_harness::build_info::images()) else {
        assert!(!required, "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU, or no kernels for it");
        return Vec::new();
    };
    let load = |image: &warpheap::KernelImage| {
        Fixture::new(
            format!("{} on the GPU", image.arch),
            device.clone(),
            device.load_kernels(image.ptx, &KERNELS).unwrap(),
        )
    };
    images.iter().map(load).collect()
}
