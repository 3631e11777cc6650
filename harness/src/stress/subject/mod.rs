//! A pool under stress, and what its own numbers say about the blocks that are live.

mod bump;
mod freelist;
mod heap;

pub(super) use bump::BumpSubject;
pub(super) use freelist::FreeListSubject;
pub(super) use heap::HeapSubject;

use super::finding::{Finding, Narrator};
use super::plan::Plan;
use warpheap::Result;
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::Round;
use warpheap_device::kernel::{Arg, DevicePtr, DeviceSlice, Kernel};

/// The arguments of a round's kernel.
pub(super) type StressArgs<H> = (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, DeviceSlice<u64>, Round);
/// The arguments of the kernel that empties a pool.
pub(super) type GrabArgs<H> = (Arg<H>, u32, u32, DeviceSlice<Record>, DevicePtr<u64>);

/// The arguments of a kernel in which blocks change hands: all records, and the cells.
pub(super) type ExchangeArgs<H> =
    (Arg<H>, DeviceSlice<Record>, Arg<OwnershipMap>, DeviceSlice<u64>, DeviceSlice<u64>, Round);

/// What the allocator's own numbers say, beside the blocks that are live.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub findings: Vec<Finding>,
    /// Blocks that are neither free nor anyone's; for an arena, allocations of the least size.
    pub lost_blocks: u64,
    /// Bytes that the allocator gave up by design.
    pub wasted_bytes: u64,
}

/// The kernels that a subject launches, by when.
pub(super) struct Launched {
    /// In every run.
    pub always: &'static [&'static str],
    /// Where blocks change hands.
    pub handing_over: &'static [&'static str],
    /// To inject a fault.
    pub planted: &'static [&'static str],
}

pub(super) trait Subject: Sized {
    type Handle: DeviceAlloc;
    type Stress: Kernel<Args = StressArgs<Self::Handle>>;
    type Grab: Kernel<Args = GrabArgs<Self::Handle>>;
    const STRESS: Self::Stress;
    const GRAB: Self::Grab;
    /// Whether what the new pool gives is measured, to be compared with what it gives later.
    const MEASURED: bool = false;
    /// What it launches. A kernel that is not here is refused.
    const LAUNCHED: Launched;

    /// A pool with nothing allocated.
    fn new(device: &Device, plan: &Plan) -> Result<Self>;

    /// The pool as kernels take it.
    fn handle(&self) -> Arg<Self::Handle>;

    /// Where its memory starts.
    fn start(&self) -> u64;

    /// Makes all memory free again. No kernel runs.
    fn reset(&mut self) -> Result<()>;

    /// Misuse that the allocator has seen since the last reset: how often, and the first few.
    fn faults(&self, narrator: &Narrator<'_>) -> Result<(u64, Vec<Finding>)>;

    /// Whether the allocator's numbers agree with the number of live blocks. Needs no records.
    fn agrees(&self, live: u64) -> Result<bool>;

    /// Compares the allocator's numbers with all live blocks, and names what is lost.
    fn account(&self, plan: &Plan, narrator: &Narrator<'_>) -> Result<Account>;

    /// Whether threads that allocated until they were refused, or until they held `most` blocks, have left
    /// nothing: `live` is what they hold.
    fn is_exhausted(&self, plan: &Plan, live: u64, most: u64) -> Result<bool>;

    /// Whether threads that took blocks of the largest size until they were refused have left nothing: `granted`
    /// is what they hold.
    fn is_emptied(&mut self, plan: &Plan, granted: u64) -> Result<bool> {
        self.is_exhausted(plan, granted, u64::MAX)
    }

    /// Whether all memory is free, now that everything was given back. A pool whose numbers say so is not asked
    /// again. No kernel runs.
    fn is_all_free(&self, _: &Module, _: &Stream) -> Result<bool> {
        Ok(true)
    }

    /// How many allocations of the largest size the empty pool can give, at most.
    fn most_blocks(&self, plan: &Plan) -> u64;

    /// Launches a kernel in which blocks change hands.
    ///
    /// # Safety
    /// As for the kernel.
    unsafe fn exchange(
        &self,
        module: &Module,
        stream: &Stream,
        grid: &LaunchConfig,
        args: ExchangeArgs<Self::Handle>,
    ) -> Result<()>;

    /// Gives the first `count` of the records' blocks back, and empties the records. No kernel runs.
    fn give_back(
        &self,
        module: &Module,
        stream: &Stream,
        records: DeviceSlice<Record>,
        count: u64,
    ) -> Result<()>;

    /// Makes the allocator hand out memory twice: `victim` is a live block's address. No kernel runs.
    fn corrupt(&self, module: &Module, stream: &Stream, victim: u64) -> Result<()>;

    /// Gives the block of the record at `place` back twice. No kernel runs.
    fn free_twice(
        &self,
        module: &Module,
        stream: &Stream,
        records: DeviceSlice<Record>,
        map: Arg<OwnershipMap>,
        place: u32,
    ) -> Result<()>;
}
