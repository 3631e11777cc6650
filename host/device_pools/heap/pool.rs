//! A heap: its memory, its metadata, the handle for kernels, and allocations by the host.

use super::memory::{Backing, MetadataOffsets};
use crate::build_info;
use crate::device_pools::shared::{Faults, check_reset};
use crate::driver::{Backend, Device, DeviceMemory, KernelImage, LaunchConfig, Module, Stream};
use crate::error::{Bytes, Error, InvalidFree, InvalidRequest, Result};
use crate::kernel_names;
use crate::kernels::{heap_alloc_many, heap_free_many};
use std::alloc::Layout;
use std::sync::{Mutex, PoisonError};
use warpheap_device::fault::{FAULT_LOG_WORDS, Fault, FaultKind, FaultLog};
use warpheap_device::heap::{self, HeapLayout, MAX_ALIGN, Parts};
use warpheap_device::kernel::{Arg, DevicePtr};

/// A heap in device memory; see [`warpheap_device::heap`].
#[derive(Debug)]
#[must_use = "its memory is freed when it is dropped"]
pub struct Heap {
    pub(super) backing: Backing,
    pub(super) metadata: DeviceMemory,
    pub(super) offsets: MetadataOffsets,
    pub(super) layout: HeapLayout,
    pub(super) handle: Arg<heap::Heap>,
    /// Number of usable slabs: the first slabs of the layout, all of which have memory.
    pub(super) present: u32,
    /// Salt of the records of a debug heap, changed by each reset.
    pub(super) salt: u64,
    pub(super) calls: Mutex<Option<Calls>>,
    /// Whether the metadata is valid: false during a reset, and after a failed one.
    pub(super) is_reset: bool,
}

impl Heap {
    /// The argument for kernels that take a [`heap::Heap`].
    pub fn handle(&self) -> Arg<heap::Heap> {
        self.handle
    }

    /// The address on the device of the heap's own copy of its handle: the heap, for kernels in
    /// other languages that call the functions of `warpheap-c-device`. Valid as long as the pool
    /// lives.
    pub fn device_address(&self) -> u64 {
        self.metadata.address() + self.offsets.handle
    }

    /// Bytes that can be allocated in total. A growable heap must have memory for all of them
    /// first.
    pub fn capacity(&self) -> u64 {
        self.layout.bytes()
    }

    /// The layout: sizes and counts.
    pub fn layout(&self) -> HeapLayout {
        self.layout
    }

    /// The memory that the heap allocates from, as much as is mapped at the moment.
    pub fn memory(&self) -> &DeviceMemory {
        self.backing.memory()
    }

    /// Fails if the last reset failed.
    pub(super) fn check_reset(&self) -> Result<()> {
        check_reset(self.is_reset, "a heap")
    }

    /// Bytes of the metadata, which is separate from the memory.
    pub fn metadata_bytes(&self) -> u64 {
        self.offsets.end
    }

    /// Waits for the device, then returns the faults that kernels caused.
    pub fn faults(&self) -> Result<Faults> {
        let mut words = [0; FAULT_LOG_WORDS];
        self.metadata.fetch(self.offsets.faults, &mut words)?;
        Ok(Faults::read(&words))
    }
}

impl Heap {
    /// Allocates memory for kernels. Returns `None` if the heap is out of memory. A kernel or
    /// [`deallocate`](Self::deallocate) frees it. Kernels may use the heap during the call, which
    /// waits for the device.
    ///
    /// Launches a kernel; [`allocate_many`](Self::allocate_many) launches one for many requests.
    /// The first call on a GPU makes the driver compile the library's kernels, which takes seconds.
    /// All heaps of a device partition them.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a size of 0 or an alignment above 2 MiB, and
    /// [`Error::NotReset`] after a failed reset, both before anything is allocated. An earlier
    /// failure of the device, as for [`allocate_many`](Self::allocate_many).
    pub fn allocate(&self, layout: Layout) -> Result<Option<DevicePtr<u8>>> {
        Ok(self.allocate_many(&[layout])?.pop().flatten())
    }

