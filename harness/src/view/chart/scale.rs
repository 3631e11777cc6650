//! Axes: a logarithmic range and its ticks.

use crate::report::human::Unit;
use std::ops::Range;

/// The values that an axis can show. Others are left out of charts; tables have them.
const SHOWN: Range<f64> = 1e-9..1e18;

/// An axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The first and the last value.
    pub range: Range<f64>,
    /// The values with a label, in ascending order.
    pub ticks: Vec<f64>,
    /// The unit of the labels.
    pub unit: Unit,
}

/// Whether an axis can show `value`.
pub fn is_shown(value: f64) -> bool {
    SHOWN.contains(&value)
}

/// The smallest and the largest value that an axis can show.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| is_shown(*value)).fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

impl Axis {
    /// An axis with ticks at powers of two, at most `most`. `None` without a value.
    pub fn powers_of_two(values: impl Iterator<Item = f64>, unit: Unit, most: usize) -> Option<Axis> {
        let (low, high) = ends(values)?;
        let (first, last) =
            (low.log2().floor() as i32, (high.log2().ceil() as i32).max(low.log2() as i32 + 1));
        let step = steps(&[1, 2, 4, 8, 16], (last - first) as usize, most);
        let ticks = (first..=last).filter(|power| power.rem_euclid(step) == 0).map(|power| 2f64.powi(power));
        // Space for markers at both ends.
        let margin = 2f64.powf(f64::from(last - first) * 0.02);
        let range = 2f64.powi(first) / margin..2f64.powi(last) * margin;
        Some(Axis { range, ticks: ticks.collect(), unit })
    }

    /// An axis with ticks at round decimal values, about `most` of them. `None` without a value.
    pub fn decimal(values: impl Iterator<Item = f64>, unit: Unit, most: usize) -> Option<Axis> {
        let (low, high) = ends(values)?;
        // Less than a factor of two would magnify noise.
        let widen = (2.0 / (high / low)).max(1.0).sqrt();
        let margin = (high / low).max(2.0).powf(0.04);
        let (low, high) = (low / widen / margin, high * widen * margin);
        let ticks = decimal_ticks(low, high, most);
        Some(Axis { range: low..high, ticks, unit })
    }
}

/// The first step with at most `most` ticks over `span`, or the last one.
fn steps(steps: &[i32], span: usize, most: usize) -> i32 {
    let fits = |step: &&i32| (span / **step as usize) < most;
    *steps.iter().find(fits).unwrap_or(&steps[steps.len() - 1])
}

/// Ticks from `low` to `high`: the densest of some round sets that has at most `most`, and at least
/// two.
fn decimal_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    const SETS: [&[f64]; 5] = [
        &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
        &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 3.0],
        &[1.0],
    ];
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let within = |set: &[f64]| -> Vec<f64> {
        let all = decades.clone().flat_map(|decade| set.iter().map(move |digit| digit * 10f64.powi(decade)));
        all.filter(|tick| (low..=high).contains(tick)).collect()
    };
    let sets = SETS.map(within);
    if let Some(ticks) = sets.iter().find(|ticks| ticks.len() <= most) {
        return ticks.clone();
    }
    let [.., powers] = sets;
    let step = steps(&[2, 3, 4, 6, 12], powers.len(), most) as usize;
    let is_kept = |tick: &f64| (tick.log10().round() as i32).rem_euclid(step as i32) == 0;
    powers.into_iter().filter(is_kept).collect()
}
