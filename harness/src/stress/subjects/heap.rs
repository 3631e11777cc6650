//! The heap under stress.
//!
//! The checks: the blocks that are live in the metadata are exactly the blocks of the records, no
//! invariant is broken, and the parts of the heap add up to its size. After all blocks are freed,
//! one allocation of the entire memory succeeds. An exhausted heap allocates as many blocks as when
//! it was new. If each claim is of several slabs, the number varies, because concurrent claims
//! leave gaps: then no gap may be large enough for another claim, and no block of a run is free.

use crate::kernels::stress::{
    exchange_heap, exhaust_heap, free_all_heap, plant_double_free_heap, plant_overlap_heap, stress_heap,
    take_whole_heap,
};
use crate::stress::finding::{Finding, FindingKind, LISTED, RoundState};
use crate::stress::kernels::Kernels;
use crate::stress::kinds::AllocatorKind;
use crate::stress::plan::{Plan, Shape};
use crate::stress::subject::{Account, Subject};
use crate::{OwnModule, Result};
use warpheap::Bytes;
use warpheap::device_pools::{self, Faults, HeapMap, HeapSnapshot, HeapStats};
use warpheap::driver::{Device, Module};
use warpheap_device::heap::Heap;
use warpheap_device::heap::class::{MIN_BLOCK, SizeClass};
use warpheap_device::heap::layout::HEAP_BYTES;
use warpheap_device::kernel::Arg;

/// A new heap allocates at least this fraction of its memory as blocks of one size: a block is at
/// most a quarter larger than its request, and at most an eighth of a slab is left over.
const LEAST_GRANTED: f64 = 0.8 * 0.875;

/// The size of a heap is a multiple of 1 MiB, which is a multiple of its slab size.
const UNIT: u64 = 1 << 20;

/// The largest alignment that threads request: 4 KiB.
const MAX_ALIGN_LOG2: u32 = 12;

pub(crate) struct HeapSubject {
    pool: device_pools::Heap,
    /// Blocks of the largest size that the new heap allocated.
    at_first: Option<u64>,
}

// SAFETY: the pool's memory and metadata live as long as the pool (S1). `stress_kernels!` declares
// the kernels, and the others require no more than S2 allows (S2). Any thread may call the handle's
// methods (S3). No method launches a kernel (S4). The kernels are loaded from this crate's images
// (S5).
unsafe impl Subject for HeapSubject {
    type Handle = Heap;
    const KERNELS: Kernels<Heap> = Kernels::new(&stress_heap, &exhaust_heap, &free_all_heap)
        .exchange(&exchange_heap)
        .overlap(&plant_overlap_heap)
        .free_twice(&plant_double_free_heap)
        .take_all(&take_whole_heap);
    const NAME: &'static str = AllocatorKind::Heap.name();
    const MEASURED: bool = true;

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
        Ok(HeapSubject { pool: device_pools::Heap::builder(plan.pool_bytes).build(device)?, at_first: None })
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

    fn contended_failures(&self) -> Result<Option<u64>> {
        Ok(Some(self.pool.stats()?.contended_failures))
    }

    fn account(&self, _: &Plan, state: &RoundState<'_>) -> Result<Option<Account>> {
        let snapshot = self.pool.snapshot()?;
        let mut account = Account::default();
        let violations = snapshot.check();
        account.findings.extend(violations.iter().take(LISTED).map(|violation| state.violation(violation)));
        compare_blocks(&snapshot, state, &mut account);
        compare_bytes(&snapshot.stats(), state, &mut account);
        Ok(Some(account))
    }

    /// Always true: the remaining memory may be in blocks of other sizes than the failed requests.
    fn is_exhausted(&self, _: &Plan, _live: u64, _most: u64) -> Result<bool> {
        Ok(true)
    }

    fn is_emptied(&mut self, plan: &Plan, granted: u64) -> Result<bool> {
        let layout = self.pool.layout();
        if plan.max_bytes > layout.small_bytes {
            return Ok(self.longest_gap()? < plan.max_bytes.div_ceil(layout.slab_bytes()));
        }
        let class = layout.class(SizeClass::of(plan.max_bytes));
        if class.slabs > 1 {
            // A run lies in one word of the set of free slabs. So a gap is shorter than a run on
            // either side of the end of a word. Next to it may be the unused end of a run, an
            // eighth of it at most.
            let longest = 2 * (class.slabs - 1) + class.slabs / 8;
            return Ok(self.longest_gap()? <= longest && !self.has_free_blocks(class.bytes)?);
        }
        if let Some(at_first) = self.at_first {
            return Ok(granted == at_first);
        }
        self.at_first = Some(granted);
        Ok(granted as f64 >= LEAST_GRANTED * self.most_blocks(plan) as f64 - 1.0)
    }

    fn most_blocks(&self, plan: &Plan) -> u64 {
        plan.pool_bytes / u64::from(plan.max_bytes.max(MIN_BLOCK))
    }

    fn map(&self, label: String) -> Result<Option<HeapMap>> {
        Ok(Some(self.pool.snapshot()?.map(label)))
    }
}

impl HeapSubject {
    /// The largest number of consecutive slabs without a live block.
    fn longest_gap(&self) -> Result<u32> {
        let (layout, base) = (self.pool.layout(), self.start());
        let slab_bytes = u64::from(layout.slab_bytes());
        let (mut longest, mut after) = (0, 0);
        self.pool.snapshot()?.for_each_live(|block| {
            let start = block.address - base;
            longest = longest.max((start / slab_bytes).saturating_sub(after));
            after = (start + block.bytes).div_ceil(slab_bytes);
        });
        Ok(longest.max(u64::from(layout.slabs) - after) as u32)
    }

    /// Whether runs of the class with blocks of `bytes` have free blocks.
    fn has_free_blocks(&self, bytes: u32) -> Result<bool> {
        let stats = self.pool.stats()?;
        let class = stats.classes.iter().find(|class| class.class_bytes == u64::from(bytes));
        Ok(class.is_some_and(|class| class.free_blocks > 0))
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
fn compare_blocks(snapshot: &HeapSnapshot, state: &RoundState<'_>, account: &mut Account) {
    let mut held: Vec<u64> = state.live().map(|(_, record)| record.address()).collect();
    held.sort_unstable();
    let mut held = held.into_iter().peekable();
    let mut lost = 0;
    let mut differing = Vec::new();
    let mut differs = |finding: &dyn Fn() -> Finding| {
        if differing.len() < LISTED {
            differing.push(finding());
        }
    };
    snapshot.for_each_live(|block| {
        while let Some(address) = held.next_if(|address| *address < block.address) {
            differs(&|| state.counted_as_free(address));
        }
        if held.next_if_eq(&block.address).is_none() {
            lost += 1;
            differs(&|| state.lost(block.address));
        }
    });
    held.for_each(|address| differs(&|| state.counted_as_free(address)));
    account.lost_blocks += lost;
    account.findings.extend(differing);
}

/// Checks that the parts of the heap add up to its size.
fn compare_bytes(stats: &HeapStats, state: &RoundState<'_>, account: &mut Account) {
    let in_blocks = stats.live_bytes + stats.free_block_bytes + stats.slack_bytes;
    let sum =
        in_blocks + stats.quarantined_bytes + stats.large_bytes + stats.free_slab_bytes + stats.fresh_bytes;
    if sum != stats.usage.reserved_bytes {
        let message = format!(
            "the parts of the heap sum to {} instead of {}: {stats:?}",
            Bytes(sum),
            stats.usage.reserved_bytes
        );
        account.findings.push(state.finding(FindingKind::CountMismatch, None, message));
    }
}
