//! The results of all pools, as they are written and read: their ratios to the driver, and their
//! bars.

use crate::Name;
use crate::bench::Bar;
use serde::{Deserialize, Serialize};
use warpheap::host_pools::replay::{BLOCKS, CACHING, DRIVER, DRIVER_POOL, PoolKind, Spread};

pub(super) const MIB: u64 = 1 << 20;
/// The largest random allocation.
pub(super) const LARGEST: u64 = 64 * MIB;
pub(super) const ONE_SIZE: &str = "pair of 1 MiB";
pub(super) const MIXED_SIZES: &str = "pair of 256 B to 64 MiB";

/// Duration of an allocation with its free.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PairFigure {
    /// Name of the sizes.
    pub name: Name,
    /// Name of the pool.
    pub pool: Name,
    /// Host threads, each with a stream.
    pub threads: u32,
    /// Pairs per round and thread.
    pub pairs: u64,
    /// Nanoseconds per pair over the rounds, as the mean of all threads.
    pub ns: Spread,
    /// Nanoseconds per pair of the slowest thread of each round.
    pub slowest_ns: Spread,
    /// The figure beside those of the driver, and its bars.
    #[serde(flatten)]
    pub comparison: Comparison,
}

/// Result of the random allocations.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RandomFigure {
    /// Name of the sizes.
    pub name: String,
    /// Name of the pool.
    pub pool: Name,
    /// The largest size, in bytes.
    pub max_bytes: u64,
    /// Number of allocations, and of frees.
    pub allocations: u64,
    /// Seconds in all calls.
    pub seconds: f64,
    /// Nanoseconds per call.
    pub call_ns: f64,
    /// High-water mark of live bytes.
    pub peak_live_bytes: u64,
    /// High-water mark of live bytes, as rounded up by the pool.
    pub peak_used_bytes: u64,
    /// High-water mark of bytes that the pool reserved on the device.
    pub peak_reserved_bytes: u64,
    /// Peak reserved over peak live.
    pub reserved_ratio: f64,
    /// Allocations that failed because the pool was out of memory.
    pub failed_allocations: u64,
    /// The figure beside those of the driver, and its bars.
    #[serde(flatten)]
    pub comparison: Comparison,
}

/// A figure of a pool beside those of the driver.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Speedup over the driver's synchronous memory.
    pub driver_ratio: Option<f64>,
    /// Speedup over the driver's own pool.
    pub driver_pool_ratio: Option<f64>,
    /// Whether the bars apply to this pool.
    pub has_bars: bool,
    /// The judged bars.
    pub bars: Vec<Judged>,
}

impl Comparison {
    /// Before any comparison.
    pub(super) fn of(kind: &PoolKind) -> Comparison {
        Comparison { has_bars: [BLOCKS, CACHING].contains(&kind.name), ..Comparison::default() }
    }
}

/// A figure, judged by its bar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Judged {
    /// Name of the judged figure.
    pub what: Name,
    /// The figure.
    pub value: f64,
    /// Its unit: `ns` for nanoseconds per pair, `ms` for milliseconds of all calls, `x` for a
    /// ratio.
    pub unit: Name,
    /// Direction of the bar.
    pub holds: Bar,
    /// The bar.
    pub bar: f64,
    /// Whether it is met.
    pub met: bool,
}

impl Judged {
    /// A `value` that is to be at most `bar`.
    pub fn at_most(what: &'static str, value: f64, unit: &'static str, bar: f64) -> Judged {
        Judged::of(what, value, unit, Bar::AtMost, bar)
    }

    /// A `value` that is to be at least `bar`.
    pub fn at_least(what: &'static str, value: f64, unit: &'static str, bar: f64) -> Judged {
        Judged::of(what, value, unit, Bar::AtLeast, bar)
    }

    fn of(what: &'static str, value: f64, unit: &'static str, holds: Bar, bar: f64) -> Judged {
        Judged { what: what.into(), value, unit: unit.into(), holds, bar, met: holds.is_met(value, bar) }
    }
}

/// The measured figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolBenchReport {
    /// Timed rounds of each pair.
    pub rounds: u32,
    /// Maximum live bytes of the random allocations.
    pub cap_bytes: u64,
    /// Determines all sizes.
    pub seed: u64,
    /// Whether the bars are judged: on a GPU only.
    pub has_bars: bool,
    /// In the order of measurement.
    pub pairs: Vec<PairFigure>,
    /// In the order of measurement.
    pub random: Vec<RandomFigure>,
    /// Figures that a pool does not support, and why.
    pub left_out: Vec<String>,
    /// Faults of the pools.
    pub wrong: Vec<String>,
}

