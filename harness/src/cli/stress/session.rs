//! From arguments to runs and their results: all defaults, and the command that repeats a run.

use super::super::args::{BackendChoice, StressArgs};
use super::super::backend::{Chosen, choose};
use super::super::parse::Sizes;
use super::super::status::{Failure, Status};
use super::watch::Watch;
use crate::report::results::StressRun;
use std::hash::{BuildHasher, Hasher, RandomState};
use warpheap::Backend;
use warpheap::simt::Mode;
use warpheap_harness::stress::{
    AllocatorKind, Delays, Limit, Plant, SizeMix, StressConfig, StressReport, Workload, stress,
};

/// Threads per stream on a GPU: more than any GPU holds at once.
const CUDA_THREADS: u32 = 1 << 20;
/// Threads per stream on the CPU, which simulates the lanes.
const CPU_THREADS: u32 = 1 << 13;
/// Threads per stream in a replay, where one OS thread runs everything and makes a choice at every
/// step.
const REPLAY_THREADS: u32 = 1 << 10;

/// Rounds of each run on a GPU. Every eighth round empties a free list.
const CUDA_ROUNDS: u64 = 24;
/// Rounds of each run on the CPU.
const CPU_ROUNDS: u64 = 8;

/// The requested runs, and their device.
pub struct Session {
    /// The device and its kernels.
    pub chosen: Chosen,
    /// Whether the seed determines the interleaving, too.
    pub replay: bool,
    /// Determines what every thread does.
    pub seed: u64,
    /// One run per allocator.
    pub configs: Vec<StressConfig>,
    /// The points at which threads are delayed, as given.
    pub points: Vec<String>,
    /// Allocators that do not support the planted fault, the workload or the delays, and why.
    pub left_out: Vec<(AllocatorKind, &'static str)>,
}

/// The status of a run without a finding in which no delay took place.
pub const UNDELAYED: &str = "no thread was delayed";

/// Result of one run.
#[derive(Debug)]
pub struct Outcome {
    pub run: StressRun,
    pub exit: Status,
}

impl Session {
    /// Fails if the arguments cannot be run.
    pub fn new(args: &StressArgs) -> Result<Session, Failure> {
        check_combination(args)?;
        let seed = args.seed.unwrap_or_else(random_seed);
        let mode = args.replay.then_some(Mode::Replay { seed });
        let (plant, workload) = (args.plant, args.workload);
        let points = args.delays.clone().unwrap_or_default();
        check_points(&points)?;
        let (kinds, left_out) = suitable(args.allocator.0.clone(), plant, workload, &points);
        if args.map.is_some() && !kinds.contains(&AllocatorKind::Heap) {
            return Err(Failure::usage(
                "--map saves a map of the heap, which this run does not stress; use --allocator heap",
            ));
        }
        let base = StressConfig::new().workload(workload).plant(plant);
        let kernels: Vec<_> = kinds.iter().flat_map(|kind| base.clone().allocator(*kind).kernels()).collect();
        let chosen = choose(args.launch, mode, &kernels)?;
        let (threads, rounds) = match chosen.device.backend() {
            Backend::Cuda => (CUDA_THREADS, CUDA_ROUNDS),
            _ if args.replay => (REPLAY_THREADS, CPU_ROUNDS),
            _ => (CPU_THREADS, CPU_ROUNDS),
        };
        let limit = match (args.seconds, args.pairs) {
            (Some(time), _) => Limit::Time(time),
            (None, Some(pairs)) => Limit::Pairs(pairs),
            (None, None) => Limit::Rounds(args.rounds.unwrap_or(rounds)),
        };
        let base = base
            .threads(args.threads.unwrap_or(threads))
            .sizes(args.size.0.clone())
            .mix(args.mix)
            .limit(limit)
            .streams(args.streams)
            .pool_bytes(args.pool)
            .seed(seed)
            .map(args.map.is_some());
        let config = |allocator: AllocatorKind| {
            // Of several allocators, each has some of the points.
            let is_meant = |point: &&String| args.allocator.0.len() == 1 || allocator.has_point(point);
            let delays = args.delays.as_ref().map(|points| Delays::at(points.iter().filter(is_meant)));
            let delays = delays.map(|delays| match args.delay_one_in {
                Some(one_in) => delays.one_in(one_in),
                None => delays,
            });
            base.clone().allocator(allocator).delays(delays)
        };
        let configs: Vec<_> = kinds.into_iter().map(config).collect();
        configs.iter().try_for_each(|config| config.validate(&chosen.device))?;
        Ok(Session { chosen, replay: args.replay, seed, configs, points, left_out })
    }

