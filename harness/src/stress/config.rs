//! Configuration of a stress run.

use super::delays::Delays;
use super::kinds::{AllocatorKind, Plant, SizeMix, Workload};
use serde::Serialize;
use std::ops::RangeInclusive;
use std::time::Duration;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// After this number of rounds.
    Rounds(u64),
    /// After the round in which this time has elapsed.
    Time(Duration),
    /// After the round in which this number of blocks has been freed.
    Pairs(u64),
}

/// Configuration of a stress run. [`new`](Self::new) returns the defaults; each field has a setter
/// of the same name.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StressConfig {
    /// The allocator that [`stress`](super::stress) tests.
    /// [`stress_allocator`](super::stress_allocator) ignores it. Default: the heap.
    pub allocator: AllocatorKind,
    /// GPU threads of each stream, rounded up to a multiple of 256 (the threads in a block).
    /// Default: 1024.
    pub threads: u32,
    /// What the threads do. Default: [`Workload::Churn`].
    pub workload: Workload,
    /// The smallest and the largest allocation, in bytes. The blocks of a free list have the
    /// largest size. Default: 16 to 256.
    pub sizes: RangeInclusive<u64>,
    /// The distribution of the sizes in this range. Default: [`SizeMix::Uniform`].
    pub mix: SizeMix,
    /// When to stop. Default: after 16 rounds.
    pub limit: Limit,
    /// Streams that use the pool concurrently. Default: 1.
    pub streams: u32,
    /// Size of the pool in bytes; for a heap, rounded up to a multiple of 1 MiB. Default (`None`):
    /// three quarters of what all threads together would hold, so that the pool runs out of memory
    /// occasionally. In a storm, one sixteenth. Never more than fits on the device.
    pub pool_bytes: Option<u64>,
    /// Seed of everything that the threads do. On one OS thread (replay), a run with the same seed
    /// is identical. Default: 1.
    pub seed: u64,
    /// A fault to inject. Default: none.
    pub plant: Option<Plant>,
    /// Delays of threads at named points of the allocator. Needs the feature `delays`. Default:
    /// none.
    pub delays: Option<Delays>,
    /// Whether the report has a map of the heap. Default: no.
    pub map: bool,
}

macro_rules! setters {
    ($($field:ident: $ty:ty),+ $(,)?) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
        #[must_use]
        pub fn $field(mut self, $field: $ty) -> Self {
            self.$field = $field;
            self
        }
    )+};
}

impl StressConfig {
    /// 16 rounds of churn on a heap: 1024 threads in one stream allocate 16 to 256 bytes each time.
    pub fn new() -> Self {
        StressConfig {
            allocator: AllocatorKind::Heap,
            threads: 1024,
            workload: Workload::default(),
            sizes: 16..=256,
            mix: SizeMix::default(),
            limit: Limit::Rounds(16),
            streams: 1,
            pool_bytes: None,
            seed: 1,
            plant: None,
            delays: None,
            map: false,
        }
    }

    setters! {
        allocator: AllocatorKind,
        threads: u32,
        workload: Workload,
        sizes: RangeInclusive<u64>,
        mix: SizeMix,
        limit: Limit,
        streams: u32,
        pool_bytes: Option<u64>,
        seed: u64,
        plant: Option<Plant>,
        delays: Option<Delays>,
        map: bool,
    }
}

impl Default for StressConfig {
    fn default() -> Self {
        Self::new()
    }
}
