//! Segments of an arena: they are added, joined, split, grown at their ends and truncated.

use super::super::order_tag::OrderTag;
use super::chain::{NONE, Node};
use super::pieces::{Arena, Segment};
use std::collections::BTreeSet;

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