    /// Runs `config`.
    pub fn run(&self, config: &StressConfig, watch: &mut Watch) -> Outcome {
        let allocator = config.allocator;
        watch.start(config, &self.reproduce(config, None));
        let chosen = &self.chosen;
        let result = stress(&chosen.device, &chosen.own, config, &mut |progress| watch.update(progress));
        watch.stop();
        match result {
            Ok(report) => {
                let delayed = report.delays.as_ref().is_none_or(|delays| delays.total > 0);
                let (status, exit) = match (report.is_clean(), config.plant) {
                    (true, None) if delayed => ("clean", Status::Clean),
                    (true, None) => (UNDELAYED, Status::Failed),
                    (true, Some(_)) => ("planted fault missed", Status::Failed),
                    (false, _) => ("fault", Status::Fault),
                };
                let reproduce = self.reproduce(config, Some(&report));
                let (status, report) = (status.into(), Some(report));
                Outcome { run: StressRun { allocator, status, error: None, report, reproduce }, exit }
            }
            Err(error) => {
                let Failure { status: exit, message } = error.into();
                let status = match exit {
                    Status::Hung => "hung",
                    Status::Fault => "crashed",
                    _ => "failed",
                };
                let reproduce = self.reproduce(config, None);
                let (status, error) = (status.into(), Some(message));
                Outcome { run: StressRun { allocator, status, error, report: None, reproduce }, exit }
            }
        }
    }

