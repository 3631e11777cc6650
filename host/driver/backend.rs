//! What a device, a stream, an event and a module must be able to do: one implementation for CUDA, one for
//! the CPU.
//!
//! Addresses are plain numbers here. The callers have checked bounds, devices and lengths; the `unsafe`
//! methods trust them.

use super::device::DeviceInfo;
use super::stream::Stream;
use crate::error::Result;
use crate::simt::{Executor, SimtError, Stats};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What runs the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// An NVIDIA GPU, through its driver.
    Cuda,
    /// This machine's CPU, which runs the same kernel functions.
    Cpu,
}

impl Backend {
    /// `cuda` or `cpu`, as the command line spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Cuda => "cuda",
            Backend::Cpu => "cpu",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The largest grid and block of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub threads_per_block: u32,
    pub block: [u32; 3],
    pub grid: [u32; 3],
    pub shared_bytes_per_block: u32,
}

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub address: u64,
    pub bytes: u64,
}

/// Memory that may have no addresses yet: what [`VirtualMemory::create`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pages(pub u64);

/// Addresses that are reserved first and get memory later, step by step. Every length, and every place in a reservation,
/// is a multiple of the granularity.
pub(crate) trait VirtualMemory: Send + Sync {
    /// In bytes: a power of two.
    fn granularity(&self) -> u64;
    /// Addresses that no one may touch yet, the first a multiple of `align`, a power of two. `bytes` is not 0.
    fn reserve(&self, bytes: u64, align: u64) -> Result<Range>;
    /// Gives back what [`reserve`](Self::reserve) gave out, where nothing is mapped.
    unsafe fn unreserve(&self, range: Range) -> Result<()>;
    /// Memory, of any content. `bytes` is not 0.
    fn create(&self, bytes: u64) -> Result<Pages>;
    /// Gives back what [`create`](Self::create) made, which is mapped nowhere.
    unsafe fn release(&self, pages: Pages) -> Result<()>;
    /// Puts all of `pages` to reserved addresses. No one may touch them there yet.
    unsafe fn map(&self, range: Range, pages: Pages) -> Result<()>;
    /// Undoes one [`map`](Self::map), all of it. No work in flight uses it.
    unsafe fn unmap(&self, range: Range) -> Result<()>;
    /// Lets kernels and copies read and write what one [`map`](Self::map) put there.
    unsafe fn allow(&self, range: Range) -> Result<()>;
}

/// What can be asked of a driver's pool. The first four can be told, and the highest amounts to be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolAttribute {
    /// 0 or 1: what was freed on one stream serves another that has waited for an event behind that.
    FollowEvents,
    /// 0 or 1: it serves another once the work before the free is done.
    Opportunistic,
    /// 0 or 1: it serves another, which is made to wait, rather than to fail.
    InternalDependencies,
    /// Bytes that stay with the pool when someone waits for the device.
    ReleaseThreshold,
    /// Bytes that the pool has of the device.
    ReservedCurrent,
    /// The most since that was made 0.
    ReservedHigh,
    /// Bytes that are allocated from the pool.
    UsedCurrent,
    /// The most since that was made 0.
    UsedHigh,
}

/// A pool of the driver's, whose memory is given out and taken back in the order of streams. Dropping it gives back what is free, and what is
/// not once that is.
pub(crate) trait PoolBackend: Send + Sync {
    /// The address of `bytes`, not 0, for work that the stream is given from now on: a multiple of 256.
    fn alloc(&self, bytes: u64, stream: &Stream) -> Result<u64>;
    /// Takes back what [`alloc`](Self::alloc) gave out, behind what the stream was given so far.
    unsafe fn free(&self, address: u64, stream: &Stream) -> Result<()>;
    /// Gives what nothing uses back to the device, but keeps so many bytes, in use or not.
    fn trim_to(&self, keep: u64) -> Result<()>;
    fn get(&self, attribute: PoolAttribute) -> Result<u64>;
    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()>;
    /// The same for all handles of one pool, and for no other pool while there is one.
    fn key(&self) -> usize;
}

pub(crate) trait DeviceBackend: Send + Sync {
    fn backend(&self) -> Backend;
    /// A short name for messages.
    fn label(&self) -> &str;
    fn info(&self) -> Result<DeviceInfo>;
    fn limits(&self) -> Limits;
    /// The CUDA context; null on the CPU.
    fn raw_context(&self) -> *mut c_void;

    /// Memory that is zero if `zeroed` and of any content otherwise. `bytes` is not 0.
    fn alloc(&self, bytes: u64, align: u64, zeroed: bool) -> Result<Range>;
    /// Waits for the work in flight and gives back what [`alloc`](Self::alloc) gave out.
    fn free(&self, range: Range) -> Result<()>;
    /// What it takes to reserve addresses, if the device can.
    fn virtual_memory(&self) -> Result<Arc<dyn VirtualMemory>>;
    /// A new pool of the driver's, of `most` bytes at most, if the device has such.
    fn new_pool(&self, most: Option<u64>) -> Result<Arc<dyn PoolBackend>>;
    /// The device's own, which all of the program shares.
    fn default_pool(&self) -> Result<Arc<dyn PoolBackend>>;
    /// The one that allocations that name no pool come from: the device's own until the program sets another.
    fn current_pool(&self) -> Result<Arc<dyn PoolBackend>>;

