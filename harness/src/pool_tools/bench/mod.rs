//! Cost of the pools, compared with the driver's synchronous memory and, where available, the
//! driver's own pool.
//!
//! | figure | what |
//! |---|---|
//! | `pair of 1 MiB`, `pair of 256 B to 64 MiB` | an allocation and its free |
//! | `random to 1 MiB`, `random to 64 MiB` | RMM's benchmark: time, and memory held |
//!
//! Pairs are made by one host thread, and by many with a stream each. Random allocations are those
//! of RMM's benchmark.
//!
//! No first use is timed: every pool is warmed up by the same calls that are timed afterwards.
//!
//! `pairs` and `random` measure, `results` judges.

mod pairs;
mod random;
mod results;
#[cfg(test)]
mod tests;

pub use results::{Comparison, Judged, PairFigure, PoolBenchReport, RandomFigure};

use crate::bench::engine::Run;
use crate::{Result, threads};
use results::{LARGEST, MIB};
use std::time::Duration;
use warpheap::Bytes;
use warpheap::driver::{Backend, Device, DeviceInfo};
use warpheap::error::InvalidConfig;
use warpheap::host_pools::replay::{POOLS, PoolKind};

/// The most random allocations. Their script takes some GiB.
const MAX_ALLOCATIONS: u32 = 1 << 24;
/// Number of random allocations on a GPU, as in RMM's benchmark.
pub const ALLOCATIONS: u32 = 100_000;
/// Maximum live bytes of the random allocations, as in RMM's benchmark.
pub const CAP: u64 = 16_000 * MIB;
/// Both numbers on the CPU, where the driver's memory is the program's own heap, cleared at each
/// allocation.
const ON_CPU: (u32, u64) = (10_000, 1_000 * MIB);

/// What to measure.
#[derive(Clone, Debug)]
pub struct PoolBenchConfig {
    /// The pools. Comparisons need the driver's memory among them.
    pub pools: Vec<&'static PoolKind>,
    /// Only figures whose name contains this.
    pub only: Option<String>,
    /// Timed rounds of each pair, after 3 untimed ones; at least 1.
    pub rounds: u32,
    /// Host threads of the multi-threaded pairs, from 1 to 1024.
    pub threads: u32,
    /// Number of random allocations, from 1 to 2^24.
    pub allocations: u32,
    /// Maximum live bytes of the random allocations; at least 64 MiB.
    pub cap_bytes: u64,
    /// Determines all sizes and the order of frees.
    pub seed: u64,
}

impl PoolBenchConfig {
    /// The configuration that the bars refer to, with all pools. The CPU makes fewer random
    /// allocations. Their cap is lower on the CPU, and on a GPU with less than one and a half times
    /// the cap free.
    pub fn for_device(info: &DeviceInfo) -> PoolBenchConfig {
        let (allocations, cap) = if info.backend == Backend::Cuda { (ALLOCATIONS, CAP) } else { ON_CPU };
        // Pools round sizes up.
        let max = info.memory_free / 3 * 2 / MIB * MIB;
        PoolBenchConfig {
            pools: POOLS.iter().collect(),
            only: None,
            rounds: 10,
            threads: 16,
            allocations,
            cap_bytes: cap.min(max).max(LARGEST),
            seed: 1,
        }
    }

    /// Rejects an impossible configuration.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](warpheap::Error::InvalidConfig) if the cap is less than a single
    /// allocation, and for more host threads or allocations than there can be.
    pub fn check(&self) -> warpheap::Result<()> {
        let invalid = |setting, given, why| Err(InvalidConfig::Pool { setting, given, why }.into());
        if self.cap_bytes < LARGEST {
            let why = format!("a single random allocation may have {}", Bytes(LARGEST));
            return invalid("cap", Bytes(self.cap_bytes).to_string(), why);
        }
        if self.allocations > MAX_ALLOCATIONS {
            let why = format!("it must be at most {MAX_ALLOCATIONS}");
            return invalid("allocations", self.allocations.to_string(), why);
        }
        threads::check(self.threads as usize)
    }

    /// Whether the figure of this name is selected.
    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }
}

/// Names of all figures.
pub fn names() -> impl Iterator<Item = String> {
    let pairs = [results::ONE_SIZE, results::MIXED_SIZES].into_iter().map(String::from);
    pairs.chain(random::MAX_BYTES.into_iter().map(random::name))
}

/// Measures the figures. `progress` is called with each figure and pool before it is measured.
///
/// # Errors
/// Those of [`PoolBenchConfig::check`], and errors that make the device unusable. Errors of a pool
/// are in the report.
pub fn run(
    device: &Device,
    config: &PoolBenchConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<PoolBenchReport> {
    config.check()?;
    let mut report = PoolBenchReport {
        rounds: config.rounds.max(1),
        cap_bytes: config.cap_bytes,
        seed: config.seed,
        has_bars: device.backend() == Backend::Cuda,
        ..PoolBenchReport::default()
    };
    let mut run = Run::new(progress, Duration::MAX, |error| !error.is_fatal());
    let (pools, others): (Vec<&PoolKind>, Vec<&PoolKind>) = config.pools.iter().partition(|kind| kind.reuses);
    run.left_out
        .extend(others.iter().map(|kind| format!("pool {}: it does not reuse freed blocks", kind.name)));
    for (name, layouts) in pairs::sizes(config.seed) {
        let mut counts = vec![1, config.threads.max(1)];
        counts.dedup();
        for threads in counts.into_iter().filter(|_| config.wants(name)) {
            for kind in &pools {
                let what = format!("{name}, {threads} host threads, pool {}", kind.name);
                let pair = || pairs::pair(device, report.rounds, name, kind, &layouts, threads);
                let figure = run.measure(&what, pair)?;
                report.pairs.extend(figure);
            }
        }
    }
    for max_bytes in random::MAX_BYTES {
        let name = random::name(max_bytes);
        if !config.wants(&name) {
            continue;
        }
        let script = random::draw(config.allocations, max_bytes, config.cap_bytes, config.seed);
        for kind in &pools {
            let what = format!("{name}, pool {}", kind.name);
            let random = || random::random(device, &name, kind, &script, max_bytes);
            report.random.extend(run.measure(&what, random)?);
        }
    }
    (report.left_out, report.wrong) = (run.left_out, run.wrong);
    results::judge(&mut report);
    Ok(report)
}
