//! The bump arena under stress.
//!
//! The allocated, remaining and wasted granules must add up to the size of the arena.

use super::{Account, Launched, Subject};
use crate::kernels::stress::{give_back_bump, grab_bump, plant_overlap_bump, stress_bump};
use crate::stress::config::AllocatorKind;
use crate::stress::finding::{FindingKind, Narrator};
use crate::stress::plan::{MIN_GRANULE_LOG2, Plan, Shape};
use crate::{OwnModule, Result};
use warpheap::Bytes;
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap::device_pools::{self, BumpStats, Faults};
use warpheap_device::bump::{Bump, MAX_GRANULES};
use warpheap_device::kernel::Arg;

/// The largest alignment that threads request, as a multiple of the smallest (base-2 logarithm).
const MAX_EXTRA_ALIGN_LOG2: u32 = 2;

/// A planted overlap makes the arena allocate at most this fraction of its memory again.
const REWOUND_PART: u64 = 8;

pub(crate) struct BumpSubject {
    pool: device_pools::Bump,
    /// The number of pieces that the remaining memory can be split into: the root's, and two per
    /// shard.
    pieces: u64,
}

// SAFETY: the pool's memory and metadata live as long as the pool (S1). `stress_kernels!` declares
// the kernels (S2). Any thread may call the handle's methods (S3). Methods that launch kernels wait
// for them (S4). The kernels are loaded from this crate's images (S5).
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
        // One shard per SM, also where the builder would use none, so that shards are always
        // tested.
        let shards = device.info()?.multiprocessors.min(plan.granules() as u32 / 2);
        let builder = device_pools::Bump::builder(plan.pool_bytes).min_align(1 << plan.granule_log2);
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

    /// An arena does not record misuse.
    fn faults(&self) -> Result<Option<Faults>> {
        Ok(None)
    }

    /// Always `None`: an arena counts bytes, and the number of blocks does not determine them.
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
        // The root leased all allocated memory.
        let usage = self.pool.stats()?.usage;
        let lent = usage.used_bytes.min(usage.reserved_bytes / REWOUND_PART);
        let args = (self.handle(), lent);
        // SAFETY: the root leased at least `lent` bytes, and nothing else runs. The run ends with
        // the resulting findings.
        unsafe { stream.launch(module, plant_overlap_bump, &LaunchConfig::linear(1, 1), args) }?;
        Ok(stream.synchronize()?)
    }
}

/// Granules that an allocation takes from an arena. An alignment above the granule costs padding:
/// the alignment less a granule.
fn footprint(bytes: u32, align: u64) -> u64 {
    let padding = align.saturating_sub(1 << MIN_GRANULE_LOG2);
    (u64::from(bytes) + padding).div_ceil(1 << MIN_GRANULE_LOG2)
}

/// Compares the statistics of the arena with the bytes that live blocks take.
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
