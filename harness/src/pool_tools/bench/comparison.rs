//! A figure of a pool, compared with the driver and with its bars.

use crate::Name;
use crate::bench::Bar;
use serde::{Deserialize, Serialize};
use warpheap::host_pools::replay::{BLOCKS, CACHING, PoolKind};

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
        Judged { what: what.into(), value, unit: unit.into(), holds: Bar::AtMost, bar, met: value <= bar }
    }

    /// A `value` that is to be at least `bar`.
    pub fn at_least(what: &'static str, value: f64, unit: &'static str, bar: f64) -> Judged {
        Judged { what: what.into(), value, unit: unit.into(), holds: Bar::AtLeast, bar, met: value >= bar }
    }
}
