//! The properties of an allocator that decide the sizes of a run.

/// The minimum alignment of every pool. Sizes are rounded up to a multiple of it.
pub(super) const MIN_GRANULE_LOG2: u32 = 4;

/// The properties of an allocator that the checks need, for a range of sizes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shape {
    /// The base-2 logarithm of the granule of the ownership map, in bytes. Every block starts at a
    /// multiple of the granule in the pool.
    pub granule_log2: u32,
    /// The base-2 logarithm of the largest alignment that threads request, in bytes.
    pub max_align_log2: u32,
    /// The size of the pool is a multiple of this number of bytes, which is a multiple of the
    /// granule.
    pub unit: u64,
    /// The largest pool, in bytes.
    pub most_bytes: u64,
    /// The approximate mean of the pool memory that an allocation takes, in bytes.
    pub mean_bytes: u64,
    /// Bytes from one block to the next, if this is constant. Findings then include block numbers.
    pub block_bytes: Option<u64>,
}

impl Shape {
    /// A pool of blocks of at least `max_bytes` each, at multiples of 16 bytes.
    pub fn of_blocks(max_bytes: u32) -> Self {
        let stride = stride(max_bytes);
        Shape {
            granule_log2: MIN_GRANULE_LOG2,
            max_align_log2: MIN_GRANULE_LOG2,
            unit: stride,
            most_bytes: 1 << 48,
            mean_bytes: stride,
            block_bytes: Some(stride),
        }
    }
}

/// `max_bytes` rounded up to the minimum alignment of a pool.
pub(super) fn stride(max_bytes: u32) -> u64 {
    u64::from(max_bytes).next_multiple_of(1 << MIN_GRANULE_LOG2)
}
