//! What can be asked on the command line. The comments here are what `--help` prints.

mod device;
mod pool;
mod stress;
mod workload;

use super::parse::{self, JsonTarget};
use clap::{ArgAction, Args, Parser, Subcommand};
pub use device::{BackendChoice, GpuArgs};
pub use pool::{PoolArgs, PoolBenchArgs, PoolCommand, PoolDemoArgs, PoolReplayArgs, PoolShowArgs};
use std::time::Duration;
use stress::STRESS_EXAMPLES;
pub use stress::StressArgs;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WARPHEAP_COMMIT"), ")");

const STATUSES: &str = "\
Exit status:
  0    done, and nothing is wrong
  1    a fault was found, or a kernel crashed (stress, pool); a bar was missed (bench, pool)
  2    what was asked makes no sense, or cannot be done on this device
  3    there is no usable device
  4    a kernel hung: the run was ended from outside
  5    the machine or the driver let the run down, or a planted fault was missed
  130  interrupted by Ctrl-C";

const OVERVIEW: &str = "\
Start here:
  warpheap stress                     thousands of GPU threads, on a GPU or on the CPU
  warpheap stress --plant overlap     the same with a fault injected, to see it caught
  warpheap doctor                     what this machine has, and what to do about the rest";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  warpheap doctor
  warpheap doctor --json - | jq .data.devices

Exit status: 0 if kernels run on at least one backend, 3 if on none, 4 if one hangs.";

const EXAMPLES_EXAMPLES: &str = "\
Examples:
  warpheap examples
  warpheap examples --backend cuda --json examples.json
  warpheap examples --backend cpu --only octree

Exit status: 0 if every result is right, 1 if one is not, 2 if no example has that name, 3 without the GPU that
was asked for, 4 if a kernel hangs, 5 if the machine or the driver lets the run down.";

const BENCH_EXAMPLES: &str = "\
Examples:
  warpheap bench
  warpheap bench --figure churn --rounds 50 --json bench.json

A GPU is needed. Exit status: 0 if every figure passes its bar, 1 if one does not, 2 if no figure has that
name, 3 without a GPU, 4 if a kernel hangs, 5 if a measurement fails.";

/// Memory allocation inside GPU kernels written in Rust: try it, check it, measure it.
#[derive(Debug, Parser)]
#[command(name = "warpheap", version = VERSION, max_term_width = 110, arg_required_else_help = true)]
#[command(after_help = format!("{OVERVIEW}\n\n{STATUSES}"))]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log to standard error: -v what happens, -vv details, -vvv everything. `RUST_LOG` overrides
    /// it.
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 1000)]
    pub verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Let thousands of GPU threads allocate and free, and prove that no two live blocks overlap.
    ///
    /// Every allocation claims its memory in an ownership map on the device, every owner fills its
    /// block with a pattern and reads it again before it frees it, and between rounds all live
    /// blocks are compared on the device and, by sorting, on the host. At the end the pool is
    /// emptied, and must give exactly what it holds.
    #[command(after_long_help = format!("{STRESS_EXAMPLES}\n\n{STATUSES}"))]
    Stress(StressArgs),
    /// Say what was found of driver, devices, compiler and kernels, and what to do about what was
    /// not.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Measure the allocators on a GPU, each beside the same kernel without one.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Build data structures in kernels: growing vectors, a hash table, a graph, an octree.
    ///
    /// Every result is compared with a plain computation on the host, and after each example the
    /// heap has to be empty again.
    #[command(after_long_help = EXAMPLES_EXAMPLES)]
    Examples(ExamplesArgs),
    /// Device memory that the host hands out: replay a log of allocations, measure the pools, see
    /// what they do and what the driver's have.
    Pool(PoolArgs),
}

impl Command {
    /// Target of the results.
    pub fn json(&self) -> Option<&JsonTarget> {
        match self {
            Command::Stress(args) => args.json.as_ref(),
            Command::Doctor(args) => args.json.as_ref(),
            Command::Bench(args) => args.json.as_ref(),
            Command::Examples(args) => args.json.as_ref(),
            Command::Pool(args) => args.command.json(),
        }
    }
}

/// `warpheap doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Write what was found to this file; `-` is standard output. Default: text alone.
    #[arg(long, value_name = "FILE", value_parser = parse::json_target)]
    pub json: Option<JsonTarget>,
}

/// `warpheap bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Only figures whose name contains this: churn, bump, "4096 B". Default: all.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub figure: String,
    /// Timed rounds of each figure, of which the median counts. Default: 20, whose median repeats
    /// well.
    #[arg(long, value_parser = parse::count, default_value = "20", hide_default_value = true)]
    pub rounds: u32,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Write results, with all that is needed to repeat them, to this file; `-` is standard output.
    /// Default: none are written.
    #[arg(long, value_name = "FILE", value_parser = parse::json_target)]
    pub json: Option<JsonTarget>,
    /// End the process with status 4 when one figure takes more seconds than this; 0 waits forever.
    /// Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero, default_value = "300", hide_default_value = true)]
    pub watchdog: Duration,
}

/// `warpheap examples`
#[derive(Debug, Args)]
pub struct ExamplesArgs {
    /// Where to run.
    ///
    /// Default: auto, a GPU if there is a usable one and the CPU otherwise; the first lines say
    /// which.
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto, hide_default_value = true)]
    pub backend: BackendChoice,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Only examples whose name contains this: vectors, table, graph, octree. Default: all.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub only: String,
    /// GPU threads, each with a number, a key, an edge or a point: 65536, 64K, 2^20.
    ///
    /// Default: 2^18 on a GPU and 4096 on the CPU.
    #[arg(long, value_parser = parse::count)]
    pub threads: Option<u32>,
    /// Write what was checked to this file; `-` is standard output. Default: text alone.
    #[arg(long, value_name = "FILE", value_parser = parse::json_target)]
    pub json: Option<JsonTarget>,
    /// End the process with status 4 when all takes more seconds than this; 0 waits forever.
    /// Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero, default_value = "300", hide_default_value = true)]
    pub watchdog: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
