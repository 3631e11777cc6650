//! The results of a run, as they are written and read: figures with targets, the times of suites,
//! durations of single calls, and heaps over their load.

use crate::Name;
use crate::summary::Timing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Direction of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// The figure must not exceed the bar.
    AtMost,
    /// The figure must not be below the bar.
    AtLeast,
}

impl Bar {
    /// Whether `value` meets `bar`.
    pub(crate) fn is_met(self, value: f64, bar: f64) -> bool {
        match self {
            Bar::AtMost => value <= bar,
            Bar::AtLeast => value >= bar,
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// GPU threads; 0 if only the host works.
    #[serde(default)]
    pub threads: u32,
    /// Time of the kernel with the pool; `None` if nothing was timed.
    pub time: Option<Timing>,
    /// The baseline, or how the figure was measured.
    pub against: String,
    /// Time of the baseline kernel, if there is one.
    pub base: Option<Timing>,
    /// The figure itself; `None` if it is no number, as without a measured time.
    pub value: Option<f64>,
    /// Its unit: `x` for a ratio of medians, `G pairs/s` for allocations with their frees, `ppm`
    /// for failures per million allocations, `us` for microseconds, `%` for a share of the total
    /// that `against` names.
    pub unit: Name,
    /// Direction of `bar`.
    pub holds: Bar,
    /// The bar.
    pub bar: f64,
    /// Whether the bar is met.
    pub passed: bool,
    /// The checks that the results passed.
    #[serde(default)]
    pub checked: String,
    /// An additional comparison, without a bar.
    pub also: Option<Comparison>,
}

/// Comparison of a figure with another kernel's time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The baseline.
    pub against: String,
    /// Time of the baseline kernel.
    pub base: Timing,
    /// The ratio of the medians.
    pub value: f64,
}

impl Figure {
    /// A ratio of medians with the upper bound `bar`.
    pub fn ratio(name: &str, threads: u32, time: Timing, against: &str, base: Timing, bar: f64) -> Figure {
        let figure = Figure::plain(name, threads, against);
        let figure = Figure { time: Some(time), base: Some(base), ..figure };
        figure.measured_by(time.median_us / base.median_us, "x", Bar::AtMost, bar)
    }

    /// A figure with another unit, which [`measured_by`](Self::measured_by) sets.
    pub(super) fn plain(name: &str, threads: u32, against: &str) -> Figure {
        Figure {
            name: name.into(),
            threads,
            time: None,
            against: against.into(),
            base: None,
            value: None,
            unit: "x".into(),
            holds: Bar::AtMost,
            bar: 0.0,
            passed: false,
            checked: String::new(),
            also: None,
        }
    }

    /// Sets value, unit and bar.
    pub(super) fn measured_by(self, value: f64, unit: &'static str, holds: Bar, bar: f64) -> Figure {
        let passed = holds.is_met(value, bar);
        let value = value.is_finite().then_some(value);
        Figure { value, unit: unit.into(), holds, bar, passed, ..self }
    }

    /// Sets the time.
    pub(super) fn timed(self, time: Timing) -> Figure {
        Figure { time: Some(time), ..self }
    }

    /// Sets the description of the checks.
    pub(super) fn checked(self, checked: String) -> Figure {
        Figure { checked, ..self }
    }

    /// Adds a comparison with another kernel.
    pub(super) fn beside(self, against: &str, base: Timing) -> Figure {
        let value = self.time.map_or(0.0, |time| time.median_us / base.median_us);
        Figure { also: Some(Comparison { against: against.into(), base, value }), ..self }
    }
}

/// The figures of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BenchReport {
    /// Threads in a block.
    #[serde(default)]
    pub block: u32,
    /// Timed rounds of each figure.
    pub rounds: u32,
    /// The figures, in measurement order.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Skipped figures, and the reasons.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Figures without a value because the measured code failed its checks, and what was wrong.
    #[serde(default)]
    pub wrong: Vec<String>,
}

