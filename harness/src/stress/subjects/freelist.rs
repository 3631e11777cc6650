//! The free list under stress: a pool of blocks of one size.
//!
//! Every block has one bit. The bits, the counts of the regions and the records of the owners are
//! three sources for the number of live blocks and their addresses.

use crate::kernels::stress::{
    exchange_freelist, exhaust_freelist, free_all_freelist, plant_double_free, plant_overlap_freelist,
    stress_freelist,
};
use crate::stress::finding::{LISTED, RoundState};
use crate::stress::kernels::Kernels;
use crate::stress::kinds::AllocatorKind;
use crate::stress::plan::{Plan, Shape};
use crate::stress::subject::{Account, Subject};
use crate::{OwnModule, Result};
use warpheap::device_pools::{self, Faults};
use warpheap::driver::{Device, Module};
use warpheap_device::freelist::{FreeList, MAX_CAPACITY};
use warpheap_device::kernel::Arg;

/// The largest alignment that threads request: 64 bytes.
const MAX_ALIGN_LOG2: u32 = 6;

pub(crate) struct FreeListSubject(device_pools::FreeList);

// SAFETY: the pool's memory and metadata live as long as the pool (S1). `stress_kernels!` declares
// the kernels, and the others require no more than S2 allows (S2). Any thread may call the handle's
// methods (S3). No method launches a kernel (S4). The kernels are loaded from this crate's images
// (S5).
unsafe impl Subject for FreeListSubject {
    type Handle = FreeList;
    const KERNELS: Kernels<FreeList> = Kernels::new(&stress_freelist, &exhaust_freelist, &free_all_freelist)
        .exchange(&exchange_freelist)
        .overlap(&plant_overlap_freelist)
        .free_twice(&plant_double_free);
    const NAME: &'static str = AllocatorKind::FreeList.name();

    fn shape(_: u32, max_bytes: u32, _: u32) -> Shape {
        let blocks = Shape::of_blocks(max_bytes);
        let granule_log2 = blocks.unit.trailing_zeros();
        let max_align_log2 = granule_log2.min(MAX_ALIGN_LOG2);
        Shape { granule_log2, max_align_log2, most_bytes: blocks.unit * u64::from(MAX_CAPACITY), ..blocks }
    }

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let builder =
            device_pools::FreeList::builder(plan.blocks(), plan.stride).align(1 << plan.max_align_log2);
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

    fn account(&self, plan: &Plan, state: &RoundState<'_>) -> Result<Option<Account>> {
        let mut account = Account::default();
        let owned = self.owned_bits(plan, state);
        let geometry = self.0.geometry();
        for ((w, bits), owned) in (0..).zip(self.0.read_bitmap()?).zip(owned) {
            let taken = bits & !geometry.initial_word(w);
            self.compare_word(w, taken, owned, state, &mut account);
        }
        account.findings.extend(self.0.check()?.iter().map(|violation| state.violation(violation)));
        Ok(Some(account))
    }

    fn is_exhausted(&self, plan: &Plan, live: u64, max: u64) -> Result<bool> {
        Ok(live == plan.blocks().min(max))
    }

    fn most_blocks(&self, plan: &Plan) -> u64 {
        plan.blocks()
    }
}

impl FreeListSubject {
    /// For each word of the bitmap, the blocks that are in a live record.
    fn owned_bits(&self, plan: &Plan, state: &RoundState<'_>) -> Vec<u32> {
        let mut owned = vec![0u32; self.0.geometry().words() as usize];
        for (_, record) in state.live() {
            let block = record.address().wrapping_sub(self.start()) / plan.stride;
            if let Some(word) = owned.get_mut((block / 32) as usize) {
                *word |= 1 << (block % 32);
            }
        }
        owned
    }

    /// Compares one word. Reports blocks that are allocated in the bitmap and in no record, and
    /// blocks that are in a record and free in the bitmap.
    fn compare_word(&self, w: u32, taken: u32, owned: u32, state: &RoundState<'_>, account: &mut Account) {
        account.lost_blocks += u64::from((taken & !owned).count_ones());
        let mut differing = taken ^ owned;
        while differing != 0 && account.findings.len() < LISTED {
            let bit = differing.trailing_zeros();
            differing &= differing - 1;
            let address = self.start() + u64::from(w * 32 + bit) * self.0.geometry().stride();
            let is_allocated = taken >> bit & 1 == 1;
            account.findings.push(if is_allocated {
                state.lost(address)
            } else {
                state.counted_as_free(address)
            });
        }
    }
}
