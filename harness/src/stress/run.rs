//! The rounds of a run.
//!
//! | round | a free list | an arena |
//! |---|---|---|
//! | most | churn | churn, fill until exhausted, check the counts, free all blocks, reset |
//! | every eighth | fill until exhausted, check the counts | as in the other rounds |
//! | after the last | free all blocks, exhaust the pool, free all blocks | exhaust the arena |
//!
//! The table shows the churn workload. In the exchange and pipeline workloads, threads exchange
//! blocks instead. In a storm, every second round fills the pool; the rounds between free
//! all blocks, then exhaust the pool and free it again.
//!
//! A heap runs the rounds of a free list. Before its first round it is exhausted once. The number
//! of blocks that it then allocates is the reference for the later exhaustions.
//!
//! In each round stream `s` works on record set `(s + round) mod streams`. Blocks thus move to
//! another stream at the end of every round, after all streams have been synchronised.

use super::compare::DeviceCheck;
use super::config::{Limit, StressConfig};
use super::delays::RunDelays;
use super::inject::inject;
use super::kinds::{AllocatorKind, Plant, Workload};
use super::plan::{Plan, Support};
use super::report::{Progress, StressReport};
use super::subject::Subject;
use super::subjects::{BumpSubject, FreeListSubject, HeapSubject};
use super::tables::Tables;
use super::{compare, inject};
use crate::{Error, OwnModule, Result};
use std::ops::Deref;
use std::time::Instant;
use warpheap::driver::{Device, Module, Stream};
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::workload::Phase;

/// Rounds from one exhaustion of a free list to the next.
const CYCLE: u64 = 8;
/// The round of a cycle after which all blocks are compared although the pool is not exhausted.
const MIDDLE: u64 = 3;

/// The round in which a fault is planted, or the last round of a shorter run.
const PLANT_ROUND: u64 = 2;

/// Streams. Drop waits for their kernels before the memory that the kernels use is dropped. This
/// also holds if a run ends early, with an error or a panic, after some kernels were launched.
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
            // If a kernel has failed, no kernel of the device is still running.
            if let Err(error) = stream.synchronize() {
                tracing::warn!(%error, "a stream of the stress could not be waited for");
            }
        }
    }
}

pub(super) struct Run<'a, S> {
    /// Must be the first field: dropped before the pool and the tables, which kernels use.
    pub(super) streams: Streams,
    delays: Option<RunDelays>,
    pub(super) device: &'a Device,
    pub(super) module: &'a Module,
    pub(super) plan: Plan,
    pub(super) limit: Limit,
    maps: bool,
    pub(super) subject: S,
    pub(super) tables: Tables,
    pub(super) device_check: DeviceCheck,
    /// Streams run one at a time, so that a run is reproducible.
    pub(super) replays: bool,
    pub(super) report: StressReport,
    pub(super) started: Instant,
    pub(super) round: u64,
    pub(super) launches: u32,
}

