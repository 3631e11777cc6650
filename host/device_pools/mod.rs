//! Pools that kernels allocate from: setup, host-side inspection, and release.
//!
//! [`GrowableBuffer`] is the basis of growable pools, and can be used separately.
//!
//! A pool owns its memory and its metadata, in separate allocations, and provides a handle that is
//! passed to kernels by value. The handle names the pool's memory, so a launch after the pool was
//! dropped fails.

mod bump;
mod freelist;
mod global;
mod growable;
mod heap;

pub use bump::{Bump, BumpBuilder, BumpStats};
pub use freelist::{FreeList, FreeListBuilder, FreeListStats};
pub use growable::GrowableBuffer;
pub use heap::{
    AllocationSite, Heap, HeapBuilder, HeapClassStats, HeapSnapshot, HeapStats, Leak, Leaks, Origin,
    SiteLeaks,
};

use crate::error::{Error, InvalidConfig, Result};
use warpheap_device::fault::{FAULT_LOG_WORDS, Fault, FaultLog};

/// Words per cache line.
const LINE_WORDS: usize = 16;
/// Bytes of a cache line.
const LINE: u64 = 8 * LINE_WORDS as u64;

/// Asserts that threads can share all of these.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Heap>();
    is_shared::<HeapSnapshot>();
    is_shared::<FreeList>();
    is_shared::<Bump>();
    is_shared::<GrowableBuffer>();
};

/// Faults of kernel threads since the pool was built or reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Number of faults.
    pub count: u64,
    /// The first faults, at most 64.
    pub first: Vec<Fault>,
}

impl Faults {
    fn read(words: &[u64; FAULT_LOG_WORDS]) -> Faults {
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
fn check_reset(is_reset: bool, pool: &'static str) -> Result<()> {
    if is_reset { Ok(()) } else { Err(Error::NotReset { pool }) }
}

fn refuse<T>(setting: &'static str, given: impl ToString, why: impl Into<String>) -> Result<T> {
    Err(InvalidConfig::Pool { setting, given: given.to_string(), why: why.into() }.into())
}
