//! Ordering tags of free memory, and the keys of streams.

/// Ordering tag: says which work may still use a free piece or block
/// ([`OrderTable`](super::order_table::OrderTable)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OrderTag(pub u64);

impl OrderTag {
    /// Idle: no work in flight uses the memory.
    pub const IDLE: OrderTag = OrderTag(0);
}

/// Key of a stream within a pool: its number, or [`ANY_STREAM`].
pub(super) type Key = u64;

/// Key in a pool that is not stream-ordered: one cache for all streams.
pub(super) const ANY_STREAM: Key = 0;
