//! Requirements for building a pool.

use std::alloc::Layout;

/// The requests that a pool must serve, for pools of a fixed size or of one block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Limit on the memory taken from the device, in bytes; `None` for as much as the pool needs.
    pub bytes: Option<u64>,
    /// The largest size and the largest alignment.
    pub largest: Layout,
    /// Maximum number of live blocks.
    pub peak_blocks: usize,
    /// Maximum number of live bytes.
    pub peak_bytes: u64,
    /// Bytes of all allocations together, for pools that reuse nothing.
    pub total_bytes: u64,
    /// Number of all allocations.
    pub total_blocks: usize,
}
