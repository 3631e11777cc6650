//! Every kind of metadata word, written over: the check names the invariant that this breaks.

use super::*;
use crate::simt::Mode;
use std::alloc::Layout as Request;
use warpheap_device::heap::{CursorAudit, FreeSlab, LargeAudit, RunAudit, Violation, Visitor};
use warpheap_device::kernel::DevicePtr;

const BYTES: u64 = 64 << 20;

/// Where there is what.
#[derive(Default)]
struct Sights {
    free: Vec<u32>,
    fresh: Vec<u32>,
    large: Vec<LargeAudit>,
    cursors: Vec<CursorAudit>,
    runs: Vec<Sight>,
}

/// A run: slab, class, holes, blocks in a cursor, live ones, blocks.
#[derive(Clone, Copy)]
struct Sight {
    slab: u32,
    class: SizeClass,
    holes: u32,
    in_cursor: u32,
    live: u32,
    blocks: u32,
}

impl Visitor for Sights {
    fn violation(&mut self, violation: Violation) {
        panic!("{violation}");
    }

    fn cursor(&mut self, cursor: CursorAudit) {
        self.cursors.push(cursor);
    }

    fn run(&mut self, run: &RunAudit<'_>) {
        let RunAudit { slab, class, holes, in_cursor, live, info, .. } = *run;
        self.runs.push(Sight { slab, class, holes, in_cursor, live, blocks: info.blocks });
    }

    fn large(&mut self, large: LargeAudit) {
        self.large.push(large);
    }

    fn free(&mut self, slab: u32, place: FreeSlab) {
        match place {
            FreeSlab::InSet => self.free.push(slab),
            FreeSlab::Fresh => self.fresh.push(slab),
            other => panic!("slab {slab} is {other:?}"),
        }
    }
}

impl Sights {
    fn run(&self, is_it: impl Fn(&Sight) -> bool) -> Sight {
        *self.runs.iter().find(|run| is_it(run)).expect("the heap was used so that there is one")
    }
}

fn heap() -> Heap {
    let device = Device::cpu_with(Mode::Parallel { workers: 2 });
    Heap::builder(BYTES).homes(4).build(&device).unwrap()
}

/// A heap with live blocks, holes, idle runs, large allocations, and slabs that came back.
fn used_heap() -> Heap {
    let heap = heap();
    let of = |count, size| vec![Request::from_size_align(size, 1).unwrap(); count];
    let got = |layouts: &[Request]| {
        let blocks: Option<Vec<_>> = heap.alloc_many(layouts).unwrap().into_iter().collect();
        blocks.expect("there is room")
    };
    let (small, middle, odd) = (got(&of(3000, 64)), got(&of(96, 1024)), got(&of(20, 48)));
    // More of one size than a slab holds, all of which stay live.
    got(&of(3000, 32));
    let large = got(&of(3, 200 << 10));
    // SAFETY: no kernel has them.
    let free = |blocks: &[_]| unsafe { heap.free_many(blocks) }.unwrap();
    free(&small.iter().copied().step_by(7).collect::<Vec<_>>());
    free(&middle);
    free(&large[1..2]);
    free(&odd[..1]);
    heap
}

fn sights(heap: &Heap) -> Sights {
    let mut sights = Sights::default();
    heap.snapshot().unwrap().audit(&mut sights);
    sights
}

/// Places of words in the metadata.
impl Heap {
    fn entry_at(&self, slab: u32) -> u64 {
        self.places.entries + 4 * u64::from(slab)
    }

    fn count_at(&self, slab: u32) -> u64 {
        self.places.counts + 4 * COUNT_STRIDE as u64 * u64::from(slab)
    }

    fn bits_at(&self, slab: u32, block: u32) -> u64 {
        let layout = self.handle.layout();
        let words = layout.block_words() / u64::from(layout.slabs);
        self.places.bitmap + 4 * (u64::from(slab) * words + u64::from(block / 32))
    }

