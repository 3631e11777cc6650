//! Fault injection. The seed selects the victim among the live blocks.

use super::kinds::Plant;
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

/// Injects the fault with a one-thread kernel. Does nothing if the records contain no suitable live
/// block. The caller guarantees that no other kernel is running.
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
    let (pool, all, map) = (subject.handle(), tables.records.slice(), tables.map.handle());
    if plant == Plant::TornWrite {
        if let Some((index, past)) = neighbours(&records, plan.seed) {
            // SAFETY: nothing else runs; the bytes end inside the next block, which is inside the
            // pool.
            unsafe { stream.launch(module, plant_torn_write, &one, (all, index, past)) }?;
        }
    } else if let Some((index, record)) = victim(&records, plan.seed) {
        match (plant, S::KERNELS.overlap, S::KERNELS.free_twice) {
            (Plant::Overlap, Some(overlap), _) => {
                let args = (pool, subject.overlap_argument(record.address())?);
                // SAFETY: nothing else runs, and the kernel requires no more (S2). The run ends
                // with the resulting findings, and only the checks use what the pool allocates
                // until then.
                unsafe { overlap.launch(stream, module, &one, args) }?;
            }
            (Plant::DoubleFree, _, Some(twice)) => {
                // SAFETY: nothing else runs, the records are those of this pool and this map, and
                // the kernel requires no more (S2). Only the checks use the pool afterwards.
                unsafe { twice.launch(stream, module, &one, (pool, all, map, index)) }?;
            }
            (Plant::LostBlock, ..) => {
                // SAFETY: nothing else runs, and the records are those of this map.
                unsafe { stream.launch(module, plant_lost_block, &one, (all, map, index)) }?;
            }
            // `Plan::new` fails if the kernel is missing.
            _ => {}
        }
    }
    Ok(stream.synchronize()?)
}

/// Selects a live record.
fn victim(records: &[Record], seed: u64) -> Option<(u32, Record)> {
    let live: Vec<_> = usable(records).collect();
    live.get(below(absorb(seed, 1), live.len() as u32) as usize).copied()
}

/// The live records whose blocks overlap no other, with their indices.
fn usable(records: &[Record]) -> impl Iterator<Item = (u32, Record)> {
    (0..).zip(records.iter().copied()).filter(|(_, record)| record.is_live() && !record.is_clashed())
}

/// Selects the live block with the smallest gap to the next. Returns its record's
/// index and the number of bytes from its end through the first word of the next block.
fn neighbours(records: &[Record], seed: u64) -> Option<(u32, u32)> {
    let mut live: Vec<_> = usable(records).collect();
    live.sort_unstable_by_key(|(_, record)| record.address());
    let pairs = live.windows(2).map(|pair| {
        let [(index, first), (_, next)] = [pair[0], pair[1]];
        let gap = next.address() - (first.address() + u64::from(first.bytes()));
        let into_next = next.bytes().min(size_of::<u64>() as u32);
        (gap, absorb(seed, index.into()), index, gap as u32 + into_next)
    });
    pairs.min().map(|(_, _, index, past)| (index, past))
}
