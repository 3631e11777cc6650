//! A run, round by round.
//!
//! | round | a free list | an arena |
//! |---|---|---|
//! | most | churn | churn, fill until it is empty, count, give back, reset |
//! | every eighth | fill until it is empty, count | the same |
//! | the last | also: give everything back, empty the pool to its last block, give that back | the same |
//!
//! A heap goes the way of a free list; before its first round it is emptied once, to be held to that at the end.
//!
//! In each round stream `s` works on set `(s + round) mod streams` of the records, so that blocks pass from
//! stream to stream at the end of every round, when all streams have been waited for.

use super::census::Census;
use super::config::{Limit, Plant, StressConfig};
use super::plan::{BLOCK_THREADS, Plan};
use super::plant;
use super::report::{Progress, StressReport};
use super::subject::Subject;
use super::tables::Tables;
use crate::driver::{Device, LaunchConfig, Module, Stream};
use crate::error::Result;
use std::time::Instant;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::hash::{absorb, below};
use warpheap_device::check::workload::{Phase, Round};

/// Rounds from one exhaustion of a free list to the next.
const CYCLE: u64 = 8;
/// The round of a cycle after which all blocks are compared although the pool is not exhausted.
const MIDDLE: u64 = 3;

/// The round into which a fault is planted, if there are as many.
const PLANT_ROUND: u64 = 2;

pub(super) struct Run<'a, S> {
    pub(super) device: &'a Device,
    pub(super) module: &'a Module,
    pub(super) plan: Plan,
    pub(super) limit: Limit,
    pub(super) subject: S,
    pub(super) tables: Tables,
    pub(super) census: Census,
    pub(super) streams: Vec<Stream>,
    /// Streams take turns, so that a run comes back the same.
    pub(super) replays: bool,
    pub(super) report: StressReport,
    pub(super) started: Instant,
    pub(super) round: u64,
    pub(super) launches: u32,
}

impl<'a, S: Subject> Run<'a, S> {
    pub fn new(device: &'a Device, module: &'a Module, config: &StressConfig, plan: Plan) -> Result<Self> {
        let started = Instant::now();
        let subject = S::new(device, &plan)?;
        let start = subject.start();
        Ok(Run {
            device,
            module,
            limit: config.limit,
            tables: Tables::new(device, &plan, start)?,
            census: Census::new(device, &plan, start, plan.records() as usize)?,
            streams: (0..plan.streams).map(|_| device.stream()).collect::<Result<_>>()?,
            replays: device.info()?.replays,
            report: StressReport::new(config, &plan),
            subject,
            plan,
            started,
            round: 0,
            launches: 0,
        })
    }

    pub fn run(mut self, progress: &mut dyn FnMut(&Progress)) -> Result<StressReport> {
        if S::MEASURED {
            self.measure()?;
        }
        while self.report.is_clean() && !self.is_over() {
            self.one_round()?;
            self.round += 1;
            self.report.rounds = self.round;
            progress(&self.progress());
        }
        if self.report.is_clean() {
            self.round = self.round.saturating_sub(1);
            self.end()?;
        }
        self.report.finish(self.started.elapsed());
        Ok(self.report)
    }

    fn progress(&self) -> Progress {
        let rounds = match self.limit {
            Limit::Rounds(rounds) => Some(rounds),
            Limit::Time(_) => None,
        };
        let (elapsed, allocations) = (self.started.elapsed(), self.report.allocations);
        Progress { round: self.round, rounds, elapsed, allocations }
    }

    /// A fault that was injected shows in its round, or when everything is given back after it.
    fn is_over(&self) -> bool {
        if self.plan.plant.is_some() {
            return self.round > self.plant_round();
        }
        match self.limit {
            Limit::Rounds(rounds) => self.round >= rounds,
            Limit::Time(time) => self.round > 0 && self.started.elapsed() >= time,
        }
    }

    fn plant_round(&self) -> u64 {
        match self.limit {
            Limit::Rounds(rounds) => PLANT_ROUND.min(rounds.saturating_sub(1)),
            Limit::Time(_) => PLANT_ROUND,
        }
    }

    fn one_round(&mut self) -> Result<()> {
        let planted = self.plan.plant.filter(|_| self.round == self.plant_round());
        let exhausts = !S::Handle::RECLAIMS || self.round % CYCLE == CYCLE - 1;
        if !S::Handle::RECLAIMS || !exhausts || planted.is_some() {
            self.phase(Phase::Churn)?;
        }
        if let Some(plant) = planted {
            let stream = &self.streams[0];
            plant::inject(plant, &self.subject, &self.tables, &self.plan, self.module, stream)?;
            if plant == Plant::TornWrite {
                self.phase(Phase::Verify)?;
            }
        }
        if exhausts || planted == Some(Plant::Overlap) {
            self.phase(Phase::Fill)?;
            self.check_exhaustion()?;
        }
        self.check_online()?;
        if exhausts || planted.is_some() || self.round % CYCLE == MIDDLE {
            self.check_all(planted.is_some())?;
        }
        if !S::Handle::RECLAIMS && self.report.is_clean() {
            self.phase(Phase::Drain)?;
            self.check_online()?;
            self.subject.reset()?;
        }
        Ok(())
    }

    /// One launch in every stream, all at once, and waits for them.
    pub(super) fn phase(&mut self, phase: Phase) -> Result<()> {
        let started = Instant::now();
        let grid = LaunchConfig::linear(self.plan.threads, BLOCK_THREADS);
        for (s, stream) in (0..).zip(&self.streams) {
            let streams = u64::from(self.plan.streams);
            let set = ((u64::from(s as u32) + self.round) % streams) as u32;
            let (records, first_record) = self.tables.set(&self.plan, set);
            let round = self.parameters(phase, first_record);
            let args =
                (self.subject.handle(), records, self.tables.map.handle(), self.tables.stripes(), round);
            // SAFETY: each stream has a set of records of its own; pool, map and stripes are shared by
            // atomics alone, and all of them live until the streams have been waited for.
            unsafe { stream.launch(self.module, S::STRESS, &grid, args) }?;
            if self.replays {
                stream.synchronize()?;
            }
        }
        self.launches += 1;
        for stream in &self.streams {
            stream.synchronize()?;
        }
        self.report.kernel_seconds += started.elapsed().as_secs_f64();
        let counts = self.tables.counts()?;
        self.report.count(counts);
        Ok(())
    }

    /// Which thread works on which column changes from launch to launch: the same as before, neighbours
    /// moved by a whole warp, or all of them scattered. In three of four the lanes of a warp act alike.
    fn parameters(&self, phase: Phase, first_record: u32) -> Round {
        let Plan { threads, seed, steps, min_bytes, max_bytes, max_align_log2, .. } = self.plan;
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
            reserved: 0,
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
