//! The data of `warpheap stress`.

use serde::Deserialize;

/// All runs.
#[derive(Clone, Debug, Deserialize)]
pub struct Stress {
    /// A run for each allocator.
    pub runs: Vec<Run>,
}

/// The run of an allocator.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    /// The allocator.
    pub allocator: String,
    /// How it ended: `clean`, `fault`, or another end.
    pub status: String,
    /// Why it has no report.
    #[serde(default)]
    pub error: Option<String>,
    /// What it did.
    pub report: Option<Report>,
    /// The command that repeats it.
    #[serde(default)]
    pub reproduce: String,
}

/// What a run did.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// Pairs of an allocation and a free, per second in kernels.
    pub pairs_per_second: f64,
    /// What was checked.
    #[serde(default)]
    pub verified: Vec<String>,
    /// The first findings.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// The number of all findings.
    #[serde(default)]
    pub findings_total: u64,
}

/// An error that a run found.
#[derive(Clone, Debug, Deserialize)]
pub struct Finding {
    /// Kind of the error.
    pub kind: String,
    /// What was found.
    pub message: String,
}
