//! A heap for tests, with the check of its metadata.

use std::alloc::{Layout as HostLayout, alloc, dealloc};
use std::collections::BTreeMap;
use std::format;
use std::mem::MaybeUninit;
// For unit tests, which have no prelude of `std`.
use std::prelude::v1::*;
use warpheap_device::fault::FaultLog;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::debug::Debugger;
use warpheap_device::heap::{
    ClassInfo, Cursor, HINT_STRIDE, Heap, HeapLayout, Overview, Parts, Ring, RunAudit, Span, Violation,
    Visitor,
};
use warpheap_device::sync::AtomicU32;

pub struct OwnedHeap {
    pub heap: Box<Heap>,
    pub layout: HeapLayout,
    pub faults: Box<FaultLog>,
    _classes: Vec<ClassInfo>,
    _cursors: (Vec<Cursor>, Vec<Ring>),
    _overview: Box<Overview>,
    _words: [Vec<AtomicU32>; 7],
    memory: (*mut u8, HostLayout),
}

// SAFETY: the addresses in the handle belong to the heap.
unsafe impl Sync for OwnedHeap {}
// SAFETY: the addresses in the handle belong to the heap.
unsafe impl Send for OwnedHeap {}

fn words(count: u64, word: impl Fn(u32) -> u32) -> Vec<AtomicU32> {
    (0..count as u32).map(|i| AtomicU32::new(word(i))).collect()
}

/// The words of a set with all indices below `indices`, level after level.
fn full_set(indices: u32) -> Vec<AtomicU32> {
    let (mut set, mut below) = (Vec::new(), indices);
    loop {
        let len = below.div_ceil(32);
        let word = |w: u32| u32::MAX >> (32 - (below - w * 32).min(32));
        set.extend(words(len.into(), word));
        if len == 1 {
            return set;
        }
        below = len;
    }
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
        let rings: Vec<Ring> = (0..cursors.len()).map(|_| Ring::new()).collect();
        let zeros = |count: u64| words(count, |_| 0);
        let entries = words(layout.slabs.into(), |_| Heap::fresh_entry());
        let counts = zeros(layout.slabs.into());
        let bitmap = zeros(layout.block_words());
        let free = full_set(layout.slabs);
        let [listed, idle] = [layout.run_set_words(), layout.slab_set_words()].map(|len| zeros(len.into()));
        let hints = zeros(u64::from(layout.shards) * HINT_STRIDE as u64);
        let overview = Box::new(Overview::default());
        let faults = Box::new(FaultLog::default());
        let host = HostLayout::from_size_align(layout.bytes() as usize, 1 << 21).unwrap();
        // SAFETY: the size is not zero.
        let base = unsafe { alloc(host) };
        let mut shared = Box::new(MaybeUninit::<Heap>::uninit());
        let parts = Parts {
            base,
            classes: classes.as_ptr(),
            cursors: cursors.as_ptr(),
            rings: rings.as_ptr(),
            entries: entries.as_ptr(),
            counts: counts.as_ptr(),
            bitmap: bitmap.as_ptr(),
            free: free.as_ptr(),
            listed: listed.as_ptr(),
            idle: idle.as_ptr(),
            overview: &raw const *overview,
            hints: hints.as_ptr(),
            faults: &raw const *faults,
            shared: shared.as_ptr().cast(),
            debugger: Debugger::NONE,
        };
        // SAFETY: this struct keeps all parts, which do not move on the heap.
        shared.write(unsafe { Heap::from_raw_parts(parts, layout) });
        // SAFETY: written above.
        let heap = unsafe { Box::from_raw(Box::into_raw(shared).cast::<Heap>()) };
        OwnedHeap {
            heap,
            layout,
            faults,
            _classes: classes,
            _cursors: (cursors, rings),
            _overview: overview,
            _words: [entries, counts, bitmap, free, listed, idle, hints],
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
        self.heap.audit(self.layout.slabs, &mut census);
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
