//! What a device and a module must implement.

use super::info::{DeviceInfo, Range, RawDeviceInfo};
use super::memory::{PoolBackend, PoolOrigin, VirtualMemory};
use super::stream::{Function, StreamBackend, Transfers};
use crate::error::{Error, NotSupported, Result};
use std::ffi::c_void;
use std::sync::Arc;
use warpheap_ptx::Cubin;

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
