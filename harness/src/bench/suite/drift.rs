//! Drift: a heap is filled with one size after the other, and a tenth of its blocks survives each.
//!
//! Kernels allocate one size until some of their threads fail. Failed allocations are *wrong* if
//! there was memory for them: a second kernel is granted blocks with nothing freed between, or the
//! map of the heap after the first one has free memory that the class can use. What no kernel is
//! granted although it fits beside the survivors is *persistent*.

use super::load::{self, Block, Counts, Places, binary, check_apart, class_bytes};
use super::{Drift, Setup, Survivors};
use crate::bench::engine::{Bench, Run};
use crate::bench::results::{Bar, Figure};
use crate::kernels::bench::common::mix;
use crate::kernels::bench::{Draw, Stripe, bench_load_fill};
use crate::{Error, Result};
use rayon::prelude::*;
use warpheap::device_pools::{Heap, HeapMap, SlabContent};
use warpheap_device::kernel::Kernel;

/// The sizes of a drift in bytes, in order.
pub(super) const SIZES: [u32; 12] = [64, 48, 256, 1024, 16, 96, 4096, 512, 8192, 32, 160, 2048];
/// One of so many blocks survives.
const SURVIVING: usize = 10;
/// Most kernels after the first that failed, until one is granted nothing.
const REPEATS: u32 = 8;

/// Measures all drifts of a heap.
pub(super) fn measure_all(setup: &Setup<'_>, heap: &mut Heap, run: &mut Run<'_>) -> Result<Vec<Drift>> {
    let (extent, mut all) = (&setup.extent.load, Vec::new());
    if heap.capacity() > extent.drift_most {
        return Ok(all);
    }
    for survivors in [Survivors::Oldest, Survivors::Random] {
        for threads in &extent.drift_threads {
            let of = survivors.name();
            let name = format!("drift in {}, {of}, {threads} threads", binary(heap.capacity()));
            if run.is_over(&format!("{name}, and more")) {
                return Ok(all);
            }
            let drift = || measure(setup.bench, heap, &SIZES, survivors, *threads, &name, bench_load_fill);
            all.extend(run.measure(&name, drift)?.into_iter().flatten());
        }
    }
    Ok(all)
}

/// A figure for each drift: no allocation may fail wrongly.
pub(super) fn figures(drifts: &[Drift]) -> impl Iterator<Item = Figure> {
    let totals = drifts.iter().filter(|drift| drift.bytes.is_none());
    totals.map(|drift| {
        let (heap, of) = (binary(drift.heap_bytes), drift.survivors.name());
        let name = format!("heap drift, wrong failures, {heap}, {of}, {} threads", drift.threads);
        let Drift { wrong, contended, requests, .. } = drift;
        let checked = format!(
            "{wrong} wrong failures of {requests} requests, {contended} without a proof, no two blocks overlap"
        );
        let figure = Figure::plain(&name, drift.threads, "all requests").checked(checked);
        figure.measured_by(drift.wrong_percent, "%", Bar::AtMost, 0.0)
    })
}

/// Drifts through `sizes` by this kernel: a result for each, and their sum. The heap is reset
/// before.
pub(super) fn measure<K>(
    bench: &Bench,
    heap: &mut Heap,
    sizes: &[u32],
    survivors: Survivors,
    threads: u32,
    name: &str,
    kernel: K,
) -> Result<Vec<Drift>>
where
    K: Kernel<Args = load::Args> + Copy,
{
    heap.reset()?;
    let (mut live, mut all) = (Vec::new(), Vec::new());
    for (round, bytes) in (0..).zip(sizes) {
        let goal = goal(heap, &live, *bytes);
        let count = goal + u64::from(threads) * u64::from(REPEATS + 3);
        let mut filling = Filling {
            places: Places::new(name, bench, heap, count, threads)?,
            kernel,
            draw: Draw { min: *bytes, max: *bytes, seed: 0 },
            threads,
            survivors,
            first: 0,
        };
        all.push(filling.fill(heap, goal)?);
        live.extend(filling.places.blocks(|_| *bytes)?);
        check_apart(name, heap, live.clone())?;
        let (kept, freed) = survive(&live, survivors, round);
        // SAFETY: the blocks are live, in no other list, and no kernel runs.
        unsafe { load::free(name, bench, heap, &freed) }?;
        live = kept;
    }
    all.extend(Drift::total(&all));
    Ok(all)
}

