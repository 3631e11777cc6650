//! What every pool reports.

/// Bytes that an allocator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes of live blocks, including rounding.
    pub used_bytes: u64,
    /// Bytes allocated from the upstream: used, or cached for later.
    pub reserved_bytes: u64,
    /// Size of the largest block that can be allocated without more memory from the upstream.
    /// `None` if only the driver knows it, or if finding it would need a search through all blocks.
    pub largest_free_bytes: Option<u64>,
}
