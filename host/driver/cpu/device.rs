//! The CPU as a device: a heap, and an executor that its streams share.

use super::copy_exclusion::CopyExclusion;
#[cfg(unix)]
use super::memory::CpuVirtualMemory;
use super::memory::{self, Heap};
use super::pool::{CpuPool, Pools};
use super::queue::{Panics, Queues};
use super::stream::CpuStream;
use crate::driver::backend::{
    Backend, DeviceBackend, DeviceInfo, Function, Image, KernelAttributes, Limits, ModuleBackend,
    PoolBackend, PoolOrigin, Range, RawDeviceInfo, StreamBackend, Transfer, Transfers, VirtualMemory,
};
use crate::driver::check_process;
use crate::error::{Error, NotSupported, Result};
use crate::simt::{Executor, Mode};
use std::ffi::c_void;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use warpheap_device::units::WARP_SIZE;

/// Limits that every CUDA device satisfies, so that a grid that runs here also runs there.
const LIMITS: Limits = Limits {
    threads_per_block: 1024,
    block: [1024, 1024, 64],
    grid: [i32::MAX as u32, 65_535, 65_535],
    shared_bytes_per_block: 48 << 10,
};

/// The device: a heap, and an executor that its streams share.
pub(crate) struct CpuDevice {
    raw_info: RawDeviceInfo,
    executor: Arc<Executor>,
    heap: Arc<Heap>,
    /// Mutual exclusion of kernels and host copies.
    exclusion: Arc<CopyExclusion>,
    queues: Arc<Queues>,
    pools: Arc<Pools>,
    panics: Arc<Panics>,
    default_pool: OnceLock<Arc<CpuPool>>,
}

impl CpuDevice {
    pub fn new(executor: Executor, memory_bytes: u64) -> CpuDevice {
        let label = match executor.mode() {
            Mode::Parallel { workers } => format!("CPU ({workers} workers)"),
            Mode::Replay { seed } => format!("CPU (replay, seed {seed})"),
        };
        let heap = Arc::new(Heap::new(&label, memory_bytes));
        let (exclusion, queues) = (Arc::default(), Arc::default());
        let (pools, panics) = (Arc::default(), Arc::default());
        let (executor, default_pool) = (Arc::new(executor), OnceLock::new());
        let raw_info = RawDeviceInfo { backend: Backend::Cpu, label, limits: LIMITS };
        CpuDevice { raw_info, executor, heap, exclusion, queues, pools, panics, default_pool }
    }

    fn make_pool(&self, max: Option<u64>) -> Arc<CpuPool> {
        self.pools.register(CpuPool::new(self.heap.clone(), self.queues.clone(), max))
    }
}

impl Transfers for CpuDevice {
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()> {
        check_process()?;
        let _alone = self.exclusion.copy();
        // SAFETY: the caller's promise: the memory is valid. The guard excludes kernels.
        unsafe { memory::transfer(transfer) };
        Ok(())
    }
}

impl DeviceBackend for CpuDevice {
    fn raw_info(&self) -> &RawDeviceInfo {
        &self.raw_info
    }

    fn info(&self) -> Result<DeviceInfo> {
        Ok(DeviceInfo {
            name: self.raw_info.label.clone(),
            backend: Backend::Cpu,
            compute_capability: None,
            driver_version: None,
            multiprocessors: self.executor.sm_count(),
            warp_size: WARP_SIZE,
            max_threads_per_block: LIMITS.threads_per_block,
            max_threads_per_multiprocessor: 0,
            resident_warps: self.executor.resident_warps(),
            shared_bytes_per_block: LIMITS.shared_bytes_per_block,
            memory_total: self.heap.total(),
            memory_free: self.heap.free_bytes(),
            l2_bytes: 0,
            virtual_memory: cfg!(unix),
            replays: matches!(self.executor.mode(), Mode::Replay { .. }),
        })
    }

    fn raw_context(&self) -> *mut c_void {
        std::ptr::null_mut()
    }

    fn alloc(&self, bytes: u64, align: u64, _zeroed: bool) -> Result<Range> {
        self.heap.alloc(bytes, align)
    }

    fn free(&self, range: Range) -> Result<()> {
        self.drain();
        self.heap.free(range);
        Ok(())
    }

    #[cfg(unix)]
    fn virtual_memory(&self) -> Result<Arc<dyn VirtualMemory>> {
        Ok(Arc::new(CpuVirtualMemory::new(self.heap.clone())))
    }

    #[cfg(not(unix))]
    fn virtual_memory(&self) -> Result<Arc<dyn VirtualMemory>> {
        Err(Error::NotSupported(NotSupported::Backend {
            what: "virtual memory management",
            backend: "the CPU of this system",
            advice: "allocate all memory at once: a heap without `initial`, or Device::alloc_memory",
        }))
    }

    fn pool(&self, origin: PoolOrigin) -> Result<Arc<dyn PoolBackend>> {
        Ok(match origin {
            PoolOrigin::New { max } => self.make_pool(max),
            // There is no call to set another current pool here.
            PoolOrigin::Default | PoolOrigin::Current => {
                self.default_pool.get_or_init(|| self.make_pool(None)).clone()
            }
        })
    }

    fn synchronize(&self) -> Result<()> {
        check_process()?;
        let done = self.queues.settle();
        self.pools.settle();
        done
    }

    fn report_panics(&self) -> Result<()> {
        self.panics.report()
    }

    fn drain(&self) {
        if check_process().is_ok() {
            self.queues.drain();
            self.pools.settle();
        }
    }

    fn stream(&self) -> Result<Arc<dyn StreamBackend>> {
        let stream = CpuStream::start(
            self.executor.clone(),
            self.exclusion.clone(),
            self.pools.clone(),
            self.panics.clone(),
        )?;
        self.queues.push(stream.queue().clone());
        Ok(Arc::new(stream))
    }

    unsafe fn foreign_stream(&self, _raw: *mut c_void) -> Result<Arc<dyn StreamBackend>> {
        Err(Error::NotSupported(NotSupported::Backend {
            what: "CUDA stream",
            backend: "the CPU",
            advice: "use Device::stream there",
        }))
    }

    fn module(&self, _image: Option<Image<'_>>) -> Result<Box<dyn ModuleBackend>> {
        Ok(Box::new(NativeModule))
    }
}

/// The native functions of the program: every kernel that the program can name exists.
struct NativeModule;

impl ModuleBackend for NativeModule {
    fn function(&self, _name: &'static str) -> Result<Function> {
        let attributes =
            KernelAttributes { max_threads_per_block: LIMITS.threads_per_block, ..Default::default() };
        Ok(Function { raw: std::ptr::null_mut(), module: 0, launched: AtomicBool::new(false), attributes })
    }
}
