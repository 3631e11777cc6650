//! NVIDIA GPUs, through the driver API. No cudarc type is used outside this folder.

mod context;
mod link;
mod memory;
mod module;
mod pool;
mod stream;
mod sys;
mod virtual_memory;

use self::context::Context;
use self::memory::Heap;
use self::module::CudaModule;
use self::pool::CudaPool;
use self::stream::CudaStream;
use self::sys::Api;
use self::virtual_memory::CudaVirtualMemory;
use super::backend::{
    Backend, DeviceBackend, Limits, ModuleBackend, PoolBackend, Range, StreamBackend, VirtualMemory,
};
use super::device::DeviceInfo;
use crate::error::{Error, NotSupported, Result};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

/// The number of GPUs that the driver reports.
pub(super) fn count() -> Result<u32> {
    count_of(Api::get("a CUDA device")?)
}

fn count_of(api: &Api) -> Result<u32> {
    let mut count = 0;
    // SAFETY: the driver writes the number to `count`.
    let status = unsafe { (api.device_get_count)(&mut count) };
    api.check("cuDeviceGetCount", status)?;
    Ok(count.try_into().unwrap_or(0))
}

pub(super) struct CudaDevice {
    // Before the context: streams and memory must be dropped before it.
    own: CudaStream,
    heap: Arc<Heap>,
    context: Arc<Context>,
    name: String,
    label: String,
    limits: Limits,
}

impl CudaDevice {
    /// The GPU with this ordinal, through its primary context.
    pub fn primary(ordinal: u32) -> Result<CudaDevice> {
        let asked = format!("CUDA device {ordinal}");
        let api = Api::get(&asked)?;
        let count = count_of(api)?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = number.ok_or_else(|| Error::NoDevice {
            asked,
            found: match count {
                0 => "the CUDA driver shows no GPU".into(),
                1 => "the only one is number 0".into(),
                _ => format!("they are numbered 0 to {}", count - 1),
            },
            advice: "look at `nvidia-smi` and CUDA_VISIBLE_DEVICES".into(),
        })?;
        let mut device: CUdevice = 0;
        // SAFETY: the driver writes the device to `device`.
        let status = unsafe { (api.device_get)(&mut device, number) };
        api.check("cuDeviceGet", status)?;
        CudaDevice::over(Context::primary(api, device)?)
    }

    /// A device for a context that the caller owns.
    ///
    /// # Safety
    /// The context is live and outlives this value and everything made from it.
    pub unsafe fn foreign(context: *mut c_void) -> Result<CudaDevice> {
        let api = Api::get("a CUDA context")?;
        // SAFETY: the caller's promise: a live context that outlives the device.
        CudaDevice::over(unsafe { Context::foreign(api, context.cast()) }?)
    }

    fn over(context: Context) -> Result<CudaDevice> {
        let context = Arc::new(context);
        let name = name_of(&context)?;
        let label = format!("CUDA device {} ({name})", context.device);
        Ok(CudaDevice {
            own: CudaStream::create(context.clone())?,
            heap: Arc::new(Heap::new(context.clone(), &label)),
            limits: limits_of(&context)?,
            context,
            name,
            label,
        })
    }
}

impl CudaDevice {
    /// Waits for the device's own stream. Even after a failure no copy is in flight when this
    /// returns, so the caller may reuse its memory.
    fn settle(&self) -> Result<()> {
        self.own.synchronize().inspect_err(|_| self.drain())
    }
}

