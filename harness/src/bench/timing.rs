//! Times kernels on a stream with events.

use crate::Result;
use crate::kernels::bench::bench_spin;
use serde::Serialize;
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap::kernel_names;

/// Kernels that every timing launches.
pub(super) const LAUNCHED: [&str; 1] = kernel_names![bench_spin];

/// Threads in a block of the timed kernels.
pub(super) const BLOCK: u32 = 256;

/// Untimed rounds before the timed ones.
const WARM_UP: u32 = 3;
/// Duration of the spin kernel before each timed kernel.
const SPIN_NANOS: u64 = 40_000;

/// Times of the rounds, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// The median round.
    pub median_us: f64,
    /// The fastest round.
    pub min_us: f64,
    /// The slowest round.
    pub max_us: f64,
}

impl Timing {
    pub(super) fn of(mut rounds: Vec<f64>) -> Timing {
        rounds.sort_by(f64::total_cmp);
        let (low, high) = (rounds[(rounds.len() - 1) / 2], rounds[rounds.len() / 2]);
        Timing { median_us: (low + high) / 2.0, min_us: rounds[0], max_us: rounds[rounds.len() - 1] }
    }
}

/// Times kernels on one stream of a device.
pub(super) struct Timer {
    pub device: Device,
    pub module: Module,
    pub stream: Stream,
    pub rounds: u32,
}

impl Timer {
    /// Number of launches of a timed kernel, including the warm-up.
    pub fn launches(&self) -> u32 {
        WARM_UP + self.rounds.max(1)
    }

    /// Number of launches that are not counted.
    pub fn uncounted(&self) -> usize {
        WARM_UP as usize
    }

    /// Times the kernels that `timed` launches in every round, after an untimed `prepare`.
    pub fn time(
        &self,
        prepare: impl FnMut() -> warpheap::Result<()>,
        timed: impl FnMut() -> warpheap::Result<()>,
    ) -> Result<Timing> {
        self.time_and_look(prepare, timed, || Ok(()))
    }

    /// As [`time`](Self::time), with an untimed `look` at the results of every round.
    pub fn time_and_look(
        &self,
        mut prepare: impl FnMut() -> warpheap::Result<()>,
        mut timed: impl FnMut() -> warpheap::Result<()>,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<Timing> {
        let mut rounds = Vec::new();
        for round in 0..self.launches() {
            prepare()?;
            self.device.synchronize()?;
            // SAFETY: the kernel accesses no memory.
            unsafe {
                self.stream.launch(&self.module, bench_spin, &LaunchConfig::linear(1, 1), (SPIN_NANOS,))?;
            }
            let before = self.stream.record()?;
            timed()?;
            let after = self.stream.record()?;
            self.stream.synchronize()?;
            look()?;
            if round >= WARM_UP {
                rounds.push(after.elapsed(&before)?.as_secs_f64() * 1e6);
            }
        }
        Ok(Timing::of(rounds))
    }
}

#[cfg(test)]
mod tests {
    use super::Timing;

    #[test]
    fn the_median_is_the_middle() {
        let odd = Timing::of(vec![3.0, 1.0, 8.0]);
        assert_eq!((odd.median_us, odd.min_us, odd.max_us), (3.0, 1.0, 8.0));
        assert_eq!(Timing::of(vec![4.0, 1.0, 2.0, 8.0]).median_us, 3.0);
    }
}
