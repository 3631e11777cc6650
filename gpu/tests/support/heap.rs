//! A heap over memory that nobody touches, and the walk through its metadata.

use std::alloc::{Layout as HostLayout, alloc, dealloc};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use warpheap_device::fault::FaultLog;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{ClassInfo, Cursor, HOLES_STRIDE, Heap, Layout, Parts, Span};
use warpheap_device::sync::AtomicU32;

pub struct OwnedHeap {
    pub heap: Box<Heap>,
    pub layout: Layout,
    pub faults: Box<FaultLog>,
    classes: Vec<ClassInfo>,
    cursors: Vec<Cursor>,
    entries: Vec<AtomicU32>,
    holes: Vec<AtomicU32>,
    bitmap: Vec<AtomicU32>,
    slab_sets: Vec<AtomicU32>,
    _live: Vec<AtomicU32>,
    _hints: Vec<AtomicU32>,
    memory: (*mut u8, HostLayout),
}

// SAFETY: the addresses in the handle belong to the heap.
unsafe impl Sync for OwnedHeap {}
// SAFETY: the same.
unsafe impl Send for OwnedHeap {}

fn words(count: u64, word: impl Fn(u32) -> u32) -> Vec<AtomicU32> {
    (0..count as u32).map(|i| AtomicU32::new(word(i))).collect()
}

impl OwnedHeap {
    /// A heap of `bytes` for a device of so many multiprocessors.
    pub fn new(bytes: u64, multiprocessors: u32) -> OwnedHeap {
        OwnedHeap::with(Layout::new(bytes, multiprocessors).unwrap())
    }

    pub fn with(layout: Layout) -> OwnedHeap {
        let classes: Vec<ClassInfo> = (0..layout.classes).map(|c| layout.class(SizeClass(c))).collect();
        let cursors: Vec<Cursor> =
            (0..layout.classes * layout.homes).map(|_| Cursor::new(Span::EMPTY)).collect();
        let entries = words(layout.slabs.into(), |_| Heap::free_entry());
        let holes = words(u64::from(layout.slabs) * HOLES_STRIDE as u64, |_| 0);
        let bitmap = words(layout.block_words(), |_| 0);
        let set = layout.set_words();
        let free = |i| if i < set { layout.initial_free_word(i) } else { 0 };
        let slab_sets = words(u64::from(set) * u64::from(layout.classes + 1), free);
        let live = words(layout.live_words().into(), |_| 0);
        let hints = words(layout.homes.into(), |_| 0);
        let faults = Box::new(FaultLog::default());
        let host = HostLayout::from_size_align(layout.bytes() as usize, 1 << 21).unwrap();
        // SAFETY: not of no bytes.
        let base = unsafe { alloc(host) };
        let mut shared = Box::new(MaybeUninit::<Heap>::uninit());
        let parts = Parts {
            base,
            classes: classes.as_ptr(),
            cursors: cursors.as_ptr(),
            entries: entries.as_ptr(),
            holes: holes.as_ptr(),
            bitmap: bitmap.as_ptr(),
            slab_sets: slab_sets.as_ptr(),
            live: live.as_ptr(),
            hints: hints.as_ptr(),
            faults: &raw const *faults,
            shared: shared.as_ptr(),
        };
        let stride = size_of::<Cursor>().trailing_zeros();
        assert!(size_of::<Cursor>().is_power_of_two());
        // SAFETY: this keeps all parts, whose places on the heap do not change.
        shared.write(unsafe { Heap::from_raw_parts(parts, layout, stride) });
        // SAFETY: written above.
        let heap = unsafe { Box::from_raw(Box::into_raw(shared).cast::<Heap>()) };
        OwnedHeap {
            heap,
            layout,
            faults,
            classes,
            cursors,
            entries,
            holes,
            bitmap,
            slab_sets,
            _live: live,
            _hints: hints,
            memory: (base, host),
        }
    }

    /// When no thread uses it: every slab is free, large, or of a class; and of each class as many blocks are
    /// live as `live` says, by the bits, the counts and the cursors alike (I6, I7).
    pub fn check(&self, live: &BTreeMap<u32, u32>) {
        let layout = self.layout;
        let words_per_slab = layout.block_words() / u64::from(layout.slabs);
        let in_set = |set: u32, slab: u32| {
            let word = &self.slab_sets[(set * layout.set_words() + slab / 32) as usize];
            word.load_relaxed() >> (slab % 32) & 1 == 1
        };
        let mut found = BTreeMap::<u32, u32>::new();
        let mut slab = 0;
        while slab < layout.slabs {
            let entry = self.entries[slab as usize].load_relaxed();
            let (kind, holes) = (entry & 0xff, self.holes[slab as usize * HOLES_STRIDE].load_relaxed());
            let first = (u64::from(slab) * words_per_slab) as usize;
            if kind >= 0xfe {
                assert_eq!(in_set(0, slab), kind == 0xff, "slab {slab} is {kind:#x}");
                let bits = &self.bitmap[first..first + words_per_slab as usize];
                assert!(bits.iter().all(|word| word.load_relaxed() == 0), "I6: slab {slab} is {kind:#x}");
                assert!(kind == 0xfe || holes == 0, "I6: slab {slab} is free and counts {holes} holes");
                slab += 1;
                continue;
            }
            assert!(!in_set(0, slab), "slab {slab} is free and has class {kind}");
            assert_eq!(entry >> 8, 0, "slab {slab} is inside of a run");
            let info = &self.classes[kind as usize];
            let words = &self.bitmap[first..first + (u64::from(info.slabs) * words_per_slab) as usize];
            let set: u32 = words.iter().map(|word| word.load_relaxed().count_ones()).sum();
            assert_eq!(set, holes, "I7: bits and count of slab {slab}");
            assert!(holes < info.blocks, "I7: slab {slab} is all holes");
            assert!(holes == 0 || in_set(1 + kind, slab), "I7: slab {slab} has holes and is not in its set");
            *found.entry(kind).or_default() += info.blocks - holes;
            slab += info.slabs;
        }
        for (i, cursor) in (0..).zip(&self.cursors) {
            let left = cursor.span().left().expect("no group is storing a span");
            *found.entry(i / layout.homes).or_default() -= left;
        }
        found.retain(|_, live| *live > 0);
        assert_eq!(&found, live, "live blocks by class");
    }
}

impl Drop for OwnedHeap {
    fn drop(&mut self) {
        // SAFETY: allocated in `with`, with this layout.
        unsafe { dealloc(self.memory.0, self.memory.1) };
    }
}
