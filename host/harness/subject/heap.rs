//! A heap under stress.
//!
//! Which blocks are live is known to their owners alone, so the heap is held to what it can give: when everything
//! was given back, all of its memory in one piece; and emptied, as many blocks as when it was new.

use super::{Account, ExchangeArgs, Subject};
use crate::driver::{Device, DeviceBuffer, LaunchConfig, Module, Stream};
use crate::error::Result;
use crate::harness::finding::{Finding, Narrator};
use crate::harness::plan::{BLOCK_THREADS, Plan};
use crate::pool;
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::heap::Heap;
use warpheap_device::heap::class::MIN_BLOCK;
use warpheap_device::kernel::DeviceSlice;
use warpheap_kernels::stress::{
    exchange_heap, give_back_heap, grab_heap, plant_double_free_heap, plant_overlap_heap, stress_heap,
    take_whole_heap,
};

/// A new heap grants this part of its memory at least, as blocks of one size: a block is at most a quarter larger
/// than what was asked for, and an eighth of a slab is left over at most.
const LEAST_GRANTED: f64 = 0.8 * 0.875;

pub(crate) struct HeapSubject {
    pool: pool::Heap,
    /// What a kernel of one thread answers.
    answer: DeviceBuffer<u64>,
    /// Blocks of the largest size that the new heap gave.
    at_first: Option<u64>,
}

impl Subject for HeapSubject {
    type Handle = Heap;
    type Stress = stress_heap;
    type Grab = grab_heap;
    const STRESS: stress_heap = stress_heap;
    const GRAB: grab_heap = grab_heap;
    const MEASURED: bool = true;

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let pool = pool::Heap::builder(plan.pool_bytes).build(device)?;
        Ok(HeapSubject { pool, answer: device.zeroed(1)?, at_first: None })
    }

    fn handle(&self) -> Heap {
        self.pool.handle()
    }

    fn reset(&mut self) -> Result<()> {
        self.pool.reset()
    }

    fn faults(&self, narrator: &Narrator<'_>) -> Result<(u64, Vec<Finding>)> {
        let faults = self.pool.faults()?;
        Ok((faults.count, faults.first.iter().map(|fault| narrator.fault(fault)).collect()))
    }

    /// The heap has no numbers to compare.
    fn agrees(&self, _: u64) -> Result<bool> {
        Ok(true)
    }

    /// The place for the heap's own numbers. It has none yet: live blocks are compared with each other, and not
    /// with what the heap takes for free.
    fn account(&self, _: &Plan, _: &Narrator<'_>) -> Result<Account> {
        Ok(Account::default())
    }

    /// What is left may be in blocks of other sizes than those that were refused.
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

    fn is_all_free(&self, module: &Module, stream: &Stream) -> Result<bool> {
        let args = (self.handle(), self.answer.ptr());
        // SAFETY: nothing else uses the heap and the answer, which live until the stream is waited for.
        unsafe { stream.launch(module, take_whole_heap, &LaunchConfig::linear(1, 1), args) }?;
        stream.synchronize()?;
        Ok(self.answer.copy_to_vec()? == [1])
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
        // SAFETY: the caller's promise.
        unsafe { stream.launch(module, exchange_heap, grid, args) }
    }

    fn give_back(
        &self,
        module: &Module,
        stream: &Stream,
        records: DeviceSlice<Record>,
        count: u64,
    ) -> Result<()> {
        let grid = LaunchConfig::linear(records.len() as u32, BLOCK_THREADS);
        let args = (self.handle(), records, count);
        // SAFETY: the records are blocks of this heap, and nothing else runs.
        unsafe { stream.launch(module, give_back_heap, &grid, args) }?;
        stream.synchronize()
    }

    fn corrupt(&self, module: &Module, stream: &Stream, victim: u64) -> Result<()> {
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: nothing else runs, and the run ends with the findings that this leads to.
        unsafe { stream.launch(module, plant_overlap_heap, &one, (self.handle(), victim)) }?;
        stream.synchronize()
    }

    fn free_twice(
        &self,
        module: &Module,
        stream: &Stream,
        records: DeviceSlice<Record>,
        map: OwnershipMap,
        place: u32,
    ) -> Result<()> {
        let args = (self.handle(), records, map, place);
        // SAFETY: nothing else runs, and the records are of this heap and this map.
        unsafe { stream.launch(module, plant_double_free_heap, &LaunchConfig::linear(1, 1), args) }?;
        stream.synchronize()
    }
}
