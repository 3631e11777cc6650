//! A heap over memory that nobody touches, and the walk through its metadata.

use std::alloc::{Layout as HostLayout, alloc, dealloc};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use warpheap_device::fault::FaultLog;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{
    COUNT_STRIDE, ClassInfo, Count, Cursor, FRESH_STRIDE, Heap, Layout, Parts, Span, USED_WORDS,
};
use warpheap_device::sync::AtomicU32;

pub struct OwnedHeap {
    pub heap: Box<Heap>,
    pub layout: Layout,
    pub faults: Box<FaultLog>,
    classes: Vec<ClassInfo>,
    cursors: Vec<Cursor>,
    entries: Vec<AtomicU32>,
    counts: Vec<AtomicU32>,
    bitmap: Vec<AtomicU32>,
    slab_sets: Vec<AtomicU32>,
    fresh: Vec<AtomicU32>,
    _used: Vec<AtomicU32>,
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
            (0..layout.classes * layout.homes).map(|_| Cursor::new(Span::UNUSED)).collect();
        let entries = words(layout.slabs.into(), |_| Heap::free_entry());
        let counts = words(u64::from(layout.slabs) * COUNT_STRIDE as u64, |_| 0);
        let bitmap = words(layout.block_words(), |_| 0);
        let slab_sets = words(u64::from(layout.set_words()) * u64::from(layout.sets()), |_| 0);
        let used = words(USED_WORDS as u64, |_| 0);
        let stride = FRESH_STRIDE as u32;
        let fresh = words(u64::from(layout.homes * stride), |i| layout.share_start(i / stride));
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
            counts: counts.as_ptr(),
            bitmap: bitmap.as_ptr(),
            slab_sets: slab_sets.as_ptr(),
            used: used.as_ptr(),
            fresh: fresh.as_ptr(),
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
            counts,
            bitmap,
            slab_sets,
            fresh,
            _used: used,
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
            let (kind, count) = (entry & 0xff, self.counts[slab as usize * COUNT_STRIDE].load_relaxed());
            let first = (u64::from(slab) * words_per_slab) as usize;
            if kind >= 0xfd {
                let fresh = (0..layout.homes).any(|home| {
                    let next = self.fresh[home as usize * FRESH_STRIDE].load_relaxed();
                    (next..layout.share_start(home + 1)).contains(&slab)
                });
                assert_eq!(in_set(0, slab) ^ fresh, kind == 0xff, "slab {slab} is {kind:#x}");
                let bits = &self.bitmap[first..first + words_per_slab as usize];
                assert!(bits.iter().all(|word| word.load_relaxed() == 0), "I6: slab {slab} is {kind:#x}");
                assert!(count == 0, "I6: slab {slab} is free and counts {count:#x}");
                slab += 1;
                continue;
            }
            assert!(!in_set(0, slab), "slab {slab} is free and has class {kind}");
            assert_eq!(entry >> 8 & 0xff, 0, "slab {slab} is inside of a run");
            let info = &self.classes[kind as usize];
            let words = &self.bitmap[first..first + (u64::from(info.slabs) * words_per_slab) as usize];
            let words: Vec<u32> = words.iter().map(AtomicU32::load_relaxed).collect();
            let full = |w: usize| !0u32 >> (32 - (info.blocks - w as u32 * 32).min(32));
            let (used, unused) = words.split_at(info.blocks.div_ceil(32) as usize);
            let sum =
                used.iter().enumerate().fold(Count(0), |sum, (w, word)| sum.plus(Count::of(*word, full(w))));
            assert!(unused.iter().all(|word| *word == 0), "bits behind the last block of slab {slab}");
            assert_eq!(sum, Count(count), "I7: bits and count of slab {slab}");
            let whole = sum.whole() as usize == used.len();
            assert!(
                !whole || in_set(1 + layout.classes + kind, slab),
                "I7: slab {slab} is all holes and not idle"
            );
            assert!(sum.some() == 0 || whole || in_set(1 + kind, slab), "I7: slab {slab} is not in its set");
            let holes: u32 = words.iter().map(|word| word.count_ones()).sum();
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
