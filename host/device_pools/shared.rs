//! What all device pools share.

use crate::error::{Error, InvalidConfig, Result};
use serde::{Serialize, Serializer};
use warpheap_device::fault::{FAULT_LOG_WORDS, Fault, FaultLog, SeenWords};

/// Words per cache line.
pub(super) const LINE_WORDS: usize = 16;
/// Bytes of a cache line.
pub(super) const LINE: u64 = 8 * LINE_WORDS as u64;

/// Faults of kernel threads since the pool was built or reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Number of faults.
    pub count: u64,
    /// The first faults, at most 64. Serialised with the names of kinds and the texts of checks.
    #[serde(serialize_with = "serialize_faults")]
    pub first: Vec<Fault>,
}

impl Faults {
    pub(super) fn read(words: &[u64; FAULT_LOG_WORDS]) -> Faults {
        let log = FaultLog::from_words(words);
        Faults { count: log.count(), first: log.faults().collect() }
    }
}

/// A [`Fault`] to serialise: the crate for kernels does without serde.
#[derive(Serialize)]
struct FaultRecord {
    kind: String,
    check: String,
    address: u64,
    detail: u64,
    thread: u32,
    block: u32,
    sm: u32,
    nanos: u64,
    seen: WordsRecord,
    later: WordsRecord,
}

#[derive(Serialize)]
struct WordsRecord {
    word: Option<u64>,
    entry: Option<u64>,
}

fn serialize_faults<S: Serializer>(faults: &[Fault], serializer: S) -> Result<S::Ok, S::Error> {
    let words = |seen: SeenWords| WordsRecord { word: seen.word, entry: seen.entry };
    serializer.collect_seq(faults.iter().map(|fault| FaultRecord {
        kind: format!("{:?}", fault.kind),
        check: fault.check.to_string(),
        address: fault.address,
        detail: fault.detail,
        thread: fault.thread,
        block: fault.block,
        sm: fault.sm,
        nanos: fault.nanos,
        seen: words(fault.seen),
        later: words(fault.later),
    }))
}

/// A violated invariant: its number at the head of the structure's module, and a description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    Err(InvalidConfig::pool(setting, given, why).into())
}
