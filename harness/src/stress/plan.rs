//! What follows from a configuration and a device: how large everything is.

use super::config::{AllocatorKind, Limit, Plant, StressConfig};
use super::workload::{SizeMix, Workload};
use crate::Error;
use warpheap::Bytes;
use warpheap::driver::Device;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::SLOTS;
use warpheap_device::freelist::Geometry;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::layout::HEAP_BYTES;

/// Threads in a block.
pub(super) const BLOCK_THREADS: u32 = 256;

/// The least alignment of every pool, and what sizes are rounded up to.
const MIN_GRANULE_LOG2: u32 = 4;

/// The largest alignment that threads ask for, as a multiple of the least.
const MAX_EXTRA_ALIGN_LOG2: u32 = 2;

/// A heap is cut to whole MiB, of which its slabs are parts.
const HEAP_UNIT: u64 = 1 << 20;
/// The largest alignment that threads ask a heap for: 4 KiB.
const HEAP_ALIGN_LOG2: u32 = 12;

/// The largest size of one allocation: sizes are 32 bits in a record.
const MAX_BYTES: u64 = 1 << 31;

/// Steps of a thread in a round in which threads allocate and free.
const CHURN_STEPS: u32 = 32;
/// The same, in an arena: enough to fill some slots, and to leave some for the threads that empty it.
const ARENA_STEPS: u32 = 8;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub allocator: AllocatorKind,
    /// Threads of a stream, and columns of a set of records.
    pub threads: u32,
    pub streams: u32,
    pub workload: Workload,
    pub mix: SizeMix,
    pub min_bytes: u32,
    pub max_bytes: u32,
    pub max_align_log2: u32,
    pub steps: u32,
    pub seed: u64,
    /// Bytes from one block of a free list to the next.
    pub stride: u64,
    pub pool_bytes: u64,
    /// The unit of the ownership map; it divides every block's start.
    pub granule_log2: u32,
    pub plant: Option<Plant>,
}

impl Plan {
    pub fn new(config: &StressConfig, device: &Device) -> Result<Plan, Error> {
        check_numbers(config)?;
        let (min_bytes, max_bytes) = (*config.sizes.start() as u32, *config.sizes.end() as u32);
        let stride = u64::from(max_bytes).next_multiple_of(1 << MIN_GRANULE_LOG2);
        let granule_log2 = match config.allocator {
            AllocatorKind::Bump => MIN_GRANULE_LOG2,
            AllocatorKind::FreeList => stride.trailing_zeros(),
            AllocatorKind::Heap => heap_granule_log2(min_bytes, max_bytes),
        };
        let mut plan = Plan {
            allocator: config.allocator,
            threads: config.threads.next_multiple_of(BLOCK_THREADS),
            streams: config.streams,
            workload: config.workload,
            mix: config.mix,
            min_bytes,
            max_bytes,
            max_align_log2: granule_log2.min(MIN_GRANULE_LOG2 + MAX_EXTRA_ALIGN_LOG2),
            steps: CHURN_STEPS,
            seed: config.seed,
            stride,
            pool_bytes: 0,
            granule_log2,
            plant: config.plant,
        };
        match config.allocator {
            AllocatorKind::Bump => {
                plan.max_align_log2 = MIN_GRANULE_LOG2 + MAX_EXTRA_ALIGN_LOG2;
                plan.steps = ARENA_STEPS;
            }
            AllocatorKind::FreeList => {}
            AllocatorKind::Heap => plan.max_align_log2 = HEAP_ALIGN_LOG2,
        }
        plan.size_pool(config, device)?;
        Ok(plan)
    }

    /// Records of all threads of all streams.
    pub fn records(&self) -> u64 {
        u64::from(self.set_len()) * u64::from(self.streams)
    }

    /// Records of the threads of one stream.
    pub fn set_len(&self) -> u32 {
        self.threads * SLOTS
    }

