//! The host's side of the heap.

use super::{Faults, refuse};
use crate::driver::{Device, DeviceData, DeviceMemory};
use crate::error::{Bytes, Result};
use warpheap_device::fault::{FAULT_LOG_WORDS, FaultLog};
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::layout::HEAP_BYTES;
use warpheap_device::heap::{
    self, COUNT_STRIDE, ClassInfo, Cursor, FRESH_STRIDE, Layout, MAX_ALIGN, Parts, Span, USED_WORDS,
};
use warpheap_device::sync::AtomicU32;

/// Heaps from here on have each cursor alone in its cache line.
const SPREAD_FROM: u64 = 64 << 20;

/// A heap in device memory; see [`warpheap_device::heap`].
#[derive(Debug)]
pub struct Heap {
    memory: DeviceMemory,
    metadata: DeviceMemory,
    places: Places,
    handle: heap::Heap,
}

/// How a heap shall be. [`Heap::builder`] makes one.
#[derive(Clone, Debug)]
pub struct HeapBuilder {
    bytes: u64,
    homes: Option<u32>,
}

/// Where the parts of the metadata lie, in bytes from its start.
#[derive(Clone, Copy, Debug)]
struct Places {
    handle: u64,
    classes: u64,
    cursors: u64,
    cursor_stride_log2: u32,
    entries: u64,
    slab_sets: u64,
    faults: u64,
    used: u64,
    fresh: u64,
    counts: u64,
    bitmap: u64,
    end: u64,
}

impl Places {
    fn new(layout: &Layout) -> Places {
        let spread = layout.bytes() >= SPREAD_FROM;
        let cursor_stride_log2 = if spread { 7 } else { size_of::<Cursor>().trailing_zeros() };
        let cursors = u64::from(layout.classes * layout.homes) << cursor_stride_log2;
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
            slab_sets: part(u64::from(layout.classes + 2) * u64::from(layout.set_words()) * 4),
            faults: part(FAULT_LOG_WORDS as u64 * 8),
            used: part(USED_WORDS as u64 * 4),
            fresh: part(u64::from(layout.homes) * 4 * FRESH_STRIDE as u64),
            counts: part(u64::from(layout.slabs) * 4 * COUNT_STRIDE as u64),
            bitmap: part(layout.block_words() * 4),
            end,
        }
    }
}

impl Heap {
    /// A heap of `bytes`, to be built.
    pub fn builder(bytes: u64) -> HeapBuilder {
        HeapBuilder { bytes, homes: None }
    }

    /// What kernels take.
    pub fn handle(&self) -> heap::Heap {
        self.handle
    }

    /// The memory that it hands out.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Bytes of its metadata, which lie apart from the memory.
    pub fn metadata_bytes(&self) -> u64 {
        self.places.end
    }

    /// Waits for the device, then makes all memory free and forgets the faults. What was allocated before
    /// must not be used any more.
    pub fn reset(&mut self) -> Result<()> {
        let (layout, places) = (self.handle.layout(), self.places);
        self.metadata.fill_part(places.slab_sets, places.end - places.slab_sets, 0)?;
        self.metadata.fill_part(places.entries, places.slab_sets - places.entries, 0xff)?;
        let classes: Vec<ClassInfo> = (0..layout.classes).map(|c| layout.class(SizeClass(c))).collect();
        self.metadata.write(places.classes, &classes)?;
        self.metadata.write(places.handle, &[self.handle])?;
        let stride = 1_usize << (places.cursor_stride_log2 - 3);
        let mut cursors = vec![0_u64; ((places.entries - places.cursors) / 8) as usize];
        for cursor in cursors.chunks_mut(stride) {
            cursor[..4].copy_from_slice(&Cursor::new(Span::UNUSED).to_words());
        }
        self.metadata.write(places.cursors, &cursors)?;
        let mut fresh = vec![0_u32; layout.homes as usize * FRESH_STRIDE];
        for (home, first) in (0..).zip(fresh.chunks_mut(FRESH_STRIDE)) {
            first[0] = layout.share_start(home);
        }
        self.metadata.write(places.fresh, &fresh)
    }

    /// What threads did wrong, after the work that the device was given before.
    pub fn faults(&self) -> Result<Faults> {
        let mut words = vec![0; FAULT_LOG_WORDS];
        self.metadata.read(self.places.faults, &mut words)?;
        Ok(words.first_chunk::<FAULT_LOG_WORDS>().map(Faults::read).unwrap_or_default())
    }
}

impl HeapBuilder {
    /// Over how many cursors a class is spread: one a multiprocessor unless set, fewer in small heaps.
    pub fn homes(mut self, count: u32) -> Self {
        self.homes = Some(count);
        self
    }

    /// Makes the heap.
    pub fn build(&self, device: &Device) -> Result<Heap> {
        let multiprocessors = match self.homes {
            Some(homes) => homes,
            None => device.info()?.multiprocessors,
        };
        let Some(layout) = Layout::new(self.bytes, multiprocessors) else {
            let why = format!("a heap has from {} to {}", Bytes(HEAP_BYTES.0), Bytes(HEAP_BYTES.1));
            return refuse("bytes", Bytes(self.bytes), why);
        };
        let memory = device.alloc_memory(layout.bytes(), MAX_ALIGN as usize)?;
        let places = Places::new(&layout);
        let metadata = device.alloc_memory(places.end, 128)?;
        let at = |place: u64| metadata.address() + place;
        let parts = Parts {
            base: memory.address() as *mut u8,
            classes: at(places.classes) as *const ClassInfo,
            cursors: at(places.cursors) as *const Cursor,
            entries: at(places.entries) as *const AtomicU32,
            counts: at(places.counts) as *const AtomicU32,
            bitmap: at(places.bitmap) as *const AtomicU32,
            slab_sets: at(places.slab_sets) as *const AtomicU32,
            used: at(places.used) as *const AtomicU32,
            fresh: at(places.fresh) as *const AtomicU32,
            faults: at(places.faults) as *const FaultLog,
            shared: at(places.handle) as *const heap::Heap,
        };
        // SAFETY: `reset` fills the parts below; the heap keeps both allocations for as long as it lives, and a
        // launch checks that the handle's memory is still there.
        let handle = unsafe { heap::Heap::from_raw_parts(parts, layout, places.cursor_stride_log2) };
        let mut heap = Heap { memory, metadata, places, handle };
        heap.reset()?;
        Ok(heap)
    }
}

// SAFETY: integers in `repr(C)`.
unsafe impl DeviceData for ClassInfo {}
