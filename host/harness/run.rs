//! A run, round by round.
//!
//! | round | a free list | an arena |
//! |---|---|---|
//! | most | churn | churn, fill until it is empty, count, give back, reset |
//! | every eighth | fill until it is empty, count | the same |
//! | the last | also: give everything back, empty the pool to its last block, give that back | the same |
//!
//! In each round stream `s` works on set `(s + round) mod streams` of the records, so that blocks pass from
//! stream to stream at the end of every round, when all streams have been waited for.

use super::census::{self, Census, Verdict};
use super::config::{Limit, Plant, StressConfig};
use super::finding::{FindingKind, Narrator, Table};
use super::plan::{BLOCK_THREADS, Plan};
use super::plant;
use super::report::{Progress, StressReport};
use super::subject::Subject;
use super::tables::Tables;
use crate::driver::{Device, DeviceBuffer, LaunchConfig, Module, Stream};
use crate::error::Result;
use std::time::Instant;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::hash::{absorb, below};
use warpheap_device::check::log::LogView;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::{Phase, Round};

/// Rounds from one exhaustion of a free list to the next.
const CYCLE: u64 = 8;
/// The round of a cycle after which all blocks are compared although the pool is not exhausted.
const MIDDLE: u64 = 3;

/// The round into which a fault is planted, if there are as many.
const PLANT_ROUND: u64 = 2;

/// The host compares all blocks while that takes less than this part of the time.
const HOST_CHECK_SHARE: f64 = 0.25;

pub(super) struct Run<'a, S> {
    device: &'a Device,
    module: &'a Module,
    plan: Plan,
    limit: Limit,
    subject: S,
    tables: Tables,
    census: Census,
    streams: Vec<Stream>,
    /// Streams take turns, so that a run comes back the same.
    replays: bool,
    report: StressReport,
    started: Instant,
    round: u64,
    launches: u32,
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

    fn is_over(&self) -> bool {
        let planted = self.plan.plant.is_none() || self.round > self.plant_round();
        match self.limit {
            Limit::Rounds(rounds) => self.round >= rounds,
            Limit::Time(time) => planted && self.round > 0 && self.started.elapsed() >= time,
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
    fn phase(&mut self, phase: Phase) -> Result<()> {
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

    fn narrator<'b>(&'b self, records: &'b [Record]) -> Narrator<'b> {
        Narrator {
            plan: &self.plan,
            round: self.round,
            pool_start: self.subject.start(),
            records,
            table: Table::Slots,
        }
    }

    /// What the threads themselves have found, and the allocator.
    fn check_online(&mut self) -> Result<()> {
        let words = self.tables.map.read_log()?;
        let log = LogView::new(&words).expect("the buffer is as long as a log");
        let records = if log.total() > 0 { self.tables.records.copy_to_vec()? } else { Vec::new() };
        let narrator = self.narrator(&records);
        let breaches: Vec<_> = log.breaches().map(|breach| narrator.breach(&breach)).collect();
        let (fault_count, faults) = self.subject.faults(&narrator)?;
        self.report.add(breaches, log.total());
        self.report.add(faults, fault_count);
        Ok(())
    }

    /// Compares all live blocks, on the device always, on the host when there is time or need.
    fn check_all(&mut self, needed: bool) -> Result<()> {
        let stream = &self.streams[0];
        let verdict = self.census.on_device(self.module, stream, &self.tables.records, &mut self.report)?;
        let live = self.report.live_blocks();
        let agrees = verdict.is_clean() && verdict.checked == live && self.subject.agrees(live)?;
        let spent = self.report.host_check_seconds;
        let has_time = spent <= HOST_CHECK_SHARE * self.started.elapsed().as_secs_f64();
        if !(needed || has_time || !agrees) {
            return Ok(());
        }
        let started = Instant::now();
        let records = self.tables.records.copy_to_vec()?;
        self.report.host_check_seconds += started.elapsed().as_secs_f64();
        self.compare_all(verdict, &records, Table::Slots)
    }

    /// The host's comparison, and the allocator's own numbers.
    fn compare_all(&mut self, verdict: Verdict, records: &[Record], table: Table) -> Result<()> {
        let (plan, round, pool_start) = (&self.plan, self.round, self.subject.start());
        let narrator = Narrator { plan, round, pool_start, records, table };
        let sorted = census::on_host(plan, &narrator, &mut self.report);
        census::compare(verdict, &sorted, &narrator, &mut self.report);
        let account = self.subject.account(plan, &narrator)?;
        let lost = account.lost_blocks;
        self.report.lost_blocks += lost;
        self.report.wasted_bytes = self.report.wasted_bytes.max(account.wasted_bytes);
        self.report.add(account.findings, 0);
        Ok(())
    }

    /// After all threads were refused, nothing may be left.
    fn check_exhaustion(&mut self) -> Result<()> {
        let (live, most) = (self.report.live_blocks(), self.plan.records());
        self.expect_exhausted(live, most)
    }

    fn expect_exhausted(&mut self, live: u64, most: u64) -> Result<()> {
        if self.subject.is_exhausted(&self.plan, live, most)? {
            self.report.exhaustions += u64::from(live < most);
            return Ok(());
        }
        let message = format!(
            "after every thread was refused, {live} blocks are live, of a pool of {}",
            self.subject.most_blocks(&self.plan)
        );
        let finding = self.narrator(&[]).finding(FindingKind::CountMismatch, None, message);
        self.report.add(vec![finding], 1);
        Ok(())
    }

    /// Gives everything back, then takes and gives back the whole pool.
    fn end(&mut self) -> Result<()> {
        if S::Handle::RECLAIMS {
            self.phase(Phase::Drain)?;
            self.check_online()?;
            self.check_all(true)?;
        }
        if self.report.is_clean() { self.empty_the_pool() } else { Ok(()) }
    }

    /// All threads allocate until they are refused: exactly what there is must be granted.
    fn empty_the_pool(&mut self) -> Result<()> {
        let most = self.subject.most_blocks(&self.plan);
        let out: DeviceBuffer<Record> = self.device.zeroed(most as usize)?;
        let count: DeviceBuffer<u64> = self.device.zeroed(1)?;
        let stream = self.streams[0].clone();
        let grid = LaunchConfig::linear(self.plan.threads, BLOCK_THREADS);
        let args = (self.subject.handle(), self.plan.max_bytes, 1, out.slice(), count.ptr());
        // SAFETY: nothing else uses the pool and the two buffers, which live until the stream is waited for.
        unsafe { stream.launch(self.module, S::GRAB, &grid, args) }?;
        stream.synchronize()?;
        let granted = count.copy_to_vec()?[0];
        self.expect_exhausted(granted, u64::MAX)?;
        let census = Census::new(self.device, &self.plan, self.subject.start(), out.len())?;
        let verdict = census.on_device(self.module, &stream, &out, &mut self.report)?;
        self.compare_all(verdict, &out.copy_to_vec()?, Table::Grabbed)?;
        if S::Handle::RECLAIMS && self.report.is_clean() {
            self.subject.give_back(self.module, &stream, out.slice(), granted)?;
            let verdict = census.on_device(self.module, &stream, &out, &mut self.report)?;
            self.compare_all(verdict, &out.copy_to_vec()?, Table::Grabbed)?;
        }
        Ok(())
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
