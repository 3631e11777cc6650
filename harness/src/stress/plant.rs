//! Faults injected on purpose: the victim is chosen by the seed among the blocks that are live.

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

/// What this launches beside what the subject does.
pub(super) const LAUNCHED: [&str; 2] = kernel_names![plant_torn_write, plant_lost_block];

/// Injects the fault. No kernel runs. Without a victim nothing happens: the records say which are live.
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
            // SAFETY: nothing else runs; the bytes end inside the next block, which is inside the pool.
            unsafe { stream.launch(module, plant_torn_write, &one, (all, place, past)) }?;
        }
        return Ok(stream.synchronize()?);
    }
    let Some((place, record)) = victim(&records, plan.seed) else { return Ok(()) };
    match plant {
        // SAFETY: the module is the subject's, nothing else runs, and the run ends with the
        // findings that this leads to.
        Plant::Overlap => unsafe { subject.corrupt(module, stream, record.address()) },
        // SAFETY: the same; the records are of this pool and this map.
        Plant::DoubleFree => unsafe { subject.free_twice(module, stream, all, map, place) },
        _ => {
            // SAFETY: nothing else runs, and the records are of this map.
            unsafe { stream.launch(module, plant_lost_block, &one, (all, map, place)) }?;
            Ok(stream.synchronize()?)
        }
    }
}

/// A live record.
fn victim(records: &[Record], seed: u64) -> Option<(u32, Record)> {
    let live = records.iter().enumerate().filter(|(_, record)| record.is_live() && !record.is_clashed());
    let live: Vec<_> = live.map(|(place, record)| (place as u32, *record)).collect();
    live.get(below(absorb(seed, 1), live.len() as u32) as usize).copied()
}

/// A live record whose block has another live one close behind, and how many bytes past its end are in that
/// one's first word.
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
