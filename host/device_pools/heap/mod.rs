//! The host side of the heap: its construction, and allocations by the host.
//!
//! | module | content |
//! |---|---|
//! | `memory` | the memory, its growth, and the offsets of the parts of the metadata |
//! | `reset` | frees all memory |
//! | `snapshot` | checks and measures the heap |
//! | `map` | what each slab contains, to be drawn and saved |
//! | `report` | why allocations failed |
//! | `debug` | records of a debug heap |

use crate::device_pools::shared::{Faults, check_reset, invalid};
use crate::driver::{Backend, Device, DeviceMemory, KernelImage, LaunchConfig, Module, Stream};
use crate::error::{Bytes, Error, InvalidFree, InvalidRequest, Result};
use crate::kernels::{heap_alloc_many, heap_free_many};
use crate::{build_info, kernel_names};
pub use debug::{AllocationSite, Origin};
pub use map::{HeapMap, InvalidMap, MapPart, MapSpan, MapTotals, SlabContent};
use memory::{Backing, MetadataOffsets};
pub use snapshot::{HeapClassStats, HeapSnapshot, HeapStats, Leak, Leaks, SiteLeaks};
use std::alloc::Layout;
use std::sync::{Mutex, PoisonError};
use warpheap_device::fault::{FAULT_LOG_WORDS, Fault, FaultKind, FaultLog};
use warpheap_device::heap::class::{MIN_BLOCK, SizeClass};
use warpheap_device::heap::layout::HEAP_BYTES;
use warpheap_device::heap::{self, HeapLayout, MAX_ALIGN, Parts};
use warpheap_device::kernel::{Arg, DevicePtr};

mod debug;
mod map;
mod memory;
mod report;
mod reset;
mod snapshot;
#[cfg(test)]
mod tests;

/// Maximum number of cursors per class.
const MAX_SHARDS: u32 = 1 << 15;

/// Default number of blocks in quarantine.
const QUARANTINE: u32 = 1024;
/// Maximum number of blocks in quarantine.
const MAX_QUARANTINE: u32 = 1 << 20;

/// Settings of a heap, from [`Heap::builder`].
#[derive(Clone, Debug)]
#[must_use = "`build` makes the heap"]
pub struct HeapBuilder {
    bytes: u64,
    initial: Option<u64>,
    largest_class: Option<u32>,
    shards: Option<u32>,
    debug: bool,
    quarantine: Option<u32>,
}

impl Heap {
    /// Settings for a heap of `bytes`, rounded up to whole slabs.
    pub fn builder(bytes: u64) -> HeapBuilder {
        HeapBuilder {
            bytes,
            initial: None,
            largest_class: None,
            shards: None,
            debug: false,
            quarantine: None,
        }
    }
}

impl HeapBuilder {
    /// The largest size served by a size class, rounded up to a class. Default and maximum: three
    /// slabs. Larger requests take entire slabs. Fewer classes need less metadata.
    pub fn largest_class(mut self, bytes: u32) -> Self {
        self.largest_class = Some(bytes);
        self
    }

    /// Maximum number of cursors per class. Default: one per SM, fewer in small heaps.
    pub fn shards(mut self, count: u32) -> Self {
        self.shards = Some(count);
        self
    }

    /// Initial amount of memory. Default: all. With this setting the heap reserves addresses for
    /// all of its bytes, maps memory for `bytes`, rounded up to a multiple of the slab size and of
    /// the device's granularity (2 MiB on most), and grows by [`Heap::grow_to`]. The metadata
    /// always covers the entire heap. Minimum: 1 MiB.
    ///
    /// Requires a device with virtual memory management
    /// ([`DeviceInfo::virtual_memory`](crate::DeviceInfo)).
    pub fn initial(mut self, bytes: u64) -> Self {
        self.initial = Some(bytes);
        self
    }

    /// Makes a debug heap, which detects writes out of bounds and after free, and records
    /// allocation sites. Default: `false`. It needs the feature `debug` of `warpheap`, and of the
    /// `warpheap-device` of every kernel crate that uses the heap: a launch of kernels without it
    /// fails ([`Error::InvalidModule`](crate::Error::InvalidModule)). The guide of the heap
    /// describes what it detects and its cost.
    pub fn debug(mut self, debug: bool) -> Self {
        self.debug = debug;
        self
    }

    /// Size of a debug heap's quarantine: a freed block is reused only after this many frees of
    /// other blocks. Default: 1024. 0 disables the quarantine.
    pub fn quarantine(mut self, blocks: u32) -> Self {
        self.quarantine = Some(blocks);
        self
    }

