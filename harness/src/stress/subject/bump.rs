//! A bump arena under stress.
//!
//! What was granted, what is left and what was wasted must add up to the arena's size, granule by granule.

use super::{Account, Launched, Subject};
use crate::kernels::stress::{give_back_bump, grab_bump, plant_overlap_bump, stress_bump};
use crate::stress::config::AllocatorKind;
use crate::stress::finding::{FindingKind, Narrator};
use crate::stress::plan::{MIN_GRANULE_LOG2, Plan, Shape};
use crate::{OwnModule, Result};
use warpheap::Bytes;
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap::pool::{self, BumpStats, Faults};
use warpheap_device::bump::{Bump, MAX_GRANULES};
use warpheap_device::kernel::Arg;

/// The largest alignment that threads ask for, as a multiple of the least.
const MAX_EXTRA_ALIGN_LOG2: u32 = 2;

/// What part of the arena a planted overlap makes it hand out again, at most.
const REWOUND_PART: u64 = 8;

pub(crate) struct BumpSubject {
    pool: pool::Bump,
    /// Pieces that what is left can be in: the root's, and two of each shard.
    pieces: u64,
}

// SAFETY: the library's pool keeps its memory while it lives and its handle's methods may be called by any thread (S1,
// S3); the kernels are those of `stress_kernels!` (S2), out of this crate's images (S5); what is
// launched here is waited for (S4).
unsafe impl Subject for BumpSubject {
    type Handle = Bump;
    type Stress = stress_bump;
    type Grab = grab_bump;
    type GiveBack = give_back_bump;
    const STRESS: stress_bump = stress_bump;
    const GRAB: grab_bump = grab_bump;
    const GIVE_BACK: give_back_bump = give_back_bump;
    const NAME: &'static str = AllocatorKind::Bump.name();
    const LAUNCHED: Launched =
        Launched { always: &[], handing_over: &[], planted: &kernel_names![plant_overlap_bump] };

    fn shape(_: u32, _: u32, mean_bytes: u32) -> Shape {
        let max_align_log2 = MIN_GRANULE_LOG2 + MAX_EXTRA_ALIGN_LOG2;
        let each = (0..=max_align_log2).map(|log2| footprint(mean_bytes | 1, 1 << log2)).sum::<u64>();
        Shape {
            granule_log2: MIN_GRANULE_LOG2,
            max_align_log2,
            unit: 1 << MIN_GRANULE_LOG2,
            most_bytes: MAX_GRANULES << MIN_GRANULE_LOG2,
            mean_bytes: (each << MIN_GRANULE_LOG2) / (u64::from(max_align_log2) + 1),
            block_bytes: None,
        }
    }

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        // A shard for each multiprocessor also where the builder would do without: all of it is to be tried.
        let shards = device.info()?.multiprocessors.min(plan.granules() as u32 / 2);
        let builder = pool::Bump::builder(plan.pool_bytes).min_align(1 << plan.granule_log2);
        let pool = builder.shards(shards).build(device)?;
        Ok(BumpSubject { pool, pieces: 1 + 2 * u64::from(shards) })
    }

    fn module(device: &Device, kernels: &[&'static str]) -> Result<Module> {
        Ok(OwnModule::load(device, kernels)?.module().clone())
    }

    fn handle(&self) -> Arg<Bump> {
        self.pool.handle()
    }

    fn start(&self) -> u64 {
        self.pool.memory().address()
    }

    fn reset(&mut self) -> Result<()> {
        Ok(self.pool.reset()?)
    }

    /// An arena records no misuse.
    fn faults(&self) -> Result<Option<Faults>> {
        Ok(None)
    }

    /// The number of blocks says nothing about their sizes.
    fn agrees(&self, _: u64) -> Result<Option<bool>> {
        Ok(None)
    }

    fn account(&self, plan: &Plan, narrator: &Narrator<'_>) -> Result<Option<Account>> {
        let live = narrator.records.iter().filter(|record| record.is_live());
        let granted: u64 = live.map(|record| footprint(record.bytes(), record.align())).sum();
        let mut account = Account::default();
        for violation in self.pool.check()? {
            let message = format!("invariant {} is broken: {}", violation.invariant, violation.found);
            account.findings.push(narrator.finding(FindingKind::CountMismatch, None, message));
        }
        let stats = self.pool.stats()?;
        if stats.unsettled == 0 {
            account.wasted_bytes = stats.wasted_bytes;
            compare_bytes(plan, stats, granted << plan.granule_log2, narrator, &mut account);
        }
        Ok(Some(account))
    }

    fn is_exhausted(&self, plan: &Plan, live: u64, most: u64) -> Result<bool> {
        let largest = footprint(plan.max_bytes, 1 << plan.max_align_log2) << plan.granule_log2;
        let stats = self.pool.stats()?;
        let is_short = stats.unsettled == 0 && stats.remaining_bytes < self.pieces * largest;
        Ok(live == most || is_short)
    }

    fn most_blocks(&self, plan: &Plan) -> u64 {
        plan.granules() / footprint(plan.max_bytes, 1)
    }

    unsafe fn corrupt(&self, module: &Module, stream: &Stream, _victim: u64) -> Result<()> {
        // All that was granted was lent by the root.
        let usage = self.pool.stats()?.usage;
        let lent = usage.used_bytes.min(usage.reserved_bytes / REWOUND_PART);
        let args = (self.handle(), lent);
        // SAFETY: as much was lent, nothing else runs, and the run ends with the findings this leads to.
        unsafe { stream.launch(module, plant_overlap_bump, &LaunchConfig::linear(1, 1), args) }?;
        Ok(stream.synchronize()?)
    }
}

/// Granules that an allocation of an arena takes: a larger alignment than a granule costs its own size.
fn footprint(bytes: u32, align: u64) -> u64 {
    let padding = align.saturating_sub(1 << MIN_GRANULE_LOG2);
    (u64::from(bytes) + padding).div_ceil(1 << MIN_GRANULE_LOG2)
}

/// The arena's numbers against the bytes that live blocks take.
fn compare_bytes(
    plan: &Plan,
    stats: BumpStats,
    granted: u64,
    narrator: &Narrator<'_>,
    account: &mut Account,
) {
    let sum = granted + stats.remaining_bytes + stats.wasted_bytes;
    if sum == stats.usage.reserved_bytes {
        return;
    }
    let parts = format!(
        "blocks take {}, {} are left, {} were wasted",
        Bytes(granted),
        Bytes(stats.remaining_bytes),
        Bytes(stats.wasted_bytes)
    );
    let (total, difference) = (Bytes(stats.usage.reserved_bytes), sum.abs_diff(stats.usage.reserved_bytes));
    let (kind, message) = if sum < stats.usage.reserved_bytes {
        account.lost_blocks = (difference >> plan.granule_log2) / footprint(plan.min_bytes, 1);
        (
            FindingKind::Lost,
            format!("{} of {total} are neither free nor anyone's: {parts}", Bytes(difference)),
        )
    } else {
        (
            FindingKind::CountMismatch,
            format!("there are {} more than the {total}: {parts}", Bytes(difference)),
        )
    };
    account.findings.push(narrator.finding(kind, None, message));
}