    /// Allocates memory for each of `layouts`, with one launch per million requests. Returns `None`
    /// for each request for which the heap is out of memory.
    ///
    /// # Errors
    /// The errors of [`allocate`](Self::allocate). If the call fails after a launch (while waiting,
    /// copying the addresses, or in a later launch), the blocks of the earlier launches stay
    /// allocated until the next reset: their addresses are lost.
    pub fn allocate_many(&self, layouts: &[Layout]) -> Result<Vec<Option<DevicePtr<u8>>>> {
        layouts.iter().try_for_each(check_layout)?;
        let mut blocks = Vec::with_capacity(layouts.len());
        for batch in layouts.chunks(BATCH) {
            let addresses = self.with_calls(|calls| calls.alloc(batch))?;
            blocks.extend(addresses.into_iter().map(|at| (at != 0).then_some(DevicePtr(at as *mut u8))));
        }
        Ok(blocks)
    }

    /// Frees a block that a kernel or the host allocated. See
    /// [`deallocate_many`](Self::deallocate_many).
    ///
    /// # Errors
    /// [`Error::InvalidFree`] if no live block of the heap starts there; then nothing changes.
    /// Otherwise as for [`deallocate_many`](Self::deallocate_many).
    ///
    /// # Safety
    /// No kernel uses the block any more.
    pub unsafe fn deallocate(&self, block: DevicePtr<u8>) -> Result<()> {
        // SAFETY: the caller's promise: no kernel uses the block any more.
        unsafe { self.deallocate_many(&[block]) }
    }

    /// Frees blocks, with one launch per million blocks.
    ///
    /// # Errors
    /// [`Error::InvalidFree`] for addresses where no live block of the heap starts, including a
    /// double free; the other blocks are freed. [`Error::NotReset`] after a failed reset. An
    /// earlier failure of the device: after a launch the blocks may be free already, so repeating
    /// the call may return [`Error::InvalidFree`] for them.
    ///
    /// # Safety
    /// No kernel uses the blocks any more.
    pub unsafe fn deallocate_many(&self, blocks: &[DevicePtr<u8>]) -> Result<()> {
        let blocks: Vec<u64> = blocks.iter().map(|block| block.0 as u64).collect();
        let nulls = blocks.iter().filter(|at| **at == 0).count() as u64;
        let (mut failed, mut first) = (nulls, (nulls > 0).then(|| "the address is null".to_owned()));
        for batch in blocks.chunks(BATCH) {
            // SAFETY: the caller's promise: no kernel uses the blocks any more.
            let faults = self.with_calls(|calls| unsafe { calls.free(batch) })?;
            failed += faults.count;
            first = first.or_else(|| faults.first.first().map(describe));
        }
        match first {
            Some(first) => Err(InvalidFree::Heap { failed, requested: blocks.len(), first }.into()),
            None => Ok(()),
        }
    }

    /// Serialises concurrent calls. A panic elsewhere leaves no partial state that a call relies
    /// on.
    fn with_calls<T>(&self, call: impl FnOnce(&mut Calls) -> Result<T>) -> Result<T> {
        self.check_reset()?;
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *calls {
            Some(calls) => call(calls),
            none => {
                let parts = self.offsets.parts(self.memory().address(), self.metadata.address());
                call(none.insert(Calls::new(self.memory().device(), parts, self.layout)?))
            }
        }
    }
}

fn check_layout(layout: &Layout) -> Result<()> {
    let why = match (layout.size(), layout.align() as u64) {
        (0, _) => "the size is 0; request at least one byte".into(),
        (_, align) if align > MAX_ALIGN => {
            format!(
                "the largest supported alignment is {}; request that, and align the address in it",
                Bytes(MAX_ALIGN)
            )
        }
        _ => return Ok(()),
    };
    let (size, align) = (Bytes(layout.size() as u64), Bytes(layout.align() as u64));
    Err(Error::InvalidRequest(InvalidRequest::HeapLayout {
        requested: format!("{size} aligned to {align}"),
        why,
    }))
}

fn describe(fault: &Fault) -> String {
    let address = fault.address;
    match fault.kind {
        FaultKind::DoubleFree => format!("{address:#x} is already free"),
        FaultKind::ForeignFree => format!("{address:#x} is not in this heap"),
        FaultKind::InteriorFree => format!("{address:#x} is inside a block, not at its start"),
        FaultKind::Underrun => {
            format!("{address:#x} has no record of an allocation before it, or the record was overwritten")
        }
        other => format!("{address:#x}: {other:?}"),
    }
}

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

/// The kernels that allocate and free for the host, and their resources.
///
/// They use a separate handle with its own fault log, which is read after each call. So misuse by
/// the host is returned as an error and does not appear in [`Heap::faults`].
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
