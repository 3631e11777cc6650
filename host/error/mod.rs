//! The error type of the host crate.
//!
//! [`Error`] has one variant for each cause that a caller can act on. If a cause has several forms,
//! the variant holds a detail enum of this module: match the variant for the cause, and the detail
//! for its figures.
//!
//! ```
//! use warpheap::error::{Error, OutOfMemory};
//!
//! fn describe(error: &Error) -> String {
//!     match error {
//!         Error::OutOfMemory(OutOfMemory::Device { free, .. }) => {
//!             format!("the device has {free} left")
//!         }
//!         Error::OutOfMemory(_) => "a pool or a reservation is full".into(),
//!         other => other.to_string(),
//!     }
//! }
//! ```

mod brief;
mod kernel;
mod memory;
mod request;
#[cfg(test)]
mod tests;

pub use crate::bytes::Bytes;
pub use kernel::{Dangling, InvalidModule, KernelFault};
pub use memory::OutOfMemory;
pub use request::{InvalidConfig, InvalidFree, InvalidRequest, NotSupported};

use crate::report::MemoryReport;

/// A result with the error type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, by cause. The message says what was requested, what was available, and what to do.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// No usable device. Run on [`Device::cpu`](crate::Device::cpu), or follow `advice`.
    #[error("no usable device: {requested} was requested, but {found}; {advice}")]
    NoDevice {
        /// The requested device.
        requested: String,
        /// What was found instead.
        found: String,
        /// What to do.
        advice: String,
    },

    /// A driver call failed with a status that no other variant represents. Look up `code` in the
    /// driver's documentation.
    #[error("{call} failed with {name} ({code}): {detail}")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// Its status.
        code: u32,
        /// The name of the status.
        name: String,
        /// The driver's explanation.
        detail: String,
    },

    /// The process was forked after its parent had made a device.
    #[error(
        "a forked child cannot use warpheap: the process had made a device before the fork, and neither the threads \
         of its streams nor CUDA survive a fork; fork before the first device is made, or start a new program (in \
         Python, the start method `spawn`)"
    )]
    Forked,

    /// The backend or the driver lacks a feature. Do without it, or use another backend or a newer
    /// driver.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),

    /// A kernel failed. Its context (GPU) or stream (CPU) is unusable, except after
    /// [`KernelFault::Panicked`] with threads that ended alone: discard it, or end the process.
    #[error(transparent)]
    KernelFault(#[from] KernelFault),

    /// The driver's compiler rejected the PTX. Rebuild the kernels as `advice` says.
    #[error("the driver could not compile the PTX: {name} ({code}); {advice}\n{log}")]
    Jit {
        /// The driver's status.
        code: u32,
        /// The name of the status.
        name: String,
        /// What to do.
        advice: String,
        /// The compiler's log.
        log: String,
    },

    /// The module and the program do not match. Rebuild the kernels and the program together.
    #[error(transparent)]
    InvalidModule(#[from] InvalidModule),

    /// The device or the kernel does not support the grid. Change the launch configuration.
    #[error("cannot launch `{kernel}`: {requested}, but {limit}; {advice}")]
    InvalidLaunch {
        /// The kernel's name.
        kernel: &'static str,
        /// The requested grid, block or shared memory.
        requested: String,
        /// The limit of the device or the kernel.
        limit: String,
        /// What to do.
        advice: &'static str,
    },

    /// A setting is out of range. Change it: the same settings fail again.
    #[error(transparent)]
    InvalidConfig(#[from] InvalidConfig),

    /// A request that can never succeed, however much memory is free. Change the request.
    #[error(transparent)]
    InvalidRequest(#[from] InvalidRequest),

    /// A free of an address where no live block starts, or with another layout. Nothing was freed
    /// for that address. The program has a double, foreign or interior free.
    #[error(transparent)]
    InvalidFree(#[from] InvalidFree),

    /// A pool cannot be reset while blocks are allocated. Free them first; the pool is unchanged.
    #[error(
        "{allocator} cannot be reset: {blocks} blocks with {bytes} of its {reserved} are still allocated; {advice}"
    )]
    InUse {
        /// The allocator.
        allocator: String,
        /// The number of allocated blocks.
        blocks: u64,
        /// Their bytes.
        bytes: Bytes,
        /// The bytes of the pool, used or free.
        reserved: Bytes,
        /// What to do.
        advice: &'static str,
    },

    /// The last reset of a pool failed, so its metadata may be incomplete. Reset it again, or drop
    /// it.
    #[error(
        "{pool} cannot be used: its last reset failed; call `reset` again before anything else, or drop it"
    )]
    NotReset {
        /// The pool.
        pool: &'static str,
    },

    /// Out of memory or of addresses. Free memory and try again, or request less; nothing was
    /// allocated.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),

    /// A copy or a view reaches past the end of its memory. Nothing was copied; correct the range.
    #[error("cannot copy {requested} at offset {offset}: {what} holds {size}")]
    OutOfBounds {
        /// The offset of the copy.
        offset: Bytes,
        /// The length of the copy.
        requested: Bytes,
        /// The side that is too short.
        what: &'static str,
        /// The length of that side.
        size: Bytes,
    },

    /// A launch would use memory that was freed. The kernel was not launched; keep the memory alive
    /// until then.
    #[error(transparent)]
    Dangling(#[from] Dangling),

    /// Objects of two devices were used together. Use objects of one device.
    #[error("{what} belongs to {got}, but the call is for {expected}; use objects of one device together")]
    WrongDevice {
        /// The object of the other device.
        what: &'static str,
        /// The device of the call.
        expected: String,
        /// The device of the object.
        got: String,
    },

    /// No thread can be started: of a stream on the CPU, for instance. Use fewer threads or
    /// streams, or raise the system's limits.
    #[error("cannot start a thread for {what}: {why}; {advice}")]
    NoThread {
        /// The work of the thread.
        what: &'static str,
        /// The reason.
        why: String,
        /// What to do.
        advice: &'static str,
    },

    /// A test's [`FailureInjected`](crate::host_pools::FailureInjected) failed this call. Handle it
    /// as out of memory.
    #[error("call {call} of an allocator failed: FailureInjected injected this failure")]
    FailureInjected {
        /// The number of the call, from 1.
        call: u64,
    },

    /// A log of allocations cannot be written or read. The allocations themselves are not affected.
    #[error("the log of allocations cannot be {what}: {why}; {advice}")]
    AllocLog {
        /// The failed operation: `written`, `read` or another verb.
        what: &'static str,
        /// The reason.
        why: String,
        /// What to do.
        advice: &'static str,
    },
}

impl Error {
    /// Whether no device was available, as opposed to a device that failed.
    #[must_use]
    pub fn is_no_device(&self) -> bool {
        matches!(self, Error::NoDevice { .. })
    }

    /// The report of the host pool that was out of memory, if
    /// [`report_out_of_memory`](crate::report_out_of_memory) was on.
    #[must_use]
    pub fn report(&self) -> Option<&MemoryReport> {
        match self {
            Error::OutOfMemory(error) => error.report(),
            _ => None,
        }
    }

    /// Adds a report, if this is the failure of a pool that was out of memory. `report` gets the
    /// free and the total bytes of the device, if the driver failed the allocation.
    pub(crate) fn with_report(mut self, report: impl FnOnce(Option<(u64, u64)>) -> MemoryReport) -> Error {
        if let Error::OutOfMemory(error) = &mut self {
            error.add_report(report);
        }
        self
    }

    /// Adds how to get a report, if this is the failure of a pool that was out of memory.
    pub(crate) fn with_report_hint(mut self) -> Error {
        if let Error::OutOfMemory(error) = &mut self {
            error.add_hint();
        }
        self
    }

    /// Whether the device is unusable: a kernel failed, and its context or stream with it. Not if
    /// only some of its threads panicked and ended.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Error::KernelFault(KernelFault::Panicked { panic, .. }) => panic.ended_grid,
            other => matches!(other, Error::KernelFault(_)),
        }
    }
}
