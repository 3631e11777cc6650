//! A device with the kernels, a heap and a buffer.

use warpheap::device_pools::Heap;
use warpheap::error::{Error, KernelFault};
use warpheap::simt::{Mode, Panic};
use warpheap::{Backend, Device, DeviceBuffer, LaunchConfig, Module, Stream, kernel_names};
use warpheap_harness::kernels::panics::{Check, demo_check, demo_index};

/// Threads of a launch, and those that panic in the first test.
pub const THREADS: u32 = 1024;
pub const PANICS: u32 = 205;
/// Threads of a block.
pub const BLOCK: u32 = 256;

const KERNELS: [&str; 2] = kernel_names![demo_check, demo_index];

pub struct Fixture {
    pub name: String,
    pub device: Device,
    pub module: Module,
    pub stream: Stream,
    pub heap: Heap,
    pub out: DeviceBuffer<u32>,
}

impl Fixture {
    fn new(name: String, device: Device, module: Module) -> Fixture {
        let heap = Heap::builder(1 << 20).build(&device).unwrap();
        let (stream, out) = (device.stream().unwrap(), device.zeroed(THREADS as usize).unwrap());
        Fixture { name, device, module, stream, heap, out }
    }

    /// Launches [`demo_index`] with a table of `values` values: the threads beyond panic. The
    /// results are zeroed before.
    pub fn index(&mut self, values: u32) {
        self.out = self.device.zeroed(THREADS as usize).unwrap();
        let table = self.device.from_slice(&Vec::from_iter(0..values)).unwrap();
        let args = (self.heap.handle(), table.slice(), self.out.slice());
        let config = LaunchConfig::linear(THREADS, BLOCK);
        // SAFETY: the heap and the buffer live longer than the fixture's stream, and nothing else
        // accesses them. The drop of the table waits for the kernel.
        unsafe { self.stream.launch(&self.module, demo_index, &config, args) }.unwrap();
    }

    /// Launches [`demo_check`].
    pub fn check(&self, check: Check, one: u32) {
        let config = LaunchConfig::linear(THREADS, BLOCK);
        let args = (check as u32, one, self.out.slice());
        // SAFETY: as above.
        unsafe { self.stream.launch(&self.module, demo_check, &config, args) }.unwrap();
    }

    /// Checks that `text` has the message of a panic, if the kernels record it.
    pub fn expect_message(&self, text: &str, message: &str) {
        let has_message = self.device.backend() == Backend::Cpu || cfg!(feature = "panic-message");
        assert_eq!(text.contains(message), has_message, "{}: {text}", self.name);
    }
}

/// The description of a panic.
pub fn panic_of(error: &Error) -> &Panic {
    match error {
        Error::KernelFault(KernelFault::Panicked { panic, .. }) => panic,
        other => panic!("no panic of a kernel: {other}"),
    }
}

/// A CPU device and its kernels.
pub fn cpu(mode: Mode) -> Fixture {
    let device = Device::cpu_with(mode);
    let module = device.native_kernels(&KERNELS).unwrap();
    Fixture::new(format!("{mode:?}"), device, module)
}

/// The parallel CPU, one replay for each of `seeds` seeds, and the GPU.
pub fn fixtures(seeds: u64) -> impl Iterator<Item = Fixture> {
    let modes = (0..seeds).map(|seed| Mode::Replay { seed });
    std::iter::once(Mode::Parallel { workers: 2 }).chain(modes).map(cpu).chain(gpus())
}

/// The GPU with each kernel image. With `WARPHEAP_REQUIRE_CUDA=1` a GPU is required. Each image is
/// loaded when it is asked for.
pub fn gpus() -> impl Iterator<Item = Fixture> {
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let gpu = Device::cuda(0).ok().zip(warpheap_harness::build_info::images().ok());
    assert!(gpu.is_some() || !required, "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU, or no kernels for it");
    gpu.into_iter().flat_map(|(device, images)| {
        images.iter().map(move |image| {
            let module = device.load_kernels(image.ptx, &KERNELS).unwrap();
            Fixture::new(format!("{} on the GPU", image.arch), device.clone(), module)
        })
    })
}
