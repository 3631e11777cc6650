//! The options of pages and comparisons. Their doc comments are the text of `--help`.

use super::super::parse::{self, Target};
use clap::Args;
use std::path::PathBuf;

pub const REPORT_EXAMPLES: &str = "\
Examples:
  warpheap report bench.json --html bench.html
  warpheap report bench.json stress.json --html all.html
      One page for several results.
  warpheap report suite.json --chart \"time: alloc over threads\" --svg alloc.svg
      One chart as a picture.
  warpheap report new.json --against old.json
      What changed beyond noise.

Exit status: 0 on success, 1 if --against shows that something became worse, 2 if a file or an option is invalid,
5 if the page or the picture cannot be written.";

/// The page of a run.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Write the results as a page with charts to this file; `-` is standard output.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub html: Option<Target>,
}

/// The comparison with older results.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Compare with the results in this JSON file, and exit with status 1 if something became worse
    /// beyond noise, or fails more often; `-` is standard input.
    ///
    /// The results must be of the same command and device. Measurements of fewer than 5 rounds have
    /// no verdict. Default: no comparison.
    #[arg(long, value_name = "FILE", value_parser = parse::input())]
    pub against: Option<PathBuf>,
    /// The smallest change of a median that counts: 10%, 2.5%.
    ///
    /// Default: 10%.
    #[arg(long, value_name = "PERCENT", value_parser = parse::percent, default_value = "10%", hide_default_value = true, requires = "against")]
    pub threshold: f64,
}

/// `warpheap report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Results of bench, stress or pool bench, as --json wrote them; `-` is standard input.
    #[arg(value_name = "RESULTS", required = true, value_parser = parse::input())]
    pub files: Vec<PathBuf>,
    /// Write the page to this file; `-` is standard output.
    ///
    /// Default: none. Required without --against and --svg.
    #[arg(long, value_name = "FILE", value_parser = parse::target(), required_unless_present_any = ["against", "svg"])]
    pub html: Option<Target>,
    /// Write the chart --chart to this file as SVG, for light and dark pages; `-` is standard
    /// output.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target(), requires = "chart")]
    pub svg: Option<Target>,
    /// The chart of --svg, as in `time: alloc over threads`: its group and its title on the page.
    /// The error for another name lists all.
    ///
    /// Default: none.
    #[arg(long, value_name = "NAME", requires = "svg")]
    pub chart: Option<String>,
    #[command(flatten)]
    pub compare: CompareArgs,
}
