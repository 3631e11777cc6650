//! Segments and the pieces that they are divided into: best fit, with splitting and coalescing.
//!
//! ```text
//! segment   | used | free, order 3 | used | used | free, idle |   each linked to its neighbours
//! free      3 ─► { (bytes, start) … }      idle ─► { (bytes, start) … }
//! ```
//!
//! A free piece has an ordering tag (`order_tag`): the stream whose later work may use it at once.
//! A piece that is not free is *used*. Neighbours of different orders do not coalesce by
//! themselves, since no stream could use the result without synchronisation. [`Arena::coalesce`]
//! coalesces them for a stream that is ordered after both.
//!
//! I1: the pieces of a segment are adjacent and fill it, none is empty, and `next` and `prev` name
//! the neighbours. I2: no two free neighbours have the same order. I3: `free` contains exactly the
//! free pieces, by order, size and start. I4: `reserved` is the sum of the segments' bytes;
//! segments do not overlap.

mod chain;
mod free_index;
mod pieces;
mod segments;
#[cfg(test)]
mod tests;

pub(super) use pieces::{Arena, Segment};
