//! The free list under stress: a pool of blocks of one size.
//!
//! Every block has one bit. The bits, the counts of the regions and the records of the owners are
//! three sources for the number of live blocks and their addresses.

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
use warpheap::device_pools::{self, Faults};
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::freelist::{FreeList, MAX_CAPACITY};
use warpheap_device::kernel::{Arg, DeviceSlice};

/// The largest alignment that threads request: 64 bytes.
const MAX_ALIGN_LOG2: u32 = 6;

/// The number of findings that name their blocks. All lost blocks are counted.
const NAMED: usize = 8;

pub(crate) struct FreeListSubject(device_pools::FreeList);

// SAFETY: the pool's memory and metadata live as long as the pool (S1). `stress_kernels!` declares
// the kernels (S2). Any thread may call the handle's methods (S3). Methods that launch kernels wait
// for them, except `exchange` (S4). The kernels are loaded from this crate's images (S5).
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
        let builder = device_pools::FreeList::builder(plan.blocks(), plan.stride).align(1 << plan.max_align_log2);
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
        // SAFETY: the caller of `Subject::exchange` meets the requirements of `exchange::run`, and
        // `module` is one of `Subject::module` (S5).
        unsafe { stream.launch(module, exchange_freelist, grid, args) }?;
        Ok(())
    }

    unsafe fn corrupt(&self, module: &Module, stream: &Stream, victim: u64) -> Result<()> {
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: nothing else runs, by the requirements of `Subject::corrupt`. The run ends with
        // the resulting findings.
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
        // SAFETY: nothing else runs, and the records are those of this pool and this map, by the
        // requirements of `Subject::free_twice`.
        unsafe { stream.launch(module, plant_double_free, &LaunchConfig::linear(1, 1), args) }?;
        Ok(stream.synchronize()?)
    }
}

impl FreeListSubject {
    /// For each word of the bitmap, the blocks that are in a live record.
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

    /// Compares one word. Reports blocks that are allocated in the bitmap and in no record, and
    /// blocks that are in a record and free in the bitmap.
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
