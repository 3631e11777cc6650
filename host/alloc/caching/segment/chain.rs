//! Numbered pieces, each linked to the one before and the one behind it in its segment.
//!
//! ```text
//!   first ─► 4 ◄─► 0 ◄─► 7 ◄─ last      split(0) ─► 4 ◄─► 0 ◄─► 2 ◄─► 7      vacant: 1, 3, 5, 6
//! ```
//!
//! Links and numbers are written here alone; what a piece is for and how long it is, by [`Arena`](super::Arena) too.
//!
//! I1: `next` and `prev` of two neighbours name each other; both ends have [`NONE`]. I2: a number in `vacant` is no piece's.

use super::super::orders::Order;

/// In place of a neighbour: there is none.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// No piece; its number can be used.
    Vacant,
    Free(Order),
    /// Someone's, or cached.
    Out,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub start: u64,
    pub bytes: u64,
    pub prev: u32,
    pub next: u32,
    pub is: Use,
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

    /// A piece that is out, behind the last one of its segment; the first one behind [`NONE`].
    pub fn push(&mut self, (start, bytes): (u64, u64), prev: u32) -> u32 {
        let node = self.add(Node { start, bytes, prev, next: NONE, is: Use::Out });
        self.link(prev, node);
        node
    }

    /// Takes a piece out that has none behind it.
    pub fn pop(&mut self, node: u32) {
        self.link(self.get(node).prev, NONE);
        self.retire(node);
    }

    /// Takes a piece out from between its neighbours, each of which is an end then.
    pub fn take_out(&mut self, node: u32) {
        let Node { prev, next, .. } = *self.get(node);
        self.link(prev, NONE);
        self.link(NONE, next);
        self.retire(node);
    }

    /// Makes neighbours of two ends.
    pub fn link(&mut self, left: u32, right: u32) {
        if left != NONE {
            self.get_mut(left).next = right;
        }
        if right != NONE {
            self.get_mut(right).prev = left;
        }
    }

    fn retire(&mut self, node: u32) {
        self.get_mut(node).is = Use::Vacant;
        self.vacant.push(node);
    }

    /// Makes two of a piece, the first of `bytes`; the second.
    pub fn split(&mut self, node: u32, bytes: u64) -> u32 {
        let of = *self.get(node);
        let right = self.add(Node { start: of.start + bytes, bytes: of.bytes - bytes, ..of });
        self.get_mut(node).bytes = bytes;
        self.link(right, of.next);
        self.link(node, right);
        right
    }

    /// Makes one of a piece and the one behind it.
    pub fn join(&mut self, node: u32) {
        let right = self.get(node).next;
        let Node { bytes, next, .. } = *self.get(right);
        self.get_mut(node).bytes += bytes;
        self.link(node, next);
        self.retire(right);
    }

    /// A piece and all behind it.
    pub fn from(&self, node: u32) -> impl Iterator<Item = u32> {
        let next = |node: &u32| Some(self.get(*node).next).filter(|next| *next != NONE);
        std::iter::successors(Some(node), next)
    }
}

#[cfg(test)]
impl Chain {
    /// I2, if so many pieces are in use.
    pub fn check(&self, used: usize) {
        let vacant: std::collections::BTreeSet<_> = self.vacant.iter().collect();
        assert_eq!((vacant.len(), vacant.len() + used), (self.vacant.len(), self.nodes.len()), "I2");
        assert!(vacant.iter().all(|node| self.get(**node).is == Use::Vacant), "I2");
    }
}