    /// Number of quarantine slots; `None` without debugging.
    fn debug_quarantine(&self) -> Result<Option<u32>> {
        if self.debug && !heap::DEBUG {
            let why = "this program was built without the feature `debug` of warpheap; build it with that";
            return invalid("debug", true, why);
        }
        match self.quarantine {
            Some(blocks) if !self.debug => {
                invalid("quarantine", blocks, "only debug heaps have a quarantine: set `debug`, too")
            }
            Some(blocks) if blocks > MAX_QUARANTINE => {
                invalid("quarantine", blocks, format!("it must be from 0 to {MAX_QUARANTINE} blocks"))
            }
            blocks => Ok(self.debug.then_some(blocks.unwrap_or(QUARANTINE))),
        }
    }

    /// Builds the heap.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig), which names the setting,
    /// [`Error::OutOfMemory`]; for [`initial`](Self::initial) also [`Error::NotSupported`] if the
    /// device has no virtual memory management.
    ///
    /// [`Error::OutOfMemory`]: crate::Error::OutOfMemory
    /// [`Error::NotSupported`]: crate::Error::NotSupported
    pub fn build(&self, device: &Device) -> Result<Heap> {
        let layout = self.layout(device)?;
        let backing = Backing::new(device, &layout, self.checked_initial()?)?;
        let present = backing.slabs(&layout);
        let offsets = MetadataOffsets::new(&layout, self.debug_quarantine()?);
        let metadata = device.alloc_memory(offsets.end, 128)?;
        backing.memory().label("warpheap: memory of a heap");
        metadata.label("warpheap: metadata of a heap");
        let parts = offsets.parts(backing.memory().address(), metadata.address());
        // SAFETY: `reset` below initialises the parts. The heap keeps both allocations as long as
        // it lives, and a launch checks that the handle's memory is still live.
        let handle = unsafe { heap::Heap::from_raw_parts(parts, layout) };
        // SAFETY: the heap keeps the parts alive, and a launch checks the memory that the handle
        // names.
        let handle = unsafe { Arg::new(handle) };
        let calls = Mutex::default();
        let mut heap =
            Heap { backing, metadata, offsets, layout, handle, present, salt: 0, calls, is_reset: false };
        heap.reset()?;
        Ok(heap)
    }

    fn layout(&self, device: &Device) -> Result<HeapLayout> {
        let multiprocessors = device.info()?.multiprocessors;
        let shards = match self.shards {
            Some(shards) if !(1..=MAX_SHARDS).contains(&shards) => {
                return invalid("shards", shards, format!("it must be from 1 to {MAX_SHARDS}"));
            }
            Some(shards) => shards,
            None => multiprocessors,
        };
        // Whole slabs of at least `bytes`.
        let spread = |bytes| HeapLayout::spread(bytes, multiprocessors, shards);
        let rounded = |layout: HeapLayout| self.bytes.next_multiple_of(layout.slab_bytes().into());
        let Some(mut layout) = spread(self.bytes).map(rounded).and_then(spread) else {
            let why = format!("it must be from {} to {}", Bytes(HEAP_BYTES.0), Bytes(HEAP_BYTES.1));
            return invalid("bytes", Bytes(self.bytes), why);
        };
        if let Some(largest) = self.largest_class {
            let (min, max) = (MIN_BLOCK, layout.small_bytes);
            if !(min..=max).contains(&largest) {
                let (given, min, max) = (Bytes(largest.into()), Bytes(min.into()), Bytes(max.into()));
                let why = format!("the classes of a heap of {} end at {min} to {max}", Bytes(self.bytes));
                return invalid("largest_class", given, why);
            }
            let class = SizeClass::of(largest);
            (layout.classes, layout.small_bytes) = (class.0 + 1, class.bytes());
        }
        Ok(layout)
    }

    fn checked_initial(&self) -> Result<Option<u64>> {
        match self.initial {
            Some(bytes) if !(HEAP_BYTES.0..=self.bytes).contains(&bytes) => {
                let (min, max) = (Bytes(HEAP_BYTES.0), Bytes(self.bytes));
                invalid("initial", Bytes(bytes), format!("it must be from {min} to the {max} of the heap"))
            }
            initial => Ok(initial),
        }
    }
}

/// A heap in device memory; see [`warpheap_device::heap`].
#[derive(Debug)]
#[must_use = "its memory is freed when it is dropped"]
pub struct Heap {
    backing: Backing,
    metadata: DeviceMemory,
    offsets: MetadataOffsets,
    layout: HeapLayout,
    handle: Arg<heap::Heap>,
    /// Number of usable slabs: the first slabs of the layout, all of which have memory.
    present: u32,
    /// Salt of the records of a debug heap, changed by each reset.
    salt: u64,
    calls: Mutex<Option<Calls>>,
    /// Whether the metadata is valid: false during a reset, and after a failed one.
    is_reset: bool,
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
    fn check_reset(&self) -> Result<()> {
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
const BATCH: usize = 1 << 20;
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
struct Calls {
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
