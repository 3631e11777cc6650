//! The launches of a run: one kernel in every stream, all concurrent.

use super::plan::{BLOCK_THREADS, Plan};
use super::run::Run;
use super::subject::Subject;
use crate::Result;
use std::time::Instant;
use warpheap::driver::{LaunchConfig, Stream};
use warpheap_device::check::hash::{absorb, below};
use warpheap_device::check::workload::{Phase, Round};

impl<S: Subject> Run<'_, S> {
    /// Launches one kernel in every stream concurrently, and waits for all of them.
    pub(super) fn phase(&mut self, phase: Phase) -> Result<()> {
        self.launch_all(|run, s, stream| run.launch_own(s, stream, phase))
    }

    /// Like [`phase`](Self::phase), with kernels that exchange blocks. The stream
    /// determines the phase of its kernel.
    pub(super) fn exchange(&mut self, phase: impl Fn(u32) -> Phase) -> Result<()> {
        self.tables.clear_cells(&self.streams[0])?;
        self.launch_all(|run, s, stream| run.launch_shared(s, stream, phase(s)))
    }

    fn launch_all(&mut self, launch: impl Fn(&Self, u32, &Stream) -> Result<()>) -> Result<()> {
        let started = Instant::now();
        for (s, stream) in (0..).zip(self.streams.iter()) {
            launch(self, s, stream)?;
            if self.replays {
                stream.synchronize()?;
            }
        }
        self.launches += 1;
        for stream in self.streams.iter() {
            stream.synchronize()?;
        }
        self.report.kernel_seconds += started.elapsed().as_secs_f64();
        let counts = self.tables.counts()?;
        self.report.count(counts);
        Ok(())
    }

    fn grid(&self) -> LaunchConfig {
        LaunchConfig::linear(self.plan.threads, BLOCK_THREADS)
    }

    /// The record set that a stream uses in this round.
    fn set_of(&self, s: u32) -> u32 {
        ((u64::from(s) + self.round) % u64::from(self.plan.streams)) as u32
    }

    /// Launches a kernel that uses the records of one set.
    fn launch_own(&self, s: u32, stream: &Stream, phase: Phase) -> Result<()> {
        let (records, first_record) = self.tables.set(&self.plan, self.set_of(s));
        let round = self.parameters(phase, first_record);
        let args = (self.subject.handle(), records, self.tables.map.handle(), self.tables.stripes(), round);
        // SAFETY: each stream uses its own record set. Pool, map and stripes are accessed only by
        // atomics. All of them live until the streams have been waited for. The kernel requires no
        // more (S2).
        Ok(unsafe { S::KERNELS.stress.launch(stream, self.module, &self.grid(), args) }?)
    }

    /// Launches a kernel that starts with the records of one set and exchanges records with the
    /// other kernels.
    fn launch_shared(&self, s: u32, stream: &Stream, phase: Phase) -> Result<()> {
        let (_, first_record) = self.tables.set(&self.plan, self.set_of(s));
        let round = self.parameters(phase, first_record);
        let (records, map) = (self.tables.records.slice(), self.tables.map.handle());
        let args = (self.subject.handle(), records, map, self.tables.stripes(), self.tables.cells(), round);
        // `Plan::new` fails without the kernel.
        let Some(exchange) = S::KERNELS.exchange else { return Ok(()) };
        // SAFETY: the threads exchange records through the cells, which are 0. All other memory is
        // accessed only by atomics. All of it lives until the streams have been waited for. The
        // kernel requires no more (S2).
        Ok(unsafe { exchange.launch(stream, self.module, &self.grid(), args) }?)
    }

    /// The parameters of a launch. The mapping of threads to columns changes from launch to launch:
    /// the identity, a shift by full warps, or a scattered permutation. In three of four launches,
    /// the lanes of a warp act alike.
    fn parameters(&self, phase: Phase, first_record: u32) -> Round {
        let Plan { threads, seed, steps, min_bytes, max_bytes, max_align_log2, mix, .. } = self.plan;
        let hash = absorb(seed, u64::from(self.launches));
        let (multiplier, offset) = match self.launches % 3 {
            0 => (1, 0),
            1 => (1, below(hash, threads / 32) * 32),
            _ => (coprime(threads, hash), below(absorb(hash, 1), threads)),
        };
        Round {
            seed,
            phase: phase as u32,
            number: self.launches,
            first_record,
            threads,
            multiplier,
            offset,
            steps,
            min_bytes,
            max_bytes,
            max_align_log2,
            together: u32::from(!self.launches.is_multiple_of(4)),
            mix: mix.on_device() as u32,
        }
    }
}

/// A number below `n` that is coprime to `n`, a multiple of 256.
fn coprime(n: u32, hash: u64) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // At least every second odd number is a candidate; 1 always is.
    let start = below(hash, n) | 1;
    (0..n / 2).map(|i| (start + 2 * i) % n).find(|m| gcd(*m, n) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::coprime;

    #[test]
    fn a_coprime_multiplier_makes_a_permutation() {
        for n in [256u32, 768, 256 * 35] {
            for hash in [0, u64::MAX, 1 << 63, 0x1234_5678_9abc_def0] {
                let m = u64::from(coprime(n, hash));
                let mut seen = vec![false; n as usize];
                (0..u64::from(n)).for_each(|t| seen[((t * m + 5) % u64::from(n)) as usize] = true);
                assert!(seen.into_iter().all(|hit| hit), "{n} {m}");
            }
        }
    }
}
