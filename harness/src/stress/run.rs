//! A run, round by round.
//!
//! | round | a free list | an arena |
//! |---|---|---|
//! | most | churn | churn, fill until it is empty, count, give back, reset |
//! | every eighth | fill until it is empty, count | the same |
//! | the last | also: give everything back, empty the pool to its last block, give that back | the same |
//!
//! That is a churn; an exchange and a pipeline let blocks change hands instead. In a storm every second round fills
//! the pool, and the ones between give everything back and empty it to its last block.
//!
//! A heap goes the way of a free list; before its first round it is emptied once, to be held to that at the end.
//!
//! In each round stream `s` works on set `(s + round) mod streams` of the records, so that blocks pass from
//! stream to stream at the end of every round, when all streams have been waited for.

use super::census::Census;
use super::config::{Limit, Plant, StressConfig};
use super::plan::Plan;
use super::plant;
use super::report::{Progress, StressReport};
use super::subject::Subject;
use super::tables::Tables;
use super::workload::Workload;
use crate::Result;
use std::ops::Deref;
use std::time::Instant;
use warpheap::driver::{Device, Module, Stream};
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::workload::Phase;

/// Rounds from one exhaustion of a free list to the next.
const CYCLE: u64 = 8;
/// The round of a cycle after which all blocks are compared although the pool is not exhausted.
const MIDDLE: u64 = 3;

/// The round into which a fault is planted, if there are as many.
const PLANT_ROUND: u64 = 2;

/// Streams that are waited for before what their kernels use is dropped: also where a run ends
/// early, by an error or a panic, after some kernels were launched.
pub(super) struct Streams(pub(super) Vec<Stream>);

impl Deref for Streams {
    type Target = [Stream];
    fn deref(&self) -> &[Stream] {
        &self.0
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for stream in &self.0 {
            // After a kernel failed, no kernel of the device runs on.
            if let Err(error) = stream.synchronize() {
                tracing::warn!(%error, "a stream of the stress could not be waited for");
            }
        }
    }
}

pub(super) struct Run<'a, S> {
    /// The first field: dropped before the pool and the tables, which kernels use.
    pub(super) streams: Streams,
    pub(super) device: &'a Device,
    pub(super) module: &'a Module,
    pub(super) plan: Plan,
    pub(super) limit: Limit,
    pub(super) subject: S,
    pub(super) tables: Tables,
    pub(super) census: Census,
    /// Streams take turns, so that a run comes back the same.
    pub(super) replays: bool,
    pub(super) report: StressReport,
    pub(super) started: Instant,
    pub(super) round: u64,
    pub(super) launches: u32,
}

impl<'a, S: Subject> Run<'a, S> {
    /// `module` is one of [`Subject::module`].
    pub fn new(device: &'a Device, module: &'a Module, config: &StressConfig, plan: Plan) -> Result<Self> {
        let started = Instant::now();
        let subject = S::new(device, &plan)?;
        let start = subject.start();
        Ok(Run {
            device,
            module,
            limit: config.limit,
            tables: Tables::new(device, &plan, start)?,
            census: Census::new(
                device,
                &plan,
                start,
                plan.records().max(subject.most_blocks(&plan)) as usize,
            )?,
            streams: Streams((0..plan.streams).map(|_| device.stream()).collect::<warpheap::Result<_>>()?),
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
        let StressReport { allocations, frees: pairs, .. } = self.report;
        Progress { round: self.round, elapsed: self.started.elapsed(), allocations, pairs }
    }

    /// A fault that was injected shows in its round, or when everything is given back after it.
    fn is_over(&self) -> bool {
        if self.plan.plant.is_some() {
            return self.round > self.plant_round();
        }
        match self.limit {
            Limit::Rounds(rounds) => self.round >= rounds,
            Limit::Time(time) => self.round > 0 && self.started.elapsed() >= time,
            Limit::Pairs(pairs) => self.report.frees >= pairs,
        }
    }

    fn plant_round(&self) -> u64 {
        match self.limit {
            Limit::Rounds(rounds) => PLANT_ROUND.min(rounds.saturating_sub(1)),
            Limit::Time(_) | Limit::Pairs(_) => PLANT_ROUND,
        }
    }

    fn one_round(&mut self) -> Result<()> {
        let planted = self.plan.plant.filter(|_| self.round == self.plant_round());
        let exhausts = !S::Handle::RECLAIMS || self.round % CYCLE == CYCLE - 1;
        if self.plan.workload == Workload::Storm && planted.is_none() {
            return self.storm();
        }
        if !S::Handle::RECLAIMS || !exhausts || planted.is_some() {
            self.work()?;
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

    /// What the workload is made of.
    fn work(&mut self) -> Result<()> {
        match self.plan.workload {
            Workload::Churn | Workload::Storm => self.phase(Phase::Churn),
            Workload::Exchange => self.hand_over(|_| Phase::Exchange),
            Workload::Pipeline => {
                self.hand_over(|stream| if stream % 2 == 0 { Phase::Produce } else { Phase::Consume })
            }
        }
    }

    /// In one round everyone allocates until it is refused; in the next, on another stream, it gives everything back,
    /// and the pool is taken to its last block.
    fn storm(&mut self) -> Result<()> {
        if self.round.is_multiple_of(2) {
            self.phase(Phase::Fill)?;
            self.check_exhaustion()?;
            self.check_online()?;
            return self.check_all(false);
        }
        self.phase(Phase::Drain)?;
        self.check_online()?;
        self.check_recovery()
    }
}
