//! Sizes of a run, derived from the configuration, the device and the [`Shape`] of the allocator;
//! and the configurations that cannot run, with what to change.

use super::config::{Limit, StressConfig};
use super::delays::{DelayPlan, Points};
use super::kinds::{Plant, SizeMix, Workload};
use crate::Error;
use std::ops::RangeInclusive;
use warpheap::Bytes;
use warpheap::driver::{Backend, Device};
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::SLOTS;

/// Steps of a thread in a churn round.
const CHURN_STEPS: u32 = 32;
/// Steps in a churn round of an arena: enough to fill some slots, and few enough to leave slots for
/// the threads that exhaust the arena.
const ARENA_STEPS: u32 = 8;

/// Bytes that all threads together may write in a round on the CPU, where a simulated thread writes
/// and verifies some GiB in a minute. Fewer steps than [`LEAST_STEPS`] would leave slots empty.
const CPU_BYTES: u64 = 2 << 30;
const LEAST_STEPS: u32 = 4;

/// Per block of the pool: its record in the list at the end, and its mark.
const MARKED_BYTES: u64 = (size_of::<Record>() + size_of::<u32>()) as u64;

/// The sizes of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) name: &'static str,
    /// Threads of a stream, and columns of a record set.
    pub(super) threads: u32,
    pub(super) streams: u32,
    pub(super) workload: Workload,
    pub(super) mix: SizeMix,
    pub(super) min_bytes: u32,
    pub(super) max_bytes: u32,
    pub(super) max_align_log2: u32,
    pub(super) steps: u32,
    pub(super) seed: u64,
    /// The largest size, rounded up to the minimum alignment: bytes from one block of a free list
    /// to the next.
    pub(super) stride: u64,
    pub(super) block_bytes: Option<u64>,
    /// The approximate mean of the pool memory that an allocation takes.
    pub(super) mean_bytes: u64,
    pub(super) pool_bytes: u64,
    /// log2 of the ownership map's granule in bytes. Every block starts at a multiple of the
    /// granule.
    pub(super) granule_log2: u32,
    pub(super) plant: Option<Plant>,
    pub(super) delays: Option<DelayPlan>,
}

impl Plan {
    /// `shape` returns the properties of the allocator for the smallest, the largest and the mean
    /// size.
    pub(super) fn new(
        config: &StressConfig,
        device: &Device,
        support: &Support,
        shape: fn(u32, u32, u32) -> Shape,
    ) -> Result<Plan, Error> {
        check_config(config, support)?;
        let delays = config.delays.as_ref().map(|delays| delays.select(support.name, support.points));
        let (min_bytes, max_bytes) = (*config.sizes.start() as u32, *config.sizes.end() as u32);
        let shape = shape(min_bytes, max_bytes, config.mix.mean(min_bytes, max_bytes));
        check_shape(support.name, &shape)?;
        let mut plan = Plan {
            name: support.name,
            threads: config.threads.next_multiple_of(BLOCK_THREADS),
            streams: config.streams,
            workload: config.workload,
            mix: config.mix,
            min_bytes,
            max_bytes,
            max_align_log2: shape.max_align_log2,
            steps: 0,
            seed: config.seed,
            stride: stride(max_bytes),
            block_bytes: shape.block_bytes,
            mean_bytes: shape.mean_bytes,
            pool_bytes: 0,
            granule_log2: shape.granule_log2,
            plant: config.plant,
            delays: delays.transpose()?,
        };
        plan.steps = plan.steps(support, device);
        plan.size_pool(config, &shape, device)?;
        Ok(plan)
    }

    /// Steps of a thread in a churn round: fewer if blocks are so large that a round on the CPU
    /// would take minutes.
    fn steps(&self, support: &Support, device: &Device) -> u32 {
        let most = if support.reclaims { CHURN_STEPS } else { ARENA_STEPS };
        if device.backend() != Backend::Cpu {
            return most;
        }
        let threads = u64::from(self.threads) * u64::from(self.streams);
        let steps = CPU_BYTES / threads.saturating_mul(self.mean_bytes).max(1);
        u32::try_from(steps).unwrap_or(most).clamp(LEAST_STEPS, most)
    }

    /// Size of the pool in bytes.
    pub fn pool_bytes(&self) -> u64 {
        self.pool_bytes
    }

    /// The smallest and the largest allocation, in bytes.
    pub fn sizes(&self) -> RangeInclusive<u32> {
        self.min_bytes..=self.max_bytes
    }

    /// The largest alignment that threads request, in bytes. The pool starts at a multiple of it.
    pub fn max_align(&self) -> u64 {
        1 << self.max_align_log2
    }

