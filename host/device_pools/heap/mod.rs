//! The host side of the heap: building it and dropping it.
//!
//! `reset` frees all memory, `grow` provides memory, `snapshot` and `stats` check and measure the
//! heap, `calls` allocates from the host, and `debug` holds the additions of a debug heap.

mod calls;
mod debug;
mod grow;
mod reset;
mod snapshot;
mod stats;
#[cfg(test)]
mod tests;

pub use debug::{AllocationSite, Origin};
pub use snapshot::{HeapSnapshot, Leak, Leaks, SiteLeaks};
pub use stats::{HeapClassStats, HeapStats};

use super::{Faults, Violation, check_reset, refuse};
use crate::driver::{Device, DeviceMemory};
use crate::error::{Bytes, Result};
use calls::Calls;
use debug::DebugPlaces;
use grow::Backing;
use std::sync::Mutex;
use warpheap_device::fault::{FAULT_LOG_WORDS, FaultLog};
use warpheap_device::heap::class::{MIN_BLOCK, SizeClass};
use warpheap_device::heap::debug::{Debugger, Extra};
use warpheap_device::heap::layout::HEAP_BYTES;
use warpheap_device::heap::{
    self, COUNT_STRIDE, ClassInfo, Cursor, FRESH_STRIDE, HeapLayout, Overview, Parts,
};
use warpheap_device::kernel::Arg;
use warpheap_device::sync::{AtomicU32, AtomicU64};

/// Maximum number of cursors per class.
const MAX_SHARDS: u32 = 1 << 15;

/// Heaps of at least this size place each cursor in a separate cache line.
const SPREAD_FROM: u64 = 64 << 20;

/// A heap in device memory; see [`warpheap_device::heap`].
#[derive(Debug)]
#[must_use = "its memory is freed when it is dropped"]
pub struct Heap {
    backing: Backing,
    metadata: DeviceMemory,
    places: Places,
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

/// Offsets of the parts of the metadata, in bytes from its start.
#[derive(Clone, Copy, Debug)]
struct Places {
    handle: u64,
    classes: u64,
    cursors: u64,
    cursor_stride_log2: u32,
    entries: u64,
    slab_sets: u64,
    faults: u64,
    overview: u64,
    fresh: u64,
    counts: u64,
    bitmap: u64,
    /// The parts of a debug heap.
    debug: Option<DebugPlaces>,
    end: u64,
}

impl Places {
    /// `quarantine`: the number of slots in a debug heap.
    fn new(layout: &HeapLayout, quarantine: Option<u32>) -> Places {
        let spread = layout.bytes() >= SPREAD_FROM;
        let cursor_stride_log2 = if spread { 7 } else { size_of::<Cursor>().trailing_zeros() };
        let cursors = u64::from(layout.classes * layout.shards) << cursor_stride_log2;
        let mut end = 0_u64;
        let mut part = |bytes: u64| {
            let place = end;
            end = (end + bytes).next_multiple_of(128);
            place
        };
        Places {
            handle: part(size_of::<heap::Heap>() as u64),
            classes: part(u64::from(layout.classes) * size_of::<ClassInfo>() as u64),
            cursors: part(cursors),
            cursor_stride_log2,
            entries: part(u64::from(layout.slabs) * 4),
            slab_sets: part(u64::from(layout.sets()) * u64::from(layout.set_words()) * 4),
            faults: part(FAULT_LOG_WORDS as u64 * 8),
            overview: part(size_of::<Overview>() as u64),
            fresh: part(u64::from(layout.shards) * 4 * FRESH_STRIDE as u64),
            counts: part(u64::from(layout.slabs) * 8 * COUNT_STRIDE as u64),
            bitmap: part(layout.block_words() * 4),
            debug: quarantine.map(|slots| DebugPlaces::new(slots, &mut part)),
            end,
        }
    }

