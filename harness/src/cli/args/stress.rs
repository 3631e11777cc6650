//! The options of `warpheap stress`. Their doc comments are the text of `--help`.

use super::super::parse::{self, Sizes, Target};
use super::report::PageArgs;
use super::run::{LaunchArgs, OutputArgs};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::time::Duration;
use warpheap_harness::stress::{AllocatorKind, Plant, SizeMix, Workload};

pub const STRESS_EXAMPLES: &str = "\
Examples:
  warpheap stress
      All allocators on the GPU, or on the CPU if there is none.
  warpheap stress --backend cuda --seconds 60 --streams 4 --json stress.json
      One minute for each allocator, on four concurrent streams; the results go to a file.
  warpheap stress --allocator freelist --size 4KiB --threads 2^20 --pool 2GiB
      A million threads in each stream, on a pool that is too small for all of them.
  warpheap stress --allocator heap --workload pipeline --mix mostly-small --size 16-8192
      Kernels of one stream allocate blocks of all sizes; kernels of another free them concurrently.
  warpheap stress --allocator heap --pairs 10^10 --streams 4
      Ends when ten billion blocks have been allocated, checked and freed.
  warpheap stress --allocator heap --map heap.json
      Saves a map of the heap as it is after the last round; `warpheap map heap.json` draws it.
  warpheap stress --plant double-free
      Injects a fault. The run must detect it, and exits with status 1.
  warpheap stress --allocator heap --delays heap --size 16-4096 --pool 8MiB
      Delays random threads at all named points of the heap, which is small and often full.
  warpheap stress --replay --seed 42
      Runs on one OS thread, scheduled by the seed: the same seed gives the same run.";

/// The selected allocators.
#[derive(Clone, Debug)]
pub struct Allocators(pub Vec<AllocatorKind>);

/// Parses the name of an allocator, or `all`.
fn allocators() -> impl TypedValueParser<Value = Allocators> {
    let names = AllocatorKind::value_variants().iter().filter_map(AllocatorKind::to_possible_value);
    let names = names.chain([PossibleValue::new("all").help("All of them")]);
    PossibleValuesParser::new(names).map(|name| {
        let one = AllocatorKind::from_str(&name, false);
        Allocators(one.map_or_else(|_| AllocatorKind::ALL.to_vec(), |kind| vec![kind]))
    })
}

/// `warpheap stress`
#[derive(Debug, Args)]
pub struct StressArgs {
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// The allocator.
    ///
    /// Default: all, one after the other.
    #[arg(long, value_parser = allocators(), default_value = "all", hide_default_value = true)]
    pub allocator: Allocators,
    /// What the threads do.
    ///
    /// Default: churn. The others need an allocator that frees single blocks.
    #[arg(long, value_enum, default_value_t, hide_default_value = true)]
    pub workload: Workload,
    /// Distribution of sizes over the range of --size.
    ///
    /// Default: uniform.
    #[arg(long, value_enum, default_value_t, hide_default_value = true)]
    pub mix: SizeMix,
    /// GPU threads in each stream: 65536, 64K, 2^20. Rounded up to whole blocks of 256.
    ///
    /// Default: 2^20 on a GPU, more than are resident at once on any GPU; 8192 on the CPU and 1024
    /// in a replay, which take seconds.
    #[arg(long, value_parser = parse::count)]
    pub threads: Option<u32>,
    /// Bytes of each allocation, one size or a range: 64, 4KiB, 16-8192.
    ///
    /// Default: 16-512. The free list has blocks of the largest size.
    #[arg(long, value_name = "SIZES", value_parser = parse::sizes, default_value = "16-512", hide_default_value = true)]
    pub size: Sizes,
    /// Rounds for each allocator; in each, every thread allocates and frees several times.
    ///
    /// Default: 24 on a GPU and 8 on the CPU; every eighth round exhausts a free list or a heap.
    #[arg(long, value_parser = parse::rounds, conflicts_with = "seconds")]
    pub rounds: Option<u64>,
    /// Seconds for each allocator, instead of --rounds. The last round is finished.
    #[arg(long, value_parser = parse::seconds)]
    pub seconds: Option<Duration>,
    /// Pairs of an allocation and its free for each allocator, instead of --rounds: 1_000_000,
    /// 10^10. The last round is finished.
    #[arg(long, value_parser = parse::rounds, conflicts_with_all = ["rounds", "seconds"])]
    pub pairs: Option<u64>,
    /// Streams with concurrent kernels that share the pool, and free each other's blocks.
    ///
    /// Default: 2.
    #[arg(long, value_parser = parse::count, default_value = "2", hide_default_value = true)]
    pub streams: u32,
    /// Bytes of the pool: 64MiB, 1GiB. A heap is rounded to whole MiB.
    ///
    /// Default: three quarters of what all threads may hold, so that allocations fail at times, or
    /// a sixteenth in a storm; less if the device has less memory.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub pool: Option<u64>,
    /// Seed of the operations of every thread: 42, 0x2a. Without --replay, the interleaving of the
    /// threads still differs between runs.
    ///
    /// Default: a random seed, printed first.
    #[arg(long, value_parser = parse::seed)]
    pub seed: Option<u64>,
    /// Run on the CPU, with every step scheduled by the seed, so that a run can be repeated
    /// exactly. Slower, because it uses one OS thread.
    ///
    /// Default: off.
    #[arg(long)]
    pub replay: bool,
    /// Inject a fault. The run must detect it, and exits with status 1.
    ///
    /// Default: none.
    #[arg(long, value_enum, value_name = "FAULT")]
    pub plant: Option<Plant>,
    /// Delay random threads for 20 to 200 us at these points of an allocator, comma-separated:
    /// names (heap/claim), first parts of names (heap), or all. `list` prints the names. The
    /// program must be built with the feature `delays`.
    ///
    /// Default: none.
    #[arg(long, value_name = "POINTS", value_delimiter = ',')]
    pub delays: Option<Vec<String>>,
    /// Delay one thread in N at each pass of a point; a small N makes delays likely on paths that
    /// threads seldom take.
    ///
    /// Default: 1024.
    #[arg(long, value_name = "N", value_parser = parse::count, requires = "delays")]
    pub delay_one_in: Option<u32>,
    /// Save a map of the heap to this file, for `warpheap map`; `-` is standard output: after the
    /// last round, before its live blocks are freed.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub map: Option<Target>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub page: PageArgs,
}
