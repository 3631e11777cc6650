//! Pairs of an allocation and its free, by one host thread and by many, each with its own stream.
//!
//! A round makes as many passes over the sizes as take two milliseconds, and at least one. Threads
//! start a round together; each is timed separately.

use super::results::{Comparison, LARGEST, MIB, MIXED_SIZES, ONE_SIZE, PairFigure};
use crate::bench::engine::Rounds;
use crate::threads::start;
use crate::{Error, Result};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::sync::{Barrier, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};
use warpheap::driver::{Device, Stream};
use warpheap::host_pools::DeviceAllocator;
use warpheap::host_pools::replay::{Demand, PoolKind, Spread};

/// Minimum duration of a round of one thread.
const ROUND: Duration = Duration::from_millis(2);
/// Maximum number of passes in a round.
const MAX_PASSES: u32 = 1 << 20;
/// Number of sizes in a pass over mixed sizes.
const MIXED: usize = 256;
const ALIGN: usize = 256;

/// The sizes of each figure.
pub(super) fn sizes(seed: u64) -> [(&'static str, Vec<Layout>); 2] {
    [(ONE_SIZE, vec![layout(MIB as usize)]), (MIXED_SIZES, mixed(seed))]
}

/// Measures a pool: one figure for these sizes and host threads.
pub(super) fn pair(
    device: &Device,
    rounds: u32,
    name: &'static str,
    kind: &PoolKind,
    layouts: &[Layout],
    threads: u32,
) -> Result<PairFigure> {
    let pool = kind.make(device, &demand(layouts, threads))?;
    let course = Course { pool: &pool, layouts, passes: 1 };
    let course = Course { passes: course.passes_of_a_round()?, ..course };
    let pairs = u64::from(course.passes) * layouts.len() as u64;
    let rounds = course.run(threads, rounds)?;
    let used = pool.usage().used_bytes;
    if used > 0 {
        let found = format!("{used} B are in use after all blocks were freed");
        return Err(Error::WrongResult { what: format!("{name}, pool {}", kind.name), found });
    }
    let of_pair = |time: Duration| time.as_nanos() as f64 / pairs as f64;
    let mean = |round: &Vec<Duration>| of_pair(round.iter().sum()) / round.len() as f64;
    let slowest = |round: &Vec<Duration>| of_pair(round.iter().copied().max().unwrap_or_default());
    Ok(PairFigure {
        name: name.into(),
        pool: kind.name.into(),
        threads,
        pairs,
        ns: Spread::of(rounds.iter().map(mean).collect()),
        slowest_ns: Spread::of(rounds.iter().map(slowest).collect()),
        comparison: Comparison::of(kind),
    })
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("an alignment, and far less than all addresses")
}

/// Sizes with uniformly distributed logarithms.
fn mixed(seed: u64) -> Vec<Layout> {
    let (min, max) = (256_f64.ln(), (LARGEST as f64).ln());
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut size = || {
        // 53 random bits, the precision of an `f64`.
        let part = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        (min + part * (max - min)).exp() as usize
    };
    (0..MIXED).map(|_| layout(size())).collect()
}

/// The demand of one block per thread.
fn demand(layouts: &[Layout], threads: u32) -> Demand {
    let largest = layout(layouts.iter().map(Layout::size).max().unwrap_or(1));
    let peak_bytes = largest.size() as u64 * u64::from(threads);
    let peak_blocks = threads as usize;
    Demand {
        bytes: None,
        largest,
        peak_blocks,
        peak_bytes,
        total_bytes: peak_bytes,
        total_blocks: peak_blocks,
    }
}

/// The work of each thread in each round.
#[derive(Clone, Copy)]
struct Course<'a> {
    pool: &'a dyn DeviceAllocator,
    layouts: &'a [Layout],
    passes: u32,
}

impl Course<'_> {
    /// Finds the number of passes that fill a round. The search also warms up the pool.
    fn passes_of_a_round(&self) -> Result<u32> {
        let stream = self.pool.device().stream()?;
        // The first pass waits for memory that later passes reuse.
        self.round(&stream)?;
        let mut passes = 1;
        while (Course { passes, ..*self }).round(&stream)? < ROUND && passes < MAX_PASSES {
            passes *= 2;
        }
        Ok(passes)
    }

    fn round(&self, stream: &Stream) -> warpheap::Result<Duration> {
        let start = Instant::now();
        for _ in 0..self.passes {
            for layout in self.layouts {
                let ptr = self.pool.allocate(*layout, stream)?;
                // SAFETY: allocated above, and never passed to a kernel.
                unsafe { self.pool.deallocate(ptr, *layout, stream) }?;
            }
        }
        let time = start.elapsed();
        stream.synchronize()?;
        Ok(time)
    }

    /// The times of all threads in each timed round.
    fn run(&self, threads: u32, rounds: u32) -> Result<Vec<Vec<Duration>>> {
        let together = Barrier::new(threads as usize);
        // Set when all threads have started. Without one of them the others would wait for ever.
        let all_started = RwLock::new(false);
        let of_threads = thread::scope(|scope| {
            let worker = || {
                let starts = *all_started.read().unwrap_or_else(PoisonError::into_inner);
                if starts { self.work(rounds, &together) } else { Ok(Vec::new()) }
            };
            let mut is_started = all_started.write().unwrap_or_else(PoisonError::into_inner);
            let workers: Vec<_> = (0..threads).map(|_| start(scope, worker)).collect::<Result<_, _>>()?;
            *is_started = true;
            drop(is_started);
            let times = workers.into_iter().map(|worker| worker.join());
            let times = times.map(|time| time.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            times.collect::<warpheap::Result<Vec<Vec<Duration>>>>()
        })?;
        Ok((0..rounds as usize).map(|round| of_threads.iter().map(|times| times[round]).collect()).collect())
    }

    /// The rounds of one thread. A thread that has failed still joins every round, because the
    /// others would wait for it.
    fn work(&self, rounds: u32, together: &Barrier) -> warpheap::Result<Vec<Duration>> {
        let mut stream = self.pool.device().stream();
        let times = Rounds::of(rounds).run(|| {
            together.wait();
            let time = stream.as_ref().map(|stream| self.round(stream)).unwrap_or(Ok(Duration::ZERO));
            Ok(time.unwrap_or_else(|error| {
                stream = Err(error);
                Duration::ZERO
            }))
        });
        stream.and(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_sizes_are_spread_over_their_logarithms() {
        let sizes: Vec<usize> = mixed(1).iter().map(Layout::size).collect();
        assert_eq!(sizes, mixed(1).iter().map(Layout::size).collect::<Vec<_>>());
        assert_ne!(sizes, mixed(2).iter().map(Layout::size).collect::<Vec<_>>());
        assert!(sizes.iter().all(|size| (256..=64 << 20).contains(size)));
        // 18 doublings: a third of the sizes below 16 KiB, a third above 1 MiB.
        let below = sizes.iter().filter(|size| **size < 16 << 10).count();
        let above = sizes.iter().filter(|size| **size >= 1 << 20).count();
        assert!((MIXED / 4..MIXED / 2).contains(&below), "{below}");
        assert!((MIXED / 4..MIXED / 2).contains(&above), "{above}");
    }
}
