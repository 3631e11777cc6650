//! The block pool, used by one lane, checked against a naive model.

use crate::list::List;
use proptest::prelude::*;
use std::collections::HashSet;
use std::ptr::NonNull;
use warpheap_device::fault::{Fault, FaultKind};
use warpheap_device::units::BlockIndex;

/// A step of a lane. Numbers are taken modulo the number of candidates.
#[derive(Clone, Debug)]
enum Step {
    Alloc,
    Free(usize),
    FreeFree(u32),
    FreeInside(u32, u32),
    FreeBefore(u64),
    FreeBeyond(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => Just(Step::Alloc),
        40 => any::<usize>().prop_map(Step::Free),
        1 => any::<u32>().prop_map(Step::FreeFree),
        1 => any::<(u32, u32)>().prop_map(|(block, byte)| Step::FreeInside(block, byte)),
        1 => (1..u64::MAX).prop_map(Step::FreeBefore),
        1 => any::<u64>().prop_map(Step::FreeBeyond),
    ];
    prop::collection::vec(step, 1..400)
}

/// The pool and the state of its model.
struct Checked {
    list: List,
    live: Vec<u32>,
    faults: Vec<(FaultKind, u64, u64)>,
}

impl Checked {
    fn new(capacity: u32, stride: u32) -> Checked {
        Checked { list: List::new(capacity, stride, 0), live: Vec::new(), faults: Vec::new() }
    }

    fn base(&self) -> u64 {
        self.list.handle.base().addr() as u64
    }

    fn free_address(&self, address: u64) {
        let Some(block) = NonNull::new(std::ptr::without_provenance_mut(address as usize)) else { return };
        // SAFETY: no thread uses the block, if the address is one.
        unsafe { self.list.handle.free(block) };
    }

    /// Frees something that must not be freed.
    fn misuse(&mut self, kind: FaultKind, address: u64, detail: u64) {
        if address != 0 {
            self.free_address(address);
            self.faults.push((kind, address, detail));
        }
    }

    fn step(&mut self, step: Step) {
        let geometry = self.list.handle.geometry();
        let (capacity, stride) = (geometry.capacity(), geometry.stride());
        match step {
            Step::Alloc => {
                let block = self.list.handle.alloc_index().map(|block| block.0);
                assert_eq!(block.is_some(), (self.live.len() as u32) < capacity);
                if let Some(block) = block {
                    assert!(block < capacity && !self.live.contains(&block), "block {block} twice");
                    self.live.push(block);
                }
            }
            Step::Free(_) if self.live.is_empty() => {}
            Step::Free(n) => {
                let block = self.live.swap_remove(n % self.live.len());
                self.free_address(self.base() + u64::from(block) * stride);
            }
            Step::FreeFree(n) => {
                let block = n % capacity;
                if !self.live.contains(&block) {
                    self.misuse(FaultKind::DoubleFree, self.base() + u64::from(block) * stride, block.into());
                }
            }
            Step::FreeInside(block, byte) => {
                let (block, byte) = (u64::from(block % capacity), u64::from(byte) % stride);
                if byte > 0 {
                    self.misuse(FaultKind::InteriorFree, self.base() + block * stride + byte, block);
                }
            }
            Step::FreeBefore(n) => self.misuse(FaultKind::ForeignFree, n % self.base(), 0),
            Step::FreeBeyond(n) => {
                let end = self.base() + geometry.bytes();
                self.misuse(FaultKind::ForeignFree, end + n % (u64::MAX - end), 0);
            }
        }
    }

    /// Checks the pool against the model.
    fn check(&self) {
        self.list.check(self.live.len() as u32);
        for block in &self.live {
            let word = self.list.bitmap[*block as usize / 32].load_relaxed();
            assert_eq!(word >> (block % 32) & 1, 1, "block {block} is taken");
        }
        assert_eq!(self.list.faults.count(), self.faults.len() as u64);
        let recorded =
            self.list.faults.faults().map(|Fault { kind, address, detail, .. }| (kind, address, detail));
        assert!(recorded.eq(self.faults.iter().copied().take(64)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_does_what_the_model_says(
        capacity in prop_oneof![1..40u32, 40..300u32],
        stride in 1..200u32,
        steps in steps(),
    ) {
        let mut pool = Checked::new(capacity, stride);
        for step in steps {
            pool.step(step);
            pool.check();
        }
        while let Some(block) = pool.live.pop() {
            pool.free_address(pool.base() + u64::from(block) * u64::from(stride));
        }
        pool.check();
    }
}

#[test]
fn exactly_the_capacity_is_granted_however_often() {
    for capacity in [1, 31, 32, 33, 1000, 8193] {
        let list = List::new(capacity, 16, 0);
        for _ in 0..2 {
            let requested = capacity + capacity.min(1000);
            let blocks: Vec<_> = (0..requested).filter_map(|_| list.handle.alloc_index()).collect();
            let distinct: HashSet<u32> = blocks.iter().map(|block| block.0).collect();
            assert_eq!((blocks.len(), distinct.len()), (capacity as usize, capacity as usize));
            list.check(capacity);
            for block in blocks {
                // SAFETY: no thread uses the block.
                unsafe { list.handle.free_index(block) };
            }
            list.check(0);
        }
        assert_eq!(list.faults.count(), 0);
    }
}

#[test]
fn blocks_are_allocated_by_address_until_there_are_none() {
    let list = List::new(3, 48, 0);
    let offsets = [(); 4].map(|()| list.handle.alloc().map(|at| at.addr().get() - list.handle.base().addr()));
    assert_eq!(offsets, [Some(0), Some(48), Some(96), None]);
}

#[test]
fn a_block_number_beyond_the_pool_is_recorded() {
    let list = List::new(40, 16, 0);
    for block in [40, 63, 64, u32::MAX] {
        // SAFETY: the index is outside the pool: no block is freed.
        unsafe { list.handle.free_index(BlockIndex(block)) };
    }
    let faults: Vec<_> = list.faults.faults().map(|fault| (fault.kind, fault.detail)).collect();
    assert_eq!(faults, [40, 63, 64, u32::MAX.into()].map(|block| (FaultKind::ForeignFree, block)));
    list.check(0);
}