    /// The command that repeats a run, up to the round of the first fault in `report`.
    pub fn reproduce(&self, config: &StressConfig, report: Option<&StressReport>) -> String {
        let mut words = vec!["warpheap stress".to_owned(), self.chosen.options(self.replay)];
        let StressConfig { allocator, threads, streams, seed, .. } = config;
        let sizes = Sizes(config.sizes.clone());
        words.push(format!("--allocator {allocator} --threads {threads} --size {sizes} --streams {streams}"));
        if config.workload != Workload::default() {
            words.push(format!("--workload {}", config.workload));
        }
        if config.mix != SizeMix::default() {
            words.push(format!("--mix {}", config.mix));
        }
        let pool = report.map(|report| report.pool_bytes).or(config.pool_bytes);
        words.extend(pool.map(|bytes| format!("--pool {bytes}")));
        let rounds = report.map(|report| Limit::Rounds(report.rounds.max(1)));
        words.push(match rounds.unwrap_or(config.limit) {
            Limit::Rounds(rounds) => format!("--rounds {rounds}"),
            Limit::Time(time) => format!("--seconds {}", time.as_secs_f64()),
            Limit::Pairs(pairs) => format!("--pairs {pairs}"),
        });
        words.push(format!("--seed {seed}"));
        words.extend(config.plant.map(|plant| format!("--plant {plant}")));
        words.extend(
            config.delays.as_ref().map(|delays| {
                format!("--delays {} --delay-one-in {}", delays.points.join(","), delays.one_in)
            }),
        );
        words.join(" ")
    }
}

/// Fails on options that contradict each other.
fn check_combination(args: &StressArgs) -> Result<(), Failure> {
    if args.replay && args.launch.device.backend == BackendChoice::Cuda {
        return Err(Failure::usage(
            "--replay schedules the threads, so a run on a GPU cannot be replayed; leave out --replay, or use \
             --backend cpu",
        ));
    }
    Ok(())
}

/// Fails if no allocator has one of the points.
fn check_points(points: &[String]) -> Result<(), Failure> {
    let is_known = |point: &str| AllocatorKind::ALL.into_iter().any(|kind| kind.has_point(point));
    match points.iter().find(|point| !is_known(point)) {
        Some(point) => Err(Failure::usage(format_args!(
            "there is no point `{point}` for --delays; `warpheap stress --delays list` lists the points"
        ))),
        None => Ok(()),
    }
}

/// The allocators that support the fault, the workload and the delays, and those that do not, with
/// the reason. For a single allocator the harness itself reports the error.
fn suitable(
    kinds: Vec<AllocatorKind>,
    plant: Option<Plant>,
    workload: Workload,
    points: &[String],
) -> (Vec<AllocatorKind>, Vec<(AllocatorKind, &'static str)>) {
    let why_not = |kind: AllocatorKind| {
        if plant.is_some_and(|plant| !plant.suits(kind)) || !workload.suits(kind) {
            Some("it frees blocks only by its reset")
        } else if !(points.is_empty() || points.iter().any(|point| kind.has_point(point))) {
            Some("it has none of these points")
        } else {
            None
        }
    };
    if kinds.len() == 1 {
        return (kinds, Vec::new());
    }
    let left_out = kinds.iter().filter_map(|kind| Some((*kind, why_not(*kind)?))).collect();
    (kinds.into_iter().filter(|kind| why_not(*kind).is_none()).collect(), left_out)
}

/// A random seed, short enough to type.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    fn session(line: &str) -> Session {
        let words = ["warpheap", "stress"].into_iter().chain(line.split_whitespace());
        let Command::Stress(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
        Session::new(&args).unwrap_or_else(|failure| panic!("{}", failure.message))
    }

    #[test]
    fn a_reproducing_command_asks_for_the_same_run() {
        for line in [
            "--backend cpu --seed 7",
            "--replay --seed 0x2a --plant overlap --threads 512",
            "--backend cpu --workload storm --mix powers --allocator heap --seed 3",
            "--backend cpu --pairs 10^5 --allocator heap --seed 9",
            "--backend cpu --seconds 0.25 --size 64 --streams 3 --pool 8MiB --allocator freelist",
        ] {
            let first = session(line);
            for config in &first.configs {
                let command = first.reproduce(config, None);
                let again = session(command.strip_prefix("warpheap stress ").unwrap());
                assert_eq!(format!("{:?}", again.configs), format!("{:?}", [config]), "{command}");
                assert_eq!(again.replay, first.replay, "{command}");
            }
        }
    }

    #[test]
    fn a_reproducing_command_has_the_delays() {
        let session = session("--backend cpu --allocator heap");
        let config =
            session.configs[0].clone().delays(Some(Delays::at(["heap/claim", "heap/release"]).one_in(4)));
        let command = session.reproduce(&config, None);
        let words = command.split_whitespace();
        let Command::Stress(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
        assert_eq!(args.delays.unwrap(), ["heap/claim", "heap/release"]);
        assert_eq!(args.delay_one_in, Some(4));
    }

    #[test]
    fn a_fault_that_an_allocator_cannot_have_leaves_it_out() {
        let session = session("--backend cpu --plant double-free");
        assert_eq!(session.configs.len(), 2);
        assert_eq!(session.left_out, [(AllocatorKind::Bump, "it frees blocks only by its reset")]);
    }

    #[test]
    fn a_workload_that_frees_leaves_the_arena_out() {
        let session = session("--backend cpu --workload pipeline");
        assert_eq!(session.configs.len(), 2);
        assert_eq!(session.left_out, [(AllocatorKind::Bump, "it frees blocks only by its reset")]);
    }

    #[test]
    fn an_allocator_without_the_points_is_left_out() {
        let of = |points: &[&str]| {
            let points: Vec<_> = points.iter().map(ToString::to_string).collect();
            suitable(AllocatorKind::ALL.to_vec(), None, Workload::Churn, &points).0
        };
        assert_eq!(of(&["heap/claim"]), [AllocatorKind::Heap]);
        assert_eq!(of(&["scans"]), [AllocatorKind::FreeList]);
        assert_eq!(of(&["bump", "scans", "heap/release"]), AllocatorKind::ALL);
        assert_eq!(of(&[]), AllocatorKind::ALL);
    }
}
