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

#[cfg(test)]
mod tests;

use foldhash::fast::FixedState;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Whose work may use a free piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Order(pub u64);

impl Order {
    /// Anyone's: no work in flight uses it.
    pub const IDLE: Order = Order(0);
}

/// Pieces that fit by size and are looked at for their alignment, before one is taken that is large enough for any.
const FITS: usize = 64;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// No piece; its number can be used.
    Vacant,
    Free(Order),
    /// Someone's, or cached.
    Out,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    start: u64,
    bytes: u64,
    prev: u32,
    next: u32,
    /// Where its segment starts.
    segment: u64,
    is: Use,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub start: u64,
    pub bytes: u64,
    pub align: u64,
    first: u32,
    last: u32,
}

type Pieces = BTreeSet<(u64, u64, u32)>;

#[derive(Default)]
pub(super) struct Arena {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    segments: BTreeMap<u64, Segment>,
    free: HashMap<Order, Pieces, FixedState>,
    reserved: u64,
}

impl Arena {
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    pub fn start(&self, node: u32) -> u64 {
        self.nodes[node as usize].start
    }

    pub fn bytes(&self, node: u32) -> u64 {
        self.nodes[node as usize].bytes
    }

    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values()
    }

    /// The segment that has the address.
    pub fn segment_of(&self, address: u64) -> Option<&Segment> {
        let (_, below) = self.segments.range(..=address).next_back()?;
        (address - below.start < below.bytes).then_some(below)
    }

    /// The piece that has the address, and whether it is free.
    pub fn piece_of(&self, address: u64) -> Option<(u32, bool)> {
        let segment = self.segment_of(address)?;
        let node = self.pieces(segment).find(|node| address - self.start(*node) < self.bytes(*node))?;
        Some((node, self.order(node).is_some()))
    }

    /// The pieces of a segment, from its start on.
    pub fn pieces(&self, segment: &Segment) -> impl Iterator<Item = u32> {
        let next = |node: &u32| Some(self.nodes[*node as usize].next).filter(|next| *next != NONE);
        std::iter::successors(Some(segment.first), next)
    }

    /// Whose a free piece is.
    pub fn order(&self, node: u32) -> Option<Order> {
        match self.nodes[node as usize].is {
            Use::Free(order) => Some(order),
            Use::Vacant | Use::Out => None,
        }
    }

    /// Whether an order has free pieces.
    pub fn has(&self, order: Order) -> bool {
        self.free.get(&order).is_some_and(|pieces| !pieces.is_empty())
    }

    fn add_node(&mut self, node: Node) -> u32 {
        match self.vacant.pop() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// More memory: a segment that starts where none is, all of it free.
    pub fn add_segment(&mut self, start: u64, bytes: u64, align: u64, order: Order) {
        let node = Node { start, bytes, prev: NONE, next: NONE, segment: start, is: Use::Out };
        let first = self.add_node(node);
        self.segments.insert(start, Segment { start, bytes, align, first, last: first });
        self.reserved += bytes;
        self.give(first, order);
    }

    /// The segment has so many bytes more at its end; one of none is made.
    pub fn extend(&mut self, start: u64, bytes: u64, align: u64) {
        let Some(segment) = self.segments.get(&start).copied() else {
            return self.add_segment(start, bytes, align, Order::IDLE);
        };
        let (at, prev) = (start + segment.bytes, segment.last);
        let node = self.add_node(Node { start: at, bytes, prev, next: NONE, segment: start, is: Use::Out });
        self.nodes[prev as usize].next = node;
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
            node = self.nodes[node as usize].prev;
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
            let node = &mut self.nodes[last as usize];
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
            self.retire(last);
            if prev == NONE {
                self.segments.remove(&start);
            } else {
                self.nodes[prev as usize].next = NONE;
                self.segments.insert(start, Segment { last: prev, ..rest });
            }
        }
    }

    fn list(&mut self, node: u32, order: Order) {
        let of = &mut self.nodes[node as usize];
        of.is = Use::Free(order);
        self.free.entry(order).or_default().insert((of.bytes, of.start, node));
    }

    fn unlist(&mut self, node: u32, order: Order) {
        let of = &mut self.nodes[node as usize];
        of.is = Use::Out;
        if let Some(pieces) = self.free.get_mut(&order) {
            pieces.remove(&(of.bytes, of.start, node));
        }
    }

    fn retire(&mut self, node: u32) {
        self.nodes[node as usize].is = Use::Vacant;
        self.vacant.push(node);
    }

    /// The smallest piece of the order that has room for `bytes` at a multiple of `align`; the lowest of equals.
    pub fn fit(&self, order: Order, bytes: u64, align: u64) -> Option<u32> {
        let pieces = self.free.get(&order)?;
        let fits = |(size, start, _): &&(u64, u64, u32)| {
            start.next_multiple_of(align).checked_add(bytes).is_some_and(|end| end <= start + size)
        };
        let near = pieces.range((bytes, 0, 0)..).take(FITS).find(fits);
        let any = || pieces.range((bytes + align, 0, 0)..).next();
        near.or_else(any).map(|(_, _, node)| *node)
    }

    /// Cuts `bytes` at a multiple of `align` out of a free piece that has room; the rest stays free.
    pub fn cut(&mut self, node: u32, bytes: u64, align: u64) -> u32 {
        let Some(order) = self.order(node) else { return node };
        self.unlist(node, order);
        let of = self.nodes[node as usize];
        let pad = of.start.next_multiple_of(align) - of.start;
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
        let of = self.nodes[node as usize];
        let right = Node { start: of.start + bytes, bytes: of.bytes - bytes, prev: node, ..of };
        let right = self.add_node(right);
        let left = &mut self.nodes[node as usize];
        left.bytes = bytes;
        left.next = right;
        match of.next {
            NONE => {
                if let Some(segment) = self.segments.get_mut(&of.segment) {
                    segment.last = right;
                }
            }
            next => self.nodes[next as usize].prev = right,
        }
        right
    }

    /// Joins a piece that is out with the next one, which is not listed.
    fn join(&mut self, node: u32, next: u32) {
        let right = self.nodes[next as usize];
        let left = &mut self.nodes[node as usize];
        left.bytes += right.bytes;
        left.next = right.next;
        match right.next {
            NONE => {
                if let Some(segment) = self.segments.get_mut(&right.segment) {
                    segment.last = node;
                }
            }
            behind => self.nodes[behind as usize].prev = node,
        }
        self.retire(next);
    }

    /// A piece that was out is free again, and merges with neighbours of the same order.
    pub fn give(&mut self, mut node: u32, order: Order) {
        let Node { prev, next, .. } = self.nodes[node as usize];
        if next != NONE && self.order(next) == Some(order) {
            self.unlist(next, order);
            self.join(node, next);
        }
        if prev != NONE && self.order(prev) == Some(order) {
            self.unlist(prev, order);
            self.join(prev, node);
            node = prev;
        }
        self.list(node, order);
    }

    /// What is free of one order is of another one from now on.
    pub fn retag(&mut self, from: Order, to: Order) {
        // Each piece once: they are of `to` afterwards, or a part of one that is.
        while let Some((_, _, node)) = self.free.get_mut(&from).and_then(|pieces| pieces.first().copied()) {
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
    /// I1 to I4.
    pub fn check(&self) {
        let (mut listed, mut reserved) = (0, 0);
        for segment in self.segments.values() {
            let (mut at, mut before, mut last) = (segment.start, None, NONE);
            for node in self.pieces(segment) {
                let of = self.nodes[node as usize];
                assert!(
                    of.start == at && of.bytes > 0 && of.prev == last && of.segment == segment.start,
                    "I1"
                );
                let order = self.order(node);
                assert!(order.is_none() || order != before, "I2: {of:?}");
                if let Some(order) = order {
                    assert!(self.free[&order].contains(&(of.bytes, of.start, node)), "I3: {of:?}");
                    listed += 1;
                }
                (at, before, last) = (at + of.bytes, order, node);
            }
            assert_eq!((at, last), (segment.start + segment.bytes, segment.last), "I1");
            reserved += segment.bytes;
        }
        assert_eq!(listed, self.free.values().map(BTreeSet::len).sum::<usize>(), "I3");
        assert_eq!(reserved, self.reserved, "I4");
    }

    /// Start, length and order of what is free.
    pub fn pieces_free(&self) -> Vec<(u64, u64, Order)> {
        let of = |(order, pieces): (&Order, &Pieces)| {
            pieces.iter().map(|(bytes, start, _)| (*start, *bytes, *order)).collect::<Vec<_>>()
        };
        self.free.iter().flat_map(of).collect()
    }
}
