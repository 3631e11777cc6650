//! Segments, and the pieces that they are cut into: best fit, with splitting and coalescing.
//!
//! ```text
//!   segment   | out | free, of order 3 | out | out | free, of anyone |     linked to its neighbours, left and right
//!   free                      3 ─► { (bytes, start) … }      anyone ─► { (bytes, start) … }
//! ```
//!
//! A free piece belongs to an [`Order`]: whose later work may use it at once. Pieces of two orders do not merge by themselves, since
//! the whole would be nobody's; [`Arena::gather`] merges them for someone who comes after both.
//!
//! I1: the pieces of a segment lie side by side and fill it, none is empty, and `next` and `prev` name their neighbours. I2: no two
//! free neighbours have one order. I3: `free` has exactly the free pieces, by order, size and start. I4: `reserved` is the sum of the
//! segments' bytes, which do not overlap.

mod chain;
mod pieces;
#[cfg(test)]
mod tests;

use super::orders::Order;
use chain::{Chain, NONE, Node, Use};
use foldhash::fast::FixedState;
use pieces::{Piece, Pieces};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Pieces that fit by size and are looked at for their alignment, before one is taken that is large enough for any.
const FITS: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub start: u64,
    pub bytes: u64,
    pub align: u64,
    first: u32,
    last: u32,
}

#[derive(Default)]
pub(super) struct Arena {
    chain: Chain,
    segments: BTreeMap<u64, Segment>,
    free: HashMap<Order, Pieces, FixedState>,
    reserved: u64,
}

impl Arena {
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    pub fn start(&self, node: u32) -> u64 {
        self.chain.get(node).start
    }