    /// Granules of the ownership map.
    pub fn granules(&self) -> u64 {
        self.pool_bytes >> self.granule_log2
    }

    /// Blocks of a free list.
    pub fn blocks(&self) -> u64 {
        self.pool_bytes / self.stride
    }

    /// How a free list is laid out; `None` if it cannot be.
    pub fn geometry(&self) -> Option<Geometry> {
        Geometry::new(u32::try_from(self.blocks()).ok()?, u32::try_from(self.stride).ok()?)
    }

    /// Granules that an allocation of an arena takes: a larger alignment than a granule costs its own size.
    pub fn footprint(&self, bytes: u32, align: u64) -> u64 {
        let padding = align.saturating_sub(1 << self.granule_log2);
        (u64::from(bytes) + padding).div_ceil(1 << self.granule_log2)
    }

    fn mean_bytes(&self) -> u32 {
        self.mix.mean(self.min_bytes, self.max_bytes)
    }

    /// About what all threads together would hold if the pool had room for it.
    fn demand_bytes(&self) -> u64 {
        let each = match self.allocator {
            AllocatorKind::FreeList => self.stride,
            AllocatorKind::Bump => {
                let aligns = 0..=self.max_align_log2;
                let count = u64::from(self.max_align_log2) + 1;
                let mean = self.mean_bytes() | 1;
                aligns.map(|log2| self.footprint(mean, 1 << log2)).sum::<u64>() * (1 << self.granule_log2)
                    / count
            }
            // A block is a quarter larger than its class' smallest request, an eighth in the mean.
            AllocatorKind::Heap => u64::from(self.mean_bytes()).max(16) * 9 / 8,
        };
        each.saturating_mul(self.records())
    }

    fn size_pool(&mut self, config: &StressConfig, device: &Device) -> Result<(), Error> {
        let unit = match self.allocator {
            AllocatorKind::Bump => 1 << self.granule_log2,
            AllocatorKind::FreeList => self.stride,
            AllocatorKind::Heap => HEAP_UNIT,
        };
        let (parts, of) = self.workload.pool_share();
        let free = device.info()?.memory_free;
        let tables = self.records() * (size_of::<Record>() + size_of::<u32>()) as u64
            + u64::from(self.threads) * u64::from(self.streams) * size_of::<u64>() as u64;
        let room = (free / 8 * 7).saturating_sub(tables);
        // Two ownership maps go with the pool, and a list of all blocks at the end.
        let listed = (MARKED_BYTES * unit).div_ceil(self.stride);
        let per_unit = unit + 2 * (unit >> self.granule_log2) * size_of::<u32>() as u64 + listed;
        let most = (room / per_unit).saturating_mul(unit).min(self.most_bytes());
        let least = (self.stride * 64).next_multiple_of(unit);
        let wanted = match config.pool_bytes {
            Some(bytes) => bytes.next_multiple_of(unit),
            None => (self.demand_bytes() / of * parts / unit * unit).max(least),
        };
        let fits = wanted <= most || (config.pool_bytes.is_none() && most >= least);
        if !fits {
            return Err(refuse(
                format!("a pool of {} is more than fits", Bytes(wanted)),
                format!(
                    "with the tables that check it, a pool on {device} can have {} at most; use a smaller \
                     pool, fewer threads or fewer streams",
                    Bytes(most)
                ),
            ));
        }
        self.pool_bytes = wanted.min(most) / unit * unit;
        self.check_pool()
    }

    /// What the allocator can address.
    fn most_bytes(&self) -> u64 {
        match self.allocator {
            AllocatorKind::Bump => warpheap_device::bump::MAX_GRANULES << self.granule_log2,
            AllocatorKind::FreeList => self.stride << 31,
            AllocatorKind::Heap => HEAP_BYTES.1,
        }
    }

