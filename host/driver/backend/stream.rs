//! What a stream, an event and a kernel must implement, and the work that they are given.
//!
//! Addresses are plain numbers here. The callers have checked bounds, devices and lengths; the
//! `unsafe` methods trust them.

use super::info::{KernelAttributes, Range};
use crate::error::Result;
use crate::simt::{Executor, SimtError, Stats};
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A copy or fill of device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transfer {
    Write { to: u64, from: *const u8, bytes: usize },
    Read { to: *mut u8, from: u64, bytes: usize },
    Copy { to: u64, from: u64, bytes: usize },
    Fill { range: Range, byte: u8 },
}

impl Transfer {
    pub fn is_empty(&self) -> bool {
        match self {
            Transfer::Write { bytes, .. } | Transfer::Read { bytes, .. } | Transfer::Copy { bytes, .. } => {
                *bytes == 0
            }
            Transfer::Fill { range, .. } => range.bytes == 0,
        }
    }
}

// SAFETY: only `Transfers::transfer` uses the pointers. Its caller promises that they are valid
// until the transfer is done, on any thread.
unsafe impl Send for Transfer {}

/// Copies and fills device memory: as work of a stream, or at once, for a device.
///
/// The caller promises that the memory is valid, and that nothing conflicts with the transfer until
/// it is done.
pub(crate) trait Transfers {
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()>;
}

pub(crate) struct Function {
    /// The `CUfunction`; null on the CPU.
    pub raw: *mut c_void,
    /// The number of its module for reports of panics; 0 if there are none, as on the CPU.
    pub module: u64,
    /// Whether it was launched.
    pub launched: AtomicBool,
    pub attributes: KernelAttributes,
}

// SAFETY: the handle is an address, and the driver allows its use from any thread.
unsafe impl Send for Function {}
// SAFETY: as for `Send`: the driver allows concurrent use of the handle from any thread.
unsafe impl Sync for Function {}

/// A kernel ready to run on the CPU, with its arguments captured.
pub(crate) type CpuJob = Box<dyn FnOnce(&Executor) -> Result<Stats, SimtError> + Send>;

/// A launch with checked arguments and a checked grid.
pub(crate) struct Launch<'a> {
    pub kernel: &'static str,
    pub function: &'a Function,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    /// The address of each argument.
    pub arguments: &'a mut [*mut c_void],
    /// Makes the job that a stream on the CPU runs.
    pub cpu_job: &'a dyn Fn() -> CpuJob,
}

pub(crate) trait StreamBackend: Transfers + Send + Sync {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()>;
    fn record(&self) -> Result<Arc<dyn EventBackend>>;
    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()>;
    fn synchronize(&self) -> Result<()>;
    fn is_done(&self) -> Result<bool>;
    /// Whether the stream has no pending work, as far as can be told. Does not consume a failure,
    /// so the owner of the stream still receives it.
    fn is_idle(&self) -> bool;
    /// The `CUstream`; null on the CPU.
    fn raw(&self) -> *mut c_void;
    /// Counters of the CPU executor for the last kernel that ended on this stream.
    fn cpu_stats(&self) -> Option<Stats> {
        None
    }
}

pub(crate) trait EventBackend: Any + Send + Sync {
    fn is_done(&self) -> Result<bool>;
    fn synchronize(&self) -> Result<()>;
    /// Time since `earlier`. Both events are done.
    fn elapsed(&self, earlier: &dyn EventBackend) -> Result<Duration>;
}

/// The event as this backend's type. The devices were compared before, so the type matches.
pub(crate) fn own_event<E: EventBackend>(event: &dyn EventBackend) -> &E {
    let any: &dyn Any = event;
    any.downcast_ref().expect("an event of this backend's device is this backend's")
}
