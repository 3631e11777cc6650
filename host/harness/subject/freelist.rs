//! A pool of blocks of one size under stress.
//!
//! Every block has one bit. The bits, the counts of the regions and the records of the owners are three
//! answers to how many blocks are live, and which.

use super::{Account, Line, Subject};
use crate::driver::{Device, DeviceBuffer, DeviceMemory, LaunchConfig, Module, Stream};
use crate::error::Result;
use crate::harness::finding::{Finding, FindingKind, Narrator};
use crate::harness::plan::{BLOCK_THREADS, Plan};
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::fault::{FAULT_ENTRIES, FaultLog};
use warpheap_device::freelist::{FreeList, Geometry, Region};
use warpheap_device::kernel::DeviceSlice;
use warpheap_kernels::stress::{
    give_back_freelist, grab_freelist, plant_double_free, plant_overlap_freelist, stress_freelist,
};

/// Words of a fault log.
const FAULT_WORDS: usize = size_of::<FaultLog>() / size_of::<u64>();

/// How many lost blocks are named; the others are counted.
const NAMED: usize = 8;

pub(crate) struct FreeListSubject {
    memory: DeviceMemory,
    regions: DeviceBuffer<Line>,
    bitmap: DeviceBuffer<u32>,
    faults: DeviceBuffer<u64>,
    geometry: Geometry,
}

impl Subject for FreeListSubject {
    type Handle = FreeList;
    type Stress = stress_freelist;
    type Grab = grab_freelist;
    const STRESS: stress_freelist = stress_freelist;
    const GRAB: grab_freelist = grab_freelist;

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let geometry = Geometry::new(plan.blocks() as u32, plan.stride);
        let geometry = geometry.expect("the plan has checked that such a pool can be");
        let mut subject = FreeListSubject {
            memory: device.alloc_memory(plan.pool_bytes, 1 << plan.granule_log2.clamp(8, 20))?,
            regions: device.zeroed(geometry.regions() as usize)?,
            bitmap: device.zeroed(geometry.words() as usize)?,
            faults: device.zeroed(FAULT_WORDS)?,
            geometry,
        };
        subject.reset()?;
        Ok(subject)
    }

    fn handle(&self) -> FreeList {
        let regions = self.regions.ptr().0.cast::<Region>();
        let (bitmap, faults) = (self.bitmap.ptr().0.cast(), self.faults.ptr().0.cast());
        // SAFETY: `new` and `reset` lay them out for this geometry, and they live as long as the run.
        unsafe { FreeList::from_raw_parts(self.memory.ptr().0, self.geometry, regions, bitmap, faults) }
    }

    fn start(&self) -> u64 {
        self.memory.address()
    }

    fn reset(&mut self) -> Result<()> {
        let g = self.geometry;
        let regions: Vec<_> = (0..g.regions()).map(|r| Line::of(&Region::new(g.blocks_in(r)), 1)).collect();
        let bitmap: Vec<_> = (0..g.words()).map(|w| g.initial_word(w)).collect();
        self.regions.copy_from_slice(&regions)?;
        self.bitmap.copy_from_slice(&bitmap)?;
        self.faults.fill_bytes(0)
    }

    fn faults(&self, narrator: &Narrator<'_>) -> Result<(u64, Vec<Finding>)> {
        let mut words = self.faults.copy_to_vec()?;
        // SAFETY: the words of a log, aligned as one, and this thread's alone.
        let log = unsafe { &*words.as_mut_ptr().cast::<FaultLog>() };
        debug_assert!(log.faults().count() <= FAULT_ENTRIES);
        Ok((log.count(), log.faults().map(|fault| narrator.fault(&fault)).collect()))
    }

    fn agrees(&self, live: u64) -> Result<bool> {
        let taken: u64 = self.bitmap.copy_to_vec()?.iter().map(|word| u64::from(word.count_ones())).sum();
        let free: i64 = self.free_by_count()?.iter().sum();
        let capacity = u64::from(self.geometry.capacity());
        let past_the_end = u64::from(self.geometry.words()) * 32 - capacity;
        Ok(taken - past_the_end == live && free == capacity as i64 - live as i64)
    }

    fn account(&self, plan: &Plan, narrator: &Narrator<'_>) -> Result<Account> {
        let bits = self.bitmap.copy_to_vec()?;
        let mut account = Account::default();
        let mut owned = self.owned_bits(plan, narrator.records);
        for (w, (bits, owned)) in bits.iter().zip(&mut owned).enumerate() {
            let taken = bits & !self.geometry.initial_word(w as u32);
            self.compare_word(w as u32, taken, *owned, narrator, &mut account);
        }
        self.compare_regions(&bits, narrator, &mut account)?;
        Ok(account)
    }

    fn is_exhausted(&self, plan: &Plan, live: u64, most: u64) -> Result<bool> {
        Ok(live == plan.blocks().min(most))
    }

    fn most_blocks(&self, plan: &Plan) -> u64 {
        plan.blocks()
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
        map: OwnershipMap,
        place: u32,
    ) -> Result<()> {
        let args = (self.handle(), records, map, place);
        // SAFETY: nothing else runs, and the records are of this pool and this map.
        unsafe { stream.launch(module, plant_double_free, &LaunchConfig::linear(1, 1), args) }?;
        stream.synchronize()
    }
}

impl FreeListSubject {
    /// Free blocks of each region, by its count.
    fn free_by_count(&self) -> Result<Vec<i64>> {
        let mut lines = self.regions.copy_to_vec()?;
        // SAFETY: the lines of regions.
        let free = |line: &mut Line| unsafe { line.view::<Region>() }.free();
        Ok(lines.iter_mut().map(free).collect())
    }

    /// For each word of the bitmap, the blocks that some record holds.
    fn owned_bits(&self, plan: &Plan, records: &[Record]) -> Vec<u32> {
        let mut owned = vec![0u32; self.geometry.words() as usize];
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
            let address = self.start() + u64::from(w * 32 + bit) * self.geometry.stride();
            let place = narrator.place_in_pool(address);
            account.findings.push(if taken >> bit & 1 == 1 {
                let message = format!("a block is neither free nor anyone's: {place}");
                narrator.finding(FindingKind::Lost, Some(address), message)
            } else {
                let message = format!("a live block counts as free: {place}; it will be handed out again");
                narrator.finding(FindingKind::CountMismatch, Some(address), message)
            });
        }
    }

    /// A region's count of free blocks against its clear bits.
    fn compare_regions(&self, bits: &[u32], narrator: &Narrator<'_>, account: &mut Account) -> Result<()> {
        for (r, free) in self.free_by_count()?.into_iter().enumerate() {
            let first = self.geometry.first_word(r as u32) as usize;
            let words = &bits[first..first + self.geometry.words_in(r as u32) as usize];
            let clear: i64 = words.iter().map(|word| i64::from(word.count_zeros())).sum();
            if free != clear && account.findings.len() < NAMED {
                let message = format!("region {r} counts {free} free blocks and has {clear}");
                account.findings.push(narrator.finding(FindingKind::CountMismatch, None, message));
            }
        }
        Ok(())
    }
}
