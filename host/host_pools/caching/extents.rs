//! The extents of one stream's cache: memory that large blocks are cut from without the shared
//! state.
//!
//! ```text
//! shared segments   | free | used: extent of stream 7            | slab | used: of stream 9 |
//! stream 7's arena         | block | free | block | free |  cut, merged under the cache's lock
//! ```
//!
//! An extent is a used piece of the shared segments that belongs to one cache. It is created by a
//! request that the cache could not serve. Free parts return to the shared segments when a request
//! looks for memory. A single block returns when it was freed on another stream: the extent is then
//! split in two.
//!
//! I1: `pieces` maps the start of each segment of `arena` to its shared piece; both have the same
//! start and length, and the piece is used. I2: adjacent extents whose shared pieces are neighbours
//! are merged. I3: memory that is free here may be in use by work that was submitted to the cache's
//! stream before, and by no other work.
//!
//! Written under the lock of the cache. Operations that change shared pieces also hold the shared
//! lock.

use super::arena::{Arena, OrderTag};
use super::blocks::{BlockId, BlockInfo, SHARED};
use super::class::Need;
use super::context::Context;
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::sync::Arc;

/// All free memory here belongs to the cache's stream.
const OWN: OrderTag = OrderTag::IDLE;
/// Block numbers that are taken or returned at a time: all streams share one list of them.
const NUMBERS: usize = 32;

pub(super) struct Extents {
    arena: Arena,
    pieces: HashMap<u64, u32, FixedState>,
    /// The cache's number, as stored in the slots of its blocks; [`SHARED`] for a cache without
    /// extents.
    owner: u32,
    /// Unused numbers for blocks.
    numbers: Vec<BlockId>,
    context: Arc<Context>,
}

impl Extents {
    pub fn new(context: Arc<Context>, owner: u32) -> Extents {
        Extents { arena: Arena::default(), pieces: HashMap::default(), owner, numbers: Vec::new(), context }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether a block was cut from these extents.
    #[inline]
    pub fn owns(&self, id: BlockId) -> bool {
        self.owner != SHARED && self.context.blocks.slot(id).owner() == self.owner
    }

    /// Cuts a piece for a request by best fit.
    #[inline]
    fn cut_piece(&mut self, bytes: u64, align: u64) -> Option<u32> {
        let node = self.arena.fit(OWN, bytes, align)?;
        Some(self.arena.cut(node, bytes, align))
    }

    /// Cuts a block for a request. It is not live yet.
    pub fn cut(&mut self, need: &Need) -> Option<(BlockId, u64)> {
        let piece = self.cut_piece(need.bytes, need.align)?;
        let address = self.arena.start(piece);
        let blocks = &self.context.blocks;
        let id = self.numbers.pop().unwrap_or_else(|| {
            self.numbers = blocks.take_numbers(NUMBERS);
            self.numbers.pop().unwrap_or_else(|| unreachable!("`NUMBERS` is not zero"))
        });
        let &Need { class, bytes, .. } = need;
        blocks.insert_as(id, BlockInfo { address, bytes, owner: self.owner, piece, class, is_small: false });
        Some((id, address))
    }

    /// Merges a free block into the extent that it was cut from.
    #[inline(never)]
    pub fn free(&mut self, id: BlockId) {
        let blocks = &self.context.blocks;
        let piece = blocks.slot(id).piece();
        blocks.remove_keeping_number(id);
        self.numbers.push(id);
        if self.numbers.len() > 2 * NUMBERS {
            blocks.return_numbers(self.numbers.drain(NUMBERS..));
        }
        self.arena.free(piece, OWN);
    }

    /// Returns the unused block numbers of a cache that is retired.
    pub fn return_numbers(&mut self) {
        self.context.blocks.return_numbers(self.numbers.drain(..));
    }

    /// Adopts a used shared piece as an extent, all of it free.
    pub fn adopt(&mut self, shared: &mut Arena, piece: u32) {
        let (start, bytes) = (shared.start(piece), shared.bytes(piece));
        let (prev, next) = shared.neighbours(piece);
        let before = self.arena.ending_at(start).filter(|left| self.pieces.get(left) == Some(&prev));
        let behind = self.pieces.get(&(start + bytes)).is_some_and(|right| *right == next);
        if behind {
            self.pieces.remove(&(start + bytes));
            shared.join(piece);
        }
        match before {
            Some(_) => shared.join(prev),
            None => drop(self.pieces.insert(start, piece)),
        }
        self.arena.add_between(start, bytes, (before.is_some(), behind), OWN);
    }

    /// Moves a piece to the shared segments, where it is used, and returns its number there.
    fn move_to_shared(&mut self, shared: &mut Arena, node: u32) -> u32 {
        let (start, bytes) = (self.arena.start(node), self.arena.bytes(node));
        let Some(extent) = self.arena.segment_of(start).map(|extent| extent.start) else {
            unreachable!("each piece is part of a segment")
        };
        let piece = self.pieces[&extent];
        self.arena.remove(node);
        if extent == start {
            self.pieces.remove(&extent);
        }
        let (part, behind) = shared.split_middle(piece, start, bytes);
        if let Some(behind) = behind {
            self.pieces.insert(start + bytes, behind);
        }
        part
    }

    /// Moves the piece of a free block to the shared segments, and returns its number there.
    pub fn release_block(&mut self, shared: &mut Arena, id: BlockId) -> u32 {
        let piece = self.context.blocks.slot(id).piece();
        self.context.blocks.remove(id);
        self.move_to_shared(shared, piece)
    }

    /// Moves a free part of `bytes` to the shared segments. Returns its number there.
    pub fn release_part(&mut self, shared: &mut Arena, bytes: u64, align: u64) -> Option<u32> {
        let node = self.cut_piece(bytes, align)?;
        Some(self.move_to_shared(shared, node))
    }

    /// Frees all free pieces to the shared segments with that order. With `only_ends`, only those
    /// at the ends of extents: the others have no free neighbour there.
    pub fn free_to_shared(&mut self, shared: &mut Arena, order: OrderTag, only_ends: bool) {
        let nodes = if only_ends { self.arena.free_ends() } else { self.arena.free_pieces(OWN) };
        for node in nodes {
            let part = self.move_to_shared(shared, node);
            shared.free(part, order);
        }
    }
}

#[cfg(test)]
impl Extents {
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
