//! The options of `warpheap stress`. Their doc comments are the text of `--help`.

use super::super::parse::{self, JsonTarget, Sizes};
use super::device::{BackendChoice, GpuArgs};
use super::workload::WorkloadArgs;
use clap::{Args, ValueEnum};
use std::time::Duration;
use warpheap_harness::stress::{AllocatorKind, Plant};

pub(super) const STRESS_EXAMPLES: &str = "\
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
  warpheap stress --plant double-free
      Injects a fault. The run must detect it, and exits with status 1.
  warpheap stress --replay --seed 42
      Runs on one OS thread, scheduled by the seed: the same seed gives the same run.";

/// `warpheap stress`
#[derive(Debug, Args)]
pub struct StressArgs {
    /// The backend.
    ///
    /// Default: auto. The first lines of the output name the device.
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto, hide_default_value = true)]
    pub backend: BackendChoice,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// The allocator.
    ///
    /// Default: all, one after the other.
    #[arg(long, value_enum, default_value_t = AllocatorChoice::All, hide_default_value = true)]
    pub allocator: AllocatorChoice,
    #[command(flatten)]
    pub work: WorkloadArgs,
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
    /// Default: three quarters of what all threads may hold, so that allocations fail at times, or a
    /// sixteenth in a storm; less if the device has less memory.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    pub pool: Option<u64>,
    /// Seed of the operations of every thread: 42, 0x2a. Without --replay, the interleaving of the
    /// threads still differs between runs.
    ///
    /// Default: a random seed, printed first.
    #[arg(long, value_parser = parse::seed)]
    pub seed: Option<u64>,
    /// Run on the CPU, with every step scheduled by the seed, so that a run can be repeated exactly.
    /// Slower, because it uses one OS thread.
    ///
    /// Default: off.
    #[arg(long)]
    pub replay: bool,
    /// Write the results, and how to reproduce them, to this file; `-` is standard output.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::json_target)]
    pub json: Option<JsonTarget>,
    /// Inject a fault. The run must detect it, and exits with status 1.
    ///
    /// Default: none.
    #[arg(long, value_enum, value_name = "FAULT")]
    pub plant: Option<PlantChoice>,
    /// Exit with status 4 if a round takes longer than this many seconds; 0 disables the limit. A
    /// hung kernel cannot be cancelled, so such a run writes no results.
    ///
    /// Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero, default_value = "300", hide_default_value = true)]
    pub watchdog: Duration,
}

/// The allocators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AllocatorChoice {
    /// The arena: any size, freed all at once
    Bump,
    /// The lock-free pool of blocks of one size
    Freelist,
    /// The heap: any size, freed by any thread
    Heap,
    /// All of them
    All,
}

impl AllocatorChoice {
    /// The allocators that this choice selects.
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
    /// The allocator returns memory that is in use
    Overlap,
    /// A thread frees a block twice (not with bump)
    DoubleFree,
    /// A thread leaks a block
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

#[cfg(test)]
mod tests {
    use super::*;

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
