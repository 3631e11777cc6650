//! Random allocations and frees, as in RMM's benchmark.
//!
//! One thread, one stream. As long as allocations are left and the drawn one stays below the cap,
//! the next call is that allocation with a probability of 73 in 100. Otherwise it frees a random
//! live block. Sizes are uniform from 1 B to the largest; near the cap large ones are skipped more
//! often.
//!
//! The calls are drawn in advance, so that all pools get the same calls and only the pool is timed.
//! They run twice on one pool: once to record the memory it holds after each call, and once for the
//! time.

use super::results::{Comparison, LARGEST, MIB, RandomFigure};
use crate::{Error, Result};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use warpheap::driver::Device;
use warpheap::host_pools::replay::{Hosts, PoolKind, Script, play, time};

/// The largest sizes, in bytes.
pub(super) const MAX_BYTES: [u64; 2] = [MIB, LARGEST];
/// Percentage of calls that allocate.
const ALLOCATIONS_PERCENT: u64 = 73;
/// RMM's alignment of every allocation.
const ALIGN: usize = 256;

/// Name of the figure with sizes to `max_bytes`.
pub(super) fn name(max_bytes: u64) -> String {
    format!("random to {} MiB", max_bytes / MIB)
}

/// Measures a pool.
pub(super) fn random(
    device: &Device,
    name: &str,
    kind: &PoolKind,
    script: &Script,
    max_bytes: u64,
) -> Result<RandomFigure> {
    let wrong = |found| Error::WrongResult { what: format!("{name}, pool {}", kind.name), found };
    let demand = script.demand(None).ok_or_else(|| wrong("nothing is allocated".into()))?;
    let pool = kind.make(device, &demand)?;
    let played = play(script, &pool, Hosts::One)?;
    if let Some(first) = &played.failed_frees.first {
        return Err(wrong(format!("{} frees failed: {first}", played.failed_frees.count)));
    }
    if played.used_at_end > 0 {
        return Err(wrong(format!("{} B are in use after all blocks were freed", played.used_at_end)));
    }
    if let (Some(first), 0) = (&played.failed_allocations.first, played.peak_live) {
        return Err(wrong(format!("every allocation failed: {first}")));
    }
    let seconds = time(script, &pool)?.as_secs_f64();
    Ok(RandomFigure {
        name: name.into(),
        pool: kind.name.into(),
        max_bytes,
        allocations: script.layouts.len() as u64,
        seconds,
        call_ns: seconds * 1e9 / script.steps.len() as f64,
        peak_live_bytes: played.peak_live,
        peak_used_bytes: played.peak_used,
        peak_reserved_bytes: played.peak_reserved,
        reserved_ratio: played.peak_reserved as f64 / played.peak_live.max(1) as f64,
        failed_allocations: played.failed_allocations.count,
        comparison: Comparison::of(kind),
    })
}

/// Draws the calls. Live bytes stay below `cap_bytes`, which has room for at least one block of
/// `max_bytes`.
pub(super) fn draw(allocations: u32, max_bytes: u64, cap_bytes: u64, seed: u64) -> Script {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    // Uniform over 0..n: the error is n / 2^64.
    let mut below = |n: u64| ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64;
    let (mut script, mut live, mut live_bytes) = (Script::default(), Vec::new(), 0);
    while script.layouts.len() < allocations as usize || !live.is_empty() {
        let (size, is_alloc) = (1 + below(max_bytes), below(100) < ALLOCATIONS_PERCENT);
        let (some_left, fits) = (script.layouts.len() < allocations as usize, live_bytes + size < cap_bytes);
        if some_left && (is_alloc && fits || live.is_empty()) {
            let layout =
                Layout::from_size_align(size as usize, ALIGN).expect("an alignment, and a small size");
            live_bytes += size;
            live.push(script.alloc(0, 0, layout));
        } else {
            let slot = live.swap_remove(below(live.len() as u64) as usize);
            live_bytes -= script.layouts[slot].size() as u64;
            script.free(0, 0, slot);
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap::host_pools::replay::Action;
    use warpheap::host_pools::{CachingPool, DeviceAllocator, SyncDriverAllocator};
    use warpheap::simt::{Executor, Mode};

    #[test]
    fn calls_are_drawn_as_the_benchmark_says() {
        let cap = 1000 * MIB;
        let script = draw(20_000, MIB, cap, 7);
        assert_eq!((script.layouts.len(), script.steps.len(), script.threads), (20_000, 40_000, 1));
        let sizes: Vec<u64> = script.layouts.iter().map(|layout| layout.size() as u64).collect();
        assert!(sizes.iter().all(|size| (1..=MIB).contains(size)));
        // Until the cap is first reached, all sizes are equally likely, and 73 of 100 calls
        // allocate.
        let mean = sizes[..1400].iter().sum::<u64>() as f64 / 1400.0;
        assert!((mean / (MIB as f64 / 2.0) - 1.0).abs() < 0.05, "{mean}");
        let first = &script.steps[..2000];
        let allocations = first.iter().filter(|step| step.action == Action::Alloc).count();
        assert!((1400..1520).contains(&allocations), "{allocations} of 2000");
        let peak = script.demand(None).unwrap().peak_bytes;
        assert!(peak <= cap && peak > cap - MIB, "{peak}");
        let again = draw(20_000, MIB, cap, 7);
        assert_eq!(script.steps, again.steps);
    }

    #[test]
    fn a_cap_of_one_allocation_is_enough() {
        let script = draw(100, 64 * MIB, 64 * MIB, 3);
        assert_eq!(script.steps.len(), 200);
        assert!(script.demand(None).unwrap().peak_bytes <= 64 * MIB);
    }

    /// Plays the script. Returns peak reserved over peak live bytes.
    fn reserved_ratio<A: DeviceAllocator>(name: &str, script: &Script, pool: &CachingPool<A>) -> f64 {
        let played = play(script, pool, Hosts::One).unwrap();
        let ratio = pool.stats().peak_reserved_bytes as f64 / played.peak_live as f64;
        println!("{name}: {ratio:.3}, {:?}", pool.stats().rungs);
        assert!(played.failed_allocations.first.is_none() && played.failed_frees.first.is_none());
        assert_eq!(played.used_at_end, 0);
        pool.trim().unwrap();
        assert_eq!(pool.stats().usage.reserved_bytes, 0, "all of it merges and returns to the device");
        ratio
    }

    #[test]
    fn a_caching_pool_fragments_little() {
        let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 32 << 30);
        for (max_bytes, seed) in [(MIB, 7), (LARGEST, 7), (LARGEST, 8), (LARGEST, 9)] {
            let script = draw(100_000, max_bytes, 16_000 * MIB, seed);
            let growing = CachingPool::builder().build(&device).unwrap();
            assert!(reserved_ratio("one segment that grows", &script, &growing) <= 1.15);
            // Memory is stranded at the ends of segments.
            let memory = SyncDriverAllocator::new(&device);
            let segments = CachingPool::builder().segment_bytes(1 << 30).build_over(memory).unwrap();
            assert!(reserved_ratio("segments of 1 GiB", &script, &segments) <= 1.25);
        }
    }
}
