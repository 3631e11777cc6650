//! What a pool is made for.

use std::alloc::Layout;

/// What will be asked of a pool, so that one of a fixed size, or of one size of block, can be made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What it may take of the device, in bytes; `None` for what it needs.
    pub bytes: Option<u64>,
    /// The largest size and the largest alignment.
    pub largest: Layout,
    /// The most blocks that will be live at one time.
    pub peak_blocks: usize,
    /// The most bytes that will be live at one time.
    pub peak_bytes: u64,
    /// The bytes of all allocations together, for what takes nothing back.
    pub total_bytes: u64,
    /// How many allocations that are.
    pub total_blocks: usize,
}
