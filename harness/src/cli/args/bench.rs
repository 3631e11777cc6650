//! The options of `warpheap bench`. Their doc comments are the text of `--help`.

use super::super::parse;
use super::{CompareArgs, LaunchArgs, OutputArgs, PageArgs};
use clap::Args;
use warpheap_harness::bench::BenchConfig;
use warpheap_harness::bench::suite::Suite;

pub const BENCH_EXAMPLES: &str = "\
Examples:
  warpheap bench
  warpheap bench --figure churn --rounds 50 --json bench.json
  warpheap bench --suite full --json suite.json --html suite.html
  warpheap bench --html bench.html --against old.json
  warpheap bench --suite load --heap 1GiB --json load.json
  warpheap bench --suite quick --backend cpu

Requires a GPU, except for --suite quick and --suite load. Exit status: 0 if all figures meet their targets, 1 if one
does not or became worse, 2 if no figure has that name, 3 without a GPU, 4 if a kernel hangs, 5 if a measurement fails
or a suite on a GPU could not measure a figure.";

/// `warpheap bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Only figures whose name contains this: churn, bump, "4096 B", "heap churn".
    ///
    /// Default: all but the heap's, which are measured only if no other name contains it.
    #[arg(long, value_name = "NAME", default_value = "all", hide_default_value = true)]
    pub figure: String,
    /// Run a suite instead: times over 2^0 to 2^24 threads and over 16 B to 1 MiB, durations of
    /// single calls, Rust's collections, CUDA's malloc in the same run, and heaps over their load.
    ///
    /// Default: none.
    #[arg(long, value_enum, conflicts_with = "figure")]
    pub suite: Option<Suite>,
    /// Sizes of the heaps that a suite measures over their load, comma-separated: 256MiB,1GiB.
    ///
    /// Default: 256 MiB, 1 GiB and 16 GiB; in the quick suite 256 MiB, and 1 MiB on the CPU.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = parse::measured_heap, requires = "suite")]
    pub heap: Option<Vec<u64>>,
    /// Timed rounds of each figure; the result is their median.
    ///
    /// Default: 20; in the quick suite 7, and 3 on the CPU. A suite shortens slow measurements.
    #[arg(long, value_parser = parse::count)]
    pub rounds: Option<u32>,
    #[command(flatten)]
    pub launch: LaunchArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub compare: CompareArgs,
}

impl BenchArgs {
    /// What is measured.
    pub fn config(&self) -> BenchConfig {
        let figure = (self.figure != "all").then(|| self.figure.clone());
        BenchConfig { suite: self.suite, figure, rounds: self.rounds, heaps: self.heap.clone() }
    }
}
