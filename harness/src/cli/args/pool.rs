//! What can be asked of `warpheap pool`. The comments here are what `--help` prints.

use super::super::parse::{self, JsonTarget};
use super::{BackendChoice, GpuArgs, json_target};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use warpheap_harness::pool_tools::replay::Hosts;

const REPLAY_EXAMPLES: &str = "\
Examples:
  warpheap pool replay --trace allocations.csv
      Every pool, on the GPU or, if there is none, on the CPU.
  warpheap pool replay --trace allocations.csv --pool blocks --bytes 1GiB --json replay.json
  warpheap pool replay --trace allocations.csv --threads logged
      As many host threads as the log has, in the order of the log.

Exit status: 0 if no pool did anything wrong, 1 if one did, 2 if the log is none or there is no such pool, 3 without
the GPU that was asked for, 4 if it takes too long, 5 if the machine or the driver lets the run down.";

const BENCH_EXAMPLES: &str = "\
Examples:
  warpheap pool bench
  warpheap pool bench --figure pair --pool blocks --json pools.json
  warpheap pool bench --figure random --allocations 10_000

Exit status: 0 if every bar is met by the pools that it is there for, 1 if one is not, 2 if no figure or pool has that
name, 3 without the GPU that was asked for, 4 if it takes too long, 5 if a measurement fails.";

const DEMO_EXAMPLES: &str = "\
Examples:
  warpheap pool demo
  warpheap pool demo caching --backend cuda --json demo.json

Exit status: 0 if every check holds, 1 if one does not, 2 if there is no such demonstration, 3 without the GPU that
was asked for, 4 if a kernel hangs, 5 if the machine or the driver lets the run down.";

const SHOW_EXAMPLES: &str = "\
Examples:
  warpheap pool show
  warpheap pool show --bytes 100MiB --json pools.json
      The same after an allocation, its free, and a wait for that.

Exit status: 0 if the pools were shown, 2 if the device has none or no room, 3 without the GPU that was asked for,
4 if the driver does not answer, 5 if the machine or the driver lets the run down.";

/// `warpheap pool`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct PoolArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PoolCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Replay a log of allocations against any pool: its time, its peak, its fragmentation.
    ///
    /// The log is CSV, with the columns thread, time, action, pointer, size, stream and align, as
    /// `Logged` writes it. RMM's logs, which have no align, are read as well.
    #[command(after_long_help = REPLAY_EXAMPLES)]
    Replay(PoolReplayArgs),
    /// Measure the pools, each beside the driver's synchronous memory.
    #[command(after_long_help = BENCH_EXAMPLES)]
    Bench(PoolBenchArgs),
    /// Show what the pools do, step by step, and check every step.
    #[command(after_long_help = DEMO_EXAMPLES)]
    Demo(PoolDemoArgs),
    /// Show the driver's stream-ordered pools of a device: threshold, used, reserved, reuse.
    ///
    /// These are the device's default pool, and the current one if that is another. Their figures
    /// are those of the process, which has allocated nothing from them but what --bytes says. On
    /// the CPU it is the model of such a pool.
    #[command(after_long_help = SHOW_EXAMPLES)]
    Show(PoolShowArgs),
}

impl PoolCommand {
    /// Target of the results.
    pub fn json(&self) -> Option<&JsonTarget> {
        match self {
            PoolCommand::Replay(args) => args.run.json.as_ref(),
            PoolCommand::Bench(args) => args.run.json.as_ref(),
            PoolCommand::Demo(args) => args.run.json.as_ref(),
            PoolCommand::Show(args) => args.run.json.as_ref(),
        }
    }
}

/// What all of them take.
#[derive(Debug, Args)]
pub struct PoolRunArgs {
    /// Where to run.
    ///
    /// Default: auto, a GPU if there is a usable one and the CPU otherwise; the first lines say
    /// which.
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto, hide_default_value = true)]
    pub backend: BackendChoice,
    /// Write results, with all that is needed to repeat them, to this file; `-` is standard output.
    ///
    /// Default: none are written.
    #[arg(long, value_name = "FILE", value_parser = json_target)]
    pub json: Option<JsonTarget>,
    /// End the process with status 4 when one pool, figure or demonstration, or the driver's
    /// answer, takes more seconds than this; 0 waits forever.
    ///
    /// Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero, default_value = "300", hide_default_value = true)]
    pub watchdog: Duration,
}

