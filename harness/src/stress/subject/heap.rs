//! The heap under stress.
//!
//! The checks: the blocks that are live in the metadata are exactly the blocks of the records, no
//! invariant is broken, and the parts of the heap add up to its size. After all blocks are freed,
//! one allocation of the entire memory succeeds. An exhausted heap allocates as many blocks as when
//! it was new.

use super::{Account, ExchangeArgs, Launched, Subject};
use crate::kernels::stress::{
    exchange_heap, give_back_heap, grab_heap, plant_double_free_heap, plant_overlap_heap, stress_heap,
    take_whole_heap,
};
use crate::stress::config::AllocatorKind;
use crate::stress::finding::{FindingKind, Narrator};
use crate::stress::plan::{Plan, Shape};
use crate::{OwnModule, Result};
use warpheap::Bytes;
use warpheap::driver::{Device, DeviceBuffer, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap::device_pools::{self, Faults, HeapSnapshot, HeapStats};
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::heap::Heap;
use warpheap_device::heap::class::{MIN_BLOCK, SizeClass};
use warpheap_device::heap::layout::HEAP_BYTES;
use warpheap_device::kernel::{Arg, DeviceSlice};

/// A new heap allocates at least this fraction of its memory as blocks of one size: a block is at
/// most a quarter larger than its request, and at most an eighth of a slab is left over.
const LEAST_GRANTED: f64 = 0.8 * 0.875;

/// The size of a heap is a multiple of 1 MiB, which is a multiple of its slab size.
const UNIT: u64 = 1 << 20;

/// The largest alignment that threads request: 4 KiB.
const MAX_ALIGN_LOG2: u32 = 12;

/// The number of differences that are named.
const NAMED: usize = 8;

pub(crate) struct HeapSubject {
    pool: device_pools::Heap,
    /// The result of a kernel with one thread.
    answer: DeviceBuffer<u64>,
    /// Blocks of the largest size that the new heap allocated.
    at_first: Option<u64>,
}

// SAFETY: the pool's memory and metadata live as long as the pool (S1). `stress_kernels!` declares
// the kernels (S2). Any thread may call the handle's methods (S3). Methods that launch kernels wait
// for them, except `exchange` (S4). The kernels are loaded from this crate's images (S5).
unsafe impl Subject for HeapSubject {
    type Handle = Heap;
    type Stress = stress_heap;
    type Grab = grab_heap;
    type GiveBack = give_back_heap;
    const STRESS: stress_heap = stress_heap;
    const GRAB: grab_heap = grab_heap;
    const GIVE_BACK: give_back_heap = give_back_heap;
    const NAME: &'static str = AllocatorKind::Heap.name();
    const MEASURED: bool = true;
    const LAUNCHED: Launched = Launched {
        always: &kernel_names![take_whole_heap],
        handing_over: &kernel_names![exchange_heap],
        planted: &kernel_names![plant_overlap_heap, plant_double_free_heap],
    };

    fn shape(min_bytes: u32, max_bytes: u32, mean_bytes: u32) -> Shape {
        Shape {
            granule_log2: granule_log2(min_bytes, max_bytes),
            max_align_log2: MAX_ALIGN_LOG2,
            unit: UNIT,
            most_bytes: HEAP_BYTES.1,
            // A block is up to a quarter larger than its request, an eighth on average.
            mean_bytes: u64::from(mean_bytes).max(16) * 9 / 8,
            block_bytes: None,
        }
    }

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let pool = device_pools::Heap::builder(plan.pool_bytes).build(device)?;
        Ok(HeapSubject { pool, answer: device.zeroed(1)?, at_first: None })
    }

    fn module(device: &Device, kernels: &[&'static str]) -> Result<Module> {
        Ok(OwnModule::load(device, kernels)?.module().clone())
    }

    fn handle(&self) -> Arg<Heap> {
        self.pool.handle()
    }

    fn start(&self) -> u64 {
        self.pool.memory().address()
    }

    fn reset(&mut self) -> Result<()> {
        Ok(self.pool.reset()?)
    }

    fn faults(&self) -> Result<Option<Faults>> {
        Ok(Some(self.pool.faults()?))
    }

    /// Always `None`: the metadata that counts the live blocks also identifies them.
    /// [`account`](Subject::account) compares it with the records when the host compares all
    /// blocks.
    fn agrees(&self, _: u64) -> Result<Option<bool>> {
        Ok(None)
    }

    fn account(&self, _: &Plan, narrator: &Narrator<'_>) -> Result<Option<Account>> {
        let snapshot = self.pool.snapshot()?;
        let mut account = Account::default();
        for violation in snapshot.check().into_iter().take(NAMED) {
            let message = format!("invariant {} is broken: {}", violation.invariant, violation.found);
            account.findings.push(narrator.finding(FindingKind::CountMismatch, None, message));
        }
        compare_blocks(&snapshot, narrator, &mut account);
        compare_bytes(&snapshot.stats(), narrator, &mut account);
        Ok(Some(account))
    }

    /// Always true: the remaining memory may be in blocks of other sizes than the failed requests.
    fn is_exhausted(&self, _: &Plan, _live: u64, _most: u64) -> Result<bool> {
        Ok(true)
    }

    fn is_emptied(&mut self, plan: &Plan, granted: u64) -> Result<bool> {
        if let Some(at_first) = self.at_first {
            return Ok(granted == at_first);
        }
        self.at_first = Some(granted);
        Ok(granted as f64 >= LEAST_GRANTED * self.most_blocks(plan) as f64 - 1.0)
    }

    unsafe fn is_all_free(&self, module: &Module, stream: &Stream) -> Result<Option<bool>> {
        let args = (self.handle(), self.answer.ptr());
        // SAFETY: nothing else uses the heap and the answer, which live until the stream is waited
        // for.
        unsafe { stream.launch(module, take_whole_heap, &LaunchConfig::linear(1, 1), args) }?;
        stream.synchronize()?;
        Ok(Some(self.answer.copy_to_vec()? == [1]))
    }

    fn most_blocks(&self, plan: &Plan) -> u64 {
        plan.pool_bytes / u64::from(plan.max_bytes.max(MIN_BLOCK))
    }

    unsafe fn exchange(
        &self,
        module: &Module,
        stream: &Stream,
        grid: &LaunchConfig,
        args: ExchangeArgs<Heap>,
    ) -> Result<()> {
        // SAFETY: the caller of `Subject::exchange` meets the requirements of `exchange::run`, and
        // `module` is one of `Subject::module` (S5).
        unsafe { stream.launch(module, exchange_heap, grid, args) }?;
        Ok(())
    }

    unsafe fn corrupt(&self, module: &Module, stream: &Stream, victim: u64) -> Result<()> {
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: nothing else runs, by the requirements of `Subject::corrupt`. The run ends with
        // the resulting findings.
        unsafe { stream.launch(module, plant_overlap_heap, &one, (self.handle(), victim)) }?;
        Ok(stream.synchronize()?)
    }

    unsafe fn free_twice(
        &self,
        module: &Module,
        stream: &Stream,
        records: DeviceSlice<Record>,
        map: Arg<OwnershipMap>,
        place: u32,
    ) -> Result<()> {
        let args = (self.handle(), records, map, place);
        // SAFETY: nothing else runs, and the records are those of this heap and this map, by the
        // requirements of `Subject::free_twice`.
        unsafe { stream.launch(module, plant_double_free_heap, &LaunchConfig::linear(1, 1), args) }?;
        Ok(stream.synchronize()?)
    }
}

/// The base-2 logarithm of the largest power of two that divides all block sizes of the heap for
/// these requests.
fn granule_log2(min_bytes: u32, max_bytes: u32) -> u32 {
    let (first, last) = (SizeClass::of(min_bytes), SizeClass::of(max_bytes));
    let all = (first.0..=last.0).fold(0, |all, class| all | SizeClass(class).bytes());
    all.trailing_zeros().min(MAX_ALIGN_LOG2)
}

/// Compares the blocks that are live in the heap with those in the records, both in order of
/// addresses.
fn compare_blocks(snapshot: &HeapSnapshot, narrator: &Narrator<'_>, account: &mut Account) {
    let live = narrator.records.iter().filter(|record| record.is_live());
    let mut held: Vec<u64> = live.map(|record| record.address()).collect();
    held.sort_unstable();
    let mut held = held.into_iter().peekable();
    let mut differing = 0;
    let mut tell = |kind, address, what| {
        differing += 1;
        if differing <= NAMED {
            let message = format!("{what}: {}", narrator.place_in_pool(address));
            account.findings.push(narrator.finding(kind, Some(address), message));
        }
    };
    snapshot.for_each_live(|block| {
        while let Some(address) = held.next_if(|address| *address < block.address) {
            tell(FindingKind::CountMismatch, address, UNKNOWN);
        }
        if held.next_if_eq(&block.address).is_none() {
            account.lost_blocks += 1;
            tell(FindingKind::Lost, block.address, "a block is neither free nor anyone's");
        }
    });
    held.for_each(|address| tell(FindingKind::CountMismatch, address, UNKNOWN));
}

/// The message for a block that is in a record but not live in the heap.
const UNKNOWN: &str = "a live block is not one of the heap's, or counts as free and will be handed out again";

/// Checks that the parts of the heap add up to its size.
fn compare_bytes(stats: &HeapStats, narrator: &Narrator<'_>, account: &mut Account) {
    let in_blocks = stats.live_bytes + stats.free_block_bytes + stats.cursor_bytes + stats.slack_bytes;
    let sum =
        in_blocks + stats.quarantined_bytes + stats.large_bytes + stats.free_slab_bytes + stats.fresh_bytes;
    if sum != stats.usage.reserved_bytes {
        let message = format!("the parts of the heap add up to {}: {stats:?}", Bytes(sum));
        account.findings.push(narrator.finding(FindingKind::CountMismatch, None, message));
    }
}
