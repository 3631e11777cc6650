//! The bump arena under stress.
//!
//! The allocated, remaining and wasted granules must add up to the size of the arena.

use crate::kernels::stress::{exhaust_bump, free_all_bump, plant_overlap_bump, stress_bump};
use crate::stress::finding::{FindingKind, RoundState};
use crate::stress::kernels::Kernels;
use crate::stress::kinds::AllocatorKind;
use crate::stress::plan::{MIN_GRANULE_LOG2, Plan, Shape};
use crate::stress::subject::{Account, Subject};
use crate::{OwnModule, Result};
use warpheap::Bytes;
use warpheap::device_pools::{self, BumpStats};
use warpheap::driver::{Device, Module};
use warpheap_device::bump::{Bump, MAX_GRANULES};
use warpheap_device::check::record::Record;
use warpheap_device::kernel::Arg;

/// The largest alignment that threads request, as a multiple of the smallest (base-2 logarithm).
const MAX_EXTRA_ALIGN_LOG2: u32 = 2;

/// A planted overlap rewinds the arena by at most `1 / REWOUND_PART` of its size.
const REWOUND_PART: u64 = 8;

pub(crate) struct BumpSubject {
    pool: device_pools::Bump,
    /// Maximum number of fragments of the remaining memory: one in the root, two per shard.
    pieces: u64,
}

// SAFETY: the pool's memory and metadata live as long as the pool (S1). `stress_kernels!` declares
// the kernels; `plant_overlap_bump` requires that the root leased the bytes of `overlap_argument`
// (S2). Any thread may call the handle's methods (S3). No method launches a kernel (S4). The
// kernels are loaded from this crate's images (S5).
unsafe impl Subject for BumpSubject {
    type Handle = Bump;
    const KERNELS: Kernels<Bump> =
        Kernels::new(&stress_bump, &exhaust_bump, &free_all_bump).overlap(&plant_overlap_bump);
    const NAME: &'static str = AllocatorKind::Bump.name();

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

    fn account(&self, plan: &Plan, state: &RoundState<'_>) -> Result<Option<Account>> {
        let footprint = |(_, record): (u32, &Record)| footprint(record.bytes(), record.align());
        let granted: u64 = state.live().map(footprint).sum();
        let mut account = Account::default();
        account.findings.extend(self.pool.check()?.iter().map(|violation| state.violation(violation)));
        let stats = self.pool.stats()?;
        if stats.unsettled == 0 {
            account.wasted_bytes = stats.wasted_bytes;
            compare_bytes(plan, stats, granted << plan.granule_log2, state, &mut account);
        }
        Ok(Some(account))
    }

    fn is_exhausted(&self, plan: &Plan, live: u64, max: u64) -> Result<bool> {
        let largest = footprint(plan.max_bytes, 1 << plan.max_align_log2) << plan.granule_log2;
        let stats = self.pool.stats()?;
        let is_short = stats.unsettled == 0 && stats.remaining_bytes < self.pieces * largest;
        Ok(live == max || is_short)
    }

    fn most_blocks(&self, plan: &Plan) -> u64 {
        plan.granules() / footprint(plan.max_bytes, 1)
    }

    /// Number of bytes to rewind. All allocated memory was leased by the root (S2).
    fn overlap_argument(&self, _: u64) -> Result<u64> {
        let usage = self.pool.stats()?.usage;
        Ok(usage.used_bytes.min(usage.reserved_bytes / REWOUND_PART))
    }
}

/// Granules that an allocation takes from an arena. An alignment above the granule costs padding:
/// the alignment less a granule.
fn footprint(bytes: u32, align: u64) -> u64 {
    let padding = align.saturating_sub(1 << MIN_GRANULE_LOG2);
    (u64::from(bytes) + padding).div_ceil(1 << MIN_GRANULE_LOG2)
}

/// Compares the statistics of the arena with the bytes that live blocks take.
fn compare_bytes(plan: &Plan, stats: BumpStats, granted: u64, state: &RoundState<'_>, account: &mut Account) {
    let sum = granted + stats.remaining_bytes + stats.wasted_bytes;
    if sum == stats.usage.reserved_bytes {
        return;
    }
    let (total, difference) = (Bytes(stats.usage.reserved_bytes), sum.abs_diff(stats.usage.reserved_bytes));
    let parts = format!(
        "the live blocks take {}, {} remain, {} were wasted",
        Bytes(granted),
        Bytes(stats.remaining_bytes),
        Bytes(stats.wasted_bytes)
    );
    let (kind, what) = if sum < stats.usage.reserved_bytes {
        account.lost_blocks = (difference >> plan.granule_log2) / footprint(plan.min_bytes, 1);
        (FindingKind::Lost, "are neither free nor live")
    } else {
        (FindingKind::CountMismatch, "are counted more than once")
    };
    let message = format!("{} of the arena's {total} {what}: {parts}", Bytes(difference));
    account.findings.push(state.finding(kind, None, message));
}