/// The number of blocks that fit beside the live ones.
fn goal(heap: &Heap, live: &[Block], bytes: u32) -> u64 {
    let used: u64 = live.par_iter().map(|block| class_bytes(block.size())).sum();
    heap.capacity().saturating_sub(used) / class_bytes(bytes)
}

/// The survivors of the live blocks, which are in the order of their allocation, and the others.
fn survive(live: &[Block], survivors: Survivors, round: u32) -> (Vec<Block>, Vec<Block>) {
    let oldest = live.len().div_ceil(SURVIVING);
    let survives = |i: usize| match survivors {
        Survivors::Oldest => i < oldest,
        Survivors::Random => (mix(i as u32 ^ mix(round)) as usize).is_multiple_of(SURVIVING),
    };
    let those = |survive: bool| {
        let blocks = live.par_iter().enumerate().filter(|(i, _)| survives(*i) == survive);
        blocks.map(|(_, block)| *block).collect()
    };
    (those(true), those(false))
}

/// Kernels that allocate one size.
struct Filling<'a, K> {
    places: Places<'a>,
    kernel: K,
    draw: Draw,
    threads: u32,
    survivors: Survivors,
    /// The first unused place.
    first: u32,
}

impl<K: Kernel<Args = load::Args> + Copy> Filling<'_, K> {
    /// Launches one kernel. Each of its threads has a new place.
    fn launch(&mut self) -> Result<Counts> {
        let total = self.places.count();
        let stripe = Stripe { first: self.first, step: 1, total, threads: self.threads };
        if total - self.first < self.threads {
            let found = format!("{} blocks of {} B were allocated", self.first, self.draw.min);
            return Err(Error::wrong(self.places.name, format!("{found}, which do not fit")));
        }
        self.first += self.threads;
        // SAFETY: the places exist and have no blocks.
        Ok(unsafe { self.places.launch(self.kernel, stripe, self.draw) }?.1)
    }

    /// Fills the heap, for which `goal` blocks are missing.
    fn fill(&mut self, heap: &Heap, goal: u64) -> Result<Drift> {
        let mut sum = Counts::default();
        let contended_before = heap.stats()?.contended_failures;
        while sum.failed == 0 {
            let counts = self.launch()?;
            sum = Counts { granted: sum.granted + counts.granted, failed: counts.failed };
        }
        let bytes = class_bytes(self.draw.min);
        let snapshot = heap.snapshot()?;
        let contended = snapshot.stats().contended_failures.wrapping_sub(contended_before);
        let unused = Unused::of(&snapshot.map(self.places.name), bytes);
        let served_again = self.launch()?.granted;
        let (mut served_later, mut last) = (0, served_again);
        for _ in 1..REPEATS {
            if last == 0 {
                break;
            }
            last = self.launch()?.granted;
            served_later += last;
        }
        let all = sum.granted + served_again + served_later;
        let drift = Drift {
            heap_bytes: heap.capacity(),
            survivors: self.survivors,
            threads: self.threads,
            bytes: Some(self.draw.min),
            goal_bytes: goal * bytes,
            requests: sum.granted + sum.failed,
            granted: sum.granted,
            failed: sum.failed,
            served_again,
            served_later,
            free_blocks: unused.blocks,
            free_slabs: unused.slabs,
            free_runs: unused.runs,
            wrong: served_again.max(unused.serves).min(sum.failed),
            wrong_percent: 0.0,
            contended,
            persistent_bytes: goal.saturating_sub(all) * bytes,
            persistent_percent: 0.0,
        };
        Ok(drift.with_shares())
    }
}

