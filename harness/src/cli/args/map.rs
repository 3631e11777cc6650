//! The options of `warpheap map`. Their doc comments are the text of `--help`.

use super::super::parse::{self, Target};
use super::run::BackendChoice;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

pub const MAP_EXAMPLES: &str = "\
Examples:
  warpheap map --demo fragmented
  warpheap map --demo timeline --backend cpu --svg timeline.svg
  warpheap map --demo leak --report
  warpheap stress --allocator heap --map heap.json
  warpheap map heap.json --svg heap.svg
  warpheap map before.json after.json
      Both maps, and their figures over time.

Exit status: 0 on success, 2 if a file or an option is invalid, 3 without the requested GPU, 4 if a kernel
hangs, 5 if the machine or the driver fails.";

/// `warpheap map`
#[derive(Debug, Args)]
pub struct MapArgs {
    /// Saved maps, in order of time; `-` is standard input.
    #[arg(value_name = "FILE", required_unless_present = "demo", value_parser = parse::input())]
    pub files: Vec<PathBuf>,
    /// Draw a heap that the program makes, instead of files.
    ///
    /// Default: none.
    #[arg(long, value_enum, value_name = "HEAP", conflicts_with = "files")]
    pub demo: Option<DemoHeap>,
    /// Bytes of the heap of --demo: 16MiB, 1GiB.
    ///
    /// Default: 16MiB.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, conflicts_with = "files")]
    pub bytes: Option<u64>,
    /// The backend of --demo.
    ///
    /// Default: auto. The first line of the output names the device.
    #[arg(long, value_enum, conflicts_with = "files")]
    pub backend: Option<BackendChoice>,
    /// Ordinal of the GPU of --demo; `warpheap doctor` lists them. Requires a GPU.
    ///
    /// Default: 0, the driver's first.
    #[arg(long, value_name = "N", value_parser = parse::ordinal, conflicts_with = "files")]
    pub device: Option<u32>,
    /// Write the picture to this file; `-` is standard output.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub svg: Option<Target>,
    /// Write the maps to this file: one, or an array of several; `-` is standard output.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub json: Option<Target>,
    /// Write the figures of the maps over time to this file, as Chrome trace JSON for Perfetto; `-`
    /// is standard output. The times of the maps must increase.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub perfetto: Option<Target>,
    /// Print a report of the last map: what holds the memory, and why allocations failed.
    ///
    /// Default: no.
    #[arg(long)]
    pub report: bool,
    /// Whether the text has colours. They repeat what the characters show.
    ///
    /// Default: auto.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColourChoice::Auto, hide_default_value = true)]
    pub color: ColourChoice,
    /// Columns of the rows of cells, 40 to 1000. Figures and legends need 80.
    ///
    /// Default: those of the terminal, or 100 elsewhere.
    #[arg(long, value_name = "COLUMNS", value_parser = parse::columns)]
    pub width: Option<usize>,
}

/// A heap that the program makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoHeap {
    /// A new heap
    Fresh,
    /// Blocks of several sizes, of which some were freed, and large allocations
    Mixed,
    /// Most blocks of one size were freed, but the rest are spread over all slabs
    Fragmented,
    /// Allocated until it was out of memory
    Full,
    /// Five maps of a heap that is filled, fragmented and emptied
    Timeline,
    /// Four maps of a heap in which the blocks of one size are never freed
    Leak,
}

/// Whether text has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
