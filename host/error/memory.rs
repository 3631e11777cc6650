//! Out of memory: the details of [`Error::OutOfMemory`](super::Error::OutOfMemory).

use super::Bytes;
use crate::report::MemoryReport;
use std::fmt;

/// The resource that is exhausted.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum OutOfMemory {
    /// The device is out of memory. Free memory on the device, or run fewer programs on it.
    #[error(
        "cannot allocate {requested} on {device}: {free} of {total} are free; {advice}{}",
        Below(report, "")
    )]
    Device {
        /// The device's name.
        device: String,
        /// The requested size.
        requested: Bytes,
        /// Free memory.
        free: Bytes,
        /// Total memory.
        total: Bytes,
        /// What to do.
        advice: String,
        /// The report of the host pool that failed, if
        /// [`report_out_of_memory`](crate::report_out_of_memory) is on. The message then ends with
        /// it.
        report: Option<Box<MemoryReport>>,
    },

    /// A host allocator is out of memory, or too fragmented. Free some of its blocks and try again.
    #[error(
        "{allocator} cannot allocate {requested}: {used} of {reserved} are in use, {cached} are cached, and the largest \
         free block has {largest}; {advice}{}",
        Below(report, HINT)
    )]
    Pool {
        /// The allocator.
        allocator: String,
        /// The requested size.
        requested: Bytes,
        /// Bytes in use.
        used: Bytes,
        /// Bytes that the allocator holds, used or free; the maximum of a limit.
        reserved: Bytes,
        /// Bytes that are free and not returned upstream; for a limit, those of the allocator that
        /// it wraps.
        cached: Bytes,
        /// The largest block that can be allocated at the moment.
        largest: Bytes,
        /// What to do.
        advice: &'static str,
        /// The state of the allocator, if
        /// [`report_out_of_memory`](crate::report_out_of_memory) was on.
        report: Option<Box<MemoryReport>>,
    },

    /// A growable object reached the end of its reserved addresses. Reserve more when it is built.
    #[error("cannot grow {what} to {requested}: its reservation has {reserved} and cannot grow; {advice}")]
    Reservation {
        /// The object that was to grow.
        what: &'static str,
        /// The requested size.
        requested: Bytes,
        /// The size of the reservation.
        reserved: Bytes,
        /// What to do.
        advice: &'static str,
    },

    /// The system is out of addresses, or does not allow their use. Reserve fewer.
    #[error("cannot {what} {bytes} of addresses on {device}: {why}; {advice}")]
    AddressSpace {
        /// The operation, a verb.
        what: &'static str,
        /// The number of addresses.
        bytes: Bytes,
        /// The device's name.
        device: String,
        /// The system's reason.
        why: String,
        /// What to do.
        advice: &'static str,
    },
}

impl OutOfMemory {
    /// Adds a report to the errors that can have one; see [`Error::with_report`](super::Error).
    pub(super) fn add_report(&mut self, make: impl FnOnce(Option<(u64, u64)>) -> MemoryReport) {
        match self {
            OutOfMemory::Device { report, free, total, .. } => {
                *report = Some(Box::new(make(Some((free.0, total.0)))));
            }
            OutOfMemory::Pool { report, .. } => *report = Some(Box::new(make(None))),
            OutOfMemory::Reservation { .. } | OutOfMemory::AddressSpace { .. } => {}
        }
    }

    /// Adds how to get a report. The message of `Pool` always has it: only host pools return that.
    pub(super) fn add_hint(&mut self) {
        if let OutOfMemory::Device { advice, .. } = self {
            advice.push_str(HINT);
        }
    }

    /// The report of the pool that failed.
    pub fn report(&self) -> Option<&MemoryReport> {
        match self {
            OutOfMemory::Device { report, .. } | OutOfMemory::Pool { report, .. } => report.as_deref(),
            OutOfMemory::Reservation { .. } | OutOfMemory::AddressSpace { .. } => None,
        }
    }
}

/// The end of a message without a report.
const HINT: &str = " (WARPHEAP_OOM_REPORT=1 adds a report)";

/// Prints a report on the lines below a message, or the text instead of one.
struct Below<'a>(&'a Option<Box<MemoryReport>>, &'static str);

impl fmt::Display for Below<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(report) => write!(f, "\n{report}"),
            None => f.write_str(self.1),
        }
    }
}
