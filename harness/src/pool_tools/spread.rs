//! Summary statistics of many times.

use serde::{Deserialize, Serialize};

/// Durations of calls or rounds, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// The shortest.
    pub min: f64,
}

impl Spread {
    /// Statistics of times in any order. All are 0 if there are no times.
    pub(super) fn of(mut nanos: Vec<f64>) -> Spread {
        nanos.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (nanos.first(), nanos.last()) else { return Spread::default() };
        let middle = (nanos[(nanos.len() - 1) / 2] + nanos[nanos.len() / 2]) / 2.0;
        // The smallest time that 99 of 100 do not exceed.
        let rank = (nanos.len() * 99).div_ceil(100);
        Spread { median: middle, p99: nanos[rank - 1], max: *max, min: *min }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_parts_are_counted_off() {
        let all = Spread::of((1..=200).rev().map(f64::from).collect());
        assert_eq!(all, Spread { median: 100.5, p99: 198.0, max: 200.0, min: 1.0 });
        assert_eq!(Spread::of(vec![7.0]), Spread { median: 7.0, p99: 7.0, max: 7.0, min: 7.0 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
