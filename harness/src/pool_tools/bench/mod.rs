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

mod bars;
mod pairs;
mod random;
#[cfg(test)]
mod tests;

pub use bars::Judged;
pub use pairs::PairFigure;
pub use random::RandomFigure;

use super::{POOLS, PoolKind};
use crate::{Error, Result};
use serde::Serialize;
use warpheap::Bytes;
use warpheap::driver::{Backend, Device, DeviceInfo};
use warpheap::error::InvalidConfig;

const MIB: u64 = 1 << 20;
/// Number of random allocations on a GPU, as in RMM's benchmark.
pub const ALLOCATIONS: u32 = 100_000;
/// Maximum live bytes of the random allocations, as in RMM's benchmark.
pub const CAP: u64 = 16_000 * MIB;
/// The same two on the CPU, where the driver's memory is the program's own heap, cleared at each
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
    /// Host threads of the multi-threaded pairs, at least 1.
    pub threads: u32,
    /// Number of random allocations, at least 1.
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
        let most = info.memory_free / 3 * 2 / MIB * MIB;
        PoolBenchConfig {
            pools: POOLS.iter().collect(),
            only: None,
            rounds: 10,
            threads: 16,
            allocations,
            cap_bytes: cap.min(most).max(random::MAX_BYTES[1]),
            seed: 1,
        }
    }

    /// Rejects an impossible configuration.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](warpheap::Error::InvalidConfig) if the cap is less than a single
    /// allocation.
    pub fn check(&self) -> warpheap::Result<()> {
        let most = random::MAX_BYTES[1];
        if self.cap_bytes >= most {
            return Ok(());
        }
        Err(InvalidConfig::Pool {
            setting: "cap",
            given: Bytes(self.cap_bytes).to_string(),
            why: format!("a single one of the random allocations may have {}", Bytes(most)),
        }
        .into())
    }

    /// Whether the figure of this name is selected.
    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }
}

/// The measured figures.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct PoolBenchReport {
    /// Timed rounds of each pair.
    pub rounds: u32,
    /// Maximum live bytes of the random allocations.
    pub cap_bytes: u64,
    /// Determines all sizes.
    pub seed: u64,
    /// Whether the bars are judged: on a GPU only.
    pub has_bars: bool,
    /// In the order of measurement.
    pub pairs: Vec<PairFigure>,
    /// In the order of measurement.
    pub random: Vec<RandomFigure>,
    /// Figures that a pool does not support, and why.
    pub left_out: Vec<String>,
    /// Faults of the pools.
    pub wrong: Vec<String>,
}

impl PoolBenchReport {
    /// Whether nothing was measured or left out, which means that no figure has the requested name.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.random.is_empty() && self.left_out.is_empty() && self.wrong.is_empty()
    }

    /// All judged bars: the pool's name, whether the bar applies to it, and the result.
    pub fn judged(&self) -> impl Iterator<Item = (&'static str, bool, &Judged)> {
        let pairs = self.pairs.iter().map(|figure| (figure.pool, figure.has_bars, &figure.bars));
        let random = self.random.iter().map(|figure| (figure.pool, figure.has_bars, &figure.bars));
        pairs.chain(random).flat_map(|(pool, counts, bars)| bars.iter().map(move |bar| (pool, counts, bar)))
    }
}

/// Names of all figures.
pub fn names() -> impl Iterator<Item = String> {
    pairs::names().chain(random::names())
}

/// Measures the figures. `progress` is called with each figure and pool before it is measured.
///
/// # Errors
/// As for [`PoolBenchConfig::check`], and errors that make the device unusable. Errors of a pool
/// are in the report.
pub fn run(
    device: &Device,
    config: &PoolBenchConfig,
    progress: &mut dyn FnMut(&str),
) -> Result<PoolBenchReport> {
    config.check()?;
    let report = PoolBenchReport {
        rounds: config.rounds.max(1),
        cap_bytes: config.cap_bytes,
        seed: config.seed,
        has_bars: device.backend() == Backend::Cuda,
        ..PoolBenchReport::default()
    };
    let mut bench = Bench { device, config, report, progress };
    for kind in config.pools.iter().filter(|kind| !kind.reuses) {
        let why = format!("pool {}: it does not hand out again what was given back", kind.name);
        bench.report.left_out.push(why);
    }
    bench.pairs()?;
    bench.random()?;
    let mut report = bench.report;
    bars::judge(&mut report);
    Ok(report)
}

struct Bench<'a> {
    device: &'a Device,
    config: &'a PoolBenchConfig,
    report: PoolBenchReport,
    progress: &'a mut dyn FnMut(&str),
}

impl Bench<'_> {
    /// The pools that can be measured.
    fn pools(&self) -> impl Iterator<Item = &'static PoolKind> + use<> {
        self.config.pools.clone().into_iter().filter(|kind| kind.reuses)
    }

    fn begin(&mut self, name: &str, pool: &PoolKind) {
        (self.progress)(&format!("{name}, pool {}", pool.name));
    }

    /// Keeps a figure, or why there is none. Fails if the device is unusable.
    fn keep<T>(&mut self, name: &str, pool: &PoolKind, figure: Result<T>) -> Result<Option<T>> {
        match figure {
            Ok(figure) => Ok(Some(figure)),
            Err(error) if error.is_fatal() => Err(error),
            Err(error @ Error::WrongResult { .. }) => {
                self.report.wrong.push(error.to_string());
                Ok(None)
            }
            Err(error) => {
                self.report.left_out.push(format!("{name}, pool {}: {error}", pool.name));
                Ok(None)
            }
        }
    }
}