/// Free memory that a class can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unused {
    /// Free blocks of the class.
    blocks: u64,
    /// Free slabs.
    slabs: u64,
    /// Runs of other classes without a live block.
    runs: u64,
    /// Blocks that all of these hold.
    serves: u64,
}

impl Unused {
    /// For the class with blocks of `bytes`. Consecutive slabs without a live block hold as many
    /// as fit into all of them.
    fn of(map: &HeapMap, bytes: u64) -> Unused {
        let (mut unused, mut row) = (Unused::default(), 0);
        for part in &map.parts {
            let slabs = u64::from(part.slabs);
            match part.content {
                SlabContent::Run { block_bytes, free_blocks, .. } if block_bytes == bytes => {
                    unused.blocks += u64::from(free_blocks);
                }
                SlabContent::Fresh | SlabContent::Free => unused.slabs += slabs,
                SlabContent::Run { .. } if part.is_free() => unused.runs += 1,
                _ => {}
            }
            let is_own = matches!(part.content, SlabContent::Run { block_bytes, .. } if block_bytes == bytes);
            if part.is_free() && !is_own {
                row += slabs;
            } else {
                unused.serves += row * map.slab_bytes / bytes;
                row = 0;
            }
        }
        unused.serves += row * map.slab_bytes / bytes + unused.blocks;
        unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_survives() {
        let live: Vec<Block> = (0..1000).map(|i| Block::new(i * 16, 16)).collect();
        let (kept, freed) = survive(&live, Survivors::Oldest, 0);
        assert_eq!((&kept[..], &freed[..]), (&live[..100], &live[100..]));
        let (kept, freed) = survive(&live, Survivors::Random, 0);
        assert!((70..130).contains(&kept.len()) && kept.is_sorted(), "{}", kept.len());
        assert_ne!(kept, survive(&live, Survivors::Random, 1).0, "each round draws anew");
        let mut all = [kept, freed].concat();
        all.sort_unstable();
        assert_eq!(all, live);
    }

    #[test]
    fn free_memory_that_a_class_can_use_is_found() {
        let part = |first_slab: u32, slabs: u32, content: &str| {
            format!(r#"{{"first_slab":{first_slab},"slabs":{slabs},{content}}}"#)
        };
        let run = |bytes: u32, blocks: u32, free: u32| {
            format!(r#""kind":"run","block_bytes":{bytes},"blocks":{blocks},"free_blocks":{free}"#)
        };
        let parts = [
            part(0, 1, &run(96, 100, 3)),
            part(1, 1, r#""kind":"free""#),
            part(2, 2, &run(512, 10, 10)),
            part(4, 1, r#""kind":"fresh""#),
            part(5, 1, &run(512, 10, 9)),
            part(6, 1, &run(96, 100, 100)),
            part(7, 1, r#""kind":"unmapped""#),
        ];
        let json = format!(
            r#"{{"schema":"x","label":"","unix_seconds":0,"heap_bytes":8000,"slab_bytes":1000,
                "mapped_bytes":7000,"failed_allocations":0,"faults":0,"parts":[{}],"spans":[]}}"#,
            parts.join(",")
        );
        let map: HeapMap = serde_json::from_str(&json).unwrap();
        // The row of slabs 1 to 4, and the free blocks of the class.
        let expected = Unused { blocks: 103, slabs: 2, runs: 1, serves: 4000 / 96 + 103 };
        assert_eq!(Unused::of(&map, 96), expected);
        // Slabs 1, 4 and 6 hold one block each.
        assert_eq!(Unused::of(&map, 512), Unused { blocks: 19, slabs: 2, runs: 1, serves: 3 + 19 });
    }
}
