//! What can be asked on the command line. The comments here are what `--help` prints.

mod device;
mod pool;
mod workload;

use super::parse::{self, JsonTarget, Sizes};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
pub use device::{BackendChoice, GpuArgs};
pub use pool::{PoolArgs, PoolBenchArgs, PoolCommand, PoolDemoArgs, PoolReplayArgs};
use std::path::PathBuf;
use std::time::Duration;
use warpheap::harness::{AllocatorKind, Plant};
pub use workload::WorkloadArgs;

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

const STRESS_EXAMPLES: &str = "\
Examples:
  warpheap stress
      All allocators on the GPU, or on the CPU if there is none.
  warpheap stress --backend cuda --seconds 60 --streams 4 --json stress.json
      A minute for each allocator, four streams at once, the results in a file.
  warpheap stress --allocator freelist --size 4KiB --threads 2^20 --pool 2GiB
      A million threads in each stream on a pool that is too small for all of them.
  warpheap stress --allocator heap --workload pipeline --mix mostly-small --size 16-8192
      Kernels of one stream allocate blocks of all sizes, and those of another free them at the same time.
  warpheap stress --allocator heap --pairs 10^10 --streams 4
      Goes on until ten billion blocks were allocated, checked and freed.
  warpheap stress --plant double-free
      Injects a fault. The run must end with status 1 and name it.
  warpheap stress --replay --seed 42
      One OS thread on which the seed decides every step: the same seed is the same run.";

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
    /// Log to standard error: -v what happens, -vv details, -vvv everything. `RUST_LOG` overrides it.
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 1000)]
    pub verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Let thousands of GPU threads allocate and free, and prove that no two live blocks overlap.
    ///
    /// Every allocation claims its memory in an ownership map on the device, every owner fills its block with
    /// a pattern and reads it again before it frees it, and between rounds all live blocks are compared on
    /// the device and, by sorting, on the host. At the end the pool is emptied, and must give exactly what it holds.
    #[command(after_long_help = format!("{STRESS_EXAMPLES}\n\n{STATUSES}"))]
    Stress(StressArgs),
    /// Say what was found of driver, devices, compiler and kernels, and what to do about what was not.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Measure the allocators on a GPU, each beside the same kernel without one.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Build data structures in kernels: growing vectors, a hash table, a graph, an octree.
    ///
    /// Every result is compared with a plain computation on the host, and after each example the heap has to be
    /// empty again.
    #[command(after_long_help = EXAMPLES_EXAMPLES)]
    Examples(ExamplesArgs),
    /// Device memory that the host hands out: replay a log of allocations, measure the pools, see what they do.
    Pool(PoolArgs),
}

impl Command {
    /// Where the results go.
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

/// `warpheap stress`
#[derive(Debug, Args)]
pub struct StressArgs {
    /// Where to run.
    ///
    /// Default: auto, so that the same command works on any machine; the first lines say what was chosen and
    /// why.
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto, hide_default_value = true)]
    pub backend: BackendChoice,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// What to stress.
    ///
    /// Default: all, one after the other.
    #[arg(long, value_enum, default_value_t = AllocatorChoice::All, hide_default_value = true)]
    pub allocator: AllocatorChoice,
    #[command(flatten)]
    pub work: WorkloadArgs,
    /// GPU threads in each stream: 65536, 64K, 2^20. Rounded up to whole blocks of 256.
    ///
    /// Default: 2^20 on a GPU, more than any holds at once; 8192 on the CPU and 1024 in a replay, which a CPU
    /// gets through in seconds.
    #[arg(long, value_parser = parse::count)]
    pub threads: Option<u32>,
    /// Bytes of each allocation, one size or a range: 64, 4KiB, 16-8192.
    ///
    /// Default: 16-512, small blocks of uneven sizes, where neighbours are closest. The free list has blocks
    /// of the largest.
    #[arg(long, value_name = "SIZES", value_parser = parse::sizes, default_value = "16-512", hide_default_value = true)]
    pub size: Sizes,
    /// Rounds for each allocator; in each, every thread allocates and frees several times.
    ///
    /// Default: 24 on a GPU and 8 on the CPU; every eighth empties a free list or a heap.
    #[arg(long, value_parser = parse::rounds, conflicts_with = "seconds")]
    pub rounds: Option<u64>,
    /// Seconds for each allocator, instead of --rounds. The last round is finished.
    #[arg(long, value_parser = parse::seconds)]
    pub seconds: Option<Duration>,
    /// Pairs of an allocation and its free for each allocator, instead of --rounds: 1_000_000, 10^10. The last round is
    /// finished.
    #[arg(long, value_parser = parse::rounds, conflicts_with_all = ["rounds", "seconds"])]
    pub pairs: Option<u64>,
    /// Kernels that share the pool at the same time, and blocks that one allocates and another frees.
    ///
    /// Default: 2, the fewest that do so.
    #[arg(long, value_parser = parse::count, default_value = "2", hide_default_value = true)]
    pub streams: u32,
    /// Bytes of the pool: 64MiB, 1GiB. A heap has whole MiB.
    ///
    /// Default: three quarters of what all threads would hold, so that it runs out now and then, or a sixteenth
    /// in a storm; less if the device has not that much.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub pool: Option<u64>,
    /// Decides what every thread does: 42, 0x2a.
    ///
    /// Default: another one each time, printed first. The interleaving of threads is up to the machine, unless
    /// --replay is given.
    #[arg(long, value_parser = parse::seed)]
    pub seed: Option<u64>,
    /// Run on the CPU with the seed deciding every step, so that a run can be repeated exactly.
    ///
    /// Default: off, because it uses one OS thread and is the slower for it.
    #[arg(long)]
    pub replay: bool,
    /// Write results, with all that is needed to repeat them, to this file; `-` is standard output.
    ///
    /// Default: none are written.
    #[arg(long, value_name = "FILE", value_parser = json_target)]
    pub json: Option<JsonTarget>,
    /// Inject a fault, to see it caught. The run then ends with status 1.
    ///
    /// Default: none.
    #[arg(long, value_enum, value_name = "FAULT")]
    pub plant: Option<PlantChoice>,
    /// End the process with status 4 when no round ends for this many seconds; 0 waits forever.
    ///
    /// Default: 300, far above the seconds that the largest rounds take. A hung kernel cannot be cancelled, so
    /// nothing but the message is left of such a run.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero, default_value = "300", hide_default_value = true)]
    pub watchdog: Duration,
}

