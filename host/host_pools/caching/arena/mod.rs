//! Segments and the pieces that they are divided into: best fit, with splitting and coalescing.
//!
//! ```text
//! segment   | used | free, order 3 | used | used | free, idle |   each linked to its neighbours
//! free      3 ─► { (bytes, start) … }      idle ─► { (bytes, start) … }
//! ```
//!
//! A free piece has an ordering tag ([`OrderTag`]): the stream whose later work may use it at once.
//! A piece that is not free is *used*. Neighbours of different orders do not coalesce by
//! themselves, since no stream could use the result without synchronisation. [`Arena::coalesce`]
//! coalesces them for a stream that is ordered after both.
//!
//! I1: the pieces of a segment are adjacent and fill it, none is empty, and `next` and `prev` name
//! the neighbours. I2: no two free neighbours have the same order. I3: `free` contains exactly the
//! free pieces, by order, size and start. I4: `reserved` is the sum of the segments' bytes;
//! segments do not overlap.

mod free_index;
#[cfg(test)]
mod tests;

use foldhash::fast::FixedState;
use free_index::{FreeIndex, Piece};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Ordering tag: says which work may still use a free piece or block (`OrderTable` in `shared`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OrderTag(pub u64);

impl OrderTag {
    /// Idle: no work in flight uses the memory.
    pub const IDLE: OrderTag = OrderTag(0);
}

/// Number of pieces of sufficient size that are tested for alignment, before a piece is chosen that
/// is large enough for any alignment.
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
    free: HashMap<OrderTag, FreeIndex, FixedState>,
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

    fn list_free(&mut self, node: u32, order: OrderTag) {
        let of = self.chain.get_mut(node);
        of.state = PieceState::Free(order);
        self.free.entry(order).or_default().insert((of.bytes, of.start, node));
    }

    fn unlist_free(&mut self, node: u32, order: OrderTag) {
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

impl Arena {
    /// Adds a segment, all of it free. No segment may start at `start` yet.
    pub fn add_segment(&mut self, start: u64, bytes: u64, align: u64, order: OrderTag) {
        let first = self.insert(start, bytes, align);
        self.free(first, order);
    }

    /// Inserts a segment of one piece, which is used.
    fn insert(&mut self, start: u64, bytes: u64, align: u64) -> u32 {
        let first = self.chain.push((start, bytes), NONE);
        self.segments.insert(start, Segment { start, bytes, align, first, last: first });
        self.reserved += bytes;
        first
    }

    /// Adds memory next to existing segments. `left` and `right` say on which sides it continues
    /// one: the segment that ends at `start`, and the segment that starts at the end. It is merged
    /// with these segments into one.
    pub fn add_between(&mut self, start: u64, bytes: u64, (left, right): (bool, bool), order: OrderTag) {
        let node = self.insert(start, bytes, 1);
        if right {
            self.append(start, start + bytes);
        }
        if left && let Some((&before, _)) = self.segments.range(..start).next_back() {
            self.append(before, start);
        }
        self.free(node, order);
    }

    /// Merges two segments, where the second starts at the end of the first.
    fn append(&mut self, left: u64, right: u64) {
        let Some(second) = self.segments.remove(&right) else { return };
        let Some(first) = self.segments.get_mut(&left) else { return };
        debug_assert_eq!(first.start + first.bytes, right);
        self.chain.link(first.last, second.first);
        first.bytes += second.bytes;
        first.last = second.last;
    }

    /// Removes a piece, free or not, from its segment. The parts on either side become separate
    /// segments.
    pub fn remove(&mut self, node: u32) {
        if let Some(order) = self.order(node) {
            self.unlist_free(node, order);
        }
        let Node { start, bytes, prev, next, .. } = *self.chain.get(node);
        let Some(segment) = self.segment_of(start).copied() else { return };
        self.chain.remove(node);
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

    /// Start of the segment that ends at `end`.
    pub fn ending_at(&self, end: u64) -> Option<u64> {
        let (start, segment) = self.segments.range(..end).next_back()?;
        (start + segment.bytes == end).then_some(*start)
    }

    /// The free pieces that are first or last in a segment, each once.
    pub fn free_ends(&self) -> Vec<u32> {
        let ends = self.segments.values().flat_map(|segment| [segment.first, segment.last]);
        let mut ends: Vec<u32> = ends.filter(|node| self.order(*node).is_some()).collect();
        ends.dedup();
        ends
    }

    /// Grows a segment by `bytes` at its end. Creates the segment if there is none at `start`.
    pub fn extend(&mut self, start: u64, bytes: u64, align: u64) {
        let Some(segment) = self.segments.get(&start).copied() else {
            return self.add_segment(start, bytes, align, OrderTag::IDLE);
        };
        let node = self.chain.push((start + segment.bytes, bytes), segment.last);
        self.segments.insert(start, Segment { bytes: segment.bytes + bytes, last: node, ..segment });
        self.reserved += bytes;
        self.free(node, OrderTag::IDLE);
    }

    /// Free bytes at the end of a segment, counting the orders that `accepts` accepts.
    pub fn free_tail(&self, start: u64, accepts: impl Fn(OrderTag) -> bool) -> u64 {
        let Some(segment) = self.segments.get(&start) else { return 0 };
        let (mut bytes, mut node) = (0, segment.last);
        while node != NONE && self.order(node).is_some_and(&accepts) {
            bytes += self.bytes(node);
            node = self.chain.get(node).prev;
        }
        bytes
    }

    /// Removes the last `bytes` of a segment, all of them free. The segment is removed if nothing
    /// is left.
    pub fn truncate(&mut self, start: u64, mut bytes: u64) {
        while bytes > 0
            && let Some(segment) = self.segments.get(&start).copied()
        {
            let last = segment.last;
            let Some(order) = self.order(last) else { return };
            let part = bytes.min(self.bytes(last));
            self.unlist_free(last, order);
            let node = self.chain.get_mut(last);
            node.bytes -= part;
            let (left, prev) = (node.bytes, node.prev);
            bytes -= part;
            self.reserved -= part;
            let rest = Segment { bytes: segment.bytes - part, ..segment };
            if left > 0 {
                self.list_free(last, order);
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

    /// Fully free segments, and the orders of their pieces.
    pub fn fully_free(&self) -> Vec<(Segment, BTreeSet<OrderTag>)> {
        let orders = |segment: &Segment| -> Option<BTreeSet<OrderTag>> {
            self.pieces(segment).map(|node| self.order(node)).collect()
        };
        self.segments.values().filter_map(|segment| Some((*segment, orders(segment)?))).collect()
    }
}

/// In place of a neighbour: no neighbour.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceState {
    /// An unused number.
    Vacant,
    Free(OrderTag),
    /// Not free: in a live or cached block, a slab or an extent.
    Used,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    pub start: u64,
    pub bytes: u64,
    pub prev: u32,
    pub next: u32,
    pub state: PieceState,
}

/// Numbered pieces, each linked to its left and right neighbour in the segment.
///
/// ```text
///   first ─► 4 ◄─► 0 ◄─► 7 ◄─ last      split(0) ─► 4 ◄─► 0 ◄─► 2 ◄─► 7      vacant: 1, 3, 5, 6
/// ```
///
/// Links and numbers are written only here. The arena also writes the state and the length of a
/// piece.
///
/// I1: `next` and `prev` of two neighbours name each other; both ends hold [`NONE`]. I2: a number
/// in `vacant` belongs to no piece.
#[derive(Default)]
struct Chain {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
}

impl Chain {
    pub fn get(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    pub fn get_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    fn add(&mut self, node: Node) -> u32 {
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

    /// Appends a used piece behind `prev`, the last piece of a segment. [`NONE`] starts a new
    /// segment.
    pub fn push(&mut self, (start, bytes): (u64, u64), prev: u32) -> u32 {
        let node = self.add(Node { start, bytes, prev, next: NONE, state: PieceState::Used });
        self.link(prev, node);
        node
    }

    /// Removes the last piece of a segment.
    pub fn pop(&mut self, node: u32) {
        self.link(self.get(node).prev, NONE);
        self.free_number(node);
    }

    /// Removes a piece. Its neighbours become ends of their segments.
    pub fn remove(&mut self, node: u32) {
        let Node { prev, next, .. } = *self.get(node);
        self.link(prev, NONE);
        self.link(NONE, next);
        self.free_number(node);
    }

    /// Links two ends as neighbours.
    pub fn link(&mut self, left: u32, right: u32) {
        if left != NONE {
            self.get_mut(left).next = right;
        }
        if right != NONE {
            self.get_mut(right).prev = left;
        }
    }

    fn free_number(&mut self, node: u32) {
        self.get_mut(node).state = PieceState::Vacant;
        self.vacant.push(node);
    }

    /// Splits a piece, so that the first part has `bytes`. Returns the second part.
    pub fn split(&mut self, node: u32, bytes: u64) -> u32 {
        let left = *self.get(node);
        let right = self.add(Node { start: left.start + bytes, bytes: left.bytes - bytes, ..left });
        self.get_mut(node).bytes = bytes;
        self.link(right, left.next);
        self.link(node, right);
        right
    }

    /// Merges a piece with its right neighbour.
    pub fn join(&mut self, node: u32) {
        let right = self.get(node).next;
        let Node { bytes, next, .. } = *self.get(right);
        self.get_mut(node).bytes += bytes;
        self.link(node, next);
        self.free_number(right);
    }

    /// The piece and all pieces to its right.
    pub fn from(&self, node: u32) -> impl Iterator<Item = u32> {
        let next = |node: &u32| Some(self.get(*node).next).filter(|next| *next != NONE);
        std::iter::successors(Some(node), next)
    }
}
