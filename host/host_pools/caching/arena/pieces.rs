//! The pieces of an arena: allocation by best fit, frees and coalescing.

use super::super::order_tag::OrderTag;
use super::chain::{Chain, NONE, Node, PieceState};
use super::free_index::{FreeIndex, Piece};
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap};

/// Number of pieces of sufficient size that are tested for alignment, before a piece is chosen that
/// is large enough for any alignment.
const FITS: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Segment {
    pub start: u64,
    pub bytes: u64,
    pub align: u64,
    pub(super) first: u32,
    pub(super) last: u32,
}

#[derive(Default)]
pub(in super::super) struct Arena {
    pub(super) chain: Chain,
    pub(super) segments: BTreeMap<u64, Segment>,
    free: HashMap<OrderTag, FreeIndex, FixedState>,
    pub(super) reserved: u64,
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

    /// The segment that contains the address.
    pub fn segment_of(&self, address: u64) -> Option<&Segment> {
        let (_, below) = self.segments.range(..=address).next_back()?;
        (address - below.start < below.bytes).then_some(below)
    }

    /// The pieces of a segment, in address order.
    pub fn pieces(&self, segment: &Segment) -> impl Iterator<Item = u32> {
        self.chain.from(segment.first)
    }

    /// The order of a free piece; `None` if the piece is used.
    pub fn order(&self, node: u32) -> Option<OrderTag> {
        match self.chain.get(node).state {
            PieceState::Free(order) => Some(order),
            PieceState::Vacant | PieceState::Used => None,
        }
    }

    /// Whether no piece is free.
    pub fn is_exhausted(&self) -> bool {
        self.free.values().all(FreeIndex::is_empty)
    }

    /// Whether any free piece has this order.
    pub fn has(&self, order: OrderTag) -> bool {
        self.free.get(&order).is_some_and(|pieces| !pieces.is_empty())
    }

    /// Splits the `bytes` at `start` off a used piece. Returns that part and the part behind it, if
    /// any. All parts stay used.
    pub fn split_middle(&mut self, node: u32, start: u64, bytes: u64) -> (u32, Option<u32>) {
        let before = start - self.start(node);
        let part = if before > 0 { self.split(node, before) } else { node };
        let behind = (self.bytes(part) > bytes).then(|| self.split(part, bytes));
        (part, behind)
    }

    /// The neighbours on both sides, [`NONE`] at an end.
    pub fn neighbours(&self, node: u32) -> (u32, u32) {
        let Node { prev, next, .. } = *self.chain.get(node);
        (prev, next)
    }

    /// The free pieces of an order.
    pub fn free_pieces(&self, order: OrderTag) -> Vec<u32> {
        self.free.get(&order).into_iter().flat_map(FreeIndex::iter).map(|(_, _, node)| *node).collect()
    }

    pub(super) fn list_free(&mut self, node: u32, order: OrderTag) {
        let of = self.chain.get_mut(node);
        of.state = PieceState::Free(order);
        self.free.entry(order).or_default().insert((of.bytes, of.start, node));
    }

    pub(super) fn unlist_free(&mut self, node: u32, order: OrderTag) {
        let of = self.chain.get_mut(node);
        of.state = PieceState::Used;
        if let Some(pieces) = self.free.get_mut(&order) {
            pieces.remove(&(of.bytes, of.start, node));
        }
    }

    /// The smallest piece of the order that can hold `bytes` at a multiple of `align`; the lowest
    /// address among equals.
    pub fn fit(&self, order: OrderTag, bytes: u64, align: u64) -> Option<u32> {
        let pieces = self.free.get(&order)?;
        let fits = |(size, start, _): &&Piece| {
            start.next_multiple_of(align).checked_add(bytes).is_some_and(|end| end <= start + size)
        };
        let near = pieces.from(bytes).take(FITS).find(fits);
        let any = || pieces.from(bytes + align).next();
        near.or_else(any).map(|(_, _, node)| *node)
    }

    /// Cuts `bytes` at a multiple of `align` out of a free piece that is large enough. The rest
    /// stays free.
    pub fn cut(&mut self, node: u32, bytes: u64, align: u64) -> u32 {
        let Some(order) = self.order(node) else { return node };
        self.unlist_free(node, order);
        let start = self.start(node);
        let pad = start.next_multiple_of(align) - start;
        let mut taken = node;
        if pad > 0 {
            taken = self.split(node, pad);
            self.list_free(node, order);
        }
        if self.bytes(taken) > bytes {
            let rest = self.split(taken, bytes);
            self.list_free(rest, order);
        }
        taken
    }

    /// Splits a used piece, and returns the second part.
    fn split(&mut self, node: u32, bytes: u64) -> u32 {
        let right = self.chain.split(node, bytes);
        self.update_last(right);
        right
    }

    /// Merges a used piece with its right neighbour, which is used too.
    pub fn join(&mut self, node: u32) {
        self.chain.join(node);
        self.update_last(node);
    }

    /// Updates the segment's last piece, if `node` is now the last one.
    fn update_last(&mut self, node: u32) {
        let Node { start, next, .. } = *self.chain.get(node);
        if next == NONE
            && let Some((_, segment)) = self.segments.range_mut(..=start).next_back()
        {
            segment.last = node;
        }
    }

    /// Frees a used piece, and coalesces it with neighbours of the same order.
    pub fn free(&mut self, mut node: u32, order: OrderTag) {
        let Node { prev, next, .. } = *self.chain.get(node);
        if next != NONE && self.order(next) == Some(order) {
            self.unlist_free(next, order);
            self.join(node);
        }
        if prev != NONE && self.order(prev) == Some(order) {
            self.unlist_free(prev, order);
            self.join(prev);
            node = prev;
        }
        self.list_free(node, order);
    }

    /// Changes the order of all free pieces of `from` to `to`.
    pub fn retag(&mut self, from: OrderTag, to: OrderTag) {
        // Each piece once: afterwards it has order `to`, or is part of a piece that has.
        while let Some((_, _, node)) = self.free.get(&from).and_then(|pieces| pieces.from(0).next().copied())
        {
            self.unlist_free(node, from);
            self.free(node, to);
        }
        self.free.remove(&from);
    }

    /// Coalesces runs of free neighbours into pieces of order `to`, if `accepts` accepts their
    /// orders. Runs of less than `min_bytes` bytes are left alone.
    pub fn coalesce(&mut self, accepts: impl Fn(OrderTag) -> bool, to: OrderTag, min_bytes: u64) {
        let mut runs: Vec<Vec<u32>> = Vec::new();
        for segment in self.segments.values() {
            let mut run = Vec::new();
            for node in self.pieces(segment) {
                if self.order(node).is_some_and(&accepts) {
                    run.push(node);
                } else {
                    runs.push(std::mem::take(&mut run));
                }
            }
            runs.push(run);
        }
        runs.retain(|run| {
            run.len() > 1 && run.iter().map(|node| self.bytes(*node)).sum::<u64>() >= min_bytes
        });
        for run in runs {
            for node in &run {
                if let Some(order) = self.order(*node) {
                    self.unlist_free(*node, order);
                }
            }
            for node in run {
                self.free(node, to);
            }
        }
    }
}

#[cfg(test)]
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