    fn check_pool(&self) -> Result<(), Error> {
        if self.pool_bytes < self.stride {
            return Err(refuse(
                format!(
                    "a pool of {} does not hold one allocation of {}",
                    Bytes(self.pool_bytes),
                    self.max_bytes
                ),
                "use a larger pool or smaller sizes".into(),
            ));
        }
        if self.allocator == AllocatorKind::FreeList && self.geometry().is_none() {
            return Err(refuse(
                format!("a pool of {} blocks of {}", self.blocks(), Bytes(self.stride)),
                "a free list has 2^31 blocks of 2^31 bytes at most; use a smaller pool".into(),
            ));
        }
        // The planted overlap shows when the pool runs out, which it must do within a round.
        let exhaustible = self.demand_bytes() / 8 * 7;
        if self.plant == Some(Plant::Overlap) && self.pool_bytes > exhaustible {
            return Err(refuse(
                format!(
                    "a planted overlap shows when the pool runs out, and {} will not",
                    Bytes(self.pool_bytes)
                ),
                format!("use a pool of {} at most, or more threads", Bytes(exhaustible)),
            ));
        }
        Ok(())
    }
}

/// For each block of the pool: its record at the end, and its mark.
const MARKED_BYTES: u64 = (size_of::<Record>() + size_of::<u32>()) as u64;

/// The largest power of two that divides all blocks that a heap has for these sizes.
fn heap_granule_log2(min_bytes: u32, max_bytes: u32) -> u32 {
    let (first, last) = (SizeClass::of(min_bytes), SizeClass::of(max_bytes));
    let all = (first.0..=last.0).fold(0, |all, class| all | SizeClass(class).bytes());
    all.trailing_zeros().min(HEAP_ALIGN_LOG2)
}

fn check_numbers(config: &StressConfig) -> Result<(), Error> {
    let (least, most) = (*config.sizes.start(), *config.sizes.end());
    if least == 0 || least > most || most > MAX_BYTES {
        return Err(refuse(
            format!("allocations of {least} to {most} bytes"),
            format!("sizes go from 1 to {MAX_BYTES} bytes, the smaller one first"),
        ));
    }
    if config.threads == 0 || config.streams == 0 {
        return Err(refuse(
            format!("{} threads in {} streams", config.threads, config.streams),
            "ask for at least one thread in one stream".into(),
        ));
    }
    let threads = u64::from(config.threads).next_multiple_of(BLOCK_THREADS.into());
    let records = threads.saturating_mul(SLOTS.into()).saturating_mul(config.streams.into());
    if records > MOST_RECORDS {
        return Err(refuse(
            format!("{threads} threads in each of {} streams hold {records} blocks", config.streams),
            format!("{MOST_RECORDS} can be told apart; use fewer threads or fewer streams"),
        ));
    }
    if let Some(plant) = config.plant.filter(|plant| !plant.suits(config.allocator)) {
        return Err(refuse(
            format!("a planted {plant} in a {}", config.allocator),
            "an arena gives nothing back before its reset, so a second free does nothing there; use it with \
             freelist or heap"
                .into(),
        ));
    }
    if !config.workload.suits(config.allocator) {
        return Err(refuse(
            format!("a workload of {} on a {}", config.workload, config.allocator),
            "an arena gives nothing back before its reset; use it with freelist or heap".into(),
        ));
    }
    if config.workload == Workload::Pipeline && config.streams < 2 {
        return Err(refuse(
            "a pipeline in one stream".into(),
            "ask for two streams at least: one to allocate, one to free".into(),
        ));
    }
    if matches!(config.limit, Limit::Rounds(0) | Limit::Pairs(0)) {
        return Err(refuse("a run of no rounds or no pairs".into(), "ask for at least one".into()));
    }
    Ok(())
}

/// Owners are 31 bits, so that the places of records never wrap.
const MOST_RECORDS: u64 = 1 << 31;

fn refuse(what: String, advice: String) -> Error {
    Error::InvalidStress { what, advice }
}
