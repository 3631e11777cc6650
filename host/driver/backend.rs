//! What a GPU and the CPU implement, each in its own way: plain data, streams and events, the queue
//! of a stream, memory, devices.

use crate::error::{Error, NotSupported, Result};
use crate::lock::lock;
use crate::simt::{Executor, SimtError, Stats};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use warpheap_ptx::Cubin;

// Plain data: where kernels run, the properties of devices and kernels, and memory ranges.

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

/// Properties of a device. Sizes are in bytes. A property that a backend does not know is 0 or
/// `None`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The product name.
    pub name: String,
    /// Where kernels run.
    pub backend: Backend,
    /// Major and minor compute capability: (9, 0) for sm_90.
    pub compute_capability: Option<(u32, u32)>,
    /// Major and minor CUDA version that the driver supports.
    pub driver_version: Option<(u32, u32)>,
    /// Number of SMs. On the CPU, the number that the executor simulates.
    pub multiprocessors: u32,
    /// Lanes per warp.
    pub warp_size: u32,
    /// Maximum threads per block.
    pub max_threads_per_block: u32,
    /// Maximum resident threads per SM.
    pub max_threads_per_multiprocessor: u32,
    /// Maximum resident warps of the device. On the CPU, those of one kernel.
    pub resident_warps: u64,
    /// Maximum shared memory per block.
    pub shared_bytes_per_block: u32,
    /// Total device memory. On the CPU, the limit that the device was made with.
    pub memory_total: u64,
    /// Device memory that is free at the moment.
    pub memory_free: u64,
    /// Size of the L2 cache.
    pub l2_bytes: u64,
    /// Whether addresses can be reserved first and mapped later.
    pub virtual_memory: bool,
    /// Whether kernels run deterministically: the CPU in replay mode.
    pub replays: bool,
}

/// Properties of a compiled kernel. On the CPU only the maximum block size is known; the rest is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of local memory per thread: stack and spilled registers.
    pub local_bytes: u32,
    /// Bytes of stack per thread that the kernel needs at least: the variables of its functions,
    /// along a chain of direct calls that enters none of them twice. Without saved registers, and
    /// without functions that are called through pointers.
    pub stack_bytes: u64,
    /// Whether the kernel can reach recursion or a call through a pointer. Then it may need more
    /// stack, and its threads have what [`Device::set_stack_bytes`](crate::Device::set_stack_bytes)
    /// sets. Otherwise the driver provides what it needs.
    pub has_open_stack: bool,
    /// Bytes of static shared memory per block.
    pub shared_bytes: u32,
    /// Maximum threads per block.
    pub max_threads_per_block: u32,
    /// PTX version of the kernel: ten times the major plus the minor, so 70 for 7.0.
    pub ptx_version: u32,
    /// Target architecture: ten times the major plus the minor, so 90 for sm_90.
    pub binary_version: u32,
}

/// The largest grid and block of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub threads_per_block: u32,
    pub block: [u32; 3],
    pub grid: [u32; 3],
    pub shared_bytes_per_block: u32,
}

/// What a backend knows of a device without a call to the driver: properties that never change.
#[derive(Clone, Debug)]
pub(crate) struct RawDeviceInfo {
    pub backend: Backend,
    /// A short name for messages.
    pub label: String,
    pub limits: Limits,
}

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub address: u64,
    pub bytes: u64,
}

// What a stream, an event and a kernel must implement, and the work that they are given.
//
// Addresses are plain numbers here. The callers have checked bounds, devices and lengths; the
// `unsafe` methods trust them.

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

// A queue: the state that all handles of a stream share.

/// Identifies a stream. Ids are unique within the process and are not reused after a stream is
/// dropped. Clones of a handle have the same id. Two streams made from the same `CUstream` have
/// different ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(usize);

