//! What the host itself allocates from a heap, and gives back: kernels that do nothing else.
//!
//! They have a handle of their own, whose fault log is read after each call. So what the host does
//! wrong comes back to it as an error, and is not among [`Heap::faults`].

use super::super::Faults;
use super::{Heap, heap};
use crate::build_info;
use crate::driver::{Backend, Device, DeviceMemory, KernelImage, LaunchConfig, Module, Stream};
use crate::error::{Bytes, Error, InvalidFree, InvalidRequest, Result};
use crate::kernel_names;
use crate::kernels::{heap_alloc_many, heap_free_many};
use std::alloc::Layout;
use std::sync::PoisonError;
use warpheap_device::fault::{FAULT_LOG_WORDS, Fault, FaultKind, FaultLog};
use warpheap_device::heap::MAX_ALIGN;
use warpheap_device::kernel::{Arg, DevicePtr};

/// Requests of one launch.
const BATCH: usize = 1 << 20;
/// Threads of a block.
const BLOCK_THREADS: u32 = 128;

/// What the calls launch.
const LAUNCHED: [&str; 2] = kernel_names![heap_alloc_many, heap_free_many];

/// Where the fault log lies, behind the handle.
const FAULTS_AT: u64 = 256;
const STATE_BYTES: u64 = FAULTS_AT + 8 * FAULT_LOG_WORDS as u64;

const _: () = assert!(size_of::<heap::Heap>() as u64 <= FAULTS_AT);

/// What the calls need.
#[derive(Debug)]
pub(super) struct Calls {
    module: Module,
    stream: Stream,
    /// The handle that code off the fast path uses, and the fault log.
    state: DeviceMemory,
    handle: Arg<heap::Heap>,
}

impl Calls {
    fn new(heap: &Heap) -> Result<Calls> {
        let device = heap.memory().device();
        let mut state = device.zeroed_memory(STATE_BYTES, FAULTS_AT as usize)?;
        let mut parts = heap.places.parts(heap.memory().address(), heap.metadata.address());
        parts.shared = state.address() as *const heap::Heap;
        parts.faults = (state.address() + FAULTS_AT) as *const FaultLog;
        let layout = heap.layout;
        // SAFETY: the heap keeps its parts, and this as well, which is as long as both need.
        let handle = unsafe { heap::Heap::from_raw_parts(parts, layout, heap.places.cursor_stride_log2) };
        // SAFETY: the same.
        let handle = unsafe { Arg::new(handle) };
        state.write_handle(0, &handle)?;
        let module = kernels(device)?;
        Ok(Calls { module, stream: device.default_stream()?, state, handle })
    }

    fn alloc(&self, layouts: &[Layout]) -> Result<Vec<u64>> {
        let device = self.state.device();
        let requests: Vec<_> = layouts.iter().map(|of| [of.size() as u64, of.align() as u64]).collect();
        let (requests, blocks) = (device.from_slice(&requests)?, device.zeroed::<u64>(layouts.len())?);
        let grid = LaunchConfig::linear(layouts.len() as u32, BLOCK_THREADS);
        let args = (self.handle, requests.slice(), blocks.slice());
        // SAFETY: the heap is live, and the two buffers are until the stream is done; no one else
        // has them.
        unsafe { self.stream.launch(&self.module, heap_alloc_many, &grid, args) }?;
        self.stream.synchronize()?;
        blocks.copy_to_vec()
    }

    /// # Safety
    /// No one uses the blocks any more.
    unsafe fn free(&mut self, blocks: &[u64]) -> Result<Faults> {
        self.state.write(FAULTS_AT, &[0_u64; FAULT_LOG_WORDS])?;
        let buffer = self.state.device().from_slice(blocks)?;
        let grid = LaunchConfig::linear(blocks.len() as u32, BLOCK_THREADS);
        // SAFETY: the heap is live, and the buffer is until the stream is done; the rest is the
        // caller's promise.
        unsafe { self.stream.launch(&self.module, heap_free_many, &grid, (self.handle, buffer.slice())) }?;
        self.stream.synchronize()?;
        let mut words = [0; FAULT_LOG_WORDS];
        self.state.read(FAULTS_AT, &mut words)?;
        Ok(Faults::read(&words))
    }
}

/// Those of the library's kernels, for the device.
fn kernels(device: &Device) -> Result<Module> {
    device.shared_module(|| load(device))
}

fn load(device: &Device) -> Result<Module> {
    if device.backend() == Backend::Cpu {
        return device.native_kernels(&LAUNCHED);
    }
    let images = build_info::images().map_err(|why| Error::NoDevice {
        asked: "an allocation by the host on a GPU".into(),
        found: "this program was built without kernels for one".into(),
        advice: why.into(),
    })?;
    let image = KernelImage::newest_for(images, device.info()?.compute_capability);
    device.load_kernels(image.map_or("", |image| image.ptx), &LAUNCHED)
}