    fn set_at(&self, set: u32, word: u32) -> u64 {
        self.places.slab_sets + 4 * u64::from(set * self.handle.layout().set_words() + word)
    }

    fn free_at(&self, slab: u32) -> u64 {
        self.set_at(0, slab / 32)
    }

    fn idle_at(&self, _class: SizeClass, slab: u32) -> u64 {
        self.set_at(1, slab / 32)
    }

    fn partial_at(&self, class: SizeClass, slab: u32) -> u64 {
        self.set_at(2 + class.0, slab / 32)
    }

    fn cursor_at(&self, class: SizeClass, home: u32) -> u64 {
        let cursor = u64::from(home * self.handle.layout().classes + class.0);
        self.places.cursors + (cursor << self.places.cursor_stride_log2)
    }

    fn fresh_at(&self, home: u32) -> u64 {
        self.places.fresh + 4 * FRESH_STRIDE as u64 * u64::from(home)
    }

    fn word(&self, place: u64) -> u32 {
        let mut word = [0];
        self.metadata.read(place, &mut word).unwrap();
        word[0]
    }

    fn long(&self, place: u64) -> u64 {
        u64::from(self.word(place)) | u64::from(self.word(place + 4)) << 32
    }

    /// Asserts that the check finds `invariant` broken, in these words, while the metadata at `place` is `value`, and
    /// nothing after.
    fn assert_broken<T: DeviceData + Default>(&mut self, place: u64, value: T, invariant: &str, words: &str) {
        let mut old = [T::default()];
        self.metadata.read(place, &mut old).unwrap();
        self.metadata.write(place, &[value]).unwrap();
        let broken = self.check().unwrap();
        let named = broken.iter().any(|broken| broken.invariant == invariant && broken.found.contains(words));
        assert!(named, "{invariant} with \"{words}\" is not among {broken:#?}");
        self.metadata.write(place, &old).unwrap();
        assert_eq!(self.check().unwrap(), [], "whole again");
    }

    /// The same for a word of which some bits are flipped.
    fn assert_broken_by(&mut self, place: u64, flipped: u32, invariant: &str, words: &str) {
        self.assert_broken(place, self.word(place) ^ flipped, invariant, words);
    }
}

const fn bit(of: u32) -> u32 {
    1 << (of % 32)
}

#[test]
fn a_used_heap_is_whole() {
    assert_eq!(used_heap().check().unwrap(), []);
}

#[test]
fn entries() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let live = seen.run(|run| run.live > 0 && run.holes > 0);
    heap.assert_broken(heap.entry_at(live.slab), heap::Heap::free_entry(), "I5", "no one would find it");
    heap.assert_broken(heap.entry_at(live.slab), 0xfd_u32, "I5", "belongs to no run");
    let other = live.class.0 + 1;
    heap.assert_broken(heap.entry_at(live.slab), other, "I7", "its bits say");
    let spans = seen.run(|run| run.in_cursor > 0);
    heap.assert_broken(heap.entry_at(spans.slab), spans.class.0 + 1, "I1", "no run of its class");
    let (free, class) = (seen.free[0], live.class.0);
    heap.assert_broken(heap.entry_at(free), class, "I5", "says that it is in use");
    heap.assert_broken(heap.entry_at(seen.fresh[0]), class, "I5", "says that it is in use");
    let large = seen.large[0];
    heap.assert_broken_by(heap.entry_at(large.slab), 1 << 8, "I5", "belongs to no run");
    heap.assert_broken(heap.entry_at(large.slab + 1), class, "I5", "inside of a run or of an allocation");
    let slabs = heap.handle.layout().slabs;
    heap.assert_broken(heap.entry_at(slabs - 1), 0x2fe_u32, "I5", "reach past the end");
}

