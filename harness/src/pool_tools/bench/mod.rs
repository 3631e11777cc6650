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
//! `pairs` and `random` measure, `report` judges.

mod comparison;
mod config;
mod pairs;
mod random;
mod report;
#[cfg(test)]
mod tests;

pub use comparison::{Comparison, Judged};
pub use config::{ALLOCATIONS, CAP, PoolBenchConfig};
pub use pairs::PairFigure;
pub use random::RandomFigure;
pub use report::PoolBenchReport;

use crate::{Error, Result};
use warpheap::driver::{Backend, Device};
use warpheap::host_pools::replay::PoolKind;

/// Names of all figures.
pub fn names() -> impl Iterator<Item = String> {
    let pairs = [pairs::ONE_SIZE, pairs::MIXED_SIZES].into_iter().map(String::from);
    pairs.chain(random::MAX_BYTES.into_iter().map(random::name))
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
        let why = format!("pool {}: it does not reuse freed blocks", kind.name);
        bench.report.left_out.push(why);
    }
    bench.pairs()?;
    bench.random()?;
    let mut report = bench.report;
    report::judge(&mut report);
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

    fn pairs(&mut self) -> Result<()> {
        for (name, layouts) in pairs::sizes(self.config.seed) {
            let mut counts = vec![1, self.config.threads.max(1)];
            counts.dedup();
            for threads in counts.into_iter().filter(|_| self.config.wants(name)) {
                for kind in self.pools() {
                    let (device, config) = (self.device, self.config);
                    let measure = || pairs::pair(device, config, name, kind, &layouts, threads);
                    let figure = self.keep(&format!("{name}, {threads} host threads"), kind, measure)?;
                    self.report.pairs.extend(figure);
                }
            }
        }
        Ok(())
    }

    fn random(&mut self) -> Result<()> {
        let PoolBenchConfig { allocations, cap_bytes, seed, .. } = *self.config;
        for max_bytes in random::MAX_BYTES {
            let name = random::name(max_bytes);
            if !self.config.wants(&name) {
                continue;
            }
            let script = random::draw(allocations, max_bytes, cap_bytes, seed);
            for kind in self.pools() {
                let device = self.device;
                let measure = || random::random(device, &name, kind, &script, max_bytes);
                let figure = self.keep(&name, kind, measure)?;
                self.report.random.extend(figure);
            }
        }
        Ok(())
    }

    /// Keeps a figure, or why there is none. Fails if the device is unusable.
    fn keep<T>(
        &mut self,
        name: &str,
        pool: &PoolKind,
        measure: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        let name = format!("{name}, pool {}", pool.name);
        (self.progress)(&name);
        match measure() {
            Ok(figure) => return Ok(Some(figure)),
            Err(error) if error.is_fatal() => return Err(error),
            Err(error @ Error::WrongResult { .. }) => self.report.wrong.push(error.to_string()),
            Err(error) => self.report.left_out.push(format!("{name}: {error}")),
        }
        Ok(None)
    }
}
