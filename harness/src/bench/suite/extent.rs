//! The extent of a suite: numbers of threads, sizes, rounds and time limits.

use super::{Over, Suite};
use crate::bench::engine::GIB;
use std::time::Duration;
use warpheap::driver::Backend;

/// Extent of a suite on a device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Extent {
    /// Timed rounds of each point, unless they exceed `point`.
    pub rounds: u32,
    /// Time for the rounds of a point.
    pub point: Duration,
    /// A series ends after a point that took longer than this.
    pub slowest: Duration,
    /// No measurement begins after this time.
    pub total: Duration,
    /// Numbers of threads of a series over threads.
    pub threads: Vec<u32>,
    /// Threads of the points that have targets.
    pub threads_of_targets: u32,
    /// Sizes of a series over sizes.
    pub bytes: Vec<u32>,
    /// Threads of a series over sizes.
    pub threads_over_bytes: u32,
    /// Threads that call once while their calls are timed.
    pub callers: u32,
    /// Their number for CUDA's `malloc`.
    pub callers_of_malloc: u32,
    /// Threads of the kernels with collections.
    pub collections: u32,
    /// Size of a heap that is almost exhausted.
    pub exhausted_bytes: u64,
    /// Memory of a pool beyond what the threads request.
    pub spare_bytes: u64,
    /// Heaps over their load.
    pub load: LoadExtent,
}

/// Size of the blocks in a series over threads: one that all allocators support.
pub(super) const BYTES_OVER_THREADS: u32 = 64;

impl Extent {
    pub fn of(suite: Suite, backend: Backend) -> Extent {
        match (backend, suite) {
            (Backend::Cpu, _) => Extent::simulated(),
            (_, Suite::Quick) => Extent {
                rounds: 7,
                point: Duration::from_millis(100),
                slowest: Duration::from_secs(4),
                total: Duration::from_secs(45),
                threads: powers(0..=24, 4),
                bytes: powers(4..=20, 4),
                load: LoadExtent::of(suite),
                ..Extent::full()
            },
            (_, Suite::Full | Suite::Load) => Extent::full(),
        }
    }

    fn full() -> Extent {
        Extent {
            rounds: 20,
            point: Duration::from_millis(500),
            slowest: Duration::from_secs(4),
            total: Duration::from_secs(240),
            threads: powers(0..=24, 1),
            threads_of_targets: 1 << 20,
            bytes: powers(4..=20, 1),
            threads_over_bytes: 1 << 16,
            callers: 1 << 20,
            callers_of_malloc: 1 << 16,
            collections: 1 << 16,
            exhausted_bytes: 256 << 20,
            spare_bytes: 8 << 30,
            load: LoadExtent::of(Suite::Full),
        }
    }

    /// On the CPU, small enough for a few cores. The limits of time are far above what a busy
    /// machine takes: it measures the same points as an idle one.
    fn simulated() -> Extent {
        Extent {
            rounds: 3,
            point: Duration::from_millis(100),
            slowest: Duration::from_secs(60),
            total: Duration::from_secs(600),
            threads: powers(0..=16, 4),
            threads_of_targets: 1 << 16,
            bytes: powers(4..=20, 4),
            threads_over_bytes: 1 << 7,
            callers: 1 << 12,
            callers_of_malloc: 1 << 8,
            collections: 1 << 8,
            exhausted_bytes: 1 << 20,
            spare_bytes: 16 << 20,
            load: LoadExtent::simulated(),
        }
    }

    /// The variable's values.
    pub fn values(&self, over: Over) -> &[u32] {
        match over {
            Over::Threads => &self.threads,
            Over::Bytes => &self.bytes,
        }
    }

    /// Threads and size at a point.
    pub fn at(&self, over: Over, x: u32) -> (u32, u32) {
        match over {
            Over::Threads => (x, BYTES_OVER_THREADS),
            Over::Bytes => (self.threads_over_bytes, x),
        }
    }

    /// Size of a pool from which `threads` threads allocate `bytes` each.
    pub fn room(&self, threads: u32, bytes: u32) -> u64 {
        let requested = u64::from(threads) * u64::from(bytes);
        self.spare_bytes + requested + requested / 8
    }
}

/// The extent of the measurements of a heap over its load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoadExtent {
    /// Sizes of the heaps.
    pub heaps: Vec<u64>,
    /// Most threads of a kernel.
    pub threads: u32,
    /// The loads, in percent of the blocks that fit.
    pub percents: Vec<u32>,
    /// Kernels that exchange blocks at each load.
    pub turns: u32,
    /// Threads of the kernels of drifts.
    pub drift_threads: Vec<u32>,
    /// The largest heap with drifts: larger ones have too many blocks to list and sort.
    pub drift_most: u64,
}

impl LoadExtent {
    /// On a GPU.
    pub fn of(suite: Suite) -> LoadExtent {
        let heaps = match suite {
            Suite::Quick => vec![GIB / 4],
            Suite::Full | Suite::Load => vec![GIB / 4, GIB, 16 * GIB],
        };
        LoadExtent {
            heaps,
            threads: 1 << 18,
            percents: vec![25, 50, 75, 90, 95, 98],
            turns: 24,
            drift_threads: vec![1 << 14, 1 << 18],
            drift_most: GIB,
        }
    }

    /// Small enough for a simulation of a few cores.
    pub fn simulated() -> LoadExtent {
        LoadExtent {
            heaps: vec![1 << 20],
            threads: 1 << 10,
            percents: vec![50, 90, 98],
            turns: 4,
            drift_threads: vec![1 << 8],
            drift_most: 8 << 20,
        }
    }
}

/// Powers of two, with a factor of `2^step` between them.
fn powers(exponents: std::ops::RangeInclusive<u32>, step: usize) -> Vec<u32> {
    exponents.step_by(step).map(|exponent| 1 << exponent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_suites_end_with_the_largest_values() {
        for suite in [Suite::Quick, Suite::Full] {
            let extent = Extent::of(suite, Backend::Cuda);
            assert_eq!((extent.threads.first(), extent.threads.last()), (Some(&1), Some(&(1 << 24))));
            assert_eq!((extent.bytes.first(), extent.bytes.last()), (Some(&16), Some(&(1 << 20))));
            assert!(extent.threads.contains(&extent.threads_of_targets), "each target has a point");
        }
        assert_eq!(Extent::of(Suite::Full, Backend::Cuda).threads.len(), 25);
    }

    #[test]
    fn a_pool_has_room_for_all_requests() {
        let extent = Extent::of(Suite::Full, Backend::Cuda);
        let largest = extent.room(extent.threads_over_bytes, 1 << 20);
        assert!(largest > 64 << 30 && largest < 90 << 30, "{largest}");
        assert_eq!(extent.at(Over::Threads, 32), (32, BYTES_OVER_THREADS));
        assert_eq!(extent.at(Over::Bytes, 32), (1 << 16, 32));
    }
}
