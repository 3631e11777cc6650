//! Times kernels on a stream with events.

use crate::Result;
use crate::kernels::bench::bench_spin;
use crate::summary::Timing;
use std::time::{Duration, Instant};
use warpheap::driver::{Device, LaunchConfig, Module, Stream};
use warpheap::kernel_names;

/// Kernels that every timing launches.
pub(super) const LAUNCHED: [&str; 1] = kernel_names![bench_spin];

/// Threads in a block of the timed kernels.
pub(super) const BLOCK: u32 = 256;

/// Untimed rounds before the timed ones.
const WARM_UP: u32 = 3;
/// Timed rounds even if they take longer than their budget.
const LEAST_ROUNDS: usize = 2;
/// Duration of the spin kernel before each timed kernel.
const SPIN_NANOS: u64 = 40_000;

/// Times kernels on one stream of a device.
pub(super) struct Timer {
    pub device: Device,
    pub module: Module,
    pub stream: Stream,
    pub rounds: u32,
    /// Time for the rounds of one figure. When it is over, the warm-up ends after one round, and
    /// the timed rounds after [`LEAST_ROUNDS`].
    pub budget: Duration,
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
        prepare: impl FnMut() -> warpheap::Result<()>,
        timed: impl FnMut() -> warpheap::Result<()>,
        look: impl FnMut() -> Result<()>,
    ) -> Result<Timing> {
        Ok(Timing::of(self.times(prepare, timed, look)?))
    }

    /// The times of the rounds in microseconds, as [`time_and_look`](Self::time_and_look) measures
    /// them.
    pub fn times(
        &self,
        mut prepare: impl FnMut() -> warpheap::Result<()>,
        mut timed: impl FnMut() -> warpheap::Result<()>,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<Vec<f64>> {
        let (started, mut rounds) = (Instant::now(), Vec::new());
        for round in 0..self.launches() {
            let is_over = round > 0 && started.elapsed() > self.budget;
            if is_over && rounds.len() >= LEAST_ROUNDS {
                break;
            }
            prepare()?;
            let micros = self.once(&mut timed)?;
            look()?;
            if round >= WARM_UP || is_over {
                rounds.push(micros);
            }
        }
        Ok(rounds)
    }

    /// The time of the kernels that `timed` launches on the idle device, in microseconds.
    pub fn once(&self, timed: impl FnOnce() -> warpheap::Result<()>) -> Result<f64> {
        self.device.synchronize()?;
        // SAFETY: the kernel accesses no memory.
        unsafe {
            self.stream.launch(&self.module, bench_spin, &LaunchConfig::linear(1, 1), (SPIN_NANOS,))?;
        }
        let before = self.stream.record()?;
        timed()?;
        let after = self.stream.record()?;
        self.stream.synchronize()?;
        Ok(after.elapsed(&before)?.as_secs_f64() * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_ends_the_rounds() {
        let device = Device::cpu();
        let module = device.native_module().unwrap();
        let stream = device.stream().unwrap();
        let mut timer = Timer { device, module, stream, rounds: 9, budget: Duration::MAX };
        let launched = |timer: &Timer| {
            let mut launches = 0;
            let count = || {
                launches += 1;
                Ok(())
            };
            (timer.times(|| Ok(()), count, || Ok(())).unwrap().len(), launches)
        };
        assert_eq!(launched(&timer), (9, 12));
        timer.budget = Duration::ZERO;
        assert_eq!(launched(&timer), (LEAST_ROUNDS, 1 + LEAST_ROUNDS));
    }
}