/// Extent of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "program", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// Every fourth power of two. On a GPU, no measurement begins after 45 s. Also on the CPU, with
    /// simulated threads.
    Quick,
    /// Every power of two. No measurement begins after 240 s.
    Full,
    /// Only fills and turns of heaps over their load, and drift from size to size. On a GPU, no
    /// measurement begins after 240 s. Also on the CPU, with simulated threads.
    Load,
}

impl Suite {
    /// The name in the results.
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
    /// Its name in results.
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
    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Over::Threads => "threads",
            Over::Bytes => "bytes",
        }
    }
}

/// The times of one operation of one allocator, or of a floor.
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

/// The durations of single calls in one situation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Latency {
    /// Contender, operation and situation.
    #[serde(default)]
    pub name: String,
    /// What was measured, as in a series.
    pub contender: Name,
    /// [`Operation::name`] of an allocation or a free.
    pub operation: Name,
    /// `one size`, `contention`, `near exhaustion` or `refill`.
    pub situation: Name,
    /// Threads of the kernel; 0 if unknown.
    #[serde(default)]
    pub threads: u32,
    /// The size of the blocks; 0 if unknown.
    #[serde(default)]
    pub bytes: u32,
    /// Unit of the durations: `cycles` of the multiprocessor's clock; `ns` on the CPU.
    pub unit: Name,
    /// Calls that failed.
    #[serde(default)]
    pub failed: u64,
    /// The median duration of the calls that failed. `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_p50: Option<u64>,
    /// The longest call that failed. `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_max: Option<u64>,
    /// The calls that succeeded.
    #[serde(flatten)]
    pub distribution: Distribution,
}

/// The durations of the calls of all launches. A percentile is the median of those of the launches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// The number of launches.
    #[serde(default)]
    pub launches: u32,
    /// The number of calls.
    pub calls: u64,
    /// The median: half of the calls took at most this.
    pub p50: u64,
    /// 99 % of the calls took at most this.
    #[serde(default)]
    pub p99: u64,
    /// 99.9 % of the calls took at most this.
    pub p999: u64,
    /// The smallest `p999` of a launch.
    #[serde(default)]
    pub p999_min: u64,
    /// The largest `p999` of a launch.
    #[serde(default)]
    pub p999_max: u64,
    /// The longest call.
    pub max: u64,
    /// Calls by duration, with four bins per doubling. Without the empty bins at both ends.
    #[serde(default)]
    pub histogram: Vec<Bin>,
}

/// Calls that took at most `upto`, and more than the `upto` of the previous bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// The upper bound, inclusive.
    pub upto: u64,
    /// The number of calls.
    pub calls: u64,
}

/// The costs of a heap of which `percent` of the blocks that fit are live. Times are nanoseconds
/// per thread of a kernel, failed allocations included.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeapLoad {
    /// Size of the heap.
    pub heap_bytes: u64,
    /// The smallest requested size.
    pub min_bytes: u32,
    /// The largest requested size. Sizes between both are pseudo-random multiples of 16.
    pub max_bytes: u32,
    /// The load: share of the blocks that fit.
    pub percent: u32,
    /// The number of blocks that fit: the heap's size over the mean size of their classes.
    pub fits: u64,
    /// Most threads of a kernel.
    pub threads: u32,
    /// Allocations from a new heap up to the load.
    pub fill: Fill,
    /// Exchanges of blocks at the load.
    pub turn: Turn,
    /// Failed allocations of both that gave up without a proof that there was no memory.
    #[serde(default)]
    pub contended: u64,
    /// Median time of the kernel that reads and writes as a turn does, without the allocator.
    pub floor_ns: f64,
}

/// Kernels that allocate from a new heap until it has the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Time of the first kernel.
    pub first_ns: f64,
    /// Mean time of all kernels.
    pub mean_ns: f64,
    /// Allocations that were requested.
    pub requests: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// `failed` in percent of the requests.
    pub failed_percent: f64,
}

/// Kernels in which each thread frees one of the live blocks and allocates another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Number of kernels.
    pub turns: u32,
    /// Time of the first kernel.
    pub first_ns: f64,
    /// Median time of the kernels.
    pub median_ns: f64,
    /// Time of the fastest kernel.
    pub min_ns: f64,
    /// Time of the slowest kernel.
    pub worst_ns: f64,
    /// Allocations that were requested.
    pub requests: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// `failed` in percent of the requests.
    pub failed_percent: f64,
}