/// `warpheap doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Write what was found to this file; `-` is standard output. Default: text alone.
    #[arg(long, value_name = "FILE", value_parser = json_target)]
    pub json: Option<JsonTarget>,
}

/// `warpheap bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Only figures whose name contains this: churn, bump, "4096 B". Default: all.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub figure: String,
    /// Timed rounds of each figure, of which the median counts. Default: 20, whose median repeats well.
    #[arg(long, value_parser = parse::count, default_value = "20", hide_default_value = true)]
    pub rounds: u32,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Write results, with all that is needed to repeat them, to this file; `-` is standard output.
    /// Default: none are written.
    #[arg(long, value_name = "FILE", value_parser = json_target)]
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
    /// Default: auto, a GPU if there is a usable one and the CPU otherwise; the first lines say which.
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
    #[arg(long, value_name = "FILE", value_parser = json_target)]
    pub json: Option<JsonTarget>,
    /// End the process with status 4 when all takes more seconds than this; 0 waits forever. Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero, default_value = "300", hide_default_value = true)]
    pub watchdog: Duration,
}

/// What to stress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AllocatorChoice {
    /// The arena: any size, given back all at once
    Bump,
    /// The lock-free pool of blocks of one size
    Freelist,
    /// The heap: any size, given back by anyone
    Heap,
    /// Each of them
    All,
}

impl AllocatorChoice {
    /// Those that are meant.
    pub fn kinds(self) -> Vec<AllocatorKind> {
        match self {
            AllocatorChoice::Bump => vec![AllocatorKind::Bump],
            AllocatorChoice::Freelist => vec![AllocatorKind::FreeList],
            AllocatorChoice::Heap => vec![AllocatorKind::Heap],
            AllocatorChoice::All => AllocatorKind::ALL.to_vec(),
        }
    }
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlantChoice {
    /// The allocator hands out memory that is taken
    Overlap,
    /// A thread gives a block back twice (not with bump)
    DoubleFree,
    /// A thread forgets a block
    LostBlock,
    /// A thread writes past the end of its block
    TornWrite,
}

impl From<PlantChoice> for Plant {
    fn from(choice: PlantChoice) -> Plant {
        match choice {
            PlantChoice::Overlap => Plant::Overlap,
            PlantChoice::DoubleFree => Plant::DoubleFree,
            PlantChoice::LostBlock => Plant::LostBlock,
            PlantChoice::TornWrite => Plant::TornWrite,
        }
    }
}

fn json_target(text: &str) -> Result<JsonTarget, String> {
    match text {
        "" => Err("a file name is needed, or - for standard output".into()),
        "-" => Ok(JsonTarget::Stdout),
        path => Ok(JsonTarget::File(PathBuf::from(path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_choices_are_the_harness_own() {
        for plant in PlantChoice::value_variants() {
            let name = plant.to_possible_value().unwrap().get_name().to_owned();
            assert_eq!(name, Plant::from(*plant).to_string());
        }
        assert_eq!(PlantChoice::value_variants().len(), Plant::ALL.len());
        for kind in AllocatorKind::ALL {
            assert_eq!(AllocatorChoice::from_str(kind.name(), false).unwrap().kinds(), [kind]);
        }
    }
}
