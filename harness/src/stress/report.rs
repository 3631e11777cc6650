//! The report of a run.

use super::config::StressConfig;
use super::delays::DelayReport;
use super::finding::Finding;
use super::kinds::{Plant, SizeMix, Workload};
use super::plan::Plan;
use crate::Name;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::time::Duration;
use warpheap::device_pools::HeapMap;
use warpheap_device::check::tally::Counts;

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Completed rounds.
    pub round: u64,
    /// Time since the start.
    pub elapsed: Duration,
    /// Blocks allocated so far.
    pub allocations: u64,
    /// Blocks freed so far.
    pub pairs: u64,
}

/// What a run did and what it found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use = "it says whether the run was clean"]
pub struct StressReport {
    /// The allocator under stress: [`Subject::NAME`](super::Subject::NAME).
    pub allocator: Name,
    /// GPU threads of each stream.
    pub threads: u32,
    /// Streams that used the pool concurrently.
    pub streams: u32,
    /// What the threads did.
    pub workload: Workload,
    /// The smallest and the largest allocation, in bytes.
    pub sizes: RangeInclusive<u64>,
    /// The distribution of the sizes.
    pub mix: SizeMix,
    /// Size of the pool in bytes.
    pub pool_bytes: u64,
    /// Seed of everything that the threads did.
    pub seed: u64,
    /// The fault that was injected.
    pub plant: Option<Plant>,
    /// The delays that took place, if threads were delayed.
    pub delays: Option<DelayReport>,
    /// Completed rounds.
    pub rounds: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Pairs of an allocation and the free of its block. `verified` lists the checks of each pair.
    pub pairs: u64,
    /// What was checked for every pair, and for all blocks together. Checks that the
    /// [`Subject`](super::Subject) does not support, and checks that the run did not reach, are not
    /// listed.
    pub verified: Vec<Name>,
    /// Blocks that a different warp freed than the one that allocated them, in the same kernel or
    /// in kernels that ran concurrently. A churn has none: there, blocks change owners only between
    /// kernels.
    pub crossed_warps: u64,
    /// Blocks among `crossed_warps` that a kernel of another stream freed.
    pub crossed_kernels: u64,
    /// Allocations that failed because the pool was out of memory.
    pub failed_allocations: u64,
    /// Allocations that failed without a proof that there was no memory, also where the pool was
    /// exhausted to check it. `None` if the allocator does not count them, or if there are
    /// findings.
    pub contended_failures: Option<u64>,
    /// Bytes of patterns that owners wrote.
    pub bytes_written: u64,
    /// Bytes of patterns that owners verified.
    pub bytes_read: u64,
    /// Blocks compared for overlaps together on the device. In addition, every allocation is
    /// checked individually.
    pub blocks_checked: u64,
    /// Blocks that were also compared on the host.
    pub blocks_sorted: u64,
    /// How often the pool was exhausted: a free list up to the last block, an arena up to less than
    /// one block of the largest size in each piece of its memory, a heap until allocation failed
    /// for the requested sizes.
    pub exhaustions: u64,
    /// Seconds in kernels that allocate and free, including their checks.
    pub kernel_seconds: f64,
    /// Seconds in kernels that compare all blocks for overlaps.
    pub check_seconds: f64,
    /// Seconds in the same comparison on the host, including copies of the records.
    pub host_check_seconds: f64,
    /// Seconds of the run, including set-up.
    pub elapsed_seconds: f64,
    /// Pairs of an allocation and a free, per second of `kernel_seconds`.
    pub pairs_per_second: f64,
    /// Blocks compared for overlaps on the device, per second of `check_seconds`.
    pub checked_per_second: f64,
    /// The largest number of live blocks at the end of a round.
    pub peak_live_blocks: u64,
    /// Blocks that were neither free nor live.
    pub lost_blocks: u64,
    /// The largest number of bytes that an arena wasted by design before a reset.
    pub wasted_bytes: u64,
    /// The first findings, at most 256.
    pub findings: Vec<Finding>,
    /// The number of all findings.
    pub findings_total: u64,
    /// The map of the heap, if [`StressConfig::map`] is set: after the last round, with the live
    /// blocks of that round, before they are freed.
    #[serde(skip)]
    pub map: Option<HeapMap>,
    #[serde(skip)]
    pub(super) checked: Checked,
}

