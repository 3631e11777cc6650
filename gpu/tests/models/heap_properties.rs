//! The heap, used by one lane, checked against a naive model.

use crate::heap::OwnedHeap;
use crate::lane::{LANE, with_lane};
use proptest::prelude::*;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use warpheap_device::fault::FaultKind;
use warpheap_device::heap::{RunAudit, Violation, Visitor};

/// A step of a lane. Numbers are taken modulo the number of candidates.
#[derive(Clone, Debug)]
enum Step {
    Alloc(usize, u32),
    Free(usize),
    FreeTwice(usize),
    FreeInside(usize, u64),
    FreeBeyond(u64),
    /// Continues on another SM.
    Move(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![
        20 => 0..600usize,
        10 => 0..20_000usize,
        3 => 0..200_000usize,
        1 => (0..24u32, 0..3usize).prop_map(|(log2, off)| (1usize << log2) + off - 1),
    ];
    let align = prop_oneof![20 => 0..5u32, 1 => 5..22u32];
    let step = prop_oneof![
        50 => (size, align).prop_map(|(size, align)| Step::Alloc(size, align)),
        45 => any::<usize>().prop_map(Step::Free),
        1 => any::<usize>().prop_map(Step::FreeTwice),
        1 => any::<(usize, u64)>().prop_map(|(which, byte)| Step::FreeInside(which, byte)),
        1 => any::<u64>().prop_map(Step::FreeBeyond),
        4 => (0..8u32).prop_map(Step::Move),
    ];
    prop::collection::vec(step, 1..1500)
}

/// The heap and the state of its model.
struct Checked {
    owned: OwnedHeap,
    /// Start address, and requested layout.
    live: BTreeMap<u64, Layout>,
    order: Vec<u64>,
    faults: Vec<(FaultKind, u64)>,
}

impl Checked {
    fn new(bytes: u64) -> Checked {
        Checked {
            owned: OwnedHeap::new(bytes, 4),
            live: BTreeMap::new(),
            order: Vec::new(),
            faults: Vec::new(),
        }
    }

    fn base(&self) -> u64 {
        self.owned.heap.base().addr() as u64
    }

    fn free_address(&self, address: u64) {
        let Some(block) = NonNull::new(std::ptr::without_provenance_mut(address as usize)) else { return };
        // SAFETY: no thread uses the block, if the address is one.
        unsafe { self.owned.heap.free(block) };
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc(size, align) => {
                let layout = Layout::from_size_align(size, 1 << align).unwrap();
                let Some(block) = self.owned.heap.alloc(layout) else { return };
                let start = block.addr().get() as u64;
                assert!(start.is_multiple_of(1 << align), "{layout:?} at {start:#x}");
                if size == 0 {
                    return;
                }
                let end = start + size as u64;
                assert!(start >= self.base() && end <= self.base() + self.owned.layout.bytes(), "outside");
                let before = self.live.range(..end).next_back();
                assert!(before.is_none_or(|(at, of)| at + of.size() as u64 <= start), "{start:#x} overlaps");
                self.live.insert(start, layout);
                self.order.push(start);
            }
            Step::Free(n) if !self.order.is_empty() => {
                let start = self.order.swap_remove(n % self.order.len());
                self.live.remove(&start);
                self.free_address(start);
            }
            Step::FreeTwice(n) if !self.order.is_empty() => {
                // Whether or not it is the only block of its slab: at the second free, the block or
                // its slab is free already.
                let start = self.order.swap_remove(n % self.order.len());
                self.live.remove(&start);
                self.free_address(start);
                self.free_address(start);
                self.faults.push((FaultKind::DoubleFree, start));
            }
            Step::FreeInside(n, byte) if !self.order.is_empty() => {
                let start = self.order[n % self.order.len()];
                let size = self.live[&start].size() as u64;
                if size > 1 {
                    self.free_address(start + 1 + byte % (size - 1));
                    self.faults.push((FaultKind::InteriorFree, start + 1 + byte % (size - 1)));
                }
            }
            Step::FreeBeyond(byte) => {
                let beyond = self.base().wrapping_add(self.owned.layout.bytes()).wrapping_add(byte >> 1);
                self.free_address(beyond);
                self.faults.push((FaultKind::ForeignFree, beyond));
            }
            Step::Move(lane) => LANE.set(lane),
            Step::Free(_) | Step::FreeTwice(_) | Step::FreeInside(..) => {}
        }
    }

