//! The data of a heap over its load, and of drifts.

use serde::Deserialize;

/// The costs of a heap at a load, in nanoseconds per thread.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct HeapLoad {
    /// Size of the heap.
    pub heap_bytes: u64,
    /// The smallest size of a block.
    pub min_bytes: u64,
    /// The largest size of a block.
    pub max_bytes: u64,
    /// The share of the blocks that fit.
    pub percent: u64,
    /// Allocations from a new heap.
    pub fill: Fill,
    /// Exchanges of blocks.
    pub turn: Turn,
    /// The same reads and writes as in a turn, without the allocator.
    pub floor_ns: f64,
}

/// Kernels that allocate up to a load.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Fill {
    /// The first kernel.
    pub first_ns: f64,
    /// All kernels.
    pub mean_ns: f64,
    /// Failed allocations in percent.
    pub failed_percent: f64,
}

/// Kernels that exchange blocks.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Turn {
    /// Number of kernels.
    pub turns: u64,
    /// The first kernel.
    pub first_ns: f64,
    /// The median kernel.
    pub median_ns: f64,
    /// The fastest kernel.
    pub min_ns: f64,
    /// The slowest kernel.
    pub worst_ns: f64,
    /// Failed allocations in percent.
    pub failed_percent: f64,
}

/// One size of a drift, or all of them.
#[derive(Clone, Debug, Deserialize)]
pub struct Drift {
    /// Size of the heap.
    pub heap_bytes: u64,
    /// `oldest` or `random`.
    pub survivors: String,
    /// Threads of a kernel.
    pub threads: u64,
    /// The size; `None` for all sizes.
    pub bytes: Option<u64>,
    /// Failed allocations for which there was memory, in percent of the requests.
    pub wrong_percent: f64,
    /// Bytes that no kernel was granted, in percent of those that fit.
    pub persistent_percent: f64,
}
