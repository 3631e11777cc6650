//! The durations of single calls in one situation.

use super::distribution::{Distribution, percentile};
use super::operation::Operation;
use crate::Name;
use crate::suite_kernels::{FAILED, NOT_CALLED};
use serde::{Deserialize, Serialize};

/// The durations of single calls in one situation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Latency {
    /// Contender, operation and situation.
    #[serde(default)]
    pub name: String,
    /// What was measured, as in a series.
    pub contender: Name,
    /// [`Operation::name`] of an allocation or a free.
    pub operation: Name,
    /// `one size`, `contention`, `near exhaustion` or `refill`.
    pub situation: Name,
    /// Threads of the kernel; 0 if unknown.
    #[serde(default)]
    pub threads: u32,
    /// The size of the blocks; 0 if unknown.
    #[serde(default)]
    pub bytes: u32,
    /// Unit of the durations: `cycles` of the multiprocessor's clock; `ns` on the CPU.
    pub unit: Name,
    /// Calls that failed.
    #[serde(default)]
    pub failed: u64,
    /// The median duration of the calls that failed. `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_p50: Option<u64>,
    /// The longest call that failed. `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_max: Option<u64>,
    /// The calls that succeeded.
    #[serde(flatten)]
    pub distribution: Distribution,
}

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
        failures.sort_unstable();
        Latency {
            name: format!("{contender} {}, {situation}", operation.name()),
            contender: contender.into(),
            operation: operation.name().into(),
            situation: situation.into(),
            threads,
            bytes,
            unit: unit.into(),
            failed: failures.len() as u64,
            failed_p50: (!failures.is_empty()).then(|| percentile(&failures, 500)),
            failed_max: failures.last().copied(),
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
}