    /// Waits for the work of every stream.
    fn synchronize(&self) -> Result<()>;
    /// The same for what is given back: whoever owns a stream is told of its failure, not the caller.
    fn drain(&self);
    /// Copies into device memory and waits. A kernel that runs at the same time may see a part of
    /// it; that it races with the copy must not be undefined behaviour. The same holds for the
    /// other two.
    unsafe fn write(&self, to: u64, from: *const u8, bytes: usize) -> Result<()>;
    /// Copies out of device memory and waits.
    unsafe fn read(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()>;
    /// Sets each byte and waits.
    unsafe fn fill(&self, range: Range, byte: u8) -> Result<()>;

    fn stream(&self) -> Result<Arc<dyn StreamBackend>>;
    /// A stream over a raw handle of the caller's.
    unsafe fn foreign_stream(&self, raw: *mut c_void) -> Result<Arc<dyn StreamBackend>>;
    /// A module of `ptx`, or of the program's own functions.
    fn module(&self, ptx: Option<&str>) -> Result<Box<dyn ModuleBackend>>;
}

/// A kernel made ready to run on the CPU, its arguments inside.
pub(crate) type CpuJob = Box<dyn FnOnce(&Executor) -> Result<Stats, SimtError> + Send>;

/// A launch whose arguments and grid have been checked.
pub(crate) struct Launch<'a> {
    pub kernel: &'static str,
    pub function: &'a Function,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    /// The address of each argument.
    pub arguments: &'a mut [*mut c_void],
    /// The same launch for the CPU.
    pub cpu_job: &'a dyn Fn() -> CpuJob,
}

pub(crate) trait StreamBackend: Send + Sync {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()>;
    unsafe fn write(&self, to: u64, from: *const u8, bytes: usize) -> Result<()>;
    unsafe fn read(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()>;
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()>;
    unsafe fn fill(&self, range: Range, byte: u8) -> Result<()>;
    fn record(&self) -> Result<Arc<dyn EventBackend>>;
    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()>;
    fn synchronize(&self) -> Result<()>;
    fn is_done(&self) -> Result<bool>;
    /// Whether nothing that the stream was given is still to be done, as far as one can tell; who is told of failures is not told here.
    fn is_idle(&self) -> bool;
    /// The `CUstream`; null on the CPU.
    fn raw(&self) -> *mut c_void;
    /// What the CPU's executor counted in the last kernel that ended on this stream.
    fn cpu_stats(&self) -> Option<Stats> {
        None
    }
}

pub(crate) trait EventBackend: Any + Send + Sync {
    fn is_done(&self) -> Result<bool>;
    fn synchronize(&self) -> Result<()>;
    /// Time since `earlier`; both are done.
    fn elapsed(&self, earlier: &dyn EventBackend) -> Result<Duration>;
}

/// The event as the backend's own. Devices were compared before, so it is.
pub(crate) fn own_event<E: EventBackend>(event: &dyn EventBackend) -> &E {
    let any: &dyn Any = event;
    any.downcast_ref().expect("an event of this backend's device is this backend's")
}

pub(crate) trait ModuleBackend: Send + Sync {
    fn function(&self, name: &'static str) -> Result<Function>;
    /// Where a variable of the module lies; `None` where the kernels are the program's own functions.
    fn variable(&self, _name: &'static str) -> Result<Option<Range>> {
        Ok(None)
    }
    /// What the compiler said about a module that it accepted.
    fn log(&self) -> &str {
        ""
    }
}

/// A kernel in a module.
pub(crate) struct Function {
    /// The `CUfunction`; null on the CPU.
    pub raw: *mut c_void,
    pub attributes: KernelAttributes,
}

// SAFETY: the handle is an address that the driver lets any thread use.
unsafe impl Send for Function {}
// SAFETY: the same.
unsafe impl Sync for Function {}

/// What the compiler made of a kernel. On the CPU only the largest block is known, the rest is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// Registers of each thread.
    pub registers: u32,
    /// Bytes of local memory of each thread: stack and spilled registers.
    pub local_bytes: u32,
    /// Bytes of static shared memory of each block.
    pub shared_bytes: u32,
    /// The largest block it can be launched with.
    pub max_threads_per_block: u32,
    /// PTX version it was written in, ten times the major plus the minor: 70 for 7.0.
    pub ptx_version: u32,
    /// Architecture it was compiled to, ten times the major plus the minor: 90 for sm_90.
    pub binary_version: u32,
}
