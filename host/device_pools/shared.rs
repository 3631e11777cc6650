//! What all device pools share.

use crate::error::{Error, InvalidConfig, Result};
use warpheap_device::fault::{FAULT_LOG_WORDS, Fault, FaultLog};

/// Words per cache line.
pub(super) const LINE_WORDS: usize = 16;
/// Bytes of a cache line.
pub(super) const LINE: u64 = 8 * LINE_WORDS as u64;

/// Faults of kernel threads since the pool was built or reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Number of faults.
    pub count: u64,
    /// The first faults, at most 64.
    pub first: Vec<Fault>,
}

impl Faults {
    pub(super) fn read(words: &[u64; FAULT_LOG_WORDS]) -> Faults {
        let log = FaultLog::from_words(words);
        Faults { count: log.count(), first: log.faults().collect() }
    }
}

/// A violated invariant: its number at the head of the structure's module, and a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's number: `I1`, `I2`, ...
    pub invariant: &'static str,
    /// A description of the violation and its location.
    pub found: String,
}

/// Fails if the last reset of `pool` did not complete.
pub(super) fn check_reset(is_reset: bool, pool: &'static str) -> Result<()> {
    if is_reset { Ok(()) } else { Err(Error::NotReset { pool }) }
}

/// Fails because of an invalid setting of a pool.
pub(super) fn invalid<T>(setting: &'static str, given: impl ToString, why: impl Into<String>) -> Result<T> {
    Err(InvalidConfig::Pool { setting, given: given.to_string(), why: why.into() }.into())
}