impl StressReport {
    pub(super) fn new(config: &StressConfig, plan: &Plan) -> Self {
        StressReport {
            allocator: plan.name.into(),
            threads: plan.threads,
            streams: plan.streams,
            workload: plan.workload,
            sizes: config.sizes.clone(),
            mix: plan.mix,
            pool_bytes: plan.pool_bytes,
            seed: plan.seed,
            plant: plan.plant,
            delays: None,
            rounds: 0,
            allocations: 0,
            frees: 0,
            pairs: 0,
            verified: Vec::new(),
            crossed_warps: 0,
            crossed_kernels: 0,
            failed_allocations: 0,
            contended_failures: None,
            bytes_written: 0,
            bytes_read: 0,
            blocks_checked: 0,
            blocks_sorted: 0,
            exhaustions: 0,
            kernel_seconds: 0.0,
            check_seconds: 0.0,
            host_check_seconds: 0.0,
            elapsed_seconds: 0.0,
            pairs_per_second: 0.0,
            checked_per_second: 0.0,
            peak_live_blocks: 0,
            lost_blocks: 0,
            wasted_bytes: 0,
            findings: Vec::new(),
            findings_total: 0,
            map: None,
            checked: Checked::default(),
        }
    }

    /// Whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.findings_total == 0
    }

    /// Blocks allocated and not freed.
    pub(super) fn live_blocks(&self) -> u64 {
        self.allocations - self.frees
    }

    pub(super) fn count(&mut self, counts: Counts) {
        self.allocations = counts.allocations;
        (self.frees, self.pairs) = (counts.frees, counts.frees);
        self.crossed_warps = counts.crossed_warps;
        self.crossed_kernels = counts.crossed_kernels;
        self.failed_allocations = counts.failed_allocations;
        self.bytes_written = counts.bytes_written;
        self.bytes_read = counts.bytes_read;
        self.peak_live_blocks = self.peak_live_blocks.max(self.live_blocks());
    }

    /// Adds findings. `total` also counts findings that are not listed.
    pub(super) fn add(&mut self, findings: Vec<Finding>, total: u64) {
        self.findings_total += total.max(findings.len() as u64);
        let room = MOST_LISTED.saturating_sub(self.findings.len());
        self.findings.extend(findings.into_iter().take(room));
    }

    /// Counts findings that are not listed.
    pub(super) fn add_unlisted(&mut self, count: usize) {
        self.findings_total += count as u64;
    }

    pub(super) fn add_one(&mut self, finding: Finding) {
        self.add(vec![finding], 1);
    }

    pub(super) fn finish(&mut self, elapsed: Duration) {
        let per_second = |n: u64, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        self.elapsed_seconds = elapsed.as_secs_f64();
        self.verified = self.checked.verified();
        self.pairs_per_second = per_second(self.frees, self.kernel_seconds);
        self.checked_per_second = per_second(self.blocks_checked, self.check_seconds);
    }
}

/// The checks that need support by the allocator and were done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checked {
    /// The allocator records misuse.
    pub misuse: bool,
    /// The allocator's count was compared with the live blocks.
    pub count: bool,
    /// The allocator's metadata was compared with the live blocks.
    pub metadata: bool,
    /// The allocator was checked for all memory being free.
    pub all_free: bool,
}

impl Checked {
    /// What a run without findings has verified.
    fn verified(self) -> Vec<Name> {
        let of_subject = [
            (self.misuse, MISUSE),
            (self.count, COUNT),
            (self.metadata, METADATA),
            (self.all_free, ALL_FREE),
        ];
        let made = of_subject.into_iter().filter(|(made, _)| *made).map(|(_, what)| what);
        ALWAYS.into_iter().chain(made).map(Name::from).collect()
    }
}

/// The checks that need no support by the allocator.
const ALWAYS: [&str; 3] = [
    "overlaps: every allocation claimed its memory in an ownership map on the device when it was made, and held it \
     until the free",
    "torn writes: every owner filled its block with a pattern and read all of it again before the free",
    "overlaps between rounds: `blocks_checked` times on the device and `blocks_sorted` times on the host, live blocks \
     were compared with each other",
];
const MISUSE: &str = "misuse: double, foreign and interior frees were recorded by the allocator";
const COUNT: &str = "lost blocks: between rounds, the allocator's count was compared with the live blocks";
const METADATA: &str =
    "lost blocks: between rounds, the allocator's metadata was compared with the live blocks";
const ALL_FREE: &str = "lost blocks: when every block was freed, all memory was free";

/// The maximum number of listed findings. All are counted.
const MOST_LISTED: usize = 256;