    /// [`Shape::block_bytes`].
    pub fn block_bytes(&self) -> Option<u64> {
        self.block_bytes
    }

    /// Records of all threads of all streams.
    pub(super) fn records(&self) -> u64 {
        u64::from(self.set_len()) * u64::from(self.streams)
    }

    /// Records of the threads of one stream.
    pub(super) fn set_len(&self) -> u32 {
        self.threads * SLOTS
    }

    /// Granules of the ownership map.
    pub(super) fn granules(&self) -> u64 {
        self.pool_bytes >> self.granule_log2
    }

    /// Blocks of a free list.
    pub(super) fn blocks(&self) -> u64 {
        self.pool_bytes / self.stride
    }

    /// The approximate number of bytes that all threads together would hold in a large enough pool.
    fn demand_bytes(&self) -> u64 {
        self.mean_bytes.saturating_mul(self.records())
    }

    fn size_pool(&mut self, config: &StressConfig, shape: &Shape, device: &Device) -> Result<(), Error> {
        let unit = shape.unit;
        let (parts, of) = self.workload.pool_share();
        let free = device.info()?.memory_free;
        let tables = self.records() * MARKED_BYTES
            + u64::from(self.threads) * u64::from(self.streams) * size_of::<u64>() as u64;
        let room = (free / 8 * 7).saturating_sub(tables);
        // The pool needs two ownership maps, and at the end a list of all blocks.
        let listed = (MARKED_BYTES * unit).div_ceil(self.stride);
        let per_unit = unit + 2 * (unit >> self.granule_log2) * size_of::<u32>() as u64 + listed;
        let max = (room / per_unit).saturating_mul(unit).min(shape.most_bytes);
        let min = (self.stride * 64).next_multiple_of(unit);
        let wanted = match config.pool_bytes {
            Some(bytes) => bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX),
            None => (self.demand_bytes() / of * parts / unit * unit).max(min),
        };
        if wanted > max && (config.pool_bytes.is_some() || max < min) {
            let (wanted, max) = (Bytes(config.pool_bytes.unwrap_or(wanted)), Bytes(max));
            return Err(Error::invalid_stress(
                format!("a pool of {wanted}"),
                format!(
                    "with the tables of the checks, {device} has memory for a pool of at most {max}; use a smaller \
                     pool, fewer threads or fewer streams"
                ),
            ));
        }
        self.pool_bytes = wanted.min(max) / unit * unit;
        self.check_pool()
    }

    fn check_pool(&self) -> Result<(), Error> {
        let pool = Bytes(self.pool_bytes);
        if self.pool_bytes < self.stride {
            return Err(Error::invalid_stress(
                format!("a pool of {pool}, which is smaller than one allocation of {} B", self.max_bytes),
                "use a larger pool or smaller sizes",
            ));
        }
        // A planted overlap is found only when the pool runs out of memory, so it must do so within
        // a round.
        let exhaustible = self.demand_bytes() / 8 * 7;
        if self.plant == Some(Plant::Overlap) && self.pool_bytes > exhaustible {
            return Err(Error::invalid_stress(
                format!("a planted overlap in a pool of {pool}"),
                format!(
                    "the overlap is found only if the pool runs out of memory, and the threads do not exhaust this \
                     one; use a pool of at most {}, or more threads",
                    Bytes(exhaustible)
                ),
            ));
        }
        Ok(())
    }
}

/// The minimum alignment of every pool. Sizes are rounded up to a multiple of it.
pub(super) const MIN_GRANULE_LOG2: u32 = 4;

/// The properties of an allocator that the checks need, for a range of sizes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shape {
    /// The base-2 logarithm of the granule of the ownership map, in bytes. Every block starts at a
    /// multiple of the granule in the pool.
    pub granule_log2: u32,
    /// The base-2 logarithm of the largest alignment that threads request, in bytes.
    pub max_align_log2: u32,
    /// The size of the pool is a multiple of this number of bytes, which is a multiple of the
    /// granule.
    pub unit: u64,
    /// The largest pool, in bytes.
    pub most_bytes: u64,
    /// The approximate mean of the pool memory that an allocation takes, in bytes.
    pub mean_bytes: u64,
    /// Bytes from one block to the next, if this is constant. Findings then include block numbers.
    pub block_bytes: Option<u64>,
}

