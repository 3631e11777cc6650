//! Runs the tests of [`kernel_test!`](warpheap_device::kernel_test!), and those of other programs.

use crate::device_pools::{Faults, Heap, Violation};
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
        let done = module.and_then(|module| unsafe { launch_test(kernel, (), &module, THREADS, HEAP_BYTES) });
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
        unsafe { launch_test(kernel, (), &module, THREADS, HEAP_BYTES) }
    });
    drop(on_gpu);
    report::<K>(&device, done);
}

/// The state of the heap after a test.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapAudit {
    /// Blocks that were not freed.
    pub live_blocks: u64,
    /// Faults of the heap.
    pub faults: Faults,
    /// Violations of the heap's invariants.
    pub violations: Vec<Violation>,
}

impl HeapAudit {
    /// What is wrong. `None` if the heap is empty and intact, and no allocation failed.
    pub fn fault(&self) -> Option<String> {
        let HeapAudit { live_blocks, faults, violations } = self;
        if let Some(first) = faults.first.first() {
            return Some(format!("{} faults, the first: {first:?}", faults.count));
        }
        if let Some(first) = violations.first() {
            return Some(format!("the heap's metadata is not intact: {first:?}"));
        }
        (*live_blocks > 0).then(|| format!("{live_blocks} blocks were not freed"))
    }
}

/// Runs a test in `threads` threads of one block, with a heap of `heap_bytes`.
///
/// # Errors
/// Those of the device, and [`Error::KernelFault`] for instance if a thread panics.
///
/// # Safety
/// The kernel has no requirements.
pub unsafe fn launch_test<K: Kernel>(
    kernel: K,
    args: K::Args,
    module: &Module,
    threads: u32,
    heap_bytes: u64,
) -> Result<HeapAudit> {
    let heap = Heap::builder(heap_bytes).build(module.device())?;
    match module.set_global_heap(&heap) {
        // Kernels that do not allocate.
        Err(Error::InvalidModule(InvalidModule::NoGlobalHeap { .. })) => {}
        set => set?,
    }
    let stream = module.device().stream()?;
    // SAFETY: the caller's promise; the heap lives until the stream is synchronised.
    unsafe { stream.launch(module, kernel, &LaunchConfig::linear(threads, threads), args) }?;
    stream.synchronize()?;
    let (faults, live_blocks, violations) = (heap.faults()?, heap.stats()?.live_blocks, heap.check()?);
    Ok(HeapAudit { live_blocks, faults, violations })
}

fn report<K: Kernel>(device: &Device, done: Result<HeapAudit>) {
    let wrong = match done {
        Ok(left) => match left.fault() {
            Some(wrong) => wrong,
            None => return,
        },
        Err(error) => error.to_string(),
    };
    panic!("{} on {device}: {wrong}", K::NAME);
}
