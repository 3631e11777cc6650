//! The extents of one stream's cache: memory that large blocks are cut from without the shared
//! state.
//!
//! ```text
//! shared segments  | free | out: extent of stream 7              | slab | out: of stream 9 |
//! stream 7's local        | block | free | block | free |  cut, merged under the cache's lock
//! ```
//!
//! An extent is a piece of the shared segments that is out and belongs to one cache. It is created
//! by a request that the cache could not serve. Free parts return to the shared segments when a
//! request looks for memory. A single block returns when it was freed on another stream: the extent
//! is then split in two.
//!
//! I1: `pieces` maps the start of each segment of `arena` to its shared piece; both have the same
//! start and length, and the piece is out. I2: adjacent extents whose shared pieces are neighbours
//! are merged. I3: memory that is free here may be in use by work that was submitted to the cache's
//! stream before, and by no other work.
//!
//! Written under the lock of the cache. Operations that change shared pieces also hold the shared
//! lock.

use super::class::Need;
use super::order_table::OrderTag;
use super::segment::Arena;
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// All free memory here belongs to the cache's stream.
const OWN: OrderTag = OrderTag::IDLE;

#[derive(Default)]
pub(super) struct Local {
    arena: Arena,
    pieces: HashMap<u64, u32, FixedState>,
}

impl Local {
    /// Cuts a piece for a request by best fit. Returns its number and start.
    #[inline]
    pub fn cut(&mut self, need: Need) -> Option<(u32, u64)> {
        let node = self.arena.fit(OWN, need.bytes, need.align)?;
        let node = self.arena.cut(node, need.bytes, need.align);
        Some((node, self.arena.start(node)))
    }

    /// Frees a piece that was cut here.
    #[inline]
    pub fn give(&mut self, node: u32) {
        self.arena.give(node, OWN);
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adopts a shared piece that is out as an extent, all of it free.
    pub fn adopt(&mut self, shared: &mut Arena, piece: u32) {
        let (start, bytes) = (shared.start(piece), shared.bytes(piece));
        let (prev, next) = shared.neighbours(piece);
        let before = self.arena.ending_at(start).filter(|left| self.pieces.get(left) == Some(&prev));
        let behind = self.pieces.get(&(start + bytes)).is_some_and(|right| *right == next);
        if behind {
            self.pieces.remove(&(start + bytes));
            shared.join_out(piece);
        }
        match before {
            Some(_) => shared.join_out(prev),
            None => drop(self.pieces.insert(start, piece)),
        }
        self.arena.add_between(start, bytes, (before.is_some(), behind), OWN);
    }

    /// Moves a piece to the shared segments, where it is out, and returns its number there.
    pub fn let_go(&mut self, shared: &mut Arena, node: u32) -> u32 {
        let (start, bytes) = (self.arena.start(node), self.arena.bytes(node));
        let Some(extent) = self.arena.segment_of(start).map(|extent| extent.start) else {
            unreachable!("a piece is of a segment")
        };
        let piece = self.pieces[&extent];
        self.arena.take_out(node);
        if extent == start {
            self.pieces.remove(&extent);
        }
        let (part, behind) = shared.carve(piece, start, bytes);
        if let Some(behind) = behind {
            self.pieces.insert(start + bytes, behind);
        }
        part
    }

    /// Moves all free pieces to the shared segments with that order.
    pub fn let_go_free(&mut self, shared: &mut Arena, order: OrderTag) {
        let all = self.arena.free_of(OWN);
        self.let_go_all(shared, all, order);
    }

    /// Moves the free pieces at the ends of extents to the shared segments with that order. The
    /// others have no free neighbour there.
    pub fn let_go_ends(&mut self, shared: &mut Arena, order: OrderTag) {
        let ends = self.arena.free_ends();
        self.let_go_all(shared, ends, order);
    }

    fn let_go_all(&mut self, shared: &mut Arena, nodes: Vec<u32>, order: OrderTag) {
        for node in nodes {
            let part = self.let_go(shared, node);
            shared.give(part, order);
        }
    }
}

#[cfg(test)]
impl Local {
    /// I1 and I2, and the invariants of the segments.
    pub fn check(&self, shared: &Arena) {
        self.arena.check();
        assert_eq!(self.arena.segments().count(), self.pieces.len(), "I1");
        for segment in self.arena.segments() {
            let piece = self.pieces[&segment.start];
            assert_eq!((shared.start(piece), shared.bytes(piece)), (segment.start, segment.bytes), "I1");
            assert_eq!(shared.order(piece), None, "I1");
            let (_, next) = shared.neighbours(piece);
            assert!(self.pieces.get(&(segment.start + segment.bytes)) != Some(&next), "I2");
        }
    }
}
