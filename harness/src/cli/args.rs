//! The options of the program. Their doc comments are the text of `--help`.

mod bench;
mod map;
mod pool;
mod report;
mod run;
mod stress;

use super::parse::{self, Target};
use bench::BENCH_EXAMPLES;
pub use bench::BenchArgs;
use clap::{ArgAction, Args, Parser, Subcommand};
use map::MAP_EXAMPLES;
pub use map::{ColourChoice, DemoHeap, MapArgs};
pub use pool::{
    PoolArgs, PoolBenchArgs, PoolCommand, PoolExportArgs, PoolReplayArgs, PoolShowArgs, TraceFormat,
};
use report::REPORT_EXAMPLES;
pub use report::{CompareArgs, PageArgs, ReportArgs};
pub use run::{BackendChoice, DeviceArgs, LaunchArgs, OutputArgs};
use std::path::{Path, PathBuf};
use stress::STRESS_EXAMPLES;
pub use stress::StressArgs;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WARPHEAP_COMMIT"), ")");

const STATUSES: &str = "\
Exit status:
  0    success
  1    a fault was found, a kernel crashed, a target was missed, or a time became worse
  2    the arguments are invalid, or this device does not support them
  3    there is no usable device
  4    a kernel hung: the watchdog ended the run
  5    the machine, the driver or an output failed, a fault was missed, or no thread was delayed
  130  interrupted by Ctrl-C
  141  standard output is a pipe that was closed (`| head`); the shell's number for SIGPIPE";

const OVERVIEW: &str = "\
Start here:
  warpheap stress                     thousands of GPU threads, on a GPU or on the CPU
  warpheap stress --plant overlap     the same with an injected fault, which must be detected
  warpheap map --demo mixed           a picture of a heap
  warpheap doctor                     what this machine has, and how to install the rest";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  warpheap doctor
  warpheap doctor --json - | jq .data.devices

Exit status: 0 if kernels run on at least one backend, 3 if on none, 4 if a kernel hangs.";

/// Memory allocation in GPU kernels written in Rust: tests, checks and benchmarks.
#[derive(Debug, Parser)]
#[command(name = "warpheap", version = VERSION, max_term_width = 110, arg_required_else_help = true)]
#[command(after_help = format!("{OVERVIEW}\n\n{STATUSES}"))]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Log to standard error: -v info, -vv debug, -vvv trace. `RUST_LOG` overrides it.
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 1000)]
    pub verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Allocate and free in thousands of GPU threads, and check that no two live blocks overlap.
    ///
    /// Each allocation claims its memory in an ownership map on the device. Its thread fills the
    /// block with a pattern, and reads it again before the free. Between rounds all live blocks are
    /// compared on the device and, by sorting, on the host. At the end the pool is allocated until
    /// it is out of memory: a free list must have exactly its capacity, a heap as many blocks as
    /// when it was new, and an arena less than three of the largest blocks, with their padding, per
    /// multiprocessor left.
    #[command(after_long_help = format!("{STRESS_EXAMPLES}\n\n{STATUSES}"))]
    Stress(StressArgs),
    /// Check the driver, the devices, the compiler and the kernels, and say how to fix what is
    /// missing.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Benchmark the allocators on a GPU, each beside the same kernel without allocations.
    ///
    /// Figures have targets. A suite measures times over the number of threads and over sizes,
    /// durations of single calls, and Rust's collections, all beside CUDA's own malloc.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Draw a heap: slabs in address order by class and fill, large allocations, free ranges, and
    /// what cursors hold.
    ///
    /// The heap is a saved map (`HeapSnapshot::map`, `warpheap stress --map`) or a demonstration.
    /// The picture is text, and an SVG with --svg. Several maps are also compared over time.
    #[command(after_long_help = MAP_EXAMPLES)]
    Map(MapArgs),
    /// Pools of device memory, allocated by the host: replay logs, run benchmarks, show the
    /// driver's pools.
    Pool(PoolArgs),
    /// Draw saved results as a page of charts, and compare them with older ones.
    ///
    /// The page is one HTML file without scripts, for light and dark screens, phones and print.
    #[command(after_long_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
}

impl Command {
    /// What is written, each with its option.
    pub fn outputs(&self) -> Vec<(&'static str, &Target)> {
        let all = match self {
            Command::Stress(args) => {
                vec![("--json", &args.output.json), ("--html", &args.page.html), ("--map", &args.map)]
            }
            Command::Doctor(args) => vec![("--json", &args.json)],
            Command::Bench(args) => vec![("--json", &args.output.json), ("--html", &args.page.html)],
            Command::Map(args) => {
                vec![("--svg", &args.svg), ("--json", &args.json), ("--perfetto", &args.perfetto)]
            }
            Command::Pool(args) => return args.command.outputs(),
            Command::Report(args) => vec![("--html", &args.html), ("--svg", &args.svg)],
        };
        given(all)
    }

    /// The files that are read, and that no output may replace.
    pub fn inputs(&self) -> Vec<&Path> {
        let (files, old) = match self {
            Command::Bench(args) => (&[][..], args.compare.against.as_deref()),
            Command::Map(args) => (&args.files[..], None),
            Command::Pool(args) => (&[][..], args.command.input()),
            Command::Report(args) => (&args.files[..], args.compare.against.as_deref()),
            Command::Stress(_) | Command::Doctor(_) => (&[][..], None),
        };
        files.iter().map(PathBuf::as_path).chain(old).collect()
    }
}

/// The options that were given.
fn given<'a>(all: Vec<(&'static str, &'a Option<Target>)>) -> Vec<(&'static str, &'a Target)> {
    all.into_iter().filter_map(|(option, target)| Some((option, target.as_ref()?))).collect()
}

/// `warpheap doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Write the findings to this file; `-` is standard output. Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub json: Option<Target>,
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
