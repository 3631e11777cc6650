//! A measured figure, and its bar.

use crate::Name;
use crate::summary::Timing;
use serde::{Deserialize, Serialize};

/// Direction of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// The figure must not exceed the bar.
    AtMost,
    /// The figure must not be below the bar.
    AtLeast,
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
        let passed = match holds {
            Bar::AtMost => value <= bar,
            Bar::AtLeast => value >= bar,
        };
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
