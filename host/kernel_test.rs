//! Runs the tests of [`kernel_test!`](warpheap_device::kernel_test!).

use crate::device_pools::Heap;
use crate::driver::{Device, LaunchConfig, Module};
use crate::error::{Error, InvalidModule, Result};
use crate::lock::lock;
use crate::simt::Mode;
use std::collections::HashMap;
use std::sync::Mutex;
use warpheap_device::kernel::Kernel;

/// Two full warps.
const THREADS: u32 = 64;

const HEAP_BYTES: u64 = 64 << 20;

/// The modules on the GPU, by the address of their PTX. Held while a test uses the GPU.
static ON_GPU: Mutex<Option<(Device, HashMap<usize, Module>)>> = Mutex::new(None);

/// Runs a test on each device.
///
/// # Panics
/// If a thread panics, or leaves a block, a fault or a violation in the heap, and if there is no
/// GPU where the environment requires one.
///
/// # Safety
/// The kernel has no requirements.
pub unsafe fn run_test<K: Kernel<Args = ()>>(kernel: K, ptx: &'static str) {
    for mode in [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 1 }] {
        let device = Device::cpu_with(mode);
        let module = device.native_module();
        // SAFETY: the caller's promise.
        let done = module.and_then(|module| unsafe { run(kernel, &module) });
        report::<K>(&device, done);
    }
    let required = std::env::var_os("WARPHEAP_REQUIRE_CUDA").is_some_and(|value| value == "1");
    if ptx.is_empty() {
        assert!(!required, "{}: WARPHEAP_REQUIRE_CUDA=1, but the PTX of the tests is empty", K::NAME);
        return;
    }
    let mut on_gpu = lock(&ON_GPU);
    let device = match &*on_gpu {
        Some((device, _)) => Ok(device.clone()),
        None => Device::cuda(0),
    };
    let device = match device {
        Ok(device) => device,
        Err(error) if error.is_no_device() && !required => return,
        Err(error) => panic!("{} needs a GPU: {error}", K::NAME),
    };
    let (_, modules) = on_gpu.get_or_insert_with(|| (device.clone(), HashMap::new()));
    let key = ptx.as_ptr().addr();
    let module = modules.get(&key).cloned().map_or_else(|| device.load_module(ptx), Ok);
    let done = module.and_then(|module| {
        modules.insert(key, module.clone());
        // SAFETY: the caller's promise.
        unsafe { run(kernel, &module) }
    });
    drop(on_gpu);
    report::<K>(&device, done);
}

/// What a test left behind. Empty if nothing.
///
/// # Safety
/// The kernel has no requirements.
unsafe fn run<K: Kernel<Args = ()>>(kernel: K, module: &Module) -> Result<String> {
    let heap = Heap::builder(HEAP_BYTES).build(module.device())?;
    match module.set_global_heap(&heap) {
        // Kernels that do not allocate.
        Err(Error::InvalidModule(InvalidModule::NoGlobalHeap { .. })) => {}
        set => set?,
    }
    let stream = module.device().stream()?;
    // SAFETY: the caller's promise; the heap lives until the stream is synchronised.
    unsafe { stream.launch(module, kernel, &LaunchConfig::linear(THREADS, THREADS), ()) }?;
    stream.synchronize()?;
    let (faults, stats, violations) = (heap.faults()?, heap.stats()?, heap.check()?);
    let mut left = String::new();
    if let Some(first) = faults.first.first() {
        left = format!("{} faults, the first: {first:?}", faults.count);
    } else if let Some(first) = violations.first() {
        left = format!("the heap's metadata is not intact: {first:?}");
    } else if stats.live_blocks > 0 {
        left = format!("{} blocks were not freed", stats.live_blocks);
    }
    Ok(left)
}

fn report<K: Kernel>(device: &Device, done: Result<String>) {
    match done {
        Ok(left) if left.is_empty() => {}
        Ok(left) => panic!("{} on {device}: {left}", K::NAME),
        Err(error) => panic!("{} on {device}: {error}", K::NAME),
    }
}
