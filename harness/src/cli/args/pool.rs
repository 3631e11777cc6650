//! The options of `warpheap pool`. Their doc comments are the text of `--help`.

use super::super::parse::{self, Target};
use super::given;
use super::report::{CompareArgs, PageArgs};
use super::run::{DeviceArgs, OutputArgs};
use clap::{Args, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;
use warpheap::host_pools::replay::Hosts;

const REPLAY_EXAMPLES: &str = "\
Examples:
  warpheap pool replay --trace allocations.csv
      All pools, on the GPU, or on the CPU if there is none.
  warpheap pool replay --trace allocations.csv --pool blocks --bytes 1GiB --json replay.json
  warpheap pool replay --trace allocations.csv --threads logged
      As many host threads as in the log; the calls stay in the order of the log.

Exit status: 0 if no pool failed, 1 if one did, 2 if the log is invalid or there is no such pool, 3 without the
requested GPU, 4 after the time limit, 5 if the machine or the driver fails.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  warpheap pool export --trace allocations.csv --format perfetto --out allocations.json
      Open the file at https://ui.perfetto.dev or in chrome://tracing.
  warpheap pool export --trace allocations.csv --format pytorch --out allocations.pickle
      Drop the file on https://pytorch.org/memory_viz.
  warpheap pool export --trace allocations.csv --format perfetto --out part.json --from 2 --to 2.5 --min-size 1MiB

Exit status: 0 on success, 2 if the log or an option is invalid or no event is left, 5 if the file cannot be
written.";

const BENCH_EXAMPLES: &str = "\
Examples:
  warpheap pool bench
  warpheap pool bench --figure pair --pool blocks --json pools.json
  warpheap pool bench --figure random --allocations 10_000
  warpheap pool bench --html pools.html --against old.json

Exit status: 0 if the pools meet all their targets, 1 if one is missed or became worse, 2 if no figure
or pool has that name, 3 without the requested GPU, 4 after the time limit, 5 if a measurement fails.";

const SHOW_EXAMPLES: &str = "\
Examples:
  warpheap pool show
  warpheap pool show --bytes 100MiB --json pools.json
      The same after an allocation, after its free, and after a wait for the free.

Exit status: 0 on success, 2 if the device has no such pools or is out of memory, 3 without the requested GPU,
4 if the driver does not respond, 5 if the machine or the driver fails.";

/// `warpheap pool`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct PoolArgs {
    /// The command.
    #[command(subcommand)]
    pub command: PoolCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Replay a log of allocations against pools, and report time, peak and fragmentation.
    ///
    /// The log is CSV, with the columns thread, time, action, pointer, size, stream, align and tag,
    /// as `Logged` writes it. RMM's logs, which have no align and no tag, are read as well.
    #[command(after_long_help = REPLAY_EXAMPLES)]
    Replay(PoolReplayArgs),
    /// Export a log for a viewer: Perfetto, chrome://tracing, PyTorch's memory viewer.
    ///
    /// The log is that of `replay`. Its optional column `tag` names the allocations. The log is
    /// exported while it is read: memory is bounded by the live blocks, not by the rows.
    #[command(after_long_help = EXPORT_EXAMPLES)]
    Export(PoolExportArgs),
    /// Benchmark the pools, each beside the driver's synchronous memory.
    #[command(after_long_help = BENCH_EXAMPLES)]
    Bench(PoolBenchArgs),
    /// Show the driver's stream-ordered pools of a device: threshold, used, reserved, reuse.
    ///
    /// These are the device's default pool, and the current one if the program has set another. The
    /// figures are those of this process, which allocates only the block of --bytes. The CPU has a
    /// model of such a pool.
    #[command(after_long_help = SHOW_EXAMPLES)]
    Show(PoolShowArgs),
}

impl PoolCommand {
    /// What is written, each with its option.
    pub fn outputs(&self) -> Vec<(&'static str, &Target)> {
        given(match self {
            PoolCommand::Replay(args) => vec![("--json", &args.output.json)],
            PoolCommand::Export(args) => return vec![("--out", &args.out)],
            PoolCommand::Bench(args) => {
                vec![("--json", &args.output.json), ("--html", &args.page.html)]
            }
            PoolCommand::Show(args) => vec![("--json", &args.output.json)],
        })
    }

    /// The file that is read.
    pub fn input(&self) -> Option<&Path> {
        match self {
            PoolCommand::Replay(args) => Some(&args.trace),
            PoolCommand::Export(args) => Some(&args.trace),
            PoolCommand::Bench(args) => args.compare.against.as_deref(),
            PoolCommand::Show(_) => None,
        }
    }
}