impl PoolBenchReport {
    /// Whether nothing was measured or left out, which means that no figure has the requested name.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.random.is_empty() && self.left_out.is_empty() && self.wrong.is_empty()
    }

    /// All judged bars: the pool's name, whether the bar applies to it, and the result.
    pub fn judged(&self) -> impl Iterator<Item = (&str, bool, &Judged)> {
        let pairs = self.pairs.iter().map(|figure| (&*figure.pool, &figure.comparison));
        let random = self.random.iter().map(|figure| (&*figure.pool, &figure.comparison));
        let all = pairs.chain(random);
        all.flat_map(|(pool, of)| of.bars.iter().map(move |bar| (pool, of.has_bars, bar)))
    }
}

/// The number of host threads that the second bar for a pair refers to.
const MANY: u32 = 16;

/// Sets the ratios, and judges the figures that have bars.
pub(super) fn judge(report: &mut PoolBenchReport) {
    let pairs = report.pairs.clone();
    for figure in &mut report.pairs {
        let same = |one: &&PairFigure| (&one.name, one.threads) == (&figure.name, figure.threads);
        let of = |pool| pairs.iter().filter(same).find(|one| one.pool == pool);
        let ratio = |pool| of(pool).map(|base| base.ns.median / figure.ns.median);
        let ratios = [ratio(DRIVER), ratio(DRIVER_POOL)];
        let bars = if report.has_bars { of_pair(figure, ratios) } else { Vec::new() };
        set(&mut figure.comparison, ratios, bars);
    }
    let random = report.random.clone();
    for figure in &mut report.random {
        let of = |pool| random.iter().find(|one| one.name == figure.name && one.pool == pool);
        let ratio = |pool| of(pool).map(|base| base.seconds / figure.seconds);
        let bars = if report.has_bars { of_random(figure) } else { Vec::new() };
        set(&mut figure.comparison, [ratio(DRIVER), ratio(DRIVER_POOL)], bars);
    }
}

fn set(comparison: &mut Comparison, ratios: [Option<f64>; 2], bars: Vec<Judged>) {
    let ratios = ratios.map(|ratio| ratio.filter(|ratio| ratio.is_finite()));
    [comparison.driver_ratio, comparison.driver_pool_ratio] = ratios;
    comparison.bars = bars;
}

/// Whether the pool is a baseline of the comparisons.
fn is_base(pool: &str) -> bool {
    [DRIVER, DRIVER_POOL].contains(&pool)
}

/// Maximum time of a pair, in nanoseconds. The bar for 1 MiB and one thread is the time of commit
/// b1900eb.
fn most_nanos(figure: &PairFigure) -> Option<f64> {
    match (&*figure.pool, &*figure.name, figure.threads) {
        (CACHING, ONE_SIZE, 1) => Some(46.0),
        (CACHING, MIXED_SIZES, 1) => Some(120.0),
        (CACHING, MIXED_SIZES, MANY) => Some(1000.0),
        (BLOCKS, ONE_SIZE, 1) => Some(60.0),
        (CACHING | BLOCKS, ONE_SIZE, MANY) => Some(100.0),
        _ => None,
    }
}

fn of_pair(figure: &PairFigure, [driver, driver_pool]: [Option<f64>; 2]) -> Vec<Judged> {
    if is_base(&figure.pool) {
        return Vec::new();
    }
    let nanos = figure.ns.median;
    let mut bars: Vec<_> =
        most_nanos(figure).map(|max| Judged::at_most("a pair", nanos, "ns", max)).into_iter().collect();
    if figure.pool == BLOCKS {
        return bars;
    }
    if figure.name == ONE_SIZE {
        bars.extend(driver.map(|ratio| Judged::at_least("against the driver", ratio, "x", 1000.0)));
    }
    if [ONE_SIZE, MIXED_SIZES].contains(&&*figure.name) {
        bars.extend(driver_pool.map(|ratio| Judged::at_least("against the driver's pool", ratio, "x", 5.0)));
    }
    bars
}

/// Time of PyTorch's caching allocator for 100,000 random allocations to 64 MiB, in milliseconds.
const PYTORCH_MILLIS: f64 = 43.2;

fn of_random(figure: &RandomFigure) -> Vec<Judged> {
    // Each block has room for the largest allocation.
    if figure.pool == BLOCKS || is_base(&figure.pool) {
        return Vec::new();
    }
    let reserved = figure.reserved_ratio;
    let mut bars = vec![Judged::at_most("peak reserved over peak live", reserved, "x", 1.15)];
    if figure.max_bytes == LARGEST && figure.allocations == 100_000 {
        bars.push(Judged::at_most("all calls", 1e3 * figure.seconds, "ms", PYTORCH_MILLIS));
    }
    bars
}
