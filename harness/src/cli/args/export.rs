//! The options of `warpheap pool export`. Their doc comments are the text of `--help`.

use super::super::parse::{self, Target};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

pub const EXPORT_EXAMPLES: &str = "\
Examples:
  warpheap pool export --trace allocations.csv --format perfetto --out allocations.json
      Open the file at https://ui.perfetto.dev or in chrome://tracing.
  warpheap pool export --trace allocations.csv --format pytorch --out allocations.pickle
      Drop the file on https://pytorch.org/memory_viz.
  warpheap pool export --trace allocations.csv --format perfetto --out part.json --from 2 --to 2.5 --min-size 1MiB

Exit status: 0 on success, 2 if the log or an option is invalid or no event is left, 5 if the file cannot be
written.";

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
