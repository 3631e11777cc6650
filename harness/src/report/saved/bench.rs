//! The data of `warpheap bench`.

use super::{Drift, HeapLoad};
use serde::Deserialize;

/// All figures and series.
#[derive(Clone, Debug, Deserialize)]
pub struct Bench {
    /// Timed rounds of each figure.
    pub rounds: u64,
    /// Figures with targets.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Figures that the device has too little memory for.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Figures whose results were wrong.
    #[serde(default)]
    pub wrong: Vec<String>,
    /// The suite, if one was measured.
    #[serde(default)]
    pub suite: Option<String>,
    /// Times over threads and over sizes.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Latencies of single calls.
    #[serde(default)]
    pub latency: Vec<Latency>,
    /// Kernels with Rust's collections.
    #[serde(default)]
    pub collections: Vec<Collection>,
    /// Heaps over their load.
    #[serde(default)]
    pub load: Vec<HeapLoad>,
    /// Drifts from size to size.
    #[serde(default)]
    pub drift: Vec<Drift>,
    /// What a reader of the suite must know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The times of all rounds, in microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Time {
    /// The median round.
    pub median_us: f64,
    /// The fastest round.
    pub min_us: f64,
    /// The slowest round.
    pub max_us: f64,
}

/// A figure with its target.
#[derive(Clone, Debug, Deserialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Threads of the kernel; 0 if only the host works.
    #[serde(default)]
    pub threads: u64,
    /// The time of the measured kernel.
    pub time: Option<Time>,
    /// What it is compared with.
    pub against: String,
    /// The time of that.
    pub base: Option<Time>,
    /// The figure; `None` if it was not measured.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: String,
    /// Direction of the target: `at_most` or `at_least`.
    pub holds: String,
    /// The target.
    pub bar: f64,
    /// Whether it is met.
    pub passed: bool,
}

/// Times of one operation of one contender.
#[derive(Clone, Debug, Deserialize)]
pub struct Series {
    /// The allocator.
    pub contender: String,
    /// What its threads do.
    pub operation: String,
    /// What varies: `threads` or `bytes`.
    pub over: String,
    /// What does not vary.
    #[serde(default)]
    pub fixed: serde_json::Map<String, serde_json::Value>,
    /// Pairs of an allocation and a free of each thread.
    #[serde(default = "once")]
    pub turns: u64,
    /// Unit of the times.
    pub unit: String,
    /// The times.
    pub points: Vec<Point>,
}

fn once() -> u64 {
    1
}

/// A time of a series.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Point {
    /// Threads or bytes.
    pub x: f64,
    /// The median round.
    pub median: f64,
    /// The fastest round.
    pub min: f64,
    /// The slowest round.
    pub max: f64,
    /// The same kernel without the operation.
    #[serde(default)]
    pub floor: Option<f64>,
    /// Timed rounds, if they are known.
    #[serde(default)]
    pub rounds: Option<u64>,
    /// Operations that failed.
    #[serde(default)]
    pub failed: u64,
}

/// Latencies of the calls of one operation.
#[derive(Clone, Debug, Deserialize)]
pub struct Latency {
    /// The allocator.
    pub contender: String,
    /// `alloc` or `free`.
    pub operation: String,
    /// What the heap and the other threads do.
    pub situation: String,
    /// Threads of the kernel; 0 if unknown.
    #[serde(default)]
    pub threads: u64,
    /// Bytes of each allocation; 0 if unknown.
    #[serde(default)]
    pub bytes: u64,
    /// Calls that failed, which have no latency.
    #[serde(default)]
    pub failed: u64,
    /// Unit of the latencies.
    pub unit: String,
    /// Number of calls.
    pub calls: u64,
    /// The median.
    pub p50: f64,
    /// The 999th of 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// Calls up to each latency, and above the one before it.
    #[serde(default)]
    pub histogram: Vec<Bin>,
}

/// A part of a histogram.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Bin {
    /// The largest latency.
    pub upto: f64,
    /// Number of calls.
    pub calls: f64,
}

/// A kernel with Rust's collections, over two allocators.
#[derive(Clone, Debug, Deserialize)]
pub struct Collection {
    /// Its name.
    pub name: String,
    /// Median time over the heap.
    pub heap_us: f64,
    /// Median time over CUDA's `malloc`.
    pub cuda_malloc_us: f64,
    /// The second over the first; `None` if it is no number.
    pub ratio: Option<f64>,
}
