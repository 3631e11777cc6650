//! What was measured, and the bar that it is held to.

use super::timing::Timing;
use serde::Serialize;

/// Which way a bar is to be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// The figure must not be above it.
    AtMost,
    /// The figure must not be below it.
    AtLeast,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// GPU threads; 0 if the host alone is at work.
    pub threads: u32,
    /// The kernel with the pool; `None` if nothing was timed.
    pub time: Option<Timing>,
    /// What it is compared with, or what it was measured by.
    pub against: String,
    /// That kernel's time, if it is one.
    pub base: Option<Timing>,
    /// The figure itself.
    pub value: f64,
    /// Its unit: `x` for a ratio of medians, `G pairs/s` for allocations with their frees, `ppm` for refusals
    /// in a million allocations, `us` for microseconds, `%` for a part of the whole that `against` names.
    pub unit: &'static str,
    /// How it is held to `bar`.
    pub holds: Bar,
    /// The bar.
    pub bar: f64,
    /// Whether it is passed.
    pub passed: bool,
    /// What the results were checked for.
    pub checked: String,
    /// What it is also compared with, without a bar.
    pub also: Option<Comparison>,
}

/// A figure beside another kernel's time.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What it is compared with.
    pub against: String,
    /// That kernel's time.
    pub base: Timing,
    /// The ratio of the medians.
    pub value: f64,
}

impl Figure {
    /// A ratio of medians, which is to be at most `bar`.
    pub fn ratio(name: &str, threads: u32, time: Timing, against: &str, base: Timing, bar: f64) -> Figure {
        let figure = Figure::plain(name, threads, against);
        let figure = Figure { time: Some(time), base: Some(base), ..figure };
        figure.measured_by(time.median_us / base.median_us, "x", Bar::AtMost, bar)
    }

    /// A figure that is measured by something else, which [`measured_by`](Self::measured_by) says.
    pub(super) fn plain(name: &str, threads: u32, against: &str) -> Figure {
        Figure {
            name: name.into(),
            threads,
            time: None,
            against: against.into(),
            base: None,
            value: 0.0,
            unit: "x",
            holds: Bar::AtMost,
            bar: 0.0,
            passed: false,
            checked: String::new(),
            also: None,
        }
    }

    /// The same with this value and bar.
    pub(super) fn measured_by(self, value: f64, unit: &'static str, holds: Bar, bar: f64) -> Figure {
        let passed = match holds {
            Bar::AtMost => value <= bar,
            Bar::AtLeast => value >= bar,
        };
        Figure { value, unit, holds, bar, passed, ..self }
    }

    /// The same with a time.
    pub(super) fn timed(self, time: Timing) -> Figure {
        Figure { time: Some(time), ..self }
    }

    /// The same with what its results were checked for.
    pub(super) fn checked(self, checked: String) -> Figure {
        Figure { checked, ..self }
    }

    /// The same beside another kernel, too.
    pub(super) fn beside(self, against: &str, base: Timing) -> Figure {
        let value = self.time.map_or(0.0, |time| time.median_us / base.median_us);
        Figure { also: Some(Comparison { against: against.into(), base, value }), ..self }
    }
}
