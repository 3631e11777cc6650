//! A short form of an error, for use within the message of another error.

use super::Error;
use crate::error::{InvalidRequest, OutOfMemory};
use std::fmt;

/// Prints the finding of an error in a few words. The enclosing message gives the request and the
/// advice.
pub(crate) struct Brief<'a>(&'a Error);

impl Error {
    pub(crate) fn brief(&self) -> Brief<'_> {
        Brief(self)
    }
}

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::OutOfMemory(OutOfMemory::Pool { allocator, used, reserved, .. }) => {
                write!(f, "{allocator} has {used} of {reserved} in use")
            }
            Error::OutOfMemory(OutOfMemory::Device { device, free, total, .. }) => {
                write!(f, "{free} of {total} are free on {device}")
            }
            Error::InvalidRequest(InvalidRequest::Layout { allocator, requested, why }) => {
                write!(f, "{allocator} cannot allocate {requested}: {why}")
            }
            Error::OutOfMemory(OutOfMemory::Reservation { what, reserved, .. }) => {
                write!(f, "{reserved} are reserved for {what}")
            }
            Error::OutOfMemory(OutOfMemory::AddressSpace { device, why, .. }) => {
                write!(f, "no addresses are available on {device}: {why}")
            }
            Error::Driver { call, code, name, .. } => write!(f, "{call} failed with {name} ({code})"),
            other => other.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Device;
    use crate::host_pools::{CachingPool, DeviceAllocator, DriverPool, Limit, SyncDriverAllocator};
    use std::alloc::Layout;

    const MIB: usize = 1 << 20;

    /// The message of a failed 2 MiB allocation from a caching pool over `upstream`.
    fn message(upstream: impl DeviceAllocator) -> String {
        let stream = upstream.device().stream().unwrap();
        let pool = CachingPool::builder().segment_bytes(MIB as u64).build_over(upstream).unwrap();
        let error = pool.allocate(Layout::from_size_align(2 * MIB, 256).unwrap(), &stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. })), "{error}");
        error.to_string()
    }

    fn limit() -> Limit<SyncDriverAllocator> {
        Limit::new(SyncDriverAllocator::new(&Device::cpu()), MIB as u64)
    }

    #[test]
    fn a_failure_of_the_upstream_is_summarised() {
        assert_eq!(
            message(limit()),
            "a caching pool (its upstream is out of memory: a limit has 0 B of 1048576 B (1.0 MiB) in use) cannot allocate 2097152 B \
             (2.0 MiB): 0 B of 0 B are in use, 0 B are cached, and the largest free block has 0 B; free blocks, run \
             fewer programs on the device, or free memory in a hook (on_exhausted) (WARPHEAP_OOM_REPORT=1 adds a report)"
        );
        let device = Device::cpu_with_executor(
            crate::simt::Executor::new(crate::simt::Mode::Replay { seed: 1 }),
            MIB as u64,
        );
        let text = message(SyncDriverAllocator::new(&device));
        let words = "(its upstream is out of memory: 1048576 B (1.0 MiB) of 1048576 B (1.0 MiB) are free on CPU (replay, seed 1)) cannot";
        assert!(text.contains(words), "{text}");
        let pool = DriverPool::builder().max_size(MIB as u64).build(&device).unwrap();
        let text = message(pool);
        assert!(
            text.contains("(its upstream is out of memory: a stream-ordered pool has 0 B of 1048576 B"),
            "{text}"
        );
    }

    /// Only the outermost pool gives advice, and the request is mentioned once, at any nesting
    /// depth.
    #[test]
    fn nothing_is_repeated_for_nested_pools() {
        let inner = CachingPool::builder().segment_bytes(MIB as u64).build_over(limit()).unwrap();
        let middle = CachingPool::builder().segment_bytes(MIB as u64).build_over(inner).unwrap();
        let text = message(middle);
        for once in [
            "cannot allocate",
            "2097152 B",
            "free blocks",
            "on_exhausted",
            "the largest free block",
            "a limit has",
        ] {
            assert_eq!(text.matches(once).count(), 1, "{once}: {text}");
        }
        assert!(text.len() < 600, "{text}");
    }
}
