//! The durations of single calls in one situation: percentiles and histograms.

use super::{Bin, Distribution, Latency, Operation};
use crate::suite_kernels::{FAILED, NOT_CALLED};
use crate::summary::Sorted;

impl Latency {
    /// Separates the durations of each launch into those of calls that succeeded and that failed.
    pub(super) fn of(call: Call, unit: &'static str, mut launches: Vec<Vec<u64>>) -> Latency {
        let Call { contender, operation, situation, threads, bytes } = call;
        let mut failures = Vec::new();
        for durations in &mut launches {
            durations.retain(|duration| *duration != NOT_CALLED);
            let failed = durations.extract_if(.., |duration| *duration & FAILED != 0);
            failures.extend(failed.map(|duration| duration & !FAILED));
        }
        let (failed, failures) = (failures.len() as u64, Sorted::of(failures));
        Latency {
            name: format!("{contender} {}, {situation}", operation.name()),
            contender: contender.into(),
            operation: operation.name().into(),
            situation: situation.into(),
            threads,
            bytes,
            unit: unit.into(),
            failed,
            failed_p50: failures.as_ref().map(|failures| failures.percentile(500)),
            failed_max: failures.as_ref().map(Sorted::max),
            distribution: Distribution::of(launches),
        }
    }
}

/// Which calls were timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub contender: &'static str,
    pub operation: Operation,
    pub situation: &'static str,
    pub threads: u32,
    pub bytes: u32,
}

impl Distribution {
    /// The distribution of the durations of these launches. All zeros if there are none. A launch
    /// without calls has no percentiles.
    pub(super) fn of(launches: Vec<Vec<u64>>) -> Distribution {
        let count = launches.len() as u32;
        let launches: Vec<_> = launches.into_iter().filter_map(Sorted::of).collect();
        let of_launches =
            |per_mille| Sorted::of(launches.iter().map(|one| one.percentile(per_mille)).collect());
        let all = Sorted::of(launches.iter().flat_map(|one| one.values()).copied().collect());
        let (Some(p50), Some(p99), Some(p999), Some(all)) =
            (of_launches(500), of_launches(990), of_launches(999), all)
        else {
            return Distribution { launches: count, ..Self::default() };
        };
        Distribution {
            launches: count,
            calls: all.values().len() as u64,
            p50: p50.percentile(500),
            p99: p99.percentile(500),
            p999: p999.percentile(500),
            p999_min: p999.min(),
            p999_max: p999.max(),
            max: all.max(),
            histogram: histogram(all.values()),
        }
    }
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
    fn failed_calls_have_durations_of_their_own() {
        let call = Call {
            contender: "heap",
            operation: Operation::Alloc,
            situation: "refill",
            threads: 4,
            bytes: 64,
        };
        let launches = vec![vec![FAILED | 9, 3, NOT_CALLED, 5], vec![FAILED | 7, 4, FAILED | 8, 6]];
        let json = serde_json::to_value(Latency::of(call, "cycles", launches)).unwrap();
        let counts = [("failed", 3), ("calls", 4), ("launches", 2), ("threads", 4)];
        let durations = [("p50", 3), ("max", 6), ("failed_p50", 8), ("failed_max", 9)];
        for (field, value) in counts.into_iter().chain(durations) {
            assert_eq!(json[field], value, "{field}");
        }
        assert_eq!(json["name"], "heap alloc, refill");
        assert_eq!(json["histogram"][0]["upto"], 3);
        let json = serde_json::to_value(Latency::of(call, "cycles", vec![vec![3]])).unwrap();
        assert_eq!((json.get("failed_p50"), json.get("failed_max")), (None, None));
    }

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