    pub fn bytes(&self, node: u32) -> u64 {
        self.chain.get(node).bytes
    }

    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values()
    }

    /// The segment that has the address.
    pub fn segment_of(&self, address: u64) -> Option<&Segment> {
        let (_, below) = self.segments.range(..=address).next_back()?;
        (address - below.start < below.bytes).then_some(below)
    }

    /// The pieces of a segment, from its start on.
    pub fn pieces(&self, segment: &Segment) -> impl Iterator<Item = u32> {
        self.chain.from(segment.first)
    }

    /// Whose a free piece is.
    pub fn order(&self, node: u32) -> Option<Order> {
        match self.chain.get(node).is {
            Use::Free(order) => Some(order),
            Use::Vacant | Use::Out => None,
        }
    }

    /// Whether no piece is free.
    pub fn is_out(&self) -> bool {
        self.free.values().all(Pieces::is_empty)
    }

    /// Whether an order has free pieces.
    pub fn has(&self, order: Order) -> bool {
        self.free.get(&order).is_some_and(|pieces| !pieces.is_empty())
    }

    /// More memory: a segment that starts where none is, all of it free.
    pub fn add_segment(&mut self, start: u64, bytes: u64, align: u64, order: Order) {
        let first = self.insert(start, bytes, align);
        self.give(first, order);
    }

    /// A segment of one piece, which is out.
    fn insert(&mut self, start: u64, bytes: u64, align: u64) -> u32 {
        let first = self.chain.push((start, bytes), NONE);
        self.segments.insert(start, Segment { start, bytes, align, first, last: first });
        self.reserved += bytes;
        first
    }

    /// The same of memory that continues segments here, as far as the caller says: the one that ends where it starts, and the one that starts where
    /// it ends. They are one segment with it then.
    pub fn add_between(&mut self, start: u64, bytes: u64, (left, right): (bool, bool), order: Order) {
        let node = self.insert(start, bytes, 1);
        if right {
            self.append(start, start + bytes);
        }
        if left && let Some((&before, _)) = self.segments.range(..start).next_back() {
            self.append(before, start);
        }
        self.give(node, order);
    }

    /// Makes one segment of two, of which the second starts where the first ends.
    fn append(&mut self, left: u64, right: u64) {
        let Some(second) = self.segments.remove(&right) else { return };
        let Some(first) = self.segments.get_mut(&left) else { return };
        debug_assert_eq!(first.start + first.bytes, right);
        self.chain.link(first.last, second.first);
        first.bytes += second.bytes;
        first.last = second.last;
    }

    /// Takes a piece out of its segment, free or not: what is on either side of it is a segment of its own.
    pub fn take_out(&mut self, node: u32) {
        if let Some(order) = self.order(node) {
            self.unlist(node, order);
        }
        let Node { start, bytes, prev, next, .. } = *self.chain.get(node);
        let Some(segment) = self.segment_of(start).copied() else { return };
        self.chain.take_out(node);
        self.segments.remove(&segment.start);
        self.reserved -= bytes;
        let (end, rest) = (start + bytes, segment.start + segment.bytes);
        if prev != NONE {
            let left = Segment { bytes: start - segment.start, last: prev, ..segment };
            self.segments.insert(left.start, left);
        }
        if next != NONE {
            self.segments.insert(end, Segment { start: end, bytes: rest - end, first: next, ..segment });
        }
    }

    /// Cuts `bytes` at `start` out of a piece that is out, and covers them: the part, and what is behind it, if anything is.
    pub fn carve(&mut self, node: u32, start: u64, bytes: u64) -> (u32, Option<u32>) {
        let before = start - self.start(node);
        let part = if before > 0 { self.split(node, before) } else { node };
        let behind = (self.bytes(part) > bytes).then(|| self.split(part, bytes));
        (part, behind)
    }

    /// Makes one of two neighbours that are out.
    pub fn join_out(&mut self, left: u32) {
        self.join(left);
    }

    /// Where the segment starts that ends there.
    pub fn ending_at(&self, end: u64) -> Option<u64> {
        let (start, segment) = self.segments.range(..end).next_back()?;
        (start + segment.bytes == end).then_some(*start)
    }

    /// The pieces on either side, [`NONE`](chain::NONE) at an end.
    pub fn neighbours(&self, node: u32) -> (u32, u32) {
        let Node { prev, next, .. } = *self.chain.get(node);
        (prev, next)
    }

    /// The free pieces that are first or last in a segment, each once.
    pub fn free_ends(&self) -> Vec<u32> {
        let ends = self.segments.values().flat_map(|of| [of.first, of.last]);
        let mut ends: Vec<u32> = ends.filter(|node| self.order(*node).is_some()).collect();
        ends.dedup();
        ends
    }

    /// The free pieces of an order.
    pub fn free_of(&self, order: Order) -> Vec<u32> {
        self.free.get(&order).into_iter().flat_map(Pieces::iter).map(|(_, _, node)| *node).collect()
    }

    /// The segment has so many bytes more at its end; one of none is made.
    pub fn extend(&mut self, start: u64, bytes: u64, align: u64) {
        let Some(segment) = self.segments.get(&start).copied() else {
            return self.add_segment(start, bytes, align, Order::IDLE);
        };
        let node = self.chain.push((start + segment.bytes, bytes), segment.last);
        self.segments.insert(start, Segment { bytes: segment.bytes + bytes, last: node, ..segment });
        self.reserved += bytes;
        self.give(node, Order::IDLE);
    }

    /// Free bytes at the end of a segment, of orders that `may`.
    pub fn tail(&self, start: u64, may: impl Fn(Order) -> bool) -> u64 {
        let Some(segment) = self.segments.get(&start) else { return 0 };
        let (mut bytes, mut node) = (0, segment.last);
        while node != NONE && self.order(node).is_some_and(&may) {
            bytes += self.bytes(node);
            node = self.chain.get(node).prev;
        }
        bytes
    }

    /// Takes the last `bytes` off a segment, all of them free; the segment goes if it has no more.
    pub fn truncate(&mut self, start: u64, mut bytes: u64) {
        while bytes > 0
            && let Some(segment) = self.segments.get(&start).copied()
        {
            let last = segment.last;
            let Some(order) = self.order(last) else { return };
            let part = bytes.min(self.bytes(last));
            self.unlist(last, order);
            let node = self.chain.get_mut(last);
            node.bytes -= part;
            let (left, prev) = (node.bytes, node.prev);
            bytes -= part;
            self.reserved -= part;
            let rest = Segment { bytes: segment.bytes - part, ..segment };
            if left > 0 {
                self.list(last, order);
                self.segments.insert(start, rest);
                continue;
            }
            self.chain.pop(last);
            match prev {
                NONE => drop(self.segments.remove(&start)),
                _ => drop(self.segments.insert(start, Segment { last: prev, ..rest })),
            }
        }
    }

    fn list(&mut self, node: u32, order: Order) {
        let of = self.chain.get_mut(node);
        of.is = Use::Free(order);
        self.free.entry(order).or_default().insert((of.bytes, of.start, node));
    }

    fn unlist(&mut self, node: u32, order: Order) {
        let of = self.chain.get_mut(node);
        of.is = Use::Out;
        if let Some(pieces) = self.free.get_mut(&order) {
            pieces.remove(&(of.bytes, of.start, node));
        }
    }

    /// The smallest piece of the order that has room for `bytes` at a multiple of `align`; the lowest of equals.
    pub fn fit(&self, order: Order, bytes: u64, align: u64) -> Option<u32> {
        let pieces = self.free.get(&order)?;
        let fits = |(size, start, _): &&Piece| {
            start.next_multiple_of(align).checked_add(bytes).is_some_and(|end| end <= start + size)
        };
        let near = pieces.from(bytes).take(FITS).find(fits);
        let any = || pieces.from(bytes + align).next();
        near.or_else(any).map(|(_, _, node)| *node)
    }

    /// Cuts `bytes` at a multiple of `align` out of a free piece that has room; the rest stays free.
    pub fn cut(&mut self, node: u32, bytes: u64, align: u64) -> u32 {
        let Some(order) = self.order(node) else { return node };
        self.unlist(node, order);
        let start = self.start(node);
        let pad = start.next_multiple_of(align) - start;
        let mut taken = node;
        if pad > 0 {
            taken = self.split(node, pad);
            self.list(node, order);
        }
        if self.bytes(taken) > bytes {
            let rest = self.split(taken, bytes);
            self.list(rest, order);
        }
        taken
    }

    /// Makes two of a piece that is out; the second.
    fn split(&mut self, node: u32, bytes: u64) -> u32 {
        let right = self.chain.split(node, bytes);
        self.note_last(right);
        right
    }

    /// Joins a piece that is out with the next one, which is not listed.
    fn join(&mut self, node: u32) {
        self.chain.join(node);
        self.note_last(node);
    }

    /// The piece may be the last one of its segment now.
    fn note_last(&mut self, node: u32) {
        let Node { start, next, .. } = *self.chain.get(node);
        if next == NONE
            && let Some((_, segment)) = self.segments.range_mut(..=start).next_back()
        {
            segment.last = node;
        }
    }

    /// A piece that was out is free again, and merges with neighbours of the same order.
    pub fn give(&mut self, mut node: u32, order: Order) {
        let Node { prev, next, .. } = *self.chain.get(node);
        if next != NONE && self.order(next) == Some(order) {
            self.unlist(next, order);
            self.join(node);
        }
        if prev != NONE && self.order(prev) == Some(order) {
            self.unlist(prev, order);
            self.join(prev);
            node = prev;
        }
        self.list(node, order);
    }

    /// What is free of one order is of another one from now on.
    pub fn retag(&mut self, from: Order, to: Order) {
        // Each piece once: they are of `to` afterwards, or a part of one that is.
        while let Some((_, _, node)) = self.free.get(&from).and_then(|pieces| pieces.from(0).next().copied())
        {
            self.unlist(node, from);
            self.give(node, to);
        }
        self.free.remove(&from);
    }

    /// Merges free neighbours whose orders `may`, where together they have at least `least` bytes, into pieces of `to`.
    pub fn gather(&mut self, may: impl Fn(Order) -> bool, to: Order, least: u64) {
        let mut runs: Vec<Vec<u32>> = Vec::new();
        for segment in self.segments.values() {
            let mut run = Vec::new();
            for node in self.pieces(segment) {
                if self.order(node).is_some_and(&may) {
                    run.push(node);
                } else {
                    runs.push(std::mem::take(&mut run));
                }
            }
            runs.push(run);
        }
        runs.retain(|run| run.len() > 1 && run.iter().map(|node| self.bytes(*node)).sum::<u64>() >= least);
        for run in runs {
            for node in &run {
                if let Some(order) = self.order(*node) {
                    self.unlist(*node, order);
                }
            }
            for node in run {
                self.give(node, to);
            }
        }
    }

    /// Segments that are free as a whole, and the orders of their pieces.
    pub fn empty(&self) -> Vec<(Segment, BTreeSet<Order>)> {
        let orders = |segment: &Segment| -> Option<BTreeSet<Order>> {
            self.pieces(segment).map(|node| self.order(node)).collect()
        };
        self.segments.values().filter_map(|segment| Some((*segment, orders(segment)?))).collect()
    }
}

#[cfg(test)]
impl Arena {
    /// Those that have pieces.
    pub fn orders(&self) -> impl Iterator<Item = Order> {
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
        assert_eq!(listed, self.free.values().map(Pieces::len).sum::<usize>(), "I3");
        assert_eq!(reserved, self.reserved, "I4");
        self.chain.check(used);
    }

    /// Start, length and order of what is free.
    pub fn pieces_free(&self) -> Vec<(u64, u64, Order)> {
        let of = |(order, pieces): (&Order, &Pieces)| {
            pieces.iter().map(|(bytes, start, _)| (*start, *bytes, *order)).collect::<Vec<_>>()
        };
        self.free.iter().flat_map(of).collect()
    }
}
