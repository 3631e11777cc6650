//! The memory of a heap: all of it, or a reservation that grows; and the offsets of the parts of
//! its metadata.

use crate::driver::{Device, DeviceMemory, GrowableBuffer};
use crate::error::Result;
use warpheap_device::fault::{FAULT_LOG_WORDS, FaultLog};
use warpheap_device::heap::debug::{Debugger, Extra, MAX_CALL_SITES, SITE_WORDS};
use warpheap_device::heap::{
    self, ClassInfo, Cursor, HINT_STRIDE, HeapLayout, MAX_ALIGN, Overview, Parts, Ring,
};
use warpheap_device::sync::AtomicU32;

/// The memory that a heap allocates from.
#[derive(Debug)]
pub(super) enum Backing {
    /// All of the memory.
    Plain(DeviceMemory),
    /// A reservation that is mapped step by step.
    Growable(GrowableBuffer),
}

impl Backing {
    /// The memory of a heap: all of it, or a reservation with `initial` bytes mapped.
    pub fn new(device: &Device, layout: &HeapLayout, initial: Option<u64>) -> Result<Backing> {
        let Some(initial) = initial else {
            return device.alloc_memory(layout.bytes(), MAX_ALIGN as usize).map(Backing::Plain);
        };
        let mut buffer = GrowableBuffer::for_pool(device, layout.bytes(), MAX_ALIGN)?;
        buffer.grow_to(whole_slabs(layout, initial))?;
        Ok(Backing::Growable(buffer))
    }

    pub fn memory(&self) -> &DeviceMemory {
        match self {
            Backing::Plain(memory) => memory,
            Backing::Growable(buffer) => buffer.memory(),
        }
    }

    /// Number of slabs with memory: the first slabs of the layout.
    pub fn slabs(&self, layout: &HeapLayout) -> u32 {
        (self.memory().bytes() >> layout.slab_log2).min(layout.slabs.into()) as u32
    }
}

/// `bytes`, at most the heap's size, rounded up to a multiple of the slab size.
pub(super) fn whole_slabs(layout: &HeapLayout, bytes: u64) -> u64 {
    debug_assert!(bytes <= layout.bytes());
    bytes.next_multiple_of(layout.slab_bytes().into())
}

/// Offsets of the parts of the metadata, in bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataOffsets {
    pub handle: u64,
    pub classes: u64,
    pub cursors: u64,
    pub entries: u64,
    pub free: u64,
    pub rings: u64,
    pub listed: u64,
    pub idle: u64,
    pub faults: u64,
    pub overview: u64,
    pub hints: u64,
    pub counts: u64,
    pub bitmap: u64,
    /// The parts of a debug heap.
    pub debug: Option<DebugOffsets>,
    pub end: u64,
}

impl MetadataOffsets {
    /// `quarantine`: the number of slots in a debug heap.
    pub fn new(layout: &HeapLayout, quarantine: Option<u32>) -> MetadataOffsets {
        let cursors = u64::from(layout.classes * layout.shards);
        let mut end = 0_u64;
        let mut part = |bytes: u64| {
            let part_start = end;
            end = (end + bytes).next_multiple_of(128);
            part_start
        };
        MetadataOffsets {
            handle: part(size_of::<heap::Heap>() as u64),
            classes: part(u64::from(layout.classes) * size_of::<ClassInfo>() as u64),
            cursors: part(cursors * size_of::<Cursor>() as u64),
            entries: part(u64::from(layout.slabs) * 4),
            free: part(u64::from(layout.slab_set_words()) * 4),
            rings: part(cursors * size_of::<Ring>() as u64),
            listed: part(u64::from(layout.run_set_words()) * 4),
            idle: part(u64::from(layout.slab_set_words()) * 4),
            faults: part(FAULT_LOG_WORDS as u64 * 8),
            overview: part(size_of::<Overview>() as u64),
            hints: part(u64::from(layout.shards) * 4 * HINT_STRIDE as u64),
            counts: part(u64::from(layout.slabs) * 4),
            bitmap: part(layout.block_words() * 4),
            debug: quarantine.map(|slots| DebugOffsets::new(slots, &mut part)),
            end,
        }
    }

    /// The parts of a heap with memory at `base` and metadata at `metadata`.
    pub fn parts(&self, base: u64, metadata: u64) -> Parts {
        let at = |offset: u64| metadata + offset;
        let debugger = self.debug.and_then(|offsets| Debugger::of(at(offsets.extra) as *const Extra));
        Parts {
            base: base as *mut u8,
            classes: at(self.classes) as *const ClassInfo,
            cursors: at(self.cursors) as *const Cursor,
            rings: at(self.rings) as *const Ring,
            entries: at(self.entries) as *const AtomicU32,
            counts: at(self.counts) as *const AtomicU32,
            bitmap: at(self.bitmap) as *const AtomicU32,
            free: at(self.free) as *const AtomicU32,
            listed: at(self.listed) as *const AtomicU32,
            idle: at(self.idle) as *const AtomicU32,
            overview: at(self.overview) as *const Overview,
            hints: at(self.hints) as *const AtomicU32,
            faults: at(self.faults) as *const FaultLog,
            shared: at(self.handle) as *const heap::HeapCore,
            debugger: debugger.unwrap_or(Debugger::NONE),
        }
    }
}

/// Offsets of the parts of a debug heap, in bytes from the start of the metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct DebugOffsets {
    pub extra: u64,
    pub slots: u64,
    pub slot_count: u32,
    pub sites: u64,
}

impl DebugOffsets {
    /// Lays out each part with `part`.
    pub fn new(slot_count: u32, mut part: impl FnMut(u64) -> u64) -> DebugOffsets {
        DebugOffsets {
            extra: part(size_of::<Extra>() as u64),
            slots: part(8 * u64::from(slot_count)),
            slot_count,
            sites: part(8 * (MAX_CALL_SITES * SITE_WORDS) as u64),
        }
    }
}
