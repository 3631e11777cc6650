//! The memory of a heap: all of it, or a reservation that grows; and the offsets of the parts of
//! its metadata.
//!
//! A heap may have memory for only a part of its addresses. The metadata covers all of them from
//! the start. The entries of slabs without memory are marked free, but the slabs are not in the set
//! of free slabs. When they get memory, the host adds them to it between two launches. So kernels
//! need no support for growth, and a heap that never grows pays nothing.

use super::Heap;
use crate::driver::{Device, DeviceMemory, GrowableBuffer};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use std::ops::Range;
use warpheap_device::fault::{FAULT_LOG_WORDS, FaultLog};
use warpheap_device::heap::debug::{Debugger, Extra, MAX_CALL_SITES, SITE_WORDS};
use warpheap_device::heap::{
    self, ClassInfo, Cursor, HINT_STRIDE, HeapLayout, MAX_ALIGN, Overview, Parts, Ring,
};
use warpheap_device::sync::AtomicU32;

impl Heap {
    /// Waits for the device, then grows the heap's memory to `bytes`, rounded up as for
    /// [`initial`](super::HeapBuilder::initial), and returns its size. Kernels of later launches
    /// can use the new memory, also through older handles. Launches that use the heap wait until
    /// the growth is done. No block moves or changes. Does nothing if the heap is already large
    /// enough.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device has no memory or the heap's maximum size is exceeded;
    /// [`Error::NotReset`] after a failed reset; or an earlier failure of the device. Then nothing
    /// changes, with one exception: if a copy to the metadata fails after the memory was mapped,
    /// the heap has the memory, but some of the new slabs cannot be allocated before the next
    /// reset. A second call does not repair that.
    pub fn grow_to(&mut self, bytes: u64) -> Result<u64> {
        self.check_reset()?;
        let layout = self.layout;
        if bytes > layout.bytes() {
            return Err(Error::OutOfMemory(OutOfMemory::Reservation {
                what: "a heap",
                requested: Bytes(bytes),
                reserved: Bytes(layout.bytes()),
                advice: "build it for more, with `initial` for what it has at first",
            }));
        }
        let wanted = whole_slabs(&layout, bytes);
        if wanted > self.present_bytes()
            && let Backing::Growable(buffer) = &mut self.backing
        {
            let _held = buffer.memory().block_launches()?;
            // First, so that an earlier failure is reported before anything changes.
            let mut words = FreeWords::read(&self.metadata, &self.offsets, &layout)?;
            buffer.grow_to(wanted)?;
            let old = std::mem::replace(&mut self.present, self.backing.slabs(&layout));
            words.add(&layout, old..self.present);
            // If this fails, some slabs are lost, but none is added twice.
            words.write(&mut self.metadata, &self.offsets)?;
        }
        Ok(self.present_bytes())
    }

    /// Bytes of the usable slabs.
    fn present_bytes(&self) -> u64 {
        u64::from(self.present) << self.layout.slab_log2
    }
}

/// A copy of the set of free slabs, on all of its levels.
pub(super) struct FreeWords(pub Vec<u32>);

impl FreeWords {
    /// Words without any slab.
    pub fn none(layout: &HeapLayout) -> FreeWords {
        FreeWords(vec![0; layout.slab_set_words() as usize])
    }

    /// The words of a heap. Waits for the device.
    fn read(metadata: &DeviceMemory, offsets: &MetadataOffsets, layout: &HeapLayout) -> Result<FreeWords> {
        let mut words = FreeWords::none(layout);
        metadata.fetch(offsets.free, &mut words.0)?;
        Ok(words)
    }

    fn write(&self, metadata: &mut DeviceMemory, offsets: &MetadataOffsets) -> Result<()> {
        metadata.write(offsets.free, &self.0)
    }

    /// Adds slabs.
    pub fn add(&mut self, layout: &HeapLayout, slabs: Range<u32>) {
        // Each level has a bit for each word of the level below.
        let (mut start, mut len, mut bits) = (0, layout.slabs.div_ceil(u32::BITS), slabs);
        loop {
            for bit in bits.clone() {
                self.0[(start + bit / u32::BITS) as usize] |= 1 << (bit % u32::BITS);
            }
            if len == 1 || bits.is_empty() {
                return;
            }
            bits = bits.start / u32::BITS..bits.end.div_ceil(u32::BITS);
            start += len;
            len = len.div_ceil(u32::BITS);
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Device;
    use std::collections::BTreeSet;

    /// The indices of set bits.
    fn bits(words: &[u32]) -> BTreeSet<u32> {
        let all = (0..).zip(words).flat_map(|(w, word)| {
            (0..u32::BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| w * u32::BITS + bit)
        });
        all.collect()
    }

    /// The slabs of the set. Asserts that each level has a bit for each nonzero word of the one
    /// below.
    fn found(words: &FreeWords, layout: &HeapLayout) -> BTreeSet<u32> {
        let mut len = layout.slabs.div_ceil(u32::BITS) as usize;
        let (mut level, mut above) = words.0.split_at(len);
        let slabs = bits(level);
        while !above.is_empty() {
            len = len.div_ceil(u32::BITS as usize);
            let nonzero = (0..).zip(level).filter(|(_, word)| **word != 0).map(|(w, _)| w);
            (level, above) = (&above[..len], &above[len..]);
            let nonzero: BTreeSet<u32> = nonzero.collect();
            assert_eq!(bits(level), nonzero);
        }
        slabs
    }

    #[test]
    fn each_slab_is_found_whatever_the_steps() {
        for (bytes, shards) in [(1 << 20, 1), (37 << 20, 3), (1 << 30, 9), ((3 << 30) + 12_345, 132)] {
            let layout = HeapLayout::spread(bytes, 132, shards).unwrap();
            for step in [1, 7, 32, layout.slabs / 5, layout.slabs / 2, layout.slabs] {
                let mut words = FreeWords::none(&layout);
                let (mut present, mut stride) = (0, step);
                while present < layout.slabs {
                    let more = (present + stride).min(layout.slabs);
                    words.add(&layout, present..more);
                    (present, stride) = (more, stride + stride / 2 + 1);
                    assert_eq!(found(&words, &layout), (0..present).collect());
                }
            }
        }
    }

    #[test]
    fn a_class_without_memory_finds_new_slabs() {
        let mut heap = Heap::builder(8 << 20).initial(2 << 20).build(&Device::cpu()).unwrap();
        let layouts = vec![std::alloc::Layout::new::<[u64; 128]>(); 4096];
        assert!(heap.allocate_many(&layouts).unwrap().iter().any(Option::is_none));
        heap.grow_to(4 << 20).unwrap();
        assert!(heap.allocate_many(&layouts[..1]).unwrap()[0].is_some());
    }
}
