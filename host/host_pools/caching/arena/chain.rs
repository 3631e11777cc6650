//! Numbered pieces, each linked to its left and right neighbour in the segment.
//!
//! ```text
//!   first ─► 4 ◄─► 0 ◄─► 7 ◄─ last      split(0) ─► 4 ◄─► 0 ◄─► 2 ◄─► 7      vacant: 1, 3, 5, 6
//! ```
//!
//! Links and numbers are written only here. The arena also writes the state and the length of a
//! piece.
//!
//! I1: `next` and `prev` of two neighbours name each other; both ends hold [`NONE`]. I2: a number
//! in `vacant` belongs to no piece.

use super::super::order_tag::OrderTag;

/// In place of a neighbour: no neighbour.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceState {
    /// An unused number.
    Vacant,
    Free(OrderTag),
    /// Not free: in a live or cached block, a slab or an extent.
    Used,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub start: u64,
    pub bytes: u64,
    pub prev: u32,
    pub next: u32,
    pub state: PieceState,
}

#[derive(Default)]
pub(super) struct Chain {
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

    /// Appends a used piece behind `prev`, the last piece of a segment. [`NONE`] starts a
    /// new segment.
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

#[cfg(test)]
impl Chain {
    /// I2, given the number of pieces in use.
    pub fn check(&self, used: usize) {
        let vacant: std::collections::BTreeSet<_> = self.vacant.iter().collect();
        assert_eq!((vacant.len(), vacant.len() + used), (self.vacant.len(), self.nodes.len()), "I2");
        assert!(vacant.iter().all(|node| self.get(**node).state == PieceState::Vacant), "I2");
    }
}
