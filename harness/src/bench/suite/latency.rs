//! The durations of single calls in one situation.

use super::distribution::Distribution;
use super::report::Operation;
use crate::suite_kernels::{FAILED, NOT_CALLED};
use serde::Serialize;

/// The durations of single calls in one situation.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// Contender, operation and situation.
    pub name: String,
    /// What was measured, as in a series.
    pub contender: &'static str,
    /// The operation: an allocation or a free.
    pub operation: Operation,
    /// `one size`, `contention`, `near exhaustion` or `refill`.
    pub situation: &'static str,
    /// Threads of the kernel.
    pub threads: u32,
    /// The size of the blocks.
    pub bytes: u32,
    /// Unit of the durations: `cycles` of the multiprocessor's clock; `ns` on the CPU.
    pub unit: &'static str,
    /// Calls that failed.
    pub failed: u64,
    /// The calls that succeeded.
    #[serde(flatten)]
    pub distribution: Distribution,
}

impl Latency {
    /// Separates the `durations` of a kernel from the marks of calls that failed or were not made.
    pub(super) fn of(call: Call, unit: &'static str, mut durations: Vec<u64>) -> Latency {
        let Call { contender, operation, situation, threads, bytes } = call;
        let failed = durations.iter().filter(|duration| **duration == FAILED).count() as u64;
        durations.retain(|duration| ![FAILED, NOT_CALLED].contains(duration));
        let name = format!("{contender} {}, {situation}", operation.name());
        let distribution = Distribution::of(durations);
        Latency { name, contender, operation, situation, threads, bytes, unit, failed, distribution }
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
    fn failed_calls_are_counted_and_not_timed() {
        let call = Call {
            contender: "heap",
            operation: Operation::Alloc,
            situation: "refill",
            threads: 4,
            bytes: 64,
        };
        let latency = Latency::of(call, "cycles", vec![FAILED, 3, NOT_CALLED, 5]);
        let json = serde_json::to_value(&latency).unwrap();
        for (field, value) in [("failed", 1), ("calls", 2), ("p50", 3), ("max", 5), ("threads", 4)] {
            assert_eq!(json[field], value, "{field}");
        }
        assert_eq!(json["name"], "heap alloc, refill");
        assert_eq!(json["histogram"][0]["upto"], 3);
    }
}
