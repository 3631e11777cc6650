//! A pool of blocks of one size under stress.
//!
//! Every block has one bit. The bits, the counts of the regions and the records of the owners are three
//! answers to how many blocks are live, and which.

use super::{Account, ExchangeArgs, Launched, Subject};
use crate::kernels::stress::{
    exchange_freelist, give_back_freelist, grab_freelist, plant_double_free, plant_overlap_freelist,
    stress_freelist,
};
use crate::stress::finding::{Finding, FindingKind, Narrator};
use crate::stress::plan::{BLOCK_THREADS, Plan};
use warpheap::Result;
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap::pool;
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::freelist::FreeList;
use warpheap_device::kernel::{Arg, DeviceSlice};

/// How many lost blocks are named; the others are counted.
const NAMED: usize = 8;

pub(crate) struct FreeListSubject(pool::FreeList);

impl Subject for FreeListSubject {
    type Handle = FreeList;
    type Stress = stress_freelist;
    type Grab = grab_freelist;
    const STRESS: stress_freelist = stress_freelist;
    const GRAB: grab_freelist = grab_freelist;
    const LAUNCHED: Launched = Launched {
        always: &kernel_names![stress_freelist, grab_freelist, give_back_freelist],
        handing_over: &kernel_names![exchange_freelist],
        planted: &kernel_names![plant_overlap_freelist, plant_double_free],
    };

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let builder = pool::FreeList::builder(plan.blocks(), plan.stride).align(1 << plan.max_align_log2);
        Ok(FreeListSubject(builder.build(device)?))
    }

    fn handle(&self) -> Arg<FreeList> {
        self.0.handle()
    }

    fn start(&self) -> u64 {
        self.0.memory().address()
    }

    fn reset(&mut self) -> Result<()> {
        self.0.reset()
    }

    fn faults(&self, narrator: &Narrator<'_>) -> Result<(u64, Vec<Finding>)> {
        let faults = self.0.faults()?;
        Ok((faults.count, faults.first.iter().map(|fault| narrator.fault(fault)).collect()))
    }

    fn agrees(&self, live: u64) -> Result<bool> {
        let stats = self.0.stats()?;
        Ok(u64::from(stats.taken) == live && stats.free == stats.capacity - stats.taken)
    }

    fn account(&self, plan: &Plan, narrator: &Narrator<'_>) -> Result<Account> {
        let mut account = Account::default();
        let owned = self.owned_bits(plan, narrator.records);
        let geometry = self.0.geometry();
        for ((w, bits), owned) in (0..).zip(self.0.read_bitmap()?).zip(owned) {
            let taken = bits & !geometry.initial_word(w);
            self.compare_word(w, taken, owned, narrator, &mut account);
        }
        let violations = self.0.check()?.into_iter().map(|violation| {
            let message = format!("invariant {} is broken: {}", violation.invariant, violation.found);
            narrator.finding(FindingKind::CountMismatch, None, message)
        });
        account.findings.extend(violations);
        Ok(account)
    }

    fn is_exhausted(&self, plan: &Plan, live: u64, most: u64) -> Result<bool> {
        Ok(live == plan.blocks().min(most))
    }

    fn most_blocks(&self, plan: &Plan) -> u64 {
        plan.blocks()
    }

    unsafe fn exchange(
        &self,
        module: &Module,
        stream: &Stream,
        grid: &LaunchConfig,
        args: ExchangeArgs<FreeList>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { stream.launch(module, exchange_freelist, grid, args) }
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
        // SAFETY: the records are blocks of this pool, and nothing else runs.
        unsafe { stream.launch(module, give_back_freelist, &grid, args) }?;
        stream.synchronize()
    }

    fn corrupt(&self, module: &Module, stream: &Stream, victim: u64) -> Result<()> {
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: nothing else runs, and the run ends with the findings that this leads to.
        unsafe { stream.launch(module, plant_overlap_freelist, &one, (self.handle(), victim)) }?;
        stream.synchronize()
    }

    fn free_twice(
        &self,
        module: &Module,
        stream: &Stream,
        records: DeviceSlice<Record>,
        map: Arg<OwnershipMap>,
        place: u32,
    ) -> Result<()> {
        let args = (self.handle(), records, map, place);
        // SAFETY: nothing else runs, and the records are of this pool and this map.
        unsafe { stream.launch(module, plant_double_free, &LaunchConfig::linear(1, 1), args) }?;
        stream.synchronize()
    }
}

impl FreeListSubject {
    /// For each word of the bitmap, the blocks that some record holds.
    fn owned_bits(&self, plan: &Plan, records: &[Record]) -> Vec<u32> {
        let mut owned = vec![0u32; self.0.geometry().words() as usize];
        for record in records.iter().filter(|record| record.is_live()) {
            let block = record.address().wrapping_sub(self.start()) / plan.stride;
            if let Some(word) = owned.get_mut((block / 32) as usize) {
                *word |= 1 << (block % 32);
            }
        }
        owned
    }

    /// Blocks taken by the bitmap that no one has, and blocks that someone has and the bitmap does not.
    fn compare_word(&self, w: u32, taken: u32, owned: u32, narrator: &Narrator<'_>, account: &mut Account) {
        account.lost_blocks += u64::from((taken & !owned).count_ones());
        let mut differing = taken ^ owned;
        while differing != 0 && account.findings.len() < NAMED {
            let bit = differing.trailing_zeros();
            differing &= differing - 1;
            let address = self.start() + u64::from(w * 32 + bit) * self.0.geometry().stride();
            let place = narrator.place_in_pool(address);
            let (kind, message) = if taken >> bit & 1 == 1 {
                (FindingKind::Lost, format!("a block is neither free nor anyone's: {place}"))
            } else {
                let what = format!("a live block counts as free: {place}; it will be handed out again");
                (FindingKind::CountMismatch, what)
            };
            account.findings.push(narrator.finding(kind, Some(address), message));
        }
    }
}