impl StreamId {
    fn next() -> StreamId {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        // ordering: relaxed; only uniqueness matters.
        StreamId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number, starting from 1, as displayed.
    #[inline]
    pub fn number(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Is notified when the last handle of a stream is dropped.
pub(crate) trait StreamWatcher: Send + Sync {
    /// No handle is left, so no more work is submitted to the stream. `last` records an event after
    /// all submitted work. It fails if the driver fails. Called once, by the thread that drops the
    /// handle. That thread may hold locks, so an implementation may take leaf locks only.
    fn ended(&self, last: &dyn Fn() -> Result<Arc<dyn EventBackend>>);
}

/// A stream of a backend, and its watchers. Dropped with the last handle of the stream.
pub(crate) struct Queue {
    id: StreamId,
    backend: Arc<dyn StreamBackend>,
    /// Notified when the stream ends.
    watchers: Mutex<Vec<Weak<dyn StreamWatcher>>>,
}

impl Queue {
    pub fn new(backend: Arc<dyn StreamBackend>) -> Queue {
        Queue { id: StreamId::next(), backend, watchers: Mutex::default() }
    }

    pub fn id(&self) -> StreamId {
        self.id
    }

    pub fn backend(&self) -> &dyn StreamBackend {
        &*self.backend
    }

    /// Notifies `watcher` when the stream ends, if `watcher` still exists then.
    pub fn watch(&self, watcher: Weak<dyn StreamWatcher>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|other| other.strong_count() > 0);
        watchers.push(watcher);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Without the lock, which a loop over a guard would keep during the calls.
        let watchers = self.watchers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for watcher in std::mem::take(watchers).iter().filter_map(Weak::upgrade) {
            watcher.ended(&|| self.backend.record());
        }
    }
}

// What virtual memory and a stream-ordered pool must implement.

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

/// A stream-ordered pool of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PoolOrigin {
    /// A new pool of at most `max` bytes.
    New { max: Option<u64> },
    /// The default pool of the device, which the whole program shares.
    Default,
    /// The pool for allocations that name no pool. The default pool unless the program sets
    /// another.
    Current,
}

/// A stream-ordered memory pool of the driver. Dropping it releases its free memory at once, and
/// its allocated memory when that is freed.
pub(crate) trait PoolBackend: Send + Sync {
    /// Allocates `bytes`, not 0, for work submitted to the stream from now on. The address is a
    /// multiple of 256.
    fn alloc(&self, bytes: u64, stream: &Queue) -> Result<u64>;
    /// Frees memory from [`alloc`](Self::alloc), ordered after all work submitted to `stream` so
    /// far.
    unsafe fn free(&self, address: u64, stream: &Queue) -> Result<()>;
    /// Releases unused memory to the device until the pool holds `keep` bytes, allocated ones
    /// included.
    fn trim_to(&self, keep: u64) -> Result<()>;
    fn get(&self, attribute: PoolAttribute) -> Result<u64>;
    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()>;
    /// Identifies the pool. All handles of one pool have the same key, and no other pool has it
    /// while a handle exists.
    fn key(&self) -> usize;
}

// What a device and a module must implement.

/// A device. Its [`Transfers`] wait until they are done. A kernel that runs at the same time may
/// see a partial copy; its race with the copy must not be undefined behaviour.
pub(crate) trait DeviceBackend: Transfers + Send + Sync {
    fn raw_info(&self) -> &RawDeviceInfo;
    fn info(&self) -> Result<DeviceInfo>;
    /// The CUDA context; null on the CPU.
    fn raw_context(&self) -> *mut c_void;
    /// Calls `call` with the device's context current on this thread, if it has one. If the context
    /// cannot be made current, logs that and does not call.
    fn with_context(&self, call: &mut dyn FnMut()) {
        call();
    }

    /// Allocates memory that is zero if `zeroed`, arbitrary otherwise. `bytes` is not 0.
    fn alloc(&self, bytes: u64, align: u64, zeroed: bool) -> Result<Range>;
    /// Waits for the work in flight and frees memory from [`alloc`](Self::alloc).
    fn free(&self, range: Range) -> Result<()>;
    /// The operations on virtual memory, if the device supports them.
    fn virtual_memory(&self) -> Result<Arc<dyn VirtualMemory>>;
    /// A driver pool, if the device supports pools.
    fn pool(&self, origin: PoolOrigin) -> Result<Arc<dyn PoolBackend>>;

    /// Sets the size of the heap of CUDA's `malloc` in kernels. Returns the size that is in effect.
    fn set_malloc_heap_bytes(&self, _bytes: u64) -> Result<u64> {
        Err(Error::NotSupported(NotSupported::Backend {
            what: "heap of CUDA's malloc",
            backend: "the CPU",
            advice: "use a CUDA device",
        }))
    }

    /// Sets the stack of each thread of a kernel. Returns the size that is in effect.
    fn set_stack_bytes(&self, _bytes: u64) -> Result<u64> {
        Err(Error::NotSupported(NotSupported::Backend {
            what: "stack size of a kernel's threads",
            backend: "the CPU",
            advice: "pass Executor::with_stack_bytes to Device::cpu_with_executor",
        }))
    }

    /// Waits for the work of every stream.
    fn synchronize(&self) -> Result<()>;
    /// Returns the panics of threads that ended alone, in kernels of any stream that have ended, if
    /// there are some since the last call.
    fn report_panics(&self) -> Result<()>;
    /// Waits for the work of every stream before memory is freed. A failure is reported to the
    /// owner of the stream, not to the caller.
    fn drain(&self);

    fn stream(&self) -> Result<Arc<dyn StreamBackend>>;
    /// A stream for a raw handle that the caller owns.
    unsafe fn foreign_stream(&self, raw: *mut c_void) -> Result<Arc<dyn StreamBackend>>;
    /// A module of `image`, or of the native functions of the program.
    fn module(&self, image: Option<Image<'_>>) -> Result<Box<dyn ModuleBackend>>;
}

/// The code of a module for GPUs.
#[derive(Clone, Copy)]
pub(crate) struct Image<'a> {
    pub ptx: &'a str,
    /// Cubins of this PTX. Those that are empty do not count.
    pub cubins: &'a [Cubin<'a>],
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
    /// The architecture of the cubin that was loaded, if one was.
    fn cubin_arch(&self) -> Option<&str> {
        None
    }
}