impl Heap {
    /// Allocates memory for kernels to use; `None` if the heap is out of memory. A kernel frees it,
    /// or [`deallocate`](Self::deallocate). Kernels may use the heap meanwhile; the call waits for
    /// the device.
    ///
    /// It launches a kernel: [`allocate_many`](Self::allocate_many) launches one for all. The first
    /// call on a GPU has the driver compile the library's kernels for that, which takes seconds;
    /// all heaps of a device share them.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a layout of no bytes or of more than 2 MiB alignment,
    /// [`Error::NotReset`] after a reset that failed, before anything is allocated; what failed
    /// since, as for [`allocate_many`](Self::allocate_many).
    pub fn allocate(&self, layout: Layout) -> Result<Option<DevicePtr<u8>>> {
        Ok(self.allocate_many(&[layout])?.pop().flatten())
    }

    /// Allocates memory for each of `layouts`, by one launch for a million of them; `None` for
    /// those that the heap has no memory for.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate). If a call fails after a launch (the wait for it, the
    /// copy of the addresses, or a later launch), the blocks of the launches before stay allocated
    /// until the next reset: their addresses are lost.
    pub fn allocate_many(&self, layouts: &[Layout]) -> Result<Vec<Option<DevicePtr<u8>>>> {
        layouts.iter().try_for_each(check_layout)?;
        let mut blocks = Vec::with_capacity(layouts.len());
        for batch in layouts.chunks(BATCH) {
            let got = self.with_calls(|calls| calls.alloc(batch))?;
            blocks.extend(got.into_iter().map(|at| (at != 0).then_some(DevicePtr(at as *mut u8))));
        }
        Ok(blocks)
    }

    /// Frees a block that a kernel or the host allocated. See
    /// [`deallocate_many`](Self::deallocate_many).
    ///
    /// # Errors
    /// [`Error::InvalidFree`] if no live block of the heap starts there; then nothing is changed.
    /// Otherwise as for [`deallocate_many`](Self::deallocate_many).
    ///
    /// # Safety
    /// No kernel uses the block any more.
    pub unsafe fn deallocate(&self, block: DevicePtr<u8>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate_many(&[block]) }
    }

    /// Frees blocks, by one launch for a million of them.
    ///
    /// # Errors
    /// [`Error::InvalidFree`] for those addresses at which no live block of the heap starts, among
    /// them a block's second time; the others are given back. [`Error::NotReset`] after a reset
    /// that failed. What failed since: after a launch the blocks may be free already, so a second
    /// try of the same call may return [`Error::InvalidFree`] for them.
    ///
    /// # Safety
    /// No kernel uses the blocks any more.
    pub unsafe fn deallocate_many(&self, blocks: &[DevicePtr<u8>]) -> Result<()> {
        let blocks: Vec<u64> = blocks.iter().map(|block| block.0 as u64).collect();
        let nulls = blocks.iter().filter(|at| **at == 0).count() as u64;
        let (mut failed, mut first) = (nulls, (nulls > 0).then(|| "null is no block".to_owned()));
        for batch in blocks.chunks(BATCH) {
            // SAFETY: the caller's promise.
            let faults = self.with_calls(|calls| unsafe { calls.free(batch) })?;
            failed += faults.count;
            first = first.or_else(|| faults.first.first().map(describe));
        }
        match first {
            Some(first) => Err(InvalidFree::Heap { failed, asked: blocks.len(), first }.into()),
            None => Ok(()),
        }
    }

    /// Calls that come at once take turns. A panic elsewhere leaves nothing half done that a call
    /// relies on.
    fn with_calls<T>(&self, call: impl FnOnce(&mut Calls) -> Result<T>) -> Result<T> {
        self.check_reset()?;
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *calls {
            Some(calls) => call(calls),
            none => call(none.insert(Calls::new(self)?)),
        }
    }
}

fn check_layout(layout: &Layout) -> Result<()> {
    let why = match (layout.size(), layout.align() as u64) {
        (0, _) => "no bytes need no memory; ask for one byte or more".into(),
        (_, align) if align > MAX_ALIGN => {
            format!("it serves alignments up to {}; ask for that and align by hand", Bytes(MAX_ALIGN))
        }
        _ => return Ok(()),
    };
    let (size, align) = (Bytes(layout.size() as u64), Bytes(layout.align() as u64));
    Err(Error::InvalidRequest(InvalidRequest::HeapLayout {
        asked: format!("{size} aligned to {align}"),
        why,
    }))
}

fn describe(fault: &Fault) -> String {
    let address = fault.address;
    match fault.kind {
        FaultKind::DoubleFree => format!("{address:#x} is free already"),
        FaultKind::ForeignFree => format!("{address:#x} is not in this heap"),
        FaultKind::InteriorFree => format!("{address:#x} is inside of a block, not its start"),
        FaultKind::Underrun => {
            format!("{address:#x} has no record of an allocation before it, or that was written over")
        }
        other => format!("{address:#x}: {other:?}"),
    }
}