    fn check(&self) {
        self.owned.check(&self.owned.by_class(self.live.values()));
        let said: Vec<_> = self.owned.faults.faults().map(|fault| (fault.kind, fault.address)).collect();
        assert_eq!(said, self.faults[..said.len()]);
        assert_eq!(self.owned.faults.count(), self.faults.len() as u64);
    }

    fn free_everything(&mut self) {
        for start in std::mem::take(&mut self.order) {
            self.live.remove(&start);
            self.free_address(start);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_lane_gets_what_a_model_allows(steps in steps(), mib in 1..6u64) {
        with_lane(|| {
            let mut checked = Checked::new(mib << 20);
            for step in steps {
                checked.step(step);
            }
            checked.check();
            checked.free_everything();
            checked.check();
            let all = Layout::from_size_align(checked.owned.layout.bytes() as usize, 1).unwrap();
            assert!(checked.owned.heap.alloc(all).is_some(), "all is free, and all in one piece");
        });
    }
}

/// Allocates blocks of one size until the allocation fails.
fn fill(checked: &mut Checked, size: usize) -> usize {
    let before = checked.order.len();
    loop {
        let count = checked.order.len();
        checked.step(Step::Alloc(size, 0));
        if checked.order.len() == count {
            return count - before;
        }
    }
}

#[test]
fn a_heap_is_filled_to_its_end_with_blocks_of_any_class() {
    with_lane(|| {
        for size in [16, 20, 100, 1024, 4096, 16 << 10, 40 << 10] {
            let mut checked = Checked::new(4 << 20);
            let max = fill(&mut checked, size);
            let payload = max * size;
            assert!(payload as f64 >= 0.87 * (4 << 20) as f64, "{size} bytes: {payload}");
            if size.is_power_of_two() {
                assert_eq!(payload, 4 << 20, "{size} bytes fill it");
            }
            checked.check();
            // Frees half of them, then allocates as many again.
            let freed = checked.order.len() / 2;
            for n in 0..freed {
                checked.step(Step::Free(n * 7919));
            }
            checked.check();
            assert_eq!(fill(&mut checked, size), freed, "{size} bytes: every free block is found");
            checked.check();
        }
    });
}

#[test]
fn each_multiprocessor_allocates_in_its_part_of_the_heap() {
    with_lane(|| {
        let owned = OwnedHeap::new(64 << 20, 8);
        let shards = owned.layout.shards;
        assert_eq!(shards, 8);
        for shard in (0..shards).rev() {
            LANE.set(shard);
            for size in [16, 100, 1000, 40_000] {
                let block = owned.heap.alloc(Layout::from_size_align(size, 1).unwrap()).unwrap();
                let slab = (block.addr().get() - owned.heap.base().addr()) as u32 / owned.layout.slab_bytes();
                // Single lanes of four multiprocessors share a cursor.
                let [start, end] = [0, 4].map(|next| owned.layout.partition_start(shard / 4 * 4 + next));
                assert!((start..end).contains(&slab), "shard {shard}: {size} bytes in slab {slab}");
            }
        }
    });
}

#[test]
fn memory_in_the_spans_of_one_class_serves_another() {
    with_lane(|| {
        let mut checked = Checked::new(1 << 20);
        for size in [16, 32, 64, 128, 256, 512] {
            checked.step(Step::Alloc(size, 0));
        }
        checked.free_everything();
        assert_eq!(fill(&mut checked, 1024), 1024);
        checked.check();
    });
}

/// A visitor can modify its copy of the run it is given.
#[test]
fn a_run_that_is_not_there_has_no_blocks() {
    struct Elsewhere(u32);
    impl Visitor for Elsewhere {
        fn violation(&mut self, _: Violation) {}
        fn run(&mut self, run: &RunAudit<'_>) {
            for slab in [1 << 20, u32::MAX] {
                let mut moved = *run;
                moved.slab = slab;
                assert_eq!(moved.live_blocks().count(), 0);
            }
            self.0 += 1;
        }
    }
    let mut checked = Checked::new(1 << 20);
    with_lane(|| checked.step(Step::Alloc(64, 0)));
    let slabs = checked.owned.layout.slabs;
    let mut elsewhere = Elsewhere(0);
    checked.owned.heap.audit(slabs, &mut elsewhere);
    assert!(elsewhere.0 > 0);
}
