//! A heap for tests, with the check of its metadata.

use std::alloc::{Layout as HostLayout, alloc, dealloc};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use warpheap_device::fault::FaultLog;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::debug::Debugger;
use warpheap_device::heap::{
    COUNT_STRIDE, ClassInfo, Cursor, FRESH_STRIDE, Heap, HeapLayout, Overview, Parts, RunAudit, Span,
    Violation, Visitor,
};
use warpheap_device::sync::{AtomicU32, AtomicU64};

pub struct OwnedHeap {
    pub heap: Box<Heap>,
    pub layout: HeapLayout,
    pub faults: Box<FaultLog>,
    _classes: Vec<ClassInfo>,
    _cursors: Vec<Cursor>,
    _counts: Vec<AtomicU64>,
    _overview: Box<Overview>,
    _words: [Vec<AtomicU32>; 4],
    memory: (*mut u8, HostLayout),
}

// SAFETY: the addresses in the handle belong to the heap.
unsafe impl Sync for OwnedHeap {}
// SAFETY: the addresses in the handle belong to the heap.
unsafe impl Send for OwnedHeap {}

fn words(count: u64, word: impl Fn(u32) -> u32) -> Vec<AtomicU32> {
    (0..count as u32).map(|i| AtomicU32::new(word(i))).collect()
}

impl OwnedHeap {
    #[cfg_attr(loom, expect(dead_code, reason = "its heaps are too large for a model"))]
    /// A heap of `bytes` for a device with `multiprocessors` SMs.
    pub fn new(bytes: u64, multiprocessors: u32) -> OwnedHeap {
        OwnedHeap::with(HeapLayout::new(bytes, multiprocessors).unwrap())
    }

    pub fn with(layout: HeapLayout) -> OwnedHeap {
        let classes: Vec<ClassInfo> = (0..layout.classes).map(|c| layout.class(SizeClass(c))).collect();
        let cursors: Vec<Cursor> =
            (0..layout.classes * layout.shards).map(|_| Cursor::new(Span::UNUSED)).collect();
        let entries = words(layout.slabs.into(), |_| Heap::free_entry());
        let counts = (0..layout.slabs as usize * COUNT_STRIDE).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let bitmap = words(layout.block_words(), |_| 0);
        let slab_sets = words(u64::from(layout.set_words()) * u64::from(layout.sets()), |_| 0);
        let overview = Box::new(Overview::default());
        let stride = FRESH_STRIDE as u32;
        let fresh = words(u64::from(layout.shards * stride), |i| layout.partition_start(i / stride));
        let faults = Box::new(FaultLog::default());
        let host = HostLayout::from_size_align(layout.bytes() as usize, 1 << 21).unwrap();
        // SAFETY: the size is not zero.
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
            overview: &raw const *overview,
            fresh: fresh.as_ptr(),
            faults: &raw const *faults,
            shared: shared.as_ptr(),
            debugger: Debugger::NONE,
        };
        let stride = size_of::<Cursor>().trailing_zeros();
        assert!(size_of::<Cursor>().is_power_of_two());
        // SAFETY: this struct keeps all parts, which do not move on the heap.
        shared.write(unsafe { Heap::from_raw_parts(parts, layout, stride) });
        // SAFETY: written above.
        let heap = unsafe { Box::from_raw(Box::into_raw(shared).cast::<Heap>()) };
        OwnedHeap {
            heap,
            layout,
            faults,
            _classes: classes,
            _cursors: cursors,
            _counts: counts,
            _overview: overview,
            _words: [entries, bitmap, slab_sets, fresh],
            memory: (base, host),
        }
    }

    /// The number of requests by class; requests above the classes are not counted.
    #[allow(dead_code, reason = "not every test counts")]
    pub fn by_class<'a>(&self, requests: impl Iterator<Item = &'a HostLayout>) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for request in requests.filter(|request| request.align() <= 1 << 14) {
            let bytes = request.size().next_multiple_of(request.align());
            if bytes <= self.layout.small_bytes as usize {
                *counts.entry(SizeClass::of(bytes as u32).0).or_default() += 1;
            }
        }
        counts
    }

    /// To be called when no thread uses the heap. No invariant is violated, and according to the
    /// bits and the cursors the number of live blocks per class is that in `live`.
    pub fn check(&self, live: &BTreeMap<u32, u32>) {
        let mut census = Census::default();
        let mut held = vec![0; self.layout.slabs as usize];
        self.heap.audit(self.layout.slabs, &mut held, &mut census).expect("a word for each slab");
        assert!(census.broken.is_empty(), "{:#?}", census.broken);
        assert_eq!(&census.live, live, "live blocks by class");
    }
}

/// Live blocks by class, and violations.
#[derive(Default)]
pub struct Census {
    live: BTreeMap<u32, u32>,
    broken: Vec<String>,
}

impl Visitor for Census {
    fn violation(&mut self, violation: Violation) {
        self.broken.push(format!("{}: {violation}", violation.invariant().number()));
    }

    fn run(&mut self, run: &RunAudit<'_>) {
        assert_eq!(run.live_blocks().count(), run.live as usize, "{run:?}");
        if run.live > 0 {
            *self.live.entry(run.class.0).or_default() += run.live;
        }
    }
}

impl Drop for OwnedHeap {
    fn drop(&mut self) {
        // SAFETY: allocated in `with`, with this layout.
        unsafe { dealloc(self.memory.0, self.memory.1) };
    }
}