#[test]
fn counts() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let run = seen.run(|run| run.holes > 0 && run.live > 0);
    heap.assert_broken_by(heap.count_at(run.slab), 1, "I7", "its count is");
    heap.assert_broken_by(heap.count_at(seen.free[0]), 1, "I6", "no run starts there");
    heap.assert_broken_by(heap.count_at(seen.fresh[0]), 1 << 16, "I6", "no run starts there");
    heap.assert_broken_by(heap.count_at(seen.large[0].slab), 1, "I6", "no run starts there");
}

#[test]
fn bits() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let run = seen.run(|run| run.live > 0 && run.holes == 0 && run.in_cursor == 0);
    heap.assert_broken_by(heap.bits_at(run.slab, 0), 1, "I7", "its bits say");
    heap.assert_broken_by(heap.bits_at(run.slab, 0), 1, "I7", "is not in its class' partial set");
    let spans = seen.run(|run| run.in_cursor > 0);
    heap.assert_broken_by(heap.bits_at(spans.slab, 0), 1, "I2", "1 blocks are holes and in a cursor");
    let odd = seen.run(|run| !run.blocks.is_multiple_of(32));
    heap.assert_broken_by(heap.bits_at(odd.slab, odd.blocks), bit(odd.blocks), "I2", "which no block has");
    heap.assert_broken_by(heap.bits_at(seen.fresh[0], 7), bit(7), "I6", "it has no class");
    heap.assert_broken_by(heap.bits_at(seen.large[0].slab, 7), bit(7), "I6", "it has no class");
}

#[test]
fn sets() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let free = seen.free[0];
    heap.assert_broken_by(heap.free_at(free), bit(free), "I5", "no one would find it");
    let fresh = seen.fresh[0];
    heap.assert_broken_by(heap.free_at(fresh), bit(fresh), "I5", "and in a share");
    let live = seen.run(|run| run.live > 0 && run.holes > 0);
    heap.assert_broken_by(heap.free_at(live.slab), bit(live.slab), "I5", "says that it is in use");
    let partial = heap.partial_at(live.class, live.slab);
    heap.assert_broken_by(partial, bit(live.slab), "I7", "is not in its class' partial set");
    let idle = seen.run(|run| run.holes == run.blocks);
    let idle_at = heap.idle_at(idle.class, idle.slab);
    heap.assert_broken_by(idle_at, bit(idle.slab), "I7", "not among the idle runs");
    let words = heap.handle.layout().slabs.div_ceil(32);
    let summary = heap.set_at(0, words + free / 32 / 32);
    heap.assert_broken(summary, 0_u32, "I2 of sets", "its summary says that it has none");
}

#[test]
fn slabs_that_the_heap_does_not_have() {
    let device = Device::cpu();
    // 100 slabs: the last word of a set has bits for 28 more.
    let mut heap = Heap::builder(100 << 14).build(&device).unwrap();
    assert_eq!(heap.handle.layout().slabs, 100);
    heap.assert_broken_by(heap.free_at(100), bit(100), "I5", "the heap has not");
    let class = SizeClass::of(64);
    heap.assert_broken_by(heap.partial_at(class, 101), bit(101), "I7", "the heap does not have");
    heap.assert_broken_by(heap.idle_at(class, 102), bit(102), "I7", "the heap does not have");
}

#[test]
fn cursors() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    let cursor = *seen.cursors.iter().find(|cursor| cursor.left > Some(0)).unwrap();
    let CursorAudit { class, home, .. } = cursor;
    let place = heap.cursor_at(class, home);
    let span = heap.long(place);
    heap.assert_broken(place, span + (1 << 32), "I1", "no run of its class");
    heap.assert_broken(place, span | 0xffff << 32, "I1", "which the heap does not have");
    heap.assert_broken(heap.cursor_at(class, (home + 1) % 4), span, "I1", "another cursor has, too");
    heap.assert_broken(place, span & !(1 << 31), "I8", "no group is left");
    heap.assert_broken(place + 8, heap.long(place + 8) + 1, "I9", "searches for memory began");
    heap.assert_broken(place + 16, heap.long(place + 16) + 2, "I9", "searches for memory began");
    let used = heap.places.used + 4 * u64::from(class.0 / 32);
    heap.assert_broken_by(used, bit(class.0), "I1", "no bit says that the class has any");
}

