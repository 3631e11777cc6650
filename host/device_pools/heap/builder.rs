//! The settings of a heap, and its construction.

use super::memory::{Backing, MetadataOffsets};
use super::pool::Heap;
use crate::device_pools::shared::invalid;
use crate::driver::Device;
use crate::error::{Bytes, Result};
use std::sync::Mutex;
use warpheap_device::heap::class::{MIN_BLOCK, SizeClass};
use warpheap_device::heap::layout::HEAP_BYTES;
use warpheap_device::heap::{self, HeapLayout};
use warpheap_device::kernel::Arg;

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
    pub(super) bytes: u64,
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
