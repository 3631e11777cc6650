//! Summaries of measured times: medians and percentiles. Those of calls to host pools are the
//! [`Spread`] of the library.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
pub use warpheap::host_pools::replay::Spread;

/// Values in ascending order, at least one.
pub(crate) struct Sorted<T>(Vec<T>);

impl<T: Copy + PartialOrd> Sorted<T> {
    /// Sorts the values. `None` if there are none.
    pub fn of(mut values: Vec<T>) -> Option<Sorted<T>> {
        // A stable sort merges sorted parts. No time is NaN.
        values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        (!values.is_empty()).then_some(Sorted(values))
    }

    /// The values.
    pub fn values(&self) -> &[T] {
        &self.0
    }

    /// The smallest value that at least `per_mille` thousandths of the values do not exceed.
    pub fn percentile(&self, per_mille: usize) -> T {
        let rank = (self.0.len() * per_mille).div_ceil(1000);
        self.0[rank.max(1) - 1]
    }

    pub fn min(&self) -> T {
        self.0[0]
    }

    pub fn max(&self) -> T {
        self.0[self.0.len() - 1]
    }
}

impl Sorted<f64> {
    /// The middle value, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        (self.0[(self.0.len() - 1) / 2] + self.0[self.0.len() / 2]) / 2.0
    }
}

/// Times of the rounds, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The median round.
    pub median_us: f64,
    /// The fastest round.
    pub min_us: f64,
    /// The slowest round.
    pub max_us: f64,
}

impl Timing {
    /// Of rounds in any order, at least one.
    pub(crate) fn of(rounds: Vec<f64>) -> Timing {
        let rounds = Sorted::of(rounds).expect("at least one round is timed");
        Timing { median_us: rounds.median(), min_us: rounds.min(), max_us: rounds.max() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        let odd = Timing::of(vec![3.0, 1.0, 8.0]);
        assert_eq!((odd.median_us, odd.min_us, odd.max_us), (3.0, 1.0, 8.0));
        assert_eq!(Timing::of(vec![4.0, 1.0, 2.0, 8.0]).median_us, 3.0);
    }
}