/// The host threads that make the calls of a log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Threads {
    /// One thread makes all calls.
    ///
    /// It is the calling thread.
    One,
    /// As many threads as in the log, each makes its own calls.
    Logged,
}

impl From<Threads> for Hosts {
    fn from(threads: Threads) -> Hosts {
        match threads {
            Threads::One => Hosts::One,
            Threads::Logged => Hosts::AsLogged,
        }
    }
}

/// `warpheap pool replay`
#[derive(Debug, Args)]
pub struct PoolReplayArgs {
    /// The log; `-` is standard input. Required.
    #[arg(long, value_name = "FILE", value_parser = parse::input())]
    pub trace: PathBuf,
    /// The pool. Default: all, one after the other.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub pool: String,
    /// Maximum device memory of a pool: 64MiB, 1GiB.
    ///
    /// Default: as much as the log needs, or the whole device for pools that grow.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub bytes: Option<u64>,
    /// The host threads that make the calls, always in the order of the log.
    ///
    /// Default: one.
    #[arg(long, value_enum, default_value_t = Threads::One, hide_default_value = true)]
    pub threads: Threads,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `warpheap pool export`
#[derive(Debug, Args)]
pub struct PoolExportArgs {
    /// The log; `-` is standard input. Required. It is read twice: a pipe is copied to a temporary
    /// file.
    #[arg(long, value_name = "FILE", value_parser = parse::input())]
    pub trace: PathBuf,
    /// The format of the export. Required.
    #[arg(long, value_enum)]
    pub format: TraceFormat,
    /// Write the export to this file; `-` is standard output. Required.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub out: Target,
    /// Only blocks of at least this size: 4KiB, 1MiB. Default: all.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub min_size: Option<u64>,
    /// Only blocks of at most this size: 4KiB, 1MiB. Default: all.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub max_size: Option<u64>,
    /// Start, in seconds after the first row of the log. Blocks that are live then begin there.
    ///
    /// Default: the first row.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero)]
    pub from: Option<Duration>,
    /// End, in seconds after the first row of the log.
    ///
    /// Default: the last row.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds)]
    pub to: Option<Duration>,
    /// Only blocks that were allocated on this stream, as in the log: 3, 0x7f5bd4000000. Repeat it
    /// for several streams. Default: all.
    #[arg(long, value_name = "STREAM", value_parser = parse::stream)]
    pub stream: Vec<u64>,
    /// Only blocks with this tag. Repeat it for several tags. Default: all, also without a tag.
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
}

/// A format that viewers open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Chrome trace JSON, for Perfetto and chrome://tracing
    Perfetto,
    /// A pickled snapshot, for PyTorch's memory viewer
    Pytorch,
}

/// `warpheap pool bench`
#[derive(Debug, Args)]
pub struct PoolBenchArgs {
    /// The pool. The driver's memory is always measured for comparison. Default: all.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub pool: String,
    /// Only figures whose name contains this: pair, random, "1 MiB". Default: all.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub figure: String,
    /// Timed rounds of each pair; the result is their median. Default: 10.
    #[arg(long, value_parser = parse::count, default_value = "10", hide_default_value = true)]
    pub rounds: u32,
    /// Host threads of the multi-threaded pairs. Default: 16, which the targets refer to.
    #[arg(long, value_parser = parse::count, default_value = "16", hide_default_value = true)]
    pub threads: u32,
    /// Number of random allocations: 10_000, 100K. Default: 100,000 on a GPU and 10,000 on the CPU.
    #[arg(long, value_parser = parse::count)]
    pub allocations: Option<u32>,
    /// Maximum live bytes of the random allocations: 1GiB.
    ///
    /// Default: 16,000 MiB on a GPU and 1,000 MiB on the CPU, or two thirds of the free memory if
    /// that is less.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub cap: Option<u64>,
    /// Seed of the sizes and the order: 42, 0x2a. Default: 1, so that runs can be compared.
    #[arg(long, value_parser = parse::seed, default_value = "1", hide_default_value = true)]
    pub seed: u64,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub compare: CompareArgs,
}

/// `warpheap pool show`
#[derive(Debug, Args)]
pub struct PoolShowArgs {
    /// Allocate a block of this size from the current pool and free it, and show the pool after
    /// each step: 100MiB.
    ///
    /// Default: nothing is allocated.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub bytes: Option<u64>,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
