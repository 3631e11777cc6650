//! The bars of the figures, and their ratios to the driver.

use super::pairs::{MIXED_SIZES, ONE_SIZE, PairFigure};
use super::random::LARGEST;
use super::{PoolBenchReport, RandomFigure};
use crate::bench::Bar;
use crate::pool_tools::{BLOCKS, CACHING, DRIVER, DRIVER_POOL};
use serde::Serialize;

/// The number of host threads that the second bar for a pair refers to.
const MANY: u32 = 16;

/// A figure, judged by its bar.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judged {
    /// Name of the judged figure.
    pub what: &'static str,
    /// The figure.
    pub value: f64,
    /// Its unit: `ns` for nanoseconds per pair, `ms` for milliseconds of all calls, `x` for a ratio.
    pub unit: &'static str,
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
        Judged { what, value, unit, holds: Bar::AtMost, bar, met: value <= bar }
    }

    /// A `value` that is to be at least `bar`.
    pub fn at_least(what: &'static str, value: f64, unit: &'static str, bar: f64) -> Judged {
        Judged { what, value, unit, holds: Bar::AtLeast, bar, met: value >= bar }
    }
}

/// Sets the ratios, and judges the figures that have bars.
pub(super) fn judge(report: &mut PoolBenchReport) {
    let pairs = report.pairs.clone();
    for figure in &mut report.pairs {
        let same = |one: &&PairFigure| (one.name, one.threads) == (figure.name, figure.threads);
        let of = |pool| pairs.iter().filter(same).find(|one| one.pool == pool);
        let ratio = |pool| of(pool).map(|base| base.ns.median / figure.ns.median);
        let (driver, driver_pool) = (ratio(DRIVER), ratio(DRIVER_POOL));
        (figure.driver_ratio, figure.driver_pool_ratio) = (driver, driver_pool);
        if report.has_bars && !is_base(figure.pool) {
            figure.bars = of_pair(figure);
        }
    }
    let random = report.random.clone();
    for figure in &mut report.random {
        let of = |pool| random.iter().find(|one| one.name == figure.name && one.pool == pool);
        let ratio = |pool| of(pool).map(|base| base.seconds / figure.seconds);
        let (driver, driver_pool) = (ratio(DRIVER), ratio(DRIVER_POOL));
        (figure.driver_ratio, figure.driver_pool_ratio) = (driver, driver_pool);
        if report.has_bars && !is_base(figure.pool) {
            figure.bars = of_random(figure);
        }
    }
}

/// Whether the pool is a baseline of the comparisons.
fn is_base(pool: &str) -> bool {
    [DRIVER, DRIVER_POOL].contains(&pool)
}

/// Maximum time of a pair, in nanoseconds. The bar for 1 MiB and one thread is the time of commit
/// b1900eb.
fn most_nanos(figure: &PairFigure) -> Option<f64> {
    match (figure.pool, figure.name, figure.threads) {
        (CACHING, ONE_SIZE, 1) => Some(46.0),
        (CACHING, MIXED_SIZES, 1) => Some(120.0),
        (CACHING, MIXED_SIZES, MANY) => Some(1000.0),
        (BLOCKS, ONE_SIZE, 1) => Some(60.0),
        (CACHING | BLOCKS, ONE_SIZE, MANY) => Some(100.0),
        _ => None,
    }
}

fn of_pair(figure: &PairFigure) -> Vec<Judged> {
    let nanos = figure.ns.median;
    let mut bars: Vec<_> =
        most_nanos(figure).map(|most| Judged::at_most("a pair", nanos, "ns", most)).into_iter().collect();
    if figure.pool == BLOCKS {
        return bars;
    }
    if figure.name == ONE_SIZE {
        let driver = figure.driver_ratio;
        bars.extend(driver.map(|ratio| Judged::at_least("against the driver", ratio, "x", 1000.0)));
    }
    if [ONE_SIZE, MIXED_SIZES].contains(&figure.name) {
        let pool = figure.driver_pool_ratio;
        bars.extend(pool.map(|ratio| Judged::at_least("against the driver's pool", ratio, "x", 5.0)));
    }
    bars
}

/// Time of PyTorch's caching allocator for 100,000 random allocations to 64 MiB, in milliseconds.
const PYTORCH_MILLIS: f64 = 43.2;

fn of_random(figure: &RandomFigure) -> Vec<Judged> {
    if figure.pool == BLOCKS {
        // Each block has room for the largest allocation.
        return Vec::new();
    }
    let reserved = figure.reserved_ratio;
    let mut bars = vec![Judged::at_most("peak reserved over peak live", reserved, "x", 1.15)];
    if figure.max_bytes == LARGEST && figure.allocations == 100_000 {
        bars.push(Judged::at_most("all calls", 1e3 * figure.seconds, "ms", PYTORCH_MILLIS));
    }
    bars
}
