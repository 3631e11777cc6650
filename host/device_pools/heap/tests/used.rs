//! A heap in use, and the offsets of its metadata.

use crate::device_pools::Heap;
use crate::driver::Device;
use crate::simt::Mode;
use std::alloc::Layout as Request;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{FreeSlab, LargeAudit, Overview, RunAudit, Violation, Visitor};
use warpheap_device::kernel::DeviceData;

pub const BYTES: u64 = 64 << 20;

/// The heap objects found by a walk.
#[derive(Default)]
pub struct Sights {
    pub free: Vec<u32>,
    pub fresh: Vec<u32>,
    pub large: Vec<LargeAudit>,
    pub runs: Vec<Sight>,
}

/// A run: slab, class, free blocks, live blocks, all blocks.
#[derive(Clone, Copy)]
pub struct Sight {
    pub slab: u32,
    pub class: SizeClass,
    pub free: u32,
    pub live: u32,
    pub blocks: u32,
}

impl Visitor for Sights {
    fn violation(&mut self, violation: Violation) {
        panic!("{violation}");
    }

    fn run(&mut self, run: &RunAudit<'_>) {
        let RunAudit { slab, class, free, live, info, .. } = *run;
        self.runs.push(Sight { slab, class, free, live, blocks: info.blocks });
    }

    fn large(&mut self, large: LargeAudit) {
        self.large.push(large);
    }

    fn free(&mut self, slab: u32, place: FreeSlab) {
        match place {
            FreeSlab::Used => self.free.push(slab),
            FreeSlab::Fresh => self.fresh.push(slab),
            other => panic!("slab {slab} is {other:?}"),
        }
    }
}

impl Sights {
    pub fn run(&self, is_it: impl Fn(&Sight) -> bool) -> Sight {
        *self.runs.iter().find(|run| is_it(run)).expect("the heap was used so that there is one")
    }
}

fn heap() -> Heap {
    let device = Device::cpu_with(Mode::Parallel { workers: 2 });
    Heap::builder(BYTES).shards(4).build(&device).unwrap()
}

/// A heap with live blocks, free blocks, idle runs, large allocations, and freed slabs.
pub fn used_heap() -> Heap {
    let heap = heap();
    let of = |count, size| vec![Request::from_size_align(size, 1).unwrap(); count];
    let got = |layouts: &[Request]| {
        let blocks: Option<Vec<_>> = heap.allocate_many(layouts).unwrap().into_iter().collect();
        blocks.expect("there is room")
    };
    // Eight runs of one size for four shards, so that at least one run is fully used.
    let runs_of = |size| 8 * heap.layout.class(SizeClass::of(size)).blocks as usize;
    let (small, middle, odd) = (got(&of(3000, 64)), got(&of(runs_of(1024), 1024)), got(&of(20, 5000)));
    got(&of(runs_of(32), 32));
    got(&of(5, 2048));
    let large = got(&of(3, 200 << 10));
    // SAFETY: no kernel uses the blocks.
    let free = |blocks: &[_]| unsafe { heap.deallocate_many(blocks) }.unwrap();
    free(&small.iter().copied().step_by(7).collect::<Vec<_>>());
    free(&middle);
    free(&large[1..2]);
    free(&odd[..1]);
    heap
}

pub fn sights(heap: &Heap) -> Sights {
    let mut sights = Sights::default();
    heap.snapshot().unwrap().audit(&mut sights);
    sights
}

/// MetadataOffsets of words in the metadata.
impl Heap {
    pub(in super::super) fn entry_at(&self, slab: u32) -> u64 {
        self.offsets.entries + 4 * u64::from(slab)
    }

    pub(super) fn count_at(&self, slab: u32) -> u64 {
        self.offsets.counts + 4 * u64::from(slab)
    }

    pub(super) fn bits_at(&self, slab: u32, block: u32) -> u64 {
        let layout = self.layout;
        let words = layout.block_words() / u64::from(layout.slabs);
        self.offsets.bitmap + 4 * (u64::from(slab) * words + u64::from(block / 32))
    }

    pub(in super::super) fn free_at(&self, slab: u32) -> u64 {
        self.offsets.free + 4 * u64::from(slab / 32)
    }

    /// The word of a run in the list.
    pub(super) fn listed_at(&self, class: SizeClass, slab: u32) -> u64 {
        let words = self.layout.slabs.div_ceil(32);
        self.offsets.listed + 4 * u64::from(class.0 * words + slab / 32)
    }

    /// The word of a run in the idle set.
    pub(super) fn idle_at(&self, slab: u32) -> u64 {
        self.offsets.idle + 4 * u64::from(slab / 32)
    }

    pub(super) fn cursor_at(&self, class: SizeClass, shard: u32) -> u64 {
        self.offsets.cursors + 8 * u64::from(shard * self.layout.classes + class.0)
    }

    /// The open moves of a class.
    pub(super) fn open_at(&self, class: SizeClass) -> u64 {
        self.offsets.overview + Overview::offset_of(class) as u64
    }

    pub(super) fn word(&self, offset: u64) -> u32 {
        let mut word = [0];
        self.metadata.read(offset, &mut word).unwrap();
        word[0]
    }

    /// Asserts that the check reports `invariant` with these words while the metadata at `offset`
    /// is `value`, and no violation after the old value is restored.
    pub(super) fn assert_broken<T: DeviceData + Default>(
        &mut self,
        offset: u64,
        value: T,
        invariant: &str,
        words: &str,
    ) {
        let mut old = [T::default()];
        self.metadata.read(offset, &mut old).unwrap();
        self.metadata.write(offset, &[value]).unwrap();
        let broken = self.check().unwrap();
        let named = broken.iter().any(|broken| broken.invariant == invariant && broken.found.contains(words));
        assert!(named, "{invariant} with \"{words}\" is not among {broken:#?}");
        self.metadata.write(offset, &old).unwrap();
        assert_eq!(self.check().unwrap(), [], "after the old value was restored");
    }

    /// Flips bits of a word, and asserts that a check reports it.
    pub(super) fn assert_broken_by(&mut self, offset: u64, flipped: u32, invariant: &str, words: &str) {
        self.assert_broken(offset, self.word(offset) ^ flipped, invariant, words);
    }
}
