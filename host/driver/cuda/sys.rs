//! The functions of the driver, loaded at run time.
//!
//! The types and the library loader come from cudarc. Its functions are not used, for two reasons:
//! they panic if the driver lacks a symbol, and they return an enum of the statuses known today,
//! which a newer driver may extend. Here a missing symbol is an error and a status is a number.

use crate::error::{Error, KernelFault, NotSupported, Result};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute,
    CUjit_option, CUjitInputType, CUlimit, CUlinkState, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    CUmodule, CUresult, CUstream, culib, is_culib_present,
};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::panic::catch_unwind;
use std::ptr::null;
use std::sync::OnceLock;

/// A handle of the driver: one of the types below.
#[derive(Clone, Copy)]
pub struct Handle<P>(pub P);

macro_rules! usable_from_any_thread {
    ($($handle:ty),+) => {$(
        // SAFETY: the driver allows the use of its handles from any thread.
        unsafe impl Send for Handle<$handle> {}
        // SAFETY: the driver synchronises its own state.
        unsafe impl Sync for Handle<$handle> {}
    )+};
}

usable_from_any_thread!(CUcontext, CUevent, CUmemoryPool, CUmodule, CUstream);

/// A `CUresult` of any value.
pub type Status = c_uint;

pub const SUCCESS: Status = CUresult::CUDA_SUCCESS as Status;
pub const INVALID_VALUE: Status = CUresult::CUDA_ERROR_INVALID_VALUE as Status;
pub const OUT_OF_MEMORY: Status = CUresult::CUDA_ERROR_OUT_OF_MEMORY as Status;
pub const NO_DEVICE: Status = CUresult::CUDA_ERROR_NO_DEVICE as Status;
pub const NOT_READY: Status = CUresult::CUDA_ERROR_NOT_READY as Status;
pub const DEINITIALIZED: Status = CUresult::CUDA_ERROR_DEINITIALIZED as Status;
pub const NO_BINARY_FOR_GPU: Status = CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU as Status;
pub const INVALID_IMAGE: Status = CUresult::CUDA_ERROR_INVALID_IMAGE as Status;
pub const UNSUPPORTED_PTX_VERSION: Status = CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as Status;
pub const JIT_COMPILER_NOT_FOUND: Status = CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND as Status;
pub const CONTEXT_IS_DESTROYED: Status = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED as Status;

/// Statuses for a failed kernel; they stick to the context.
const KERNEL_FAULTS: [Status; 9] = [
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as Status,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT as Status,
    CUresult::CUDA_ERROR_ASSERT as Status,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR as Status,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION as Status,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS as Status,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE as Status,
    CUresult::CUDA_ERROR_INVALID_PC as Status,
    CUresult::CUDA_ERROR_LAUNCH_FAILED as Status,
];

