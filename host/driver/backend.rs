//! The backend traits: what a device, a stream, an event and a module must implement. CUDA has one
//! implementation, the CPU has the other.
//!
//! Addresses are plain numbers here. The callers have checked bounds, devices and lengths; the
//! `unsafe` methods trust them.

use super::device::DeviceInfo;
use super::stream::Stream;
use crate::error::Result;
use crate::simt::{Executor, SimtError, Stats};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// An NVIDIA GPU, through its driver.
    Cuda,
    /// This machine's CPU, which runs the same kernel functions.
    Cpu,
}

impl Backend {
    /// `cuda` or `cpu`, the spelling of the command line.
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

/// Physical memory that may not be mapped yet. Made by [`VirtualMemory::create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pages(pub u64);

/// Address ranges that are reserved first and backed with memory later, step by step. Every length,
/// and every offset in a reservation, is a multiple of the granularity.
pub(crate) trait VirtualMemory: Send + Sync {
    /// The granularity in bytes, a power of two.
    fn granularity(&self) -> u64;
    /// Reserves addresses without memory. They must not be accessed until memory is mapped. The
    /// first address is a multiple of `align`, a power of two. `bytes` is not 0.
    fn reserve(&self, bytes: u64, align: u64) -> Result<Range>;
    /// Frees a range from [`reserve`](Self::reserve). Nothing is mapped there.
    unsafe fn unreserve(&self, range: Range) -> Result<()>;
    /// Allocates memory with arbitrary contents. `bytes` is not 0.
    fn create(&self, bytes: u64) -> Result<Pages>;
    /// Frees memory from [`create`](Self::create). It is not mapped.
    unsafe fn release(&self, pages: Pages) -> Result<()>;
    /// Maps all of `pages` to reserved addresses. They must not be accessed until
    /// [`allow`](Self::allow).
    unsafe fn map(&self, range: Range, pages: Pages) -> Result<()>;
    /// Undoes one [`map`](Self::map) entirely. No work in flight uses the range.
    unsafe fn unmap(&self, range: Range) -> Result<()>;
    /// Allows kernels and copies to read and write the range of one [`map`](Self::map).
    unsafe fn allow(&self, range: Range) -> Result<()>;
}

/// Attributes of a driver pool. The first four can be set. The high-water marks can only be set to
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolAttribute {
    /// 0 or 1: memory freed on one stream can be allocated on another stream that has waited for an
    /// event recorded after the free.
    FollowEvents,
    /// 0 or 1: freed memory can be allocated on another stream once the work before the free is
    /// done.
    Opportunistic,
    /// 0 or 1: rather than fail, an allocation may take memory freed on another stream and make its
    /// own stream wait for that free.
    InternalDependencies,
    /// Release threshold: bytes that the pool keeps when the host synchronises with the device.
    ReleaseThreshold,
    /// Bytes that the pool holds from the device.
    ReservedCurrent,
    /// High-water mark of [`ReservedCurrent`](Self::ReservedCurrent) since it was last set to 0.
    ReservedHigh,
    /// Bytes currently allocated from the pool.
    UsedCurrent,
    /// High-water mark of [`UsedCurrent`](Self::UsedCurrent) since it was last set to 0.
    UsedHigh,
}

/// A stream-ordered memory pool of the driver. Dropping it releases its free memory at once, and
/// its allocated memory when that is freed.
pub(crate) trait PoolBackend: Send + Sync {
    /// Allocates `bytes`, not 0, for work submitted to the stream from now on. The address is a
    /// multiple of 256.
    fn alloc(&self, bytes: u64, stream: &Stream) -> Result<u64>;
    /// Frees memory from [`alloc`](Self::alloc), ordered after all work submitted to `stream` so
    /// far.
    unsafe fn free(&self, address: u64, stream: &Stream) -> Result<()>;
    /// Releases unused memory to the device until the pool holds `keep` bytes, allocated ones
    /// included.
    fn trim_to(&self, keep: u64) -> Result<()>;
    fn get(&self, attribute: PoolAttribute) -> Result<u64>;
    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()>;
    /// Identifies the pool. All handles of one pool have the same key, and no other pool has it
    /// while a handle exists.
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

    /// Allocates memory that is zero if `zeroed`, arbitrary otherwise. `bytes` is not 0.
    fn alloc(&self, bytes: u64, align: u64, zeroed: bool) -> Result<Range>;
    /// Waits for the work in flight and frees memory from [`alloc`](Self::alloc).
    fn free(&self, range: Range) -> Result<()>;
    /// The operations on virtual memory, if the device supports them.
    fn virtual_memory(&self) -> Result<Arc<dyn VirtualMemory>>;
    /// A new driver pool of at most `most` bytes, if the device supports pools.
    fn new_pool(&self, most: Option<u64>) -> Result<Arc<dyn PoolBackend>>;
    /// The default pool of the device, which the whole program shares.
    fn default_pool(&self) -> Result<Arc<dyn PoolBackend>>;
    /// The pool for allocations that name no pool. The default pool unless the program sets
    /// another.
    fn current_pool(&self) -> Result<Arc<dyn PoolBackend>>;

    /// Waits for the work of every stream.
    fn synchronize(&self) -> Result<()>;
    /// Waits for the work of every stream before memory is freed. A failure is reported to the
    /// owner of the stream, not to the caller.
    fn drain(&self);
    /// Copies into device memory and waits. A kernel that runs at the same time may see a partial
    /// copy; its race with the copy must not be undefined behaviour. The same holds for `read` and
    /// `fill`.
    unsafe fn write(&self, to: u64, from: *const u8, bytes: usize) -> Result<()>;
    /// Copies out of device memory and waits.
    unsafe fn read(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()>;
    /// Sets every byte and waits.
    unsafe fn fill(&self, range: Range, byte: u8) -> Result<()>;

    fn stream(&self) -> Result<Arc<dyn StreamBackend>>;
    /// A stream for a raw handle that the caller owns.
    unsafe fn foreign_stream(&self, raw: *mut c_void) -> Result<Arc<dyn StreamBackend>>;
    /// A module of `ptx`, or of the native functions of the program.
    fn module(&self, ptx: Option<&str>) -> Result<Box<dyn ModuleBackend>>;
}

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

pub(crate) trait ModuleBackend: Send + Sync {
    fn function(&self, name: &'static str) -> Result<Function>;
    /// The address range of a variable of the module. `None` if the kernels are the native
    /// functions of the program.
    fn variable(&self, _name: &'static str) -> Result<Option<Range>> {
        Ok(None)
    }
    /// The compiler's log for a module that it accepted.
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

// SAFETY: the handle is an address, and the driver allows its use from any thread.
unsafe impl Send for Function {}
// SAFETY: as for `Send`: the driver allows concurrent use of the handle from any thread.
unsafe impl Sync for Function {}

/// Properties of a compiled kernel. On the CPU only the maximum block size is known; the rest is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of local memory per thread: stack and spilled registers.
    pub local_bytes: u32,
    /// Bytes of static shared memory per block.
    pub shared_bytes: u32,
    /// Maximum threads per block.
    pub max_threads_per_block: u32,
    /// PTX version of the kernel: ten times the major plus the minor, so 70 for 7.0.
    pub ptx_version: u32,
    /// Target architecture: ten times the major plus the minor, so 90 for sm_90.
    pub binary_version: u32,
}