fn name_of(context: &Context) -> Result<String> {
    let mut name = [0_u8; 256];
    // SAFETY: the driver writes a terminated string of at most this length to `name`.
    let status = unsafe {
        (context.api.device_get_name)(name.as_mut_ptr().cast(), name.len() as c_int, context.device)
    };
    context.api.check("cuDeviceGetName", status)?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

fn attribute(context: &Context, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the driver writes the value to `value`.
    let status = unsafe { (context.api.device_get_attribute)(&mut value, attribute, context.device) };
    context.api.check("cuDeviceGetAttribute", status)?;
    Ok(value.try_into().unwrap_or(0))
}

fn limits_of(context: &Context) -> Result<Limits> {
    let ask = |which| attribute(context, which);
    Ok(Limits {
        threads_per_block: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        block: [
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
        ],
        grid: [
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
        ],
        shared_bytes_per_block: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
    })
}

fn has_virtual_memory(context: &Context) -> Result<bool> {
    Ok(attribute(context, Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0)
}

/// Fails unless the GPU supports pools, and pools with a maximum size if `most` is given.
fn check_pools(context: &Context, most: Option<u64>) -> Result<()> {
    let refuse = |what, backend, advice| Err(NotSupported::Backend { what, backend, advice }.into());
    let version = driver_version(context.api)?;
    if version < (11, 2) {
        let advice = "update it to one of CUDA 11.2 or later, or allocate from SyncDriverAllocator";
        return refuse("stream-ordered pools", "this driver", advice);
    }
    if attribute(context, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
        return refuse(
            "stream-ordered pools",
            "this GPU",
            "allocate from SyncDriverAllocator, or from a pool over it",
        );
    }
    if most.is_some() && version < (12, 2) {
        let advice = "update it to one of CUDA 12.2 or later, or wrap the pool in a Limit";
        return refuse("largest size of a pool", "this driver", advice);
    }
    Ok(())
}

/// Major and minor version. The driver encodes them as 1000 × major + 10 × minor.
fn driver_version(api: &Api) -> Result<(u32, u32)> {
    let mut version = 0;
    // SAFETY: the driver writes the version to `version`.
    let status = unsafe { (api.driver_get_version)(&mut version) };
    api.check("cuDriverGetVersion", status)?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}

impl DeviceBackend for CudaDevice {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn info(&self) -> Result<DeviceInfo> {
        let ask = |which| attribute(&self.context, which);
        let (free, total) = self.heap.free_and_total()?;
        let multiprocessors = ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let max_threads_per_multiprocessor =
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
        let warp_size = ask(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
        let warps_each = max_threads_per_multiprocessor.div_ceil(warp_size.max(1));
        Ok(DeviceInfo {
            name: self.name.clone(),
            backend: Backend::Cuda,
            compute_capability: Some((
                ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            )),
            driver_version: Some(driver_version(self.context.api)?),
            multiprocessors,
            warp_size,
            max_threads_per_block: self.limits.threads_per_block,
            max_threads_per_multiprocessor,
            resident_warps: u64::from(multiprocessors) * u64::from(warps_each),
            shared_bytes_per_block: self.limits.shared_bytes_per_block,
            memory_total: total,
            memory_free: free,
            l2_bytes: ask(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            virtual_memory: has_virtual_memory(&self.context)?,
            replays: false,
        })
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn raw_context(&self) -> *mut c_void {
        self.context.raw().cast()
    }

    fn alloc(&self, bytes: u64, align: u64, zeroed: bool) -> Result<Range> {
        let range = self.heap.alloc(bytes, align)?;
        if zeroed {
            // SAFETY: the memory was just allocated and is not published yet.
            let done = unsafe { self.fill(range, 0) };
            done.inspect_err(|_| self.heap.free_or_log(range))?;
        }
        Ok(range)
    }

    fn free(&self, range: Range) -> Result<()> {
        self.heap.free(range)
    }

    fn virtual_memory(&self) -> Result<Arc<dyn VirtualMemory>> {
        if !has_virtual_memory(&self.context)? {
            return Err(Error::NotSupported(NotSupported::Backend {
                what: "virtual memory management",
                backend: "this GPU",
                advice: "allocate all memory at once: a heap without `initial`, or Device::alloc_memory",
            }));
        }
        Ok(Arc::new(CudaVirtualMemory::new(self.context.clone(), self.heap.clone(), &self.label)?))
    }

    fn new_pool(&self, most: Option<u64>) -> Result<Arc<dyn PoolBackend>> {
        check_pools(&self.context, most)?;
        Ok(Arc::new(CudaPool::create(self.context.clone(), self.heap.clone(), most)?))
    }

    fn default_pool(&self) -> Result<Arc<dyn PoolBackend>> {
        check_pools(&self.context, None)?;
        Ok(Arc::new(CudaPool::of_device(self.context.clone(), self.heap.clone())?))
    }

    fn current_pool(&self) -> Result<Arc<dyn PoolBackend>> {
        check_pools(&self.context, None)?;
        Ok(Arc::new(CudaPool::current(self.context.clone(), self.heap.clone())?))
    }

    fn synchronize(&self) -> Result<()> {
        self.context.synchronize()
    }

    fn drain(&self) {
        // After a fault there is no work to wait for.
        let _ = self.context.synchronize();
    }

    unsafe fn write(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise: both ranges are valid until the copy ends, which `settle`
        // awaits.
        unsafe { self.own.write(to, from, bytes) }?;
        self.settle()
    }

    unsafe fn read(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise: both ranges are valid until the copy ends, which `settle`
        // awaits.
        unsafe { self.own.read(to, from, bytes) }?;
        self.settle()
    }

    unsafe fn fill(&self, range: Range, byte: u8) -> Result<()> {
        // SAFETY: the caller's promise: the range is valid until the fill ends, which the next line
        // awaits.
        unsafe { self.own.fill(range, byte) }?;
        self.own.synchronize()
    }

    fn stream(&self) -> Result<Arc<dyn StreamBackend>> {
        Ok(Arc::new(CudaStream::create(self.context.clone())?))
    }

    unsafe fn foreign_stream(&self, raw: *mut c_void) -> Result<Arc<dyn StreamBackend>> {
        // SAFETY: the caller's promise: a live stream of the context that outlives this value.
        Ok(Arc::new(unsafe { CudaStream::foreign(self.context.clone(), raw) }))
    }

    fn module(&self, ptx: Option<&str>) -> Result<Box<dyn ModuleBackend>> {
        let ptx = ptx.ok_or(NotSupported::Backend {
            what: "kernels without PTX",
            backend: "a CUDA device",
            advice: "build the kernels with warpheap-build and load the PTX with Device::load_module",
        })?;
        Ok(Box::new(CudaModule::load(self.context.clone(), ptx)?))
    }
}