macro_rules! api {
    ($(#[$doc:meta])* $api:ident: $($name:ident $symbol:literal ($($ty:ty),*);)+) => {
        $(#[$doc])*
        pub struct $api {
            $(pub $name: unsafe extern "C" fn($($ty),*) -> Status,)+
        }

        impl $api {
            /// The functions, looked up by the first call. The driver library must have been loaded
            /// before.
            pub fn loaded() -> Result<&'static $api> {
                static API: OnceLock<Result<$api>> = OnceLock::new();
                API.get_or_init($api::load).as_ref().map_err(Error::clone)
            }

            fn load() -> Result<$api> {
                Ok($api {
                    // SAFETY: the signatures are those of the driver API, version 11.0 and later.
                    $($name: unsafe { find($symbol) }?,)+
                })
            }
        }
    };
}

api! {
    /// Driver functions, each named as the symbol without `cu` and version.
    Api:
    init "cuInit" (c_uint);
    driver_get_version "cuDriverGetVersion" (*mut c_int);
    get_error_name "cuGetErrorName" (Status, *mut *const c_char);
    get_error_string "cuGetErrorString" (Status, *mut *const c_char);
    device_get_count "cuDeviceGetCount" (*mut c_int);
    device_get "cuDeviceGet" (*mut CUdevice, c_int);
    device_get_name "cuDeviceGetName" (*mut c_char, c_int, CUdevice);
    device_get_attribute "cuDeviceGetAttribute" (*mut c_int, CUdevice_attribute, CUdevice);
    primary_ctx_retain "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
    primary_ctx_release "cuDevicePrimaryCtxRelease_v2" (CUdevice);
    ctx_get_current "cuCtxGetCurrent" (*mut CUcontext);
    ctx_push_current "cuCtxPushCurrent_v2" (CUcontext);
    ctx_pop_current "cuCtxPopCurrent_v2" (*mut CUcontext);
    ctx_get_device "cuCtxGetDevice" (*mut CUdevice);
    ctx_synchronize "cuCtxSynchronize" ();
    ctx_get_limit "cuCtxGetLimit" (*mut usize, CUlimit);
    ctx_set_limit "cuCtxSetLimit" (CUlimit, usize);
    mem_get_info "cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_alloc "cuMemAlloc_v2" (*mut CUdeviceptr, usize);
    mem_free "cuMemFree_v2" (CUdeviceptr);
    mem_host_alloc "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    mem_host_get_device_pointer "cuMemHostGetDevicePointer_v2" (*mut CUdeviceptr, *mut c_void, c_uint);
    mem_free_host "cuMemFreeHost" (*mut c_void);
    memcpy_htod_async "cuMemcpyHtoDAsync_v2" (CUdeviceptr, *const c_void, usize, CUstream);
    memcpy_dtoh_async "cuMemcpyDtoHAsync_v2" (*mut c_void, CUdeviceptr, usize, CUstream);
    memcpy_dtod_async "cuMemcpyDtoDAsync_v2" (CUdeviceptr, CUdeviceptr, usize, CUstream);
    memset_d8_async "cuMemsetD8Async" (CUdeviceptr, u8, usize, CUstream);
    module_load_data_ex "cuModuleLoadDataEx"
        (*mut CUmodule, *const c_void, c_uint, *mut CUjit_option, *mut *mut c_void);
    module_unload "cuModuleUnload" (CUmodule);
    module_get_function "cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char);
    module_get_global "cuModuleGetGlobal_v2" (*mut CUdeviceptr, *mut usize, CUmodule, *const c_char);
    func_get_attribute "cuFuncGetAttribute" (*mut c_int, CUfunction_attribute, CUfunction);
    func_set_attribute "cuFuncSetAttribute" (CUfunction, CUfunction_attribute, c_int);
    stream_create "cuStreamCreate" (*mut CUstream, c_uint);
    stream_get_ctx "cuStreamGetCtx" (CUstream, *mut CUcontext);
    stream_destroy "cuStreamDestroy_v2" (CUstream);
    stream_synchronize "cuStreamSynchronize" (CUstream);
    stream_query "cuStreamQuery" (CUstream);
    stream_wait_event "cuStreamWaitEvent" (CUstream, CUevent, c_uint);
    event_create "cuEventCreate" (*mut CUevent, c_uint);
    event_destroy "cuEventDestroy_v2" (CUevent);
    event_record "cuEventRecord" (CUevent, CUstream);
    event_synchronize "cuEventSynchronize" (CUevent);
    event_query "cuEventQuery" (CUevent);
    event_elapsed_time "cuEventElapsedTime" (*mut f32, CUevent, CUevent);
    launch_kernel "cuLaunchKernel" (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        CUstream, *mut *mut c_void, *mut *mut c_void);
}

api! {
    /// Functions of virtual memory management. Only growable pools need them.
    VirtualApi:
    mem_get_allocation_granularity "cuMemGetAllocationGranularity"
        (*mut usize, *const CUmemAllocationProp, CUmemAllocationGranularity_flags);
    mem_address_reserve "cuMemAddressReserve" (*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
    mem_address_free "cuMemAddressFree" (CUdeviceptr, usize);
    mem_create "cuMemCreate"
        (*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
    mem_release "cuMemRelease" (CUmemGenericAllocationHandle);
    mem_map "cuMemMap" (CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
    mem_unmap "cuMemUnmap" (CUdeviceptr, usize);
    mem_set_access "cuMemSetAccess" (CUdeviceptr, usize, *const CUmemAccessDesc, usize);
}

api! {
    /// Functions of stream-ordered allocation, available since CUDA 11.2.
    PoolApi:
    device_get_default_mem_pool "cuDeviceGetDefaultMemPool" (*mut CUmemoryPool, CUdevice);
    device_get_mem_pool "cuDeviceGetMemPool" (*mut CUmemoryPool, CUdevice);
    mem_pool_create "cuMemPoolCreate" (*mut CUmemoryPool, *const CUmemPoolProps);
    mem_pool_destroy "cuMemPoolDestroy" (CUmemoryPool);
    mem_pool_trim_to "cuMemPoolTrimTo" (CUmemoryPool, usize);
    mem_pool_set_attribute "cuMemPoolSetAttribute" (CUmemoryPool, CUmemPool_attribute, *mut c_void);
    mem_pool_get_attribute "cuMemPoolGetAttribute" (CUmemoryPool, CUmemPool_attribute, *mut c_void);
    mem_alloc_from_pool_async "cuMemAllocFromPoolAsync" (*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
    mem_free_async "cuMemFreeAsync" (CUdeviceptr, CUstream);
}

api! {
    /// Functions of the linker. Without them the driver loads unlinked PTX.
    LinkApi:
    link_create "cuLinkCreate_v2" (c_uint, *mut CUjit_option, *mut *mut c_void, *mut CUlinkState);
    link_add_data "cuLinkAddData_v2" (CUlinkState, CUjitInputType, *mut c_void, usize, *const c_char, c_uint,
        *mut CUjit_option, *mut *mut c_void);
    link_complete "cuLinkComplete" (CUlinkState, *mut *mut c_void, *mut usize);
    link_destroy "cuLinkDestroy" (CUlinkState);
}

/// # Safety
/// `F` is the type of the function `symbol`. The function outlives its use: cudarc never closes the
/// library.
unsafe fn find<F: Copy>(symbol: &'static str) -> Result<F> {
    // SAFETY: the library is present, or `Api::get` would have failed before.
    let library = unsafe { culib() };
    // SAFETY: the caller's promise: `F` is the type of the function `symbol`.
    let function = unsafe { library.get::<F>(symbol) };
    function.map(|function| *function).map_err(|_| NotSupported::DriverTooOld { symbol }.into())
}

impl Api {
    /// The initialised driver. `requested` is the purpose, for the error.
    pub fn get(requested: &str) -> Result<&'static Api> {
        static API: OnceLock<Result<&'static Api>> = OnceLock::new();
        match API.get_or_init(Api::open) {
            Ok(api) => Ok(*api),
            Err(Error::NoDevice { found, advice, .. }) => Err(Error::NoDevice {
                requested: requested.into(),
                found: found.clone(),
                advice: advice.clone(),
            }),
            Err(error) => Err(error.clone()),
        }
    }

    fn open() -> Result<&'static Api> {
        // SAFETY: loading the library runs its constructors; NVIDIA's do not affect this program.
        let present = catch_unwind(|| unsafe { is_culib_present() }).unwrap_or(false);
        if !present {
            return Err(no_device(
                "there is no CUDA driver (libcuda) on this machine",
                "install NVIDIA's driver until `nvidia-smi` lists the GPU, or run on the CPU",
            ));
        }
        let api = Api::loaded()?;
        // SAFETY: takes no pointer.
        match unsafe { (api.init)(0) } {
            SUCCESS => Ok(api),
            NO_DEVICE => Err(no_device(
                "the CUDA driver found no GPU",
                "check whether `nvidia-smi` lists one, whether CUDA_VISIBLE_DEVICES hides it, and in a \
                 container whether it was started with the GPU (`--gpus all`); or run on the CPU",
            )),
            status => {
                let (name, detail) = api.explain(status);
                Err(no_device(
                    &format!("the CUDA driver did not start: {name} ({status}): {detail}"),
                    "check whether `nvidia-smi` works; after an update of the driver, reboot; or run on the CPU",
                ))
            }
        }
    }

    /// Converts the status to an error of `call`.
    pub fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let (name, detail) = self.explain(status);
        Err(match KERNEL_FAULTS.contains(&status) {
            true => KernelFault::Cuda { call, code: status, name, detail }.into(),
            false => Error::Driver { call, code: status, name, detail },
        })
    }

    /// Name and description of a status, from the driver.
    pub fn explain(&self, status: Status) -> (String, String) {
        (self.text(self.get_error_name, status), self.text(self.get_error_string, status))
    }

    fn text(
        &self,
        ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
        status: Status,
    ) -> String {
        let mut text = null();
        // SAFETY: the driver writes a pointer to `text`.
        let answered = unsafe { ask(status, &mut text) };
        if answered != SUCCESS || text.is_null() {
            return "unknown".into();
        }
        // SAFETY: a string of the driver that lives as long as the program.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

fn no_device(found: &str, advice: &str) -> Error {
    Error::NoDevice { requested: String::new(), found: found.into(), advice: advice.into() }
}
