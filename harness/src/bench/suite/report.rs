//! The results of a suite.

use super::aging::{Drift, HeapLoad};
use super::latency::Latency;
use crate::bench::run::BenchReport;
use serde::Serialize;

/// Extent of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// Every fourth power of two. No measurement begins after 45 s. Also on the CPU, with simulated
    /// threads.
    Quick,
    /// Every power of two. No measurement begins after 240 s.
    Full,
    /// Only fills and turns of heaps over their load, and drift from size to size. No measurement
    /// begins after 240 s. Also on the CPU, with simulated threads.
    Load,
}

impl Suite {
    /// As in the results.
    pub const fn name(self) -> &'static str {
        match self {
            Suite::Quick => "quick",
            Suite::Full => "full",
            Suite::Load => "load",
        }
    }
}

/// What the threads of a series do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Every thread allocates one block.
    Alloc,
    /// Every thread frees one block.
    Free,
    /// Every thread repeatedly allocates a block, writes to it and frees it.
    Churn,
}

impl Operation {
    /// As in the results.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Alloc => "alloc",
            Operation::Free => "free",
            Operation::Churn => "churn",
        }
    }
}

/// The variable of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// The number of threads.
    Threads,
    /// The size of the blocks.
    Bytes,
}

impl Over {
    /// As in the results.
    pub const fn name(self) -> &'static str {
        match self {
            Over::Threads => "threads",
            Over::Bytes => "bytes",
        }
    }
}

/// What is equal at all points of a series: one of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fixed {
    /// The number of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// The size of the blocks, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u32>,
}

/// The times of one operation of one contender.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Series {
    /// What was measured: `floor`, `bump`, `free list`, `heap`, `heap group calls`,
    /// `heap block cache` or `CUDA malloc`.
    pub contender: &'static str,
    /// The operation.
    pub operation: Operation,
    /// The variable.
    pub over: Over,
    /// What does not vary.
    pub fixed: Fixed,
    /// Pairs of allocation and free per thread in a churn; otherwise 1.
    pub turns: u32,
    /// Unit of the times: `us`.
    pub unit: &'static str,
    /// The points, by ascending `x`.
    pub points: Vec<Point>,
}

/// The time of a kernel with `x` threads, or with blocks of `x` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Point {
    /// The number of threads, or the size in bytes.
    pub x: u32,
    /// The median round.
    pub median: f64,
    /// The fastest round.
    pub min: f64,
    /// The slowest round.
    pub max: f64,
    /// The median of the floor at this point; `None` in series of the floor.
    pub floor: Option<f64>,
    /// Timed rounds.
    pub rounds: u32,
    /// Operations that failed in all rounds, with those of the warm-up. Of an arena, those of the
    /// last round.
    pub failed: u64,
}

/// The time of a kernel with one of Rust's collections per thread, over both allocators.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Collection {
    /// What the threads do.
    pub name: &'static str,
    /// Threads, each with its own collection.
    pub threads: u32,
    /// Median with the heap as the global allocator, in microseconds.
    pub heap_us: f64,
    /// Median with CUDA's `malloc` as the global allocator, in microseconds.
    pub cuda_malloc_us: f64,
    /// `cuda_malloc_us` over `heap_us`.
    pub ratio: f64,
}

/// All results of a suite.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SuiteReport {
    /// Its extent.
    pub suite: Suite,
    /// Whether the threads were simulated by the CPU. Then times say nothing about a GPU.
    pub simulated: bool,
    /// Duration of the suite, in seconds.
    pub seconds: f64,
    /// What a reader must know: limits that were set, contenders that were left out.
    pub notes: Vec<String>,
    /// Times over the number of threads and over sizes.
    pub series: Vec<Series>,
    /// Durations of single calls.
    pub latency: Vec<Latency>,
    /// Rust's collections.
    pub collections: Vec<Collection>,
    /// Fills and turns of heaps over their load.
    pub load: Vec<HeapLoad>,
    /// Drifts from size to size.
    pub drift: Vec<Drift>,
    /// Targets, and what was left out or wrong.
    #[serde(flatten)]
    pub bench: BenchReport,
}