/// `warpheap pool replay`
#[derive(Debug, Args)]
pub struct PoolReplayArgs {
    /// The log. There is no default.
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// The pool. Default: all, one after the other.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub pool: String,
    /// What a pool may take of the device: 64MiB, 1GiB.
    ///
    /// Default: what the log needs, or the whole device for pools that take their memory bit by
    /// bit.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub bytes: Option<u64>,
    /// On which host threads. Calls come in the order of the log either way.
    ///
    /// Default: one.
    #[arg(long, value_enum, default_value_t = HostsChoice::One, hide_default_value = true)]
    pub threads: HostsChoice,
    /// Which GPU, from 0. `warpheap doctor` lists them.
    ///
    /// Default: 0, the driver's first. Naming one rules the CPU out.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    #[command(flatten)]
    pub run: PoolRunArgs,
}

/// The host threads that make the calls of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostsChoice {
    /// One thread, all of them
    One,
    /// As many threads as the log has, each its own
    Logged,
}

impl From<HostsChoice> for Hosts {
    fn from(choice: HostsChoice) -> Hosts {
        match choice {
            HostsChoice::One => Hosts::One,
            HostsChoice::Logged => Hosts::AsLogged,
        }
    }
}

/// `warpheap pool bench`
#[derive(Debug, Args)]
pub struct PoolBenchArgs {
    /// The pool. The driver's memory, which it is compared with, is measured with it. Default: all.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub pool: String,
    /// Only figures whose name contains this: pair, random, "1 MiB". Default: all.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub figure: String,
    /// Timed rounds of each pair, of which the median counts. Default: 10.
    #[arg(long, value_parser = parse::count, default_value = "10", hide_default_value = true)]
    pub rounds: u32,
    /// Host threads of the pairs that many make. Default: 16, which is what the bar is for.
    #[arg(long, value_parser = parse::count, default_value = "16", hide_default_value = true)]
    pub threads: u32,
    /// Random allocations: 10_000, 100K. Default: 100,000 on a GPU and 10,000 on the CPU.
    #[arg(long, value_parser = parse::count)]
    pub allocations: Option<u32>,
    /// What may be live of them at a time: 1GiB.
    ///
    /// Default: 16,000 MiB on a GPU and 1,000 MiB on the CPU; less if the device has not one and a
    /// half times as much free.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub cap: Option<u64>,
    /// Decides sizes and order: 42, 0x2a. Default: 1, so that runs can be compared.
    #[arg(long, value_parser = parse::seed, default_value = "1", hide_default_value = true)]
    pub seed: u64,
    /// Which GPU, from 0. `warpheap doctor` lists them.
    ///
    /// Default: 0, the driver's first. Naming one rules the CPU out.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    #[command(flatten)]
    pub run: PoolRunArgs,
}

/// `warpheap pool demo`
#[derive(Debug, Args)]
pub struct PoolDemoArgs {
    /// One demonstration: blocks, growable, region, arena, driver, caching. Default: all.
    #[arg(value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub which: String,
    #[command(flatten)]
    pub gpu: GpuArgs,
    #[command(flatten)]
    pub run: PoolRunArgs,
}

/// `warpheap pool show`
#[derive(Debug, Args)]
pub struct PoolShowArgs {
    /// Allocate so many bytes of the current pool and give them back, and show it after each step:
    /// 100MiB.
    ///
    /// Default: nothing is allocated.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub bytes: Option<u64>,
    /// Which GPU, from 0. `warpheap doctor` lists them.
    ///
    /// Default: 0, the driver's first. Naming one rules the CPU out.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    #[command(flatten)]
    pub run: PoolRunArgs,
}
