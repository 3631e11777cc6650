//! Compares a segment with a reference model of single units, each with its owner.

use super::free_index::FreeIndex;
use super::{Arena, Chain, NONE, OrderTag, PieceState};
use proptest::prelude::*;
use std::collections::BTreeSet;

const UNIT: u64 = 512;
const FIRST: u64 = 1 << 20;

/// A unit of the reference model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Free(OrderTag),
    Used(u32),
}

#[derive(Clone, Debug)]
enum Step {
    Cut { order: u32, units: u64, align_log: u32 },
    Free { which: usize, order: u32 },
    Retag { from: u32, to: u32 },
    Coalesce { accepts: u32, to: u32, min_bytes: u64 },
    Extend(u64),
    Truncate(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let order = 0..4_u32;
    prop_oneof![
        8 => (order.clone(), 1..40_u64, 9..13_u32).prop_map(|(order, units, align_log)| Step::Cut { order, units, align_log }),
        8 => (any::<usize>(), order.clone()).prop_map(|(which, order)| Step::Free { which, order }),
        1 => (order.clone(), order.clone()).prop_map(|(from, to)| Step::Retag { from, to }),
        1 => (0..16_u32, order, 1..64_u64).prop_map(|(accepts, to, min_bytes)| Step::Coalesce { accepts, to, min_bytes }),
        1 => (1..32_u64).prop_map(Step::Extend),
        1 => (1..32_u64).prop_map(Step::Truncate),
    ]
}

/// Free runs: start, length in units, and orders. Neighbouring orders that `merges` accepts count
/// as one run.
fn runs(units: &[Unit], merges: impl Fn(OrderTag) -> bool) -> Vec<(u64, u64, Vec<OrderTag>)> {
    let mut all: Vec<(u64, u64, Vec<OrderTag>)> = Vec::new();
    let mut before = None;
    for (at, unit) in (0..).zip(units) {
        let order = match unit {
            Unit::Free(order) => Some(*order),
            Unit::Used(_) => None,
        };
        match (order, before) {
            (Some(now), Some(was)) if now == was || (merges(now) && merges(was)) => {
                let last = all.last_mut().unwrap();
                last.1 += 1;
                if !last.2.contains(&now) {
                    last.2.push(now);
                }
            }
            (Some(now), _) => all.push((at, 1, vec![now])),
            (None, _) => {}
        }
        before = order;
    }
    all
}

struct Model {
    arena: Arena,
    units: Vec<Unit>,
    used: Vec<u32>,
}

impl Model {
    fn cut(&mut self, order: OrderTag, wanted: u64, align: u64) {
        let fits = |(at, len, _): &&(u64, u64, Vec<OrderTag>)| {
            let start = (FIRST + at * UNIT).next_multiple_of(align);
            start + wanted * UNIT <= FIRST + (at + len) * UNIT
        };
        let all = runs(&self.units, |_| false);
        let best = all.iter().filter(|(.., of)| of[0] == order).filter(fits).map(|run| run.1).min();
        let Some(node) = self.arena.fit(order, wanted * UNIT, align) else {
            return assert_eq!(best, None, "some piece fits");
        };
        assert_eq!(Some(self.arena.bytes(node) / UNIT), best, "the best fit");
        let node = self.arena.cut(node, wanted * UNIT, align);
        let (start, bytes) = (self.arena.start(node), self.arena.bytes(node));
        assert!(start.is_multiple_of(align) && bytes == wanted * UNIT);
        let from = ((start - FIRST) / UNIT) as usize;
        for unit in &mut self.units[from..from + wanted as usize] {
            assert_eq!(*unit, Unit::Free(order));
            *unit = Unit::Used(node);
        }
        self.used.push(node);
    }

    fn free(&mut self, which: usize, order: OrderTag) {
        if self.used.is_empty() {
            return;
        }
        let node = self.used.swap_remove(which % self.used.len());
        self.arena.free(node, order);
        self.units
            .iter_mut()
            .filter(|unit| **unit == Unit::Used(node))
            .for_each(|unit| *unit = Unit::Free(order));
    }

