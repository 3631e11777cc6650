//! Durations of single calls: percentiles and a histogram.

use super::report::Operation;
use serde::Serialize;

/// The durations of single calls in one situation.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// The name: contender, operation and situation.
    pub name: String,
    /// What was measured, as in a series.
    pub contender: &'static str,
    /// The operation: `alloc` or `free`.
    pub operation: Operation,
    /// `one size`, `contention`, `near exhaustion` or `refill`.
    pub situation: &'static str,
    /// Threads of the kernel.
    pub threads: u32,
    /// The size of the blocks.
    pub bytes: u32,
    /// Unit of the durations: `cycles` of the multiprocessor's clock; `ns` on the CPU.
    pub unit: &'static str,
    /// Calls that failed.
    pub failed: u64,
    /// Percentiles and histogram.
    #[serde(flatten)]
    pub distribution: Distribution,
}

/// Durations of successful calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// Their number.
    pub calls: u64,
    /// The median.
    pub p50: u64,
    /// 99 % of the calls took at most this.
    pub p99: u64,
    /// 99.9 % of the calls took at most this.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// Calls by duration, with four bins per doubling. Without the empty bins at both ends.
    pub histogram: Vec<Bin>,
}

/// Calls that took at most `upto`, and more than the `upto` of the previous bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The upper bound, inclusive.
    pub upto: u64,
    /// The number of calls.
    pub calls: u64,
}
