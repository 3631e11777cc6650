//! What the figures are held to, and by how much they beat the driver.

use super::pairs::{MIXED_SIZES, ONE_SIZE, PairFigure};
use super::{PoolBenchReport, RandomFigure};
use crate::bench::Bar;
use crate::pools::{DRIVER, DRIVER_POOL};
use serde::Serialize;

/// The host threads that the second bar for a pair is for.
const MANY: u32 = 16;

/// A figure, held to its bar.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judged {
    /// What is held to it.
    pub what: &'static str,
    /// The figure.
    pub value: f64,
    /// Its unit: `ns` for nanoseconds of a pair, `x` for a ratio.
    pub unit: &'static str,
    /// Which way.
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

/// Sets the ratios, and the bars where they are held.
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

/// Whether it is there to be compared with.
fn is_base(pool: &str) -> bool {
    [DRIVER, DRIVER_POOL].contains(&pool)
}

fn of_pair(figure: &PairFigure) -> Vec<Judged> {
    let mut bars = Vec::new();
    if figure.name == ONE_SIZE {
        let nanos = figure.ns.median;
        match figure.threads {
            1 => bars.push(Judged::at_most("a pair, one host thread", nanos, "ns", 100.0)),
            MANY => bars.push(Judged::at_most("a pair, 16 host threads, each", nanos, "ns", 300.0)),
            _ => {}
        }
        let driver = figure.driver_ratio;
        bars.extend(driver.map(|ratio| Judged::at_least("against the driver", ratio, "x", 1000.0)));
    }
    if [ONE_SIZE, MIXED_SIZES].contains(&figure.name) {
        let pool = figure.driver_pool_ratio;
        bars.extend(pool.map(|ratio| Judged::at_least("against the driver's pool", ratio, "x", 5.0)));
    }
    bars
}

fn of_random(figure: &RandomFigure) -> Vec<Judged> {
    vec![Judged::at_most("peak reserved over peak live", figure.reserved_ratio, "x", 1.15)]
}
