//! Findings: what the checks of a run have found.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FindingKind {
    /// Two live blocks share memory.
    Overlap,
    /// A block is not fully inside the pool.
    OutOfBounds,
    /// A block does not have the requested alignment.
    Misaligned,
    /// The content of a block is not the pattern that its owner wrote.
    Torn,
    /// Memory is neither free nor part of a live block.
    Lost,
    /// A block was freed twice.
    DoubleFree,
    /// An address that does not belong to the pool was freed.
    ForeignFree,
    /// An address inside a block was freed.
    InteriorFree,
    /// The allocator's counts contradict each other or the number of live blocks.
    CountMismatch,
    /// The two independent overlap checks have different results.
    ChecksDisagree,
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A fault that a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The round at the end of which it was found, from 0.
    pub round: u64,
    /// The stream that uses the block in this round, if the block has an owner.
    pub stream: Option<u32>,
    /// The address, if known.
    pub address: Option<u64>,
    /// The message: what was found, where, and both owners.
    pub message: String,
}
