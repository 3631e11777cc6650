//! A bump arena under stress.
//!
//! What was granted, what is left and what was wasted must add up to the arena's size, granule by granule.

use super::{Account, Line, Subject};
use crate::driver::{Device, DeviceBuffer, DeviceMemory, LaunchConfig, Module, Stream};
use crate::error::{Bytes, Result};
use crate::harness::finding::{Finding, FindingKind, Narrator};
use crate::harness::plan::Plan;
use warpheap_device::bump::{Bump, Root, Shard};
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::kernel::DeviceSlice;
use warpheap_kernels::stress::{grab_bump, plant_overlap_bump, stress_bump};

/// What part of the arena a planted overlap makes it hand out again.
const REWOUND_PART: u64 = 8;

pub(crate) struct BumpSubject {
    memory: DeviceMemory,
    root: DeviceBuffer<Line>,
    shards: DeviceBuffer<Line>,
    granules: u64,
    granule_log2: u32,
}

/// The arena's own numbers, in granules. `None`: a thread has left a counter unsettled.
struct Numbers {
    root: Option<u64>,
    shards: Option<u64>,
    wasted: u64,
}

impl Subject for BumpSubject {
    type Handle = Bump;
    type Stress = stress_bump;
    type Grab = grab_bump;
    const STRESS: stress_bump = stress_bump;
    const GRAB: grab_bump = grab_bump;

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let shards = device.info()?.multiprocessors as usize;
        let mut subject = BumpSubject {
            memory: device.alloc_memory(plan.pool_bytes, 256)?,
            root: device.zeroed(1)?,
            shards: device.zeroed(shards)?,
            granules: plan.granules(),
            granule_log2: plan.granule_log2,
        };
        subject.reset()?;
        Ok(subject)
    }

    fn handle(&self) -> Bump {
        let (root, shards) = (self.root.ptr().0.cast(), self.shards.ptr().0.cast());
        let (granules, shard_count) = (self.granules, self.shards.len() as u32);
        // SAFETY: `new` and `reset` lay them out for this arena, and they live as long as the run.
        unsafe {
            Bump::from_raw_parts(self.memory.ptr().0, granules, self.granule_log2, root, shards, shard_count)
        }
    }

    fn start(&self) -> u64 {
        self.memory.address()
    }

    fn reset(&mut self) -> Result<()> {
        self.root.copy_from_slice(&[Line::of(&Root::new(self.granules), 3)])?;
        let shards: Vec<_> = (0..self.shards.len()).map(|_| Line::of(&Shard::default(), 2)).collect();
        self.shards.copy_from_slice(&shards)
    }

    /// An arena has no misuse to see.
    fn faults(&self, _: &Narrator<'_>) -> Result<(u64, Vec<Finding>)> {
        Ok((0, Vec::new()))
    }

    /// The number of blocks says nothing about their sizes.
    fn agrees(&self, _: u64) -> Result<bool> {
        Ok(true)
    }

    fn account(&self, plan: &Plan, narrator: &Narrator<'_>) -> Result<Account> {
        let numbers = self.numbers()?;
        let live = narrator.records.iter().filter(|record| record.is_live());
        let granted: u64 = live.map(|record| plan.footprint(record.bytes(), record.align())).sum();
        let mut account = Account { wasted_bytes: self.bytes(numbers.wasted), ..Account::default() };
        let mut find = |kind, message| account.findings.push(narrator.finding(kind, None, message));
        let (Some(root), Some(shards)) = (numbers.root, numbers.shards) else {
            find(FindingKind::CountMismatch, "a counter of the arena was left unsettled".into());
            return Ok(account);
        };
        let sum = granted + root + shards + numbers.wasted;
        if sum == self.granules {
            return Ok(account);
        }
        let parts = format!(
            "granted {}, left at the root {}, left in shards {}, wasted {}",
            Bytes(self.bytes(granted)),
            Bytes(self.bytes(root)),
            Bytes(self.bytes(shards)),
            Bytes(self.bytes(numbers.wasted))
        );
        let total = Bytes(self.bytes(self.granules));
        if sum < self.granules {
            let lost = Bytes(self.bytes(self.granules - sum));
            find(FindingKind::Lost, format!("{lost} of {total} are neither free nor anyone's: {parts}"));
            account.lost_blocks = (self.granules - sum) / plan.footprint(plan.min_bytes, 1);
        } else {
            let more = Bytes(self.bytes(sum - self.granules));
            find(FindingKind::CountMismatch, format!("there are {more} more than the {total}: {parts}"));
        }
        Ok(account)
    }

    fn is_exhausted(&self, plan: &Plan, live: u64, most: u64) -> Result<bool> {
        let largest = plan.footprint(plan.max_bytes, 1 << plan.max_align_log2);
        Ok(live == most || self.numbers()?.root.is_some_and(|left| left < largest))
    }

    fn most_blocks(&self, plan: &Plan) -> u64 {
        self.granules / plan.footprint(plan.max_bytes, 1)
    }

    /// An arena takes nothing back.
    fn give_back(&self, _: &Module, _: &Stream, _: DeviceSlice<Record>, _: u64) -> Result<()> {
        Ok(())
    }

    fn corrupt(&self, module: &Module, stream: &Stream, _victim: u64) -> Result<()> {
        let lent = self.granules - self.numbers()?.root.unwrap_or(self.granules);
        let bytes = self.bytes(lent.min(self.granules / REWOUND_PART));
        let args = (self.handle(), bytes);
        // SAFETY: as much was lent, nothing else runs, and the run ends with the findings this leads to.
        unsafe { stream.launch(module, plant_overlap_bump, &LaunchConfig::linear(1, 1), args) }?;
        stream.synchronize()
    }

    /// There is no such thing: the plan has refused it.
    fn free_twice(
        &self,
        _: &Module,
        _: &Stream,
        _: DeviceSlice<Record>,
        _: OwnershipMap,
        _: u32,
    ) -> Result<()> {
        Ok(())
    }
}

impl BumpSubject {
    fn bytes(&self, granules: u64) -> u64 {
        granules << self.granule_log2
    }

    fn numbers(&self) -> Result<Numbers> {
        let mut root = self.root.copy_to_vec()?;
        // SAFETY: the line of a root.
        let root = unsafe { root[0].view::<Root>() };
        let mut shards = self.shards.copy_to_vec()?;
        // SAFETY: the lines of shards.
        let left = |line: &mut Line| unsafe { line.view::<Shard>() }.remaining();
        let shards = shards.iter_mut().map(left).sum();
        Ok(Numbers { root: root.remaining(), shards, wasted: root.wasted() })
    }
}