/// The cursor hands out a block that came back, a second time.
#[test]
fn a_cursor_that_has_a_hole() {
    let mut heap = used_heap();
    let seen = sights(&heap);
    // Of a run of which a part is in a cursor, the block after that part is the one that was handed out last.
    let run = seen.run(|run| run.in_cursor > 0 && run.live > 0 && run.holes == 0);
    let offset = u64::from(run.in_cursor) * u64::from(run.class.bytes());
    let block = heap.handle.base() as u64 + (u64::from(run.slab) << heap.handle.layout().slab_log2) + offset;
    // SAFETY: no kernel has it.
    unsafe { heap.free(DevicePtr(block as *mut u8)) }.unwrap();
    let slabs = heap.handle.layout().class(run.class).slabs;
    let is_its = |cursor: &&CursorAudit| {
        let runs = cursor.left.unwrap().div_ceil(run.blocks);
        let end = (heap.long(heap.cursor_at(cursor.class, cursor.home)) >> 32) as u32;
        cursor.class == run.class && runs > 0 && end == run.slab + runs * slabs
    };
    let cursor = seen.cursors.iter().find(is_its).expect("someone has those blocks");
    let place = heap.cursor_at(run.class, cursor.home);
    heap.assert_broken(place, heap.long(place) + 1, "I2", "1 blocks are holes and in a cursor");
}

#[test]
fn fresh_slabs() {
    let mut heap = used_heap();
    let layout = heap.handle.layout();
    let used = (0..layout.homes).filter(|home| heap.word(heap.fresh_at(*home)) > layout.share_start(*home));
    let home = used.last().expect("some home's share was used");
    let (place, next) = (heap.fresh_at(home), heap.word(heap.fresh_at(home)));
    let is_free = heap.word(heap.entry_at(next - 1)) == heap::Heap::free_entry();
    let words = if is_free { "in the free set, and in a share" } else { "says that it is in use" };
    heap.assert_broken(place, next - 1, "I5", words);
    heap.assert_broken(place, next + 1, "I5", "no one would find it");
    heap.assert_broken(heap.fresh_at(1), layout.share_start(1) - 1, "I5", "which lies before its share");
}

#[test]
fn classes() {
    let mut heap = used_heap();
    let place = heap.places.classes + 3 * size_of::<ClassInfo>() as u64;
    heap.assert_broken_by(place, 4, "I5", "what the table says of the class");
}

#[test]
fn slabs_beyond_the_initial_size() {
    let device = Device::cpu();
    let mut heap = Heap::builder(BYTES).homes(4).initial(30 << 20).build(&device).unwrap();
    assert_eq!(heap.check().unwrap(), []);
    let present = heap.present;
    heap.assert_broken_by(heap.free_at(present), bit(present), "I5", "beyond the heap's initial size");
    let last = heap.handle.layout().slabs - 1;
    heap.assert_broken(heap.fresh_at(3), last, "I5", "beyond the heap's initial size");
}

/// A heap that was written over answers too, and not with everything it could say.
#[test]
fn metadata_that_is_written_over() {
    let mut heap = used_heap();
    let places = heap.places;
    for (start, end) in
        [(places.cursors, places.entries), (places.entries, places.faults), (places.used, places.end)]
    {
        for byte in [0x00, 0x2a, 0x7f, 0xff] {
            heap.metadata.fill_part(start, end - start, byte).unwrap();
            let broken = heap.check().unwrap();
            assert!(!broken.is_empty(), "{start:#x}: {byte:#x}");
            assert!(broken.len() <= 257, "{}", broken.len());
            heap.stats().unwrap();
            heap.leaks(3).unwrap();
        }
        heap.reset().unwrap();
        assert_eq!(heap.check().unwrap(), []);
    }
}
