//! Fault injection. The seed selects the victim among the live blocks.

use super::config::Plant;
use super::plan::Plan;
use super::subject::Subject;
use super::tables::Tables;
use crate::Result;
use crate::kernels::stress::{plant_lost_block, plant_torn_write};
use warpheap::driver::{LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap_device::check::hash::{absorb, below};
use warpheap_device::check::record::Record;

/// The kernels that this module launches, in addition to those of the subject.
pub(super) const LAUNCHED: [&str; 2] = kernel_names![plant_torn_write, plant_lost_block];

/// Injects the fault. No kernel runs. Does nothing if the records contain no suitable live block.
pub(super) fn inject<S: Subject>(
    plant: Plant,
    subject: &S,
    tables: &Tables,
    plan: &Plan,
    module: &Module,
    stream: &Stream,
) -> Result<()> {
    let records = tables.records.copy_to_vec()?;
    let one = LaunchConfig::linear(1, 1);
    let (all, map) = (tables.records.slice(), tables.map.handle());
    if plant == Plant::TornWrite {
        if let Some((place, past)) = neighbours(&records, plan.seed) {
            // SAFETY: nothing else runs; the bytes end inside the next block, which is inside the
            // pool.
            unsafe { stream.launch(module, plant_torn_write, &one, (all, place, past)) }?;
        }
        return Ok(stream.synchronize()?);
    }
    let Some((place, record)) = victim(&records, plan.seed) else { return Ok(()) };
    match plant {
        // SAFETY: the module is the subject's and nothing else runs. The run ends with the
        // resulting findings, and only the checks use what the pool allocates until then.
        Plant::Overlap => unsafe { subject.corrupt(module, stream, record.address()) },
        // SAFETY: as `corrupt` requires, the module is the subject's, nothing else runs and only
        // the checks use the pool afterwards. The records are those of this pool and this map.
        Plant::DoubleFree => unsafe { subject.free_twice(module, stream, all, map, place) },
        _ => {
            // SAFETY: nothing else runs, and the records are those of this map.
            unsafe { stream.launch(module, plant_lost_block, &one, (all, map, place)) }?;
            Ok(stream.synchronize()?)
        }
    }
}

/// Selects a live record.
fn victim(records: &[Record], seed: u64) -> Option<(u32, Record)> {
    let live = records.iter().enumerate().filter(|(_, record)| record.is_live() && !record.is_clashed());
    let live: Vec<_> = live.map(|(place, record)| (place as u32, *record)).collect();
    live.get(below(absorb(seed, 1), live.len() as u32) as usize).copied()
}

/// Selects a live record with a block that is closely followed by another live block. Returns its
/// index and the number of bytes from its end through the first word of the next block.
fn neighbours(records: &[Record], seed: u64) -> Option<(u32, u32)> {
    let mut live: Vec<_> =
        records.iter().enumerate().filter(|(_, record)| record.is_live() && !record.is_clashed()).collect();
    live.sort_unstable_by_key(|(_, record)| record.address());
    let pairs = live.windows(2).map(|pair| {
        let (place, first) = pair[0];
        let gap = pair[1].1.address() - (first.address() + u64::from(first.bytes()));
        let into_next = pair[1].1.bytes().min(size_of::<u64>() as u32);
        (gap, absorb(seed, place as u64), place as u32, gap as u32 + into_next)
    });
    pairs.min().map(|(_, _, place, past)| (place, past))
}
