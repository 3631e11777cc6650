//! Kernels that allocate and free for the host.
//!
//! They use a separate handle with its own fault log, which is read after each call. So misuse by
//! the host is returned as an error and does not appear in [`Heap::faults`](super::Heap::faults).

use crate::build_info;
use crate::device_pools::shared::Faults;
use crate::driver::{Backend, Device, DeviceMemory, KernelImage, LaunchConfig, Module, Stream};
use crate::error::{Error, Result};
use crate::kernel_names;
use crate::kernels::{heap_alloc_many, heap_free_many};
use std::alloc::Layout;
use warpheap_device::fault::{FAULT_LOG_WORDS, FaultLog};
use warpheap_device::heap::{self, HeapLayout, Parts};
use warpheap_device::kernel::Arg;

/// Maximum requests per launch.
pub(super) const BATCH: usize = 1 << 20;
/// Threads per block.
const BLOCK_THREADS: u32 = 128;

/// The kernels that the calls launch.
const LAUNCHED: [&str; 2] = kernel_names![heap_alloc_many, heap_free_many];

/// Offset of the fault log, after the handle.
const FAULTS_AT: u64 = 256;
const STATE_BYTES: u64 = FAULTS_AT + 8 * FAULT_LOG_WORDS as u64;

const _: () = assert!(size_of::<heap::Heap>() as u64 <= FAULTS_AT);

/// Resources of the host's calls.
#[derive(Debug)]
pub(super) struct Calls {
    module: Module,
    stream: Stream,
    /// The shared handle for code off the fast path, followed by the fault log.
    state: DeviceMemory,
    handle: Arg<heap::Heap>,
}

impl Calls {
    /// For a heap on `device` that consists of these parts.
    pub fn new(device: &Device, mut parts: Parts, layout: HeapLayout) -> Result<Calls> {
        let mut state = device.zeroed_memory(STATE_BYTES, FAULTS_AT as usize)?;
        parts.shared = state.address() as *const heap::HeapCore;
        parts.faults = (state.address() + FAULTS_AT) as *const FaultLog;
        // SAFETY: the heap keeps its parts alive, and `state` is large enough for the handle and
        // the log.
        let handle = unsafe { heap::Heap::from_raw_parts(parts, layout) };
        // SAFETY: the heap and `Calls` keep alive all memory that the handle names.
        let handle = unsafe { Arg::new(handle) };
        state.write_handle(0, &handle)?;
        let module = kernels(device)?;
        Ok(Calls { module, stream: device.default_stream()?, state, handle })
    }

    pub fn alloc(&self, layouts: &[Layout]) -> Result<Vec<u64>> {
        let device = self.state.device();
        let requests: Vec<_> = layouts.iter().map(|of| [of.size() as u64, of.align() as u64]).collect();
        let (requests, blocks) = (device.from_slice(&requests)?, device.zeroed::<u64>(layouts.len())?);
        let grid = LaunchConfig::linear(layouts.len() as u32, BLOCK_THREADS);
        let args = (self.handle, requests.slice(), blocks.slice());
        // SAFETY: the heap is live. Both buffers live until the stream is done, and nothing else
        // accesses them.
        unsafe { self.stream.launch(&self.module, heap_alloc_many, &grid, args) }?;
        self.stream.settle()?;
        blocks.fetch()
    }

    /// # Safety
    /// The blocks are not in use any more.
    pub unsafe fn free(&mut self, blocks: &[u64]) -> Result<Faults> {
        self.state.write(FAULTS_AT, &[0_u64; FAULT_LOG_WORDS])?;
        let buffer = self.state.device().from_slice(blocks)?;
        let grid = LaunchConfig::linear(blocks.len() as u32, BLOCK_THREADS);
        // SAFETY: the heap is live, and the buffer lives until the stream is done. The caller
        // promises that the blocks are not in use.
        unsafe { self.stream.launch(&self.module, heap_free_many, &grid, (self.handle, buffer.slice())) }?;
        self.stream.settle()?;
        let mut words = [0; FAULT_LOG_WORDS];
        self.state.fetch(FAULTS_AT, &mut words)?;
        Ok(Faults::read(&words))
    }
}

/// The library's kernels for the device, shared by all heaps.
fn kernels(device: &Device) -> Result<Module> {
    device.shared_module(|| load(device))
}

fn load(device: &Device) -> Result<Module> {
    if device.backend() == Backend::Cpu {
        return device.native_kernels(&LAUNCHED);
    }
    let images = build_info::images().map_err(|why| Error::NoDevice {
        requested: "an allocation by the host on a GPU".into(),
        found: "this program was built without kernels for one".into(),
        advice: why.into(),
    })?;
    let image = KernelImage::newest_for(images, device.info()?.compute_capability);
    device.load_kernels(image.expect("there is an image if there are any").ptx, &LAUNCHED)
}
