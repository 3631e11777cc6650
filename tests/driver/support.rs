//! The devices under test, and the module of test kernels. A GPU is used by one test at a time.
//!
//! Many operations of these tests wait for all work of the device: frees of driver memory, copies,
//! drops of pools. Concurrent tests on one GPU would wait for each other's kernels, which linger on
//! purpose, would count each other's memory, and could get memory at an address that another test
//! has just freed. On the CPU each test has its own device.

use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// Held by the test that uses the GPU.
static TURN: Mutex<()> = Mutex::new(());

/// The CPU, and the first GPU if there is one, for use as `for device in devices()`: the GPU is
/// released at the end of the loop. With `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
pub fn devices() -> Devices {
    Devices { given: 0, turn: None }
}

/// Iterates over the devices and locks the GPU for its turn. Collecting the items would share the
/// GPU with other tests.
pub struct Devices {
    given: usize,
    turn: Option<MutexGuard<'static, ()>>,
}

impl Iterator for Devices {
    type Item = Device;

    fn next(&mut self) -> Option<Device> {
        self.given += 1;
        match self.given {
            1 => Some(Device::cpu()),
            2 => {
                // A test that failed on the GPU has released it as well.
                self.turn = Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
                gpu()
            }
            _ => None,
        }
    }
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

#[test]
fn the_gpu_is_released_after_the_loop() {
    // Works with and without a GPU: if the lock were kept, the second loop would block for ever.
    for _ in 0..2 {
        assert!(devices().count() >= 1);
    }
}
