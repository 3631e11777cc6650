//! Rejects configurations that cannot run, and says what to change.

use super::config::{Limit, StressConfig};
use super::delays::Points;
use super::kinds::{Plant, Workload};
use super::shape::Shape;
use crate::Error;
use warpheap_device::check::workload::SLOTS;

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
