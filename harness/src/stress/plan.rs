//! Sizes of a run, derived from the configuration and the device.

use super::config::{Limit, Plant, StressConfig};
use super::subject::Subject;
use super::workload::{SizeMix, Workload};
use crate::Error;
use std::ops::RangeInclusive;
use warpheap::Bytes;
use warpheap::driver::Device;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::SLOTS;

/// Threads in a block.
pub(super) const BLOCK_THREADS: u32 = 256;

/// The minimum alignment of every pool. Sizes are rounded up to a multiple of it.
pub(super) const MIN_GRANULE_LOG2: u32 = 4;

/// The largest allocation: a record stores a size in 32 bits.
const MAX_BYTES: u64 = 1 << 31;

/// Steps of a thread in a churn round.
const CHURN_STEPS: u32 = 32;
/// Steps in a churn round of an arena: enough to fill some slots, and few enough to leave slots for
/// the threads that exhaust the arena.
const ARENA_STEPS: u32 = 8;

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
fn stride(max_bytes: u32) -> u64 {
    u64::from(max_bytes).next_multiple_of(1 << MIN_GRANULE_LOG2)
}

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
    /// Granule of the ownership map. Every block starts at a multiple of it.
    pub(super) granule_log2: u32,
    pub(super) plant: Option<Plant>,
}

impl Plan {
    pub(super) fn new<S: Subject>(config: &StressConfig, device: &Device) -> Result<Plan, Error> {
        check_numbers::<S>(config)?;
        let (min_bytes, max_bytes) = (*config.sizes.start() as u32, *config.sizes.end() as u32);
        let shape = S::shape(min_bytes, max_bytes, config.mix.mean(min_bytes, max_bytes));
        check_shape(S::NAME, &shape)?;
        let mut plan = Plan {
            name: S::NAME,
            threads: config.threads.next_multiple_of(BLOCK_THREADS),
            streams: config.streams,
            workload: config.workload,
            mix: config.mix,
            min_bytes,
            max_bytes,
            max_align_log2: shape.max_align_log2,
            steps: if S::Handle::RECLAIMS { CHURN_STEPS } else { ARENA_STEPS },
            seed: config.seed,
            stride: stride(max_bytes),
            block_bytes: shape.block_bytes,
            mean_bytes: shape.mean_bytes,
            pool_bytes: 0,
            granule_log2: shape.granule_log2,
            plant: config.plant,
        };
        plan.size_pool(config, &shape, device)?;
        Ok(plan)
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
        let tables = self.records() * (size_of::<Record>() + size_of::<u32>()) as u64
            + u64::from(self.threads) * u64::from(self.streams) * size_of::<u64>() as u64;
        let room = (free / 8 * 7).saturating_sub(tables);
        // The pool needs two ownership maps, and at the end a list of all blocks.
        let listed = (MARKED_BYTES * unit).div_ceil(self.stride);
        let per_unit = unit + 2 * (unit >> self.granule_log2) * size_of::<u32>() as u64 + listed;
        let most = (room / per_unit).saturating_mul(unit).min(shape.most_bytes);
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
        // A planted overlap is found only when the pool runs out of memory, so it must do so within
        // a round.
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

/// Per block of the pool: its record in the list at the end, and its mark.
const MARKED_BYTES: u64 = (size_of::<Record>() + size_of::<u32>()) as u64;

fn check_shape(name: &str, shape: &Shape) -> Result<(), Error> {
    let &Shape { granule_log2, max_align_log2, unit, .. } = shape;
    if granule_log2 < 32 && max_align_log2 < 32 && unit != 0 && unit.is_multiple_of(1 << granule_log2) {
        return Ok(());
    }
    Err(refuse(
        format!("{name}: {shape:?}"),
        "its subject's shape has a granule and an alignment below 2^32 bytes, and a unit of whole granules"
            .into(),
    ))
}

fn check_numbers<S: Subject>(config: &StressConfig) -> Result<(), Error> {
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
    check_support::<S>(config)?;
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

/// Fails if the allocator does not support the fault or the workload.
fn check_support<S: Subject>(config: &StressConfig) -> Result<(), Error> {
    let reclaims = S::Handle::RECLAIMS;
    if let Some(plant) = config.plant {
        let what = format!("a planted {plant} in a {}", S::NAME);
        if plant == Plant::DoubleFree && !reclaims {
            let advice = "an arena gives nothing back before its reset, so a second free does nothing there; use it \
                          with freelist or heap";
            return Err(refuse(what, advice.into()));
        }
        if matches!(plant, Plant::Overlap | Plant::DoubleFree) && S::LAUNCHED.planted.is_empty() {
            return Err(refuse(what, "its subject injects no faults; use lost-block or torn-write".into()));
        }
    }
    let what = format!("a workload of {} on a {}", config.workload, S::NAME);
    if config.workload != Workload::Churn && !reclaims {
        let advice = "an arena gives nothing back before its reset; use it with freelist or heap";
        return Err(refuse(what, advice.into()));
    }
    if config.workload.hands_over() && S::LAUNCHED.handing_over.is_empty() {
        return Err(refuse(
            what,
            "its subject has no kernel that exchanges blocks; use churn or storm".into(),
        ));
    }
    Ok(())
}

/// An owner number has 31 bits, so record indices never wrap.
const MOST_RECORDS: u64 = 1 << 31;

pub(super) fn refuse(what: String, advice: String) -> Error {
    Error::InvalidStress { what, advice }
}