impl<'a, S: Subject> Run<'a, S> {
    /// `module` is a module as [`Subject::module`] returns it.
    pub fn new(device: &'a Device, module: &'a Module, config: &StressConfig, plan: Plan) -> Result<Self> {
        let started = Instant::now();
        let subject = S::new(device, &plan)?;
        let start = subject.start();
        let delays = plan.delays.as_ref().map(|delays| RunDelays::start(module, plan.seed, delays));
        Ok(Run {
            delays: delays.transpose()?,
            device,
            module,
            limit: config.limit,
            maps: config.map,
            tables: Tables::new(device, &plan, start)?,
            device_check: DeviceCheck::new(
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
        if self.maps {
            let label = format!("stress, seed {}, after round {}", self.plan.seed, self.round);
            self.report.map = self.subject.map(label)?;
        }
        if self.report.is_clean() {
            self.round = self.round.saturating_sub(1);
            self.end()?;
        }
        match self.delays.as_ref().map(RunDelays::report).transpose() {
            Ok(delays) => self.report.delays = delays,
            // The findings are reported, without the counts.
            Err(error) if !self.report.is_clean() => {
                tracing::warn!(%error, "the number of delays is unknown");
            }
            Err(error) => return Err(error),
        }
        if self.report.is_clean() {
            self.report.contended_failures = self.subject.contended_failures()?;
        }
        self.report.finish(self.started.elapsed());
        Ok(self.report)
    }

    fn progress(&self) -> Progress {
        let StressReport { allocations, frees: pairs, .. } = self.report;
        Progress { round: self.round, elapsed: self.started.elapsed(), allocations, pairs }
    }

    /// An injected fault is found in its round, or after that round when all blocks are freed.
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
            inject(plant, &self.subject, &self.tables, &self.plan, self.module, stream)?;
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

    /// Runs the kernels of a round of the workload.
    fn work(&mut self) -> Result<()> {
        match self.plan.workload {
            Workload::Churn | Workload::Storm => self.phase(Phase::Churn),
            Workload::Exchange => self.exchange(|_| Phase::Exchange),
            Workload::Pipeline => {
                self.exchange(|stream| if stream % 2 == 0 { Phase::Produce } else { Phase::Consume })
            }
        }
    }

    /// In one round all threads allocate until allocation fails. In the next round, the blocks are
    /// freed on another stream, and the pool is exhausted and freed again.
    fn storm(&mut self) -> Result<()> {
        if self.round.is_multiple_of(2) {
            self.phase(Phase::Fill)?;
            self.check_exhaustion()?;
            self.check_online()?;
            return self.check_all(false);
        }
        self.phase(Phase::Drain)?;
        self.check_online()?;
        self.check_recovery(false)
    }
}

/// Runs the stress test that `config` describes and reports its findings. Calls `progress` after
/// each round.
///
/// `kernels` contains the kernels that [`StressConfig::kernels`] names. The run ends after the
/// first round with a finding.
///
/// # Errors
/// Those of [`StressConfig::validate`], and any error during the run. A kernel that crashes is an
/// error, not a finding.
pub fn stress(
    device: &Device,
    kernels: &OwnModule,
    config: &StressConfig,
    progress: &mut dyn FnMut(&Progress),
) -> Result<StressReport, Error> {
    match config.allocator {
        AllocatorKind::Bump => run::<BumpSubject>(device, kernels.module(), config, progress),
        AllocatorKind::FreeList => run::<FreeListSubject>(device, kernels.module(), config, progress),
        AllocatorKind::Heap => run::<HeapSubject>(device, kernels.module(), config, progress),
    }
}

/// Runs the stress test that `config` describes on the caller's allocator. Like [`stress`], but
/// ignores `config.allocator`.
///
/// [`Subject::module`] loads the kernels that [`kernels_of`](StressConfig::kernels_of) names.
///
/// # Errors
/// [`Error::InvalidStress`] if the configuration is invalid or the [`Subject`] does not support it,
/// and any error during the run. A kernel that crashes is an error, not a finding.
pub fn stress_allocator<S: Subject>(
    device: &Device,
    config: &StressConfig,
    progress: &mut dyn FnMut(&Progress),
) -> Result<StressReport, Error> {
    let plan = plan::<S>(config, device)?;
    let module = S::module(device, &config.kernels_of::<S>())?;
    Run::<S>::new(device, &module, config, plan)?.run(progress)
}

/// `module` is a module as [`Subject::module`] of `S` returns it.
fn run<S: Subject>(
    device: &Device,
    module: &Module,
    config: &StressConfig,
    progress: &mut dyn FnMut(&Progress),
) -> Result<StressReport, Error> {
    let plan = plan::<S>(config, device)?;
    Run::<S>::new(device, module, config, plan)?.run(progress)
}

fn plan<S: Subject>(config: &StressConfig, device: &Device) -> Result<Plan, Error> {
    let support = Support {
        name: S::NAME,
        reclaims: S::Handle::RECLAIMS,
        exchanges: S::KERNELS.exchange.is_some(),
        overlap: S::KERNELS.overlap.is_some(),
        free_twice: S::KERNELS.free_twice.is_some(),
        points: S::Handle::POINTS,
    };
    Plan::new(config, device, &support, S::shape)
}

impl StressConfig {
    /// The kernels that [`stress`] launches.
    pub fn kernels(&self) -> Vec<&'static str> {
        match self.allocator {
            AllocatorKind::Bump => self.kernels_of::<BumpSubject>(),
            AllocatorKind::FreeList => self.kernels_of::<FreeListSubject>(),
            AllocatorKind::Heap => self.kernels_of::<HeapSubject>(),
        }
    }

    /// The kernels that [`stress_allocator`] launches for `S`.
    pub fn kernels_of<S: Subject>(&self) -> Vec<&'static str> {
        let mut all = S::KERNELS.names(self.workload.exchanges(), self.plant.is_some());
        all.extend(compare::LAUNCHED);
        all.extend(inject::LAUNCHED.iter().filter(|_| self.plant.is_some()));
        all
    }

    /// Checks that the configuration can run on the device.
    ///
    /// # Errors
    /// [`Error::InvalidStress`], which says what to change, or an error of the driver.
    pub fn validate(&self, device: &Device) -> Result<(), Error> {
        match self.allocator {
            AllocatorKind::Bump => plan::<BumpSubject>(self, device),
            AllocatorKind::FreeList => plan::<FreeListSubject>(self, device),
            AllocatorKind::Heap => plan::<HeapSubject>(self, device),
        }
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise two rounds of 256 KiB in four streams take minutes.
    #[test]
    fn large_blocks_take_fewer_steps_on_the_cpu() {
        let device = Device::cpu();
        let steps = |bytes, threads| {
            let config = StressConfig::new().sizes(bytes..=bytes).threads(threads).streams(4);
            plan::<HeapSubject>(&config.pool_bytes(Some(64 << 20)), &device).unwrap().steps
        };
        let most = steps(64, 1024);
        assert_eq!(steps(512, 8192), most, "as many as without a limit");
        assert!(steps(1 << 18, 256) < most / 2 && steps(1 << 18, 256) > steps(1 << 18, 8192));
        let written = |threads: u32| u64::from(steps(1 << 18, threads) * threads) * (4 << 18);
        assert!(written(256) < 3 << 30, "{}", written(256));
    }
}