impl Shape {
    /// A pool of blocks of at least `max_bytes` each, at multiples of 16 bytes.
    pub fn of_blocks(max_bytes: u32) -> Self {
        let stride = stride(max_bytes);
        Shape {
            granule_log2: MIN_GRANULE_LOG2,
            max_align_log2: MIN_GRANULE_LOG2,
            unit: stride,
            most_bytes: 1 << 48,
            mean_bytes: stride,
            block_bytes: Some(stride),
        }
    }
}

/// `max_bytes` rounded up to the minimum alignment of a pool.
pub(super) fn stride(max_bytes: u32) -> u64 {
    u64::from(max_bytes).next_multiple_of(1 << MIN_GRANULE_LOG2)
}

/// The largest allocation: a record stores a size in 32 bits.
const MAX_BYTES: u64 = 1 << 31;
/// An owner number has 31 bits, so record indices never wrap.
const MAX_RECORDS: u64 = 1 << 31;

/// Threads in a block.
pub(super) const BLOCK_THREADS: u32 = 256;

/// What an allocator supports.
#[derive(Clone, Copy)]
pub(super) struct Support {
    /// The allocator's name in reports.
    pub name: &'static str,
    /// It reuses freed memory.
    pub reclaims: bool,
    /// Threads can exchange blocks while kernels run.
    pub exchanges: bool,
    /// It has a kernel that plants an overlap.
    pub overlap: bool,
    /// It has a kernel that plants a double free.
    pub free_twice: bool,
    /// The points at which it can delay a thread.
    pub points: Points,
}

fn check(is_valid: bool, what: impl FnOnce() -> String, advice: impl Into<String>) -> Result<(), Error> {
    if is_valid { Ok(()) } else { Err(Error::invalid_stress(what(), advice)) }
}

pub(super) fn check_shape(name: &str, shape: &Shape) -> Result<(), Error> {
    let &Shape { granule_log2, max_align_log2, unit, .. } = shape;
    let is_valid =
        granule_log2 < 32 && max_align_log2 < 32 && unit != 0 && unit.is_multiple_of(1 << granule_log2);
    check(
        is_valid,
        || format!("{name} with {shape:?}"),
        "`Subject::shape` must return a granule and an alignment below 2^32 bytes, and a unit that is a multiple of \
         the granule",
    )
}

pub(super) fn check_config(config: &StressConfig, support: &Support) -> Result<(), Error> {
    let (min, max) = (*config.sizes.start(), *config.sizes.end());
    check(
        0 < min && min <= max && max <= MAX_BYTES,
        || format!("allocations of {min} to {max} bytes"),
        format!("use sizes from 1 to {MAX_BYTES} bytes, the smaller one first"),
    )?;
    check(
        config.threads > 0 && config.streams > 0,
        || format!("{} threads in {} streams", config.threads, config.streams),
        "use at least one thread and one stream",
    )?;
    let threads = u64::from(config.threads).next_multiple_of(BLOCK_THREADS.into());
    let records = threads.saturating_mul(SLOTS.into()).saturating_mul(config.streams.into());
    check(
        records <= MAX_RECORDS,
        || format!("{threads} threads in each of {} streams, which hold {records} blocks", config.streams),
        format!("the maximum is {MAX_RECORDS} blocks; use fewer threads or fewer streams"),
    )?;
    check_support(config, support)?;
    check(
        config.workload != Workload::Pipeline || config.streams >= 2,
        || "a pipeline in one stream".into(),
        "use at least two streams: one to allocate, one to free",
    )?;
    let is_empty = matches!(config.limit, Limit::Rounds(0) | Limit::Pairs(0));
    check(!is_empty, || "for no rounds or no pairs".into(), "use a limit of at least one")
}

/// Fails if the allocator does not support the fault or the workload.
fn check_support(config: &StressConfig, support: &Support) -> Result<(), Error> {
    const ARENA: &str = "an arena frees no memory before its reset; use freelist or heap";
    let Support { name, reclaims, .. } = *support;
    if let Some(plant) = config.plant {
        let what = || format!("a {name} with the planted fault {plant}");
        check(reclaims || plant != Plant::DoubleFree, what, ARENA)?;
        check(
            match plant {
                Plant::Overlap => support.overlap,
                Plant::DoubleFree => support.free_twice,
                Plant::LostBlock | Plant::TornWrite => true,
            },
            what,
            "its subject has no kernel that plants this fault (see `Kernels`); use lost-block or torn-write",
        )?;
    }
    let what = || format!("a {name} with the workload {}", config.workload);
    check(reclaims || config.workload == Workload::Churn, what, ARENA)?;
    check(
        support.exchanges || !config.workload.exchanges(),
        what,
        "its subject has no kernel that exchanges blocks (`Kernels::exchange`); use churn or storm",
    )
}
