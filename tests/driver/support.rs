//! The devices under test, and the module of test kernels.

use warpheap::{Backend, Device, LaunchConfig, Module, Result, Stream};
use warpheap_device::kernel::Kernel;

/// PTX of the test kernels, for GPUs.
pub const PTX: &str = include_str!("kernels.ptx");

/// The first GPU, if there is one. With `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
pub fn gpu() -> Option<Device> {
    match Device::cuda(0) {
        Ok(device) => Some(device),
        Err(error) => {
            assert!(error.is_no_device(), "a GPU that cannot be used: {error}");
            let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
            assert!(!required, "WARPHEAP_REQUIRE_CUDA=1, but {error}");
            None
        }
    }
}

/// The CPU, and the first GPU if there is one.
pub fn devices() -> Vec<Device> {
    [Device::cpu()].into_iter().chain(gpu()).collect()
}

/// The test kernels, loaded on the device.
pub fn module(device: &Device) -> Module {
    device.load_module(PTX).unwrap()
}

/// Launches `threads` threads of a test kernel, in blocks of at most 256.
pub fn launch<K: Kernel>(
    stream: &Stream,
    module: &Module,
    kernel: K,
    threads: u32,
    args: K::Args,
) -> Result<()> {
    let config = LaunchConfig::linear(threads, threads.min(256));
    // SAFETY: the tests keep buffers until the kernels on them have ended, or drop them where the
    // drop waits for these kernels. Kernels with the same buffer are ordered by a stream or an
    // event, or access it by atomics.
    unsafe { stream.launch(module, kernel, &config, args) }
}

pub fn is_cpu(device: &Device) -> bool {
    device.backend() == Backend::Cpu
}
