//! A pool of blocks of one size under stress.
//!
//! Every block has one bit. The bits, the counts of the regions and the records of the owners are three
//! answers to how many blocks are live, and which.

use super::{Account, ExchangeArgs, Launched, Subject};
use crate::kernels::stress::{
    exchange_freelist, give_back_freelist, grab_freelist, plant_double_free, plant_overlap_freelist,
    stress_freelist,
};
use crate::stress::config::AllocatorKind;
use crate::stress::finding::{FindingKind, Narrator};
use crate::stress::plan::{Plan, Shape};
use crate::{OwnModule, Result};
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap::pool::{self, Faults};
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::freelist::{FreeList, MAX_CAPACITY};
use warpheap_device::kernel::{Arg, DeviceSlice};

/// The largest alignment that threads ask for: 64 bytes.
const MAX_ALIGN_LOG2: u32 = 6;

/// How many lost blocks are named; the others are counted.
const NAMED: usize = 8;

pub(crate) struct FreeListSubject(pool::FreeList);

// SAFETY: the library's pool keeps its memory while it lives and its handle's methods may be called by any thread (S1,
// S3); the kernels are those of `stress_kernels!` (S2), out of this crate's images (S5); what is
// launched here is waited for (S4).
unsafe impl Subject for FreeListSubject {
    type Handle = FreeList;
    type Stress = stress_freelist;
    type Grab = grab_freelist;
    type GiveBack = give_back_freelist;
    const STRESS: stress_freelist = stress_freelist;
    const GRAB: grab_freelist = grab_freelist;
    const GIVE_BACK: give_back_freelist = give_back_freelist;
    const NAME: &'static str = AllocatorKind::FreeList.name();
    const LAUNCHED: Launched = Launched {
        always: &[],
        handing_over: &kernel_names![exchange_freelist],
        planted: &kernel_names![plant_overlap_freelist, plant_double_free],
    };

    fn shape(_: u32, max_bytes: u32, _: u32) -> Shape {
        let blocks = Shape::of_blocks(max_bytes);
        let granule_log2 = blocks.unit.trailing_zeros();
        let max_align_log2 = granule_log2.min(MAX_ALIGN_LOG2);
        Shape { granule_log2, max_align_log2, most_bytes: blocks.unit * u64::from(MAX_CAPACITY), ..blocks }
    }

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let builder = pool::FreeList::builder(plan.blocks(), plan.stride).align(1 << plan.max_align_log2);
        Ok(FreeListSubject(builder.build(device)?))
    }

    fn module(device: &Device, kernels: &[&'static str]) -> Result<Module> {
        Ok(OwnModule::load(device, kernels)?.module().clone())
    }

    fn handle(&self) -> Arg<FreeList> {
        self.0.handle()
    }

    fn start(&self) -> u64 {
        self.0.memory().address()
    }

    fn reset(&mut self) -> Result<()> {
        Ok(self.0.reset()?)
    }

    fn faults(&self) -> Result<Option<Faults>> {
        Ok(Some(self.0.faults()?))
    }

    fn agrees(&self, live: u64) -> Result<Option<bool>> {
        let stats = self.0.stats()?;
        Ok(Some(stats.live_blocks == live && stats.free_blocks == stats.blocks - live))
    }

    fn account(&self, plan: &Plan, narrator: &Narrator<'_>) -> Result<Option<Account>> {
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
        Ok(Some(account))
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
        unsafe { stream.launch(module, exchange_freelist, grid, args) }?;
        Ok(())
    }

    unsafe fn corrupt(&self, module: &Module, stream: &Stream, victim: u64) -> Result<()> {
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: nothing else runs, and the run ends with the findings that this leads to.
        unsafe { stream.launch(module, plant_overlap_freelist, &one, (self.handle(), victim)) }?;
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
        // SAFETY: nothing else runs, and the records are of this pool and this map.
        unsafe { stream.launch(module, plant_double_free, &LaunchConfig::linear(1, 1), args) }?;
        Ok(stream.synchronize()?)
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