/// Which blocks of a drift survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Survivors {
    /// The tenth that was allocated first.
    Oldest,
    /// A tenth at random.
    Random,
}

impl Survivors {
    /// The name in text.
    pub const fn name(self) -> &'static str {
        match self {
            Survivors::Oldest => "the oldest tenth",
            Survivors::Random => "a random tenth",
        }
    }
}

/// One size of a drift, or all of them: kernels allocate until one fails, others repeat it with
/// nothing freed between, and a tenth of all live blocks survives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Drift {
    /// Size of the heap.
    pub heap_bytes: u64,
    /// Which blocks survive.
    pub survivors: Survivors,
    /// Threads of a kernel, each of which allocates one block.
    pub threads: u32,
    /// The size; `None` for all sizes of the drift.
    pub bytes: Option<u32>,
    /// Bytes in blocks that fit beside the survivors of the sizes before.
    pub goal_bytes: u64,
    /// Allocations that were requested up to the first kernel in which some failed.
    pub requests: u64,
    /// Those that succeeded.
    pub granted: u64,
    /// Those that failed, all of them in the last kernel.
    pub failed: u64,
    /// Allocations of a second such kernel that succeeded, with nothing freed between.
    pub served_again: u64,
    /// Allocations of further kernels that succeeded, until one was granted none.
    pub served_later: u64,
    /// Free blocks of the size's class after the first kernel that failed.
    pub free_blocks: u64,
    /// Free slabs at the same time.
    pub free_slabs: u64,
    /// Runs of other classes without a live block at the same time.
    pub free_runs: u64,
    /// Failed allocations for which there was memory: `served_again`, or what the free blocks,
    /// slabs and runs hold if that is more. At most `failed`.
    pub wrong: u64,
    /// `wrong` in percent of the requests.
    pub wrong_percent: f64,
    /// Those of the `failed` allocations that gave up without a proof that there was no memory.
    #[serde(default)]
    pub contended: u64,
    /// Bytes of the goal that no kernel was granted.
    pub persistent_bytes: u64,
    /// `persistent_bytes` in percent of the goal.
    pub persistent_percent: f64,
}

impl Drift {
    /// Sets what follows from the other numbers.
    pub(super) fn with_shares(self) -> Drift {
        let wrong_percent = percent(self.wrong, self.requests);
        let persistent_percent = percent(self.persistent_bytes, self.goal_bytes);
        Drift { wrong_percent, persistent_percent, ..self }
    }

    /// The sum over all sizes. `None` without sizes.
    pub(super) fn total(sizes: &[Drift]) -> Option<Drift> {
        let add = |a: Drift, b: &Drift| Drift {
            bytes: None,
            goal_bytes: a.goal_bytes + b.goal_bytes,
            requests: a.requests + b.requests,
            granted: a.granted + b.granted,
            failed: a.failed + b.failed,
            served_again: a.served_again + b.served_again,
            served_later: a.served_later + b.served_later,
            free_blocks: a.free_blocks + b.free_blocks,
            free_slabs: a.free_slabs + b.free_slabs,
            free_runs: a.free_runs + b.free_runs,
            wrong: a.wrong + b.wrong,
            contended: a.contended + b.contended,
            persistent_bytes: a.persistent_bytes + b.persistent_bytes,
            ..a
        };
        let (first, rest) = sizes.split_first()?;
        let total = rest.iter().fold(Drift { bytes: None, ..*first }, add);
        Some(total.with_shares())
    }
}

/// All results of a suite.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    /// What a reader must know: limits that were set, allocators that were left out.
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

impl SuiteReport {
    /// Before any result.
    pub(super) fn of(suite: Option<Suite>, block: u32, rounds: u32) -> SuiteReport {
        let bench = BenchReport { block, rounds, ..BenchReport::default() };
        SuiteReport { suite, bench, ..SuiteReport::default() }
    }
}

/// `part` of `whole` in percent; 0 of nothing.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}
