//! Paths: what a call of the heap does, one module each.

pub mod aged;
pub mod alloc;
pub mod free;
pub mod group;
pub mod grow;
pub mod large;
pub mod probe;
pub mod realloc;
pub mod refill;
pub mod search;
pub mod slow;
pub mod split;

/// The shortest pause before another turn of an operation that other threads were faster than.
pub(in crate::heap) const NAP_NANOS: u32 = 300;
