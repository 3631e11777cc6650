//! The measured figures of all pools: their ratios to the driver, and their bars.

use super::comparison::{Comparison, Judged};
use super::config::LARGEST;
use super::pairs::{MIXED_SIZES, ONE_SIZE, PairFigure};
use super::random::RandomFigure;
use serde::{Deserialize, Serialize};
use warpheap::host_pools::replay::{BLOCKS, CACHING, DRIVER, DRIVER_POOL};

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