    fn coalesce(&mut self, accepts: u32, to: OrderTag, min_bytes: u64) {
        // `to` is always accepted: it is the order of a stream that is ordered after all of them.
        let accepts = |order: OrderTag| order == to || accepts & 1 << order.0 != 0;
        self.arena.coalesce(accepts, to, min_bytes * UNIT);
        for (at, len, orders) in runs(&self.units, accepts) {
            if accepts(orders[0]) && orders.len() > 1 && len >= min_bytes {
                self.units[at as usize..(at + len) as usize].fill(Unit::Free(to));
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Cut { order, units, align_log } => self.cut(OrderTag(order.into()), units, 1 << align_log),
            Step::Free { which, order } => self.free(which, OrderTag(order.into())),
            Step::Retag { from, to } if from != to => {
                self.arena.retag(OrderTag(from.into()), OrderTag(to.into()));
                let of = |unit: &&mut Unit| **unit == Unit::Free(OrderTag(from.into()));
                self.units.iter_mut().filter(of).for_each(|unit| *unit = Unit::Free(OrderTag(to.into())));
            }
            Step::Retag { .. } => {}
            Step::Coalesce { accepts, to, min_bytes } => {
                self.coalesce(accepts, OrderTag(to.into()), min_bytes)
            }
            Step::Extend(units) => {
                self.arena.extend(FIRST, units * UNIT, UNIT);
                self.units.extend((0..units).map(|_| Unit::Free(OrderTag::IDLE)));
            }
            Step::Truncate(max) => {
                let is_free = |unit: &&Unit| matches!(unit, Unit::Free(_));
                let tail = self.units.iter().rev().take_while(is_free).count() as u64;
                assert_eq!(self.arena.free_tail(FIRST, |_| true), tail * UNIT);
                let units = max.min(tail).min(self.units.len() as u64 - 1);
                self.arena.truncate(FIRST, units * UNIT);
                self.units.truncate(self.units.len() - units as usize);
            }
        }
        self.arena.check();
        let mut free = self.arena.free_list();
        free.sort_unstable();
        let wanted = runs(&self.units, |_| false);
        let wanted = wanted.iter().map(|(at, len, of)| (FIRST + at * UNIT, len * UNIT, of[0]));
        assert_eq!(free, wanted.collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn every_step_matches_the_model_of_single_units(steps in prop::collection::vec(step(), 1..120)) {
        let mut arena = Arena::default();
        arena.add_segment(FIRST, 100 * UNIT, UNIT, OrderTag::IDLE);
        let mut model = Model { arena, units: vec![Unit::Free(OrderTag::IDLE); 100], used: Vec::new() };
        for step in &steps {
            model.step(step);
        }
    }
}

#[test]
fn adjacent_segments_do_not_merge() {
    let mut arena = Arena::default();
    arena.add_segment(FIRST, 4096, UNIT, OrderTag::IDLE);
    arena.add_segment(FIRST + 4096, 4096, UNIT, OrderTag::IDLE);
    arena.check();
    assert_eq!(arena.fit(OrderTag::IDLE, 4097, UNIT), None);
    assert_eq!(arena.fully_free().len(), 2);
    let node = arena.fit(OrderTag::IDLE, 4096, UNIT).unwrap();
    let node = arena.cut(node, 512, UNIT);
    assert_eq!((arena.start(node), arena.fully_free().len()), (FIRST, 1), "the lowest of equals");
    assert_eq!(arena.segment_of(FIRST + 8191).map(|of| of.start), Some(FIRST + 4096));
    assert!(arena.segment_of(FIRST + 8192).is_none());
    arena.truncate(FIRST + 4096, 4096);
    assert_eq!((arena.reserved(), arena.segments().count()), (4096, 1));
    arena.check();
}

/// Two extents of a cache are merged when adjacent memory is added, and an extent is split when a
/// piece is taken from its middle.
#[test]
fn added_memory_joins_segments_and_a_removed_piece_splits_them() {
    let mut arena = Arena::default();
    arena.add_segment(FIRST, 4096, UNIT, OrderTag::IDLE);
    arena.add_segment(FIRST + 8192, 4096, UNIT, OrderTag::IDLE);
    let first = arena.cut(arena.fit(OrderTag::IDLE, 4096, UNIT).unwrap(), 512, UNIT);
    arena.add_between(FIRST + 4096, 4096, (true, true), OrderTag::IDLE);
    arena.check();
    assert_eq!((arena.segments().count(), arena.reserved()), (1, 3 * 4096));
    let joined = arena.fit(OrderTag::IDLE, 3 * 4096 - 512, UNIT).expect("free neighbours coalesce");
    let middle = arena.cut(joined, 1024, 4096);
    assert_eq!(arena.start(middle), FIRST + 4096);
    arena.remove(middle);
    arena.check();
    let parts: Vec<_> = arena.segments().map(|of| (of.start - FIRST, of.bytes)).collect();
    assert_eq!((parts, arena.reserved()), (vec![(0, 4096), (5120, 7168)], 3 * 4096 - 1024));
    arena.free(first, OrderTag::IDLE);
    // The last piece, and a free one.
    for (bytes, left) in [(4096, 7168), (7168, 0)] {
        arena.remove(arena.fit(OrderTag::IDLE, bytes, UNIT).unwrap());
        arena.check();
        assert_eq!(arena.reserved(), left);
    }
}

impl Arena {
    /// The orders that have pieces.
    pub fn orders(&self) -> impl Iterator<Item = OrderTag> {
        self.free.keys().copied().filter(|order| self.has(*order))
    }

    /// I1 to I4.
    pub fn check(&self) {
        let (mut used, mut listed, mut reserved) = (0, 0, 0);
        for segment in self.segments.values() {
            let (mut at, mut before, mut last) = (segment.start, None, NONE);
            for node in self.pieces(segment) {
                let of = self.chain.get(node);
                assert!(of.start == at && of.bytes > 0 && of.prev == last, "I1");
                let order = self.order(node);
                assert!(order.is_none() || order != before, "I2: {of:?}");
                if let Some(order) = order {
                    assert!(
                        self.free[&order].iter().any(|one| *one == (of.bytes, of.start, node)),
                        "I3: {of:?}"
                    );
                    listed += 1;
                }
                used += 1;
                (at, before, last) = (at + of.bytes, order, node);
            }
            assert_eq!((at, last), (segment.start + segment.bytes, segment.last), "I1");
            reserved += segment.bytes;
        }
        assert_eq!(listed, self.free.values().map(FreeIndex::len).sum::<usize>(), "I3");
        assert_eq!(reserved, self.reserved, "I4");
        self.chain.check(used);
    }

    /// Start, length and order of the free pieces.
    pub fn free_list(&self) -> Vec<(u64, u64, OrderTag)> {
        let listed = |(order, pieces): (&OrderTag, &FreeIndex)| {
            pieces.iter().map(|(bytes, start, _)| (*start, *bytes, *order)).collect::<Vec<_>>()
        };
        self.free.iter().flat_map(listed).collect()
    }
}

impl Chain {
    /// I2, given the number of pieces in use.
    pub fn check(&self, used: usize) {
        let vacant: BTreeSet<_> = self.vacant.iter().collect();
        assert_eq!((vacant.len(), vacant.len() + used), (self.vacant.len(), self.nodes.len()), "I2");
        assert!(vacant.iter().all(|node| self.get(**node).state == PieceState::Vacant), "I2");
    }
}
