//! Paths: the operations of the heap and their steps, one module each.

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

/// The shortest pause before an operation that lost a race to other threads takes another turn.
pub(in crate::heap) const NAP_NANOS: u32 = 300;
