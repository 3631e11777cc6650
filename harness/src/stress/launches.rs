//! The launches of a run: a kernel in every stream, all at once.

use super::plan::{BLOCK_THREADS, Plan};
use super::run::Run;
use super::subject::Subject;
use crate::Result;
use std::time::Instant;
use warpheap::driver::{LaunchConfig, Stream};
use warpheap_device::check::hash::{absorb, below};
use warpheap_device::check::workload::{Phase, Round};

impl<S: Subject> Run<'_, S> {
    /// One launch in every stream, all at once, and waits for them.
    pub(super) fn phase(&mut self, phase: Phase) -> Result<()> {
        self.launch_all(|run, s, stream| run.launch_own(s, stream, phase))
    }

    /// The same, with kernels that hand blocks to each other; what each does depends on its stream.
    pub(super) fn hand_over(&mut self, phase: impl Fn(u32) -> Phase) -> Result<()> {
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

    /// The set of records that a stream works on in this round.
    fn set_of(&self, s: u32) -> u32 {
        ((u64::from(s) + self.round) % u64::from(self.plan.streams)) as u32
    }

    /// A kernel whose threads use the records of one set.
    fn launch_own(&self, s: u32, stream: &Stream, phase: Phase) -> Result<()> {
        let (records, first_record) = self.tables.set(&self.plan, self.set_of(s));
        let round = self.parameters(phase, first_record);
        let args = (self.subject.handle(), records, self.tables.map.handle(), self.tables.stripes(), round);
        // SAFETY: each stream has a set of records of its own; pool, map and stripes are shared by atomics alone,
        // and all of them live until the streams have been waited for.
        unsafe { stream.launch(self.module, S::STRESS, &self.grid(), args) }?;
        Ok(())
    }

    /// A kernel whose threads begin with the records of one set, and exchange them with the other kernels'.
    fn launch_shared(&self, s: u32, stream: &Stream, phase: Phase) -> Result<()> {
        let (_, first_record) = self.tables.set(&self.plan, self.set_of(s));
        let round = self.parameters(phase, first_record);
        let (records, map) = (self.tables.records.slice(), self.tables.map.handle());
        let args = (self.subject.handle(), records, map, self.tables.stripes(), self.tables.cells(), round);
        // SAFETY: the threads pass the records on through the cells, which are clear; the rest is shared by atomics
        // alone, and all of it lives until the streams have been waited for.
        unsafe { self.subject.exchange(self.module, stream, &self.grid(), args) }
    }

    /// Which thread works on which column changes from launch to launch: the same as before, neighbours
    /// moved by a whole warp, or all of them scattered. In three of four the lanes of a warp act alike.
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

/// A number below `n` that shares no factor with it; `n` is a multiple of 256.
fn coprime(n: u32, hash: u64) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // Every second odd number is a candidate at least; 1 always is one.
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
