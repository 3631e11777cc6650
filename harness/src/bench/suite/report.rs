//! The results of a suite.

use super::aging::{Drift, HeapLoad};
use super::latency::Latency;
use crate::Name;
use crate::bench::run::BenchReport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Extent of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// Every fourth power of two. No measurement begins after 45 s.
    Quick,
    /// Every power of two. No measurement begins after 240 s.
    Full,
    /// Only the heap over its load, and drifts. No measurement begins after 240 s.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The times of one operation of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Series {
    /// What was measured: `floor`, `bump`, `free list`, `heap`, `heap group calls`,
    /// `heap block cache` or `CUDA malloc`.
    pub contender: Name,
    /// [`Operation::name`], or what the threads of another program do.
    pub operation: Name,
    /// The variable: [`Over::name`].
    pub over: Name,
    /// What does not vary: the number of `threads`, or the size of the blocks in `bytes`.
    #[serde(default)]
    pub fixed: BTreeMap<Name, u64>,
    /// Pairs of allocation and free per thread in a churn; otherwise 1.
    #[serde(default = "once")]
    pub turns: u32,
    /// Unit of the times: `us`.
    pub unit: Name,
    /// The points, by ascending `x`.
    pub points: Vec<Point>,
}

fn once() -> u32 {
    1
}

/// The time of a kernel with `x` threads, or with blocks of `x` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Point {
    /// The number of threads, or the size in bytes.
    pub x: u64,
    /// The median round.
    pub median: f64,
    /// The fastest round.
    pub min: f64,
    /// The slowest round.
    pub max: f64,
    /// The median of the floor at this point; `None` in series of the floor.
    pub floor: Option<f64>,
    /// Timed rounds; `None` for those of the whole benchmark.
    pub rounds: Option<u32>,
    /// Operations that failed in all rounds, with those of the warm-up. Of an arena, those of the
    /// last round.
    #[serde(default)]
    pub failed: u64,
}

/// The time of a kernel with one of Rust's collections per thread, over both allocators.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Collection {
    /// What the threads do.
    pub name: Name,
    /// Threads, each with its own collection.
    #[serde(default)]
    pub threads: u32,
    /// Median with the heap as the global allocator, in microseconds.
    pub heap_us: f64,
    /// Median with CUDA's `malloc` as the global allocator, in microseconds.
    pub cuda_malloc_us: f64,
    /// `cuda_malloc_us` over `heap_us`; `None` if that is no number.
    pub ratio: Option<f64>,
}

/// All results of a suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SuiteReport {
    /// Its extent. `None` for figures alone, and in results of another program.
    pub suite: Option<Suite>,
    /// Whether the threads were simulated by the CPU. Then times say nothing about a GPU.
    #[serde(default)]
    pub simulated: bool,
    /// Duration of the suite, in seconds.
    #[serde(default)]
    pub seconds: f64,
    /// What a reader must know: limits that were set, contenders that were left out.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Times over the number of threads and over sizes.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Durations of single calls.
    #[serde(default)]
    pub latency: Vec<Latency>,
    /// Rust's collections.
    #[serde(default)]
    pub collections: Vec<Collection>,
    /// Fills and turns of heaps over their load.
    #[serde(default)]
    pub load: Vec<HeapLoad>,
    /// Drifts from size to size.
    #[serde(default)]
    pub drift: Vec<Drift>,
    /// Targets, and what was left out or wrong.
    #[serde(flatten)]
    pub bench: BenchReport,
}

/// Figures without a suite.
impl From<BenchReport> for SuiteReport {
    fn from(bench: BenchReport) -> SuiteReport {
        let (notes, series, latency, collections, load, drift) = Default::default();
        let (suite, simulated, seconds) = (None, false, 0.0);
        SuiteReport { suite, simulated, seconds, notes, series, latency, collections, load, drift, bench }
    }
}
