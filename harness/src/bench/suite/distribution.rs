//! Percentiles and histograms of durations.

use serde::{Deserialize, Serialize};

/// The durations of the calls of all launches. A percentile is the median of those of the launches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// The number of launches.
    #[serde(default)]
    pub launches: u32,
    /// The number of calls.
    pub calls: u64,
    /// The median: half of the calls took at most this.
    pub p50: u64,
    /// 99 % of the calls took at most this.
    #[serde(default)]
    pub p99: u64,
    /// 99.9 % of the calls took at most this.
    pub p999: u64,
    /// The smallest `p999` of a launch.
    #[serde(default)]
    pub p999_min: u64,
    /// The largest `p999` of a launch.
    #[serde(default)]
    pub p999_max: u64,
    /// The longest call.
    pub max: u64,
    /// Calls by duration, with four bins per doubling. Without the empty bins at both ends.
    #[serde(default)]
    pub histogram: Vec<Bin>,
}

/// Calls that took at most `upto`, and more than the `upto` of the previous bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// The upper bound, inclusive.
    pub upto: u64,
    /// The number of calls.
    pub calls: u64,
}

impl Distribution {
    /// The distribution of the durations of these launches. All zeros if there are none. A launch
    /// without calls has no percentiles.
    pub(super) fn of(mut launches: Vec<Vec<u64>>) -> Distribution {
        let count = launches.len() as u32;
        launches.retain(|durations| !durations.is_empty());
        launches.iter_mut().for_each(|durations| durations.sort_unstable());
        let of_launches = |per_mille| {
            let mut all: Vec<u64> = launches.iter().map(|sorted| percentile(sorted, per_mille)).collect();
            all.sort_unstable();
            all
        };
        let [p50, p99, p999] = [500, 990, 999].map(of_launches);
        // A stable sort merges the sorted parts.
        let mut all = launches.concat();
        all.sort();
        let Some(&max) = all.last() else { return Distribution { launches: count, ..Self::default() } };
        Distribution {
            launches: count,
            calls: all.len() as u64,
            p50: percentile(&p50, 500),
            p99: percentile(&p99, 500),
            p999: percentile(&p999, 500),
            p999_min: p999[0],
            p999_max: p999[p999.len() - 1],
            max,
            histogram: histogram(&all),
        }
    }
}

/// The smallest duration that at least `per_mille` thousandths of the calls do not exceed.
pub(super) fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
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
        let of = |durations: std::ops::RangeInclusive<u64>| Distribution::of(vec![durations.collect()]);
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
    fn percentiles_are_medians_over_launches() {
        let launches = [9, 1, 5].map(|factor| (1..=1000).map(|i| factor * i).collect());
        let of = Distribution::of([launches.to_vec(), vec![Vec::new()]].concat());
        assert_eq!((of.launches, of.calls, of.max), (4, 3000, 9000));
        assert_eq!((of.p50, of.p99, of.p999), (2500, 4950, 4995));
        assert_eq!((of.p999_min, of.p999_max), (999, 8991));
        assert_eq!(of.histogram.iter().map(|bin| bin.calls).sum::<u64>(), 3000);
    }

    #[test]
    fn a_histogram_has_every_call_once() {
        let bins = Distribution::of(vec![vec![600, 100, 610], vec![609, 128, 0]]).histogram;
        assert_eq!(bins.iter().map(|bin| bin.calls).sum::<u64>(), 6);
        assert_eq!(bins.first(), Some(&Bin { upto: 1, calls: 1 }));
        let at = |upto| bins.iter().find(|bin| bin.upto == upto).map(|bin| bin.calls);
        assert_eq!((at(128), at(609), at(725)), (Some(1), Some(2), Some(1)));
        assert_eq!(bins.last().map(|bin| bin.upto), Some(725));
        assert!(bins.is_sorted_by(|a, b| a.upto < b.upto));
    }

    #[test]
    fn the_longest_duration_has_a_bin() {
        let bins = Distribution::of(vec![vec![u64::MAX]]).histogram;
        assert_eq!(bins, [Bin { upto: u64::MAX, calls: 1 }]);
        assert_eq!(bounds().take(6).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    }
}
