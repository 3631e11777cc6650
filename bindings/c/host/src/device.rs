//! The device of a new pool.

use crate::failure::{Failure, Result};
use crate::status::wh_status::WH_NO_DEVICE;
use host::Device;
use host::driver::check_process;
use std::ffi::c_void;
use std::sync::LazyLock;

/// Where kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum wh_backend {
    /// An NVIDIA GPU.
    WH_CUDA = 0,
    /// The CPU, for tests without a GPU. Its "device memory" is memory of the host.
    WH_CPU = 1,
}

/// A device. `{WH_CUDA, NULL}`, all zeros, is that of the current context of the calling thread.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_device {
    /// A `wh_backend`.
    pub backend: i32,
    /// For `WH_CUDA`: a live `CUcontext`, or null for the one that is current on the calling
    /// thread, such as the context of the runtime after `cudaSetDevice` or `cudaFree(0)`. For
    /// `WH_CPU`: null.
    pub context: *mut c_void,
}

/// The CPU, which all pools of the process share.
static CPU: LazyLock<Device> = LazyLock::new(Device::cpu);

impl wh_device {
    /// The device. All pools of a context share one.
    ///
    /// # Safety
    /// A context that is given or current outlives every pool that is made in it.
    pub(crate) unsafe fn open(self) -> Result<Device> {
        check_process()?;
        const CUDA: i32 = wh_backend::WH_CUDA as i32;
        const CPU_BACKEND: i32 = wh_backend::WH_CPU as i32;
        match self.backend {
            CUDA => {
                let context = self.context_or_current()?;
                // SAFETY: the caller's promise: it outlives the pools. The current context is live.
                Ok(unsafe { Device::shared_from_raw_context(context) }?)
            }
            CPU_BACKEND if self.context.is_null() => Ok(CPU.clone()),
            CPU_BACKEND => {
                let why = format!("{:p} is given for WH_CPU, which has no contexts; pass null", self.context);
                Err(Failure::argument("device.context", why))
            }
            other => {
                let why = format!("{other} is no wh_backend; pass WH_CUDA (0) or WH_CPU (1)");
                Err(Failure::argument("device.backend", why))
            }
        }
    }

    fn context_or_current(self) -> Result<*mut c_void> {
        if !self.context.is_null() {
            return Ok(self.context);
        }
        let current = Device::current_raw_context()?;
        if !current.is_null() {
            return Ok(current);
        }
        Err(Failure::new(
            WH_NO_DEVICE,
            "no CUDA context is current on this thread; call cudaSetDevice and cudaFree(0), or \
             cuCtxSetCurrent, before, or pass a context",
        ))
    }
}