    /// The parts of a heap with memory at `base` and metadata at `metadata`.
    fn parts(&self, base: u64, metadata: u64) -> Parts {
        let at = |place: u64| metadata + place;
        let debugger = self.debug.and_then(|places| Debugger::of(at(places.extra) as *const Extra));
        Parts {
            base: base as *mut u8,
            classes: at(self.classes) as *const ClassInfo,
            cursors: at(self.cursors) as *const Cursor,
            entries: at(self.entries) as *const AtomicU32,
            counts: at(self.counts) as *const AtomicU64,
            bitmap: at(self.bitmap) as *const AtomicU32,
            slab_sets: at(self.slab_sets) as *const AtomicU32,
            overview: at(self.overview) as *const Overview,
            fresh: at(self.fresh) as *const AtomicU32,
            faults: at(self.faults) as *const FaultLog,
            shared: at(self.handle) as *const heap::Heap,
            debugger: debugger.unwrap_or(Debugger::NONE),
        }
    }
}

impl Heap {
    /// Settings for a heap of `bytes`.
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

    /// The argument for kernels that take a [`heap::Heap`].
    pub fn handle(&self) -> Arg<heap::Heap> {
        self.handle
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
        self.places.end
    }

    /// Waits for the device, then returns the faults that kernels caused.
    pub fn faults(&self) -> Result<Faults> {
        let mut words = vec![0; FAULT_LOG_WORDS];
        self.metadata.read(self.places.faults, &mut words)?;
        Ok(words.first_chunk::<FAULT_LOG_WORDS>().map(Faults::read).unwrap_or_default())
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
        let places = Places::new(&layout, self.debug_quarantine()?);
        let metadata = device.alloc_memory(places.end, 128)?;
        let parts = places.parts(backing.memory().address(), metadata.address());
        // SAFETY: `reset` below initialises the parts. The heap keeps both allocations as long as
        // it lives, and a launch checks that the handle's memory is still live.
        let handle = unsafe { heap::Heap::from_raw_parts(parts, layout, places.cursor_stride_log2) };
        // SAFETY: the heap keeps the parts alive, and a launch checks the memory that the handle
        // names.
        let handle = unsafe { Arg::new(handle) };
        let calls = Mutex::default();
        let mut heap =
            Heap { backing, metadata, places, layout, handle, present, salt: 0, calls, is_reset: false };
        heap.reset()?;
        Ok(heap)
    }

    fn layout(&self, device: &Device) -> Result<HeapLayout> {
        let multiprocessors = device.info()?.multiprocessors;
        let shards = match self.shards {
            Some(shards) if !(1..=MAX_SHARDS).contains(&shards) => {
                return refuse("shards", shards, format!("a class has from 1 to {MAX_SHARDS} cursors"));
            }
            Some(shards) => shards,
            None => multiprocessors,
        };
        let Some(mut layout) = HeapLayout::spread(self.bytes, multiprocessors, shards) else {
            let why = format!("a heap has from {} to {}", Bytes(HEAP_BYTES.0), Bytes(HEAP_BYTES.1));
            return refuse("bytes", Bytes(self.bytes), why);
        };
        if let Some(largest) = self.largest_class {
            let (least, most) = (MIN_BLOCK, layout.small_bytes);
            if !(least..=most).contains(&largest) {
                let (given, least, most) = (Bytes(largest.into()), Bytes(least.into()), Bytes(most.into()));
                let why = format!("the classes of a heap of {} end at {least} to {most}", Bytes(self.bytes));
                return refuse("largest_class", given, why);
            }
            let class = SizeClass::of(largest);
            (layout.classes, layout.small_bytes) = (class.0 + 1, class.bytes());
        }
        Ok(layout)
    }

    fn checked_initial(&self) -> Result<Option<u64>> {
        match self.initial {
            Some(bytes) if !(HEAP_BYTES.0..=self.bytes).contains(&bytes) => {
                let (least, most) = (Bytes(HEAP_BYTES.0), Bytes(self.bytes));
                refuse("initial", Bytes(bytes), format!("of a heap of {most} it is from {least} to all"))
            }
            initial => Ok(initial),
        }
    }
}
