//! Percentiles and histograms of durations.

use serde::Serialize;

/// The durations of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// The number of calls.
    pub calls: u64,
    /// The median: half of the calls took at most this.
    pub p50: u64,
    /// 99 % of the calls took at most this.
    pub p99: u64,
    /// 99.9 % of the calls took at most this.
    pub p999: u64,
    /// The longest call.
    pub max: u64,
    /// Calls by duration, with four bins per doubling. Without the empty bins at both ends.
    pub histogram: Vec<Bin>,
}

/// Calls that took at most `upto`, and more than the `upto` of the previous bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The upper bound, inclusive.
    pub upto: u64,
    /// The number of calls.
    pub calls: u64,
}

impl Distribution {
    /// The distribution of these durations. All zeros if there are none.
    pub(super) fn of(mut durations: Vec<u64>) -> Distribution {
        durations.sort_unstable();
        let Some(&max) = durations.last() else { return Distribution::default() };
        Distribution {
            calls: durations.len() as u64,
            p50: percentile(&durations, 500),
            p99: percentile(&durations, 990),
            p999: percentile(&durations, 999),
            max,
            histogram: histogram(&durations),
        }
    }
}

/// The smallest duration that at least `per_mille` thousandths of the calls do not exceed.
fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted[rank.max(1) - 1]
}

fn histogram(sorted: &[u64]) -> Vec<Bin> {
    let mut rest = sorted;
    let mut bins: Vec<Bin> = Vec::new();
    for upto in bounds() {
        let (inside, after) = rest.split_at(rest.partition_point(|duration| *duration <= upto));
        if !(bins.is_empty() && inside.is_empty()) {
            bins.push(Bin { upto, calls: inside.len() as u64 });
        }
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    bins
}

/// Upper bounds of bins: `2^(k / 4)`, rounded up, each once. The last is the maximum of `u64`.
fn bounds() -> impl Iterator<Item = u64> {
    let bound = |k: u32| (f64::from(k) / 4.0).exp2().ceil() as u64;
    (0..=256).filter(move |k| *k == 0 || bound(k - 1) != bound(*k)).map(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_durations_that_occurred() {
        let of = |durations: std::ops::RangeInclusive<u64>| Distribution::of(durations.collect());
        let thousand = of(1..=1000);
        assert_eq!(
            (thousand.p50, thousand.p99, thousand.p999, thousand.max, thousand.calls),
            (500, 990, 999, 1000, 1000)
        );
        let three = of(7..=9);
        assert_eq!((three.p50, three.p99, three.p999, three.max), (8, 9, 9, 9));
        assert_eq!(of(5..=5).p50, 5);
        assert_eq!(Distribution::of(Vec::new()), Distribution::default());
    }

    #[test]
    fn a_histogram_has_every_call_once() {
        let bins = Distribution::of(vec![600, 100, 610, 609, 128, 0]).histogram;
        assert_eq!(bins.iter().map(|bin| bin.calls).sum::<u64>(), 6);
        assert_eq!(bins.first(), Some(&Bin { upto: 1, calls: 1 }));
        let at = |upto| bins.iter().find(|bin| bin.upto == upto).map(|bin| bin.calls);
        assert_eq!((at(128), at(609), at(725)), (Some(1), Some(2), Some(1)));
        assert_eq!(bins.last().map(|bin| bin.upto), Some(725));
        assert!(bins.is_sorted_by(|a, b| a.upto < b.upto));
    }

    #[test]
    fn the_longest_duration_has_a_bin() {
        let bins = Distribution::of(vec![u64::MAX]).histogram;
        assert_eq!(bins, [Bin { upto: u64::MAX, calls: 1 }]);
        assert_eq!(bounds().take(6).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    }
}
