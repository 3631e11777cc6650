//! The device of a new pool, and the device library: PTX that defines `wh_malloc` and the other
//! functions for kernels.

use crate::arguments::Out;
use crate::call::{c_string, call};
use crate::status::wh_status::{self, WH_NO_DEVICE, WH_NOT_SUPPORTED};
use crate::status::{Failure, Result};
use host::Device;
use host::driver::check_process;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null;
use std::sync::{LazyLock, Mutex};
use warpheap_bindings::device_library::device_library;
use warpheap_bindings::lock::lock;

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

/// The texts of the libraries that were returned, by architecture. Each ends with a byte of zero,
/// as the driver's linker expects, and is never removed.
static TEXTS: Mutex<BTreeMap<&str, CString>> = Mutex::new(BTreeMap::new());

/// Returns the device library for a GPU of compute capability `major.minor`: relocatable PTX, to be
/// linked with the program's kernels by `nvcc`, nvJitLink or `cuLinkAddData`. The text ends with a
/// byte of zero, is static, and must not be freed. `bytes` gets its length without that byte; it
/// may be null.
///
/// # Safety
/// `ptx` and `bytes` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_device_library(
    major: i32,
    minor: i32,
    ptx: *mut *const c_char,
    bytes: *mut usize,
) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(ptx, "ptx", null()) }?;
        // SAFETY: the caller's promise.
        let length = unsafe { Out::optional(bytes, "bytes", 0) }?;
        // Another thread may hold the lock at the fork.
        check_process()?;
        let unsupported = |why| Failure::new(WH_NOT_SUPPORTED, why);
        let image = device_library(Some((major.into(), minor.into()))).map_err(unsupported)?;
        let mut texts = lock(&TEXTS);
        let text = texts.entry(image.arch).or_insert_with(|| c_string(image.ptx.to_owned()));
        out.set(text.as_ptr());
        length.iter().for_each(|length| length.set(text.count_bytes()));
        Ok(())
    })
}
