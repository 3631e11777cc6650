//! What a bump pool does when its region is full.

/// Policy of a [`BumpPool`](super::BumpPool) for a request that does not fit into the rest of its
/// region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The allocation fails.
    #[default]
    Error,
    /// The pool allocates a separate block from its upstream. A free returns that block to the
    /// upstream, independent of resets. [`BumpPoolStats`](super::BumpPoolStats) counts these
    /// blocks.
    Upstream,
}
