//! A GPU as a device.

use super::context::{
    Context, attribute, check_pools, driver_version, has_virtual_memory, limits_of, name_of,
};
use super::memory::{CudaPool, CudaVirtualMemory, Heap};
use super::module::CudaModule;
use super::panics::Panics;
use super::stream::CudaStream;
use super::sys::Api;
use crate::driver::backend::{
    Backend, DeviceBackend, DeviceInfo, Image, ModuleBackend, PoolBackend, PoolOrigin, Range, RawDeviceInfo,
    StreamBackend, Transfer, Transfers, VirtualMemory,
};
use crate::error::{Error, NotSupported, Result};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUlimit};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// The number of GPUs that the driver reports.
pub(crate) fn count() -> Result<u32> {
    count_of(Api::get("a CUDA device")?)
}

fn count_of(api: &Api) -> Result<u32> {
    let mut count = 0;
    // SAFETY: the driver writes the number to `count`.
    let status = unsafe { (api.device_get_count)(&mut count) };
    api.check("cuDeviceGetCount", status)?;
    Ok(count.try_into().unwrap_or(0))
}

/// The context that is current on the calling thread; null if there is none.
pub(crate) fn current_context() -> Result<*mut c_void> {
    let api = Api::get("the current CUDA context")?;
    let mut current = null_mut();
    // SAFETY: the driver writes the handle to `current`.
    let status = unsafe { (api.ctx_get_current)(&mut current) };
    api.check("cuCtxGetCurrent", status)?;
    Ok(current.cast())
}

pub(crate) struct CudaDevice {
    // Before the context: streams and memory must be dropped before it.
    own: CudaStream,
    heap: Arc<Heap>,
    context: Arc<Context>,
    name: String,
    raw_info: RawDeviceInfo,
}

impl CudaDevice {
    /// The GPU with this ordinal, through its primary context.
    pub fn primary(ordinal: u32) -> Result<CudaDevice> {
        let requested = format!("CUDA device {ordinal}");
        let api = Api::get(&requested)?;
        let count = count_of(api)?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = number.ok_or_else(|| Error::NoDevice {
            requested,
            found: match count {
                0 => "the CUDA driver reports no GPU".into(),
                1 => "the only one is number 0".into(),
                _ => format!("they are numbered 0 to {}", count - 1),
            },
            advice: "check `nvidia-smi` and CUDA_VISIBLE_DEVICES".into(),
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
            raw_info: RawDeviceInfo { backend: Backend::Cuda, label, limits: limits_of(&context)? },
            context,
            name,
        })
    }
}

impl Transfers for CudaDevice {
    /// Even after a failure no copy is in flight when this returns, so the caller may reuse its
    /// memory.
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()> {
        // SAFETY: the caller's promise: the memory is valid until the transfer ends, which the next
        // line awaits.
        unsafe { self.own.transfer(transfer) }?;
        self.own.synchronize().inspect_err(|_| self.drain())
    }
}

impl DeviceBackend for CudaDevice {
    fn raw_info(&self) -> &RawDeviceInfo {
        &self.raw_info
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
            max_threads_per_block: self.raw_info.limits.threads_per_block,
            max_threads_per_multiprocessor,
            resident_warps: u64::from(multiprocessors) * u64::from(warps_each),
            shared_bytes_per_block: self.raw_info.limits.shared_bytes_per_block,
            memory_total: total,
            memory_free: free,
            l2_bytes: ask(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            virtual_memory: has_virtual_memory(&self.context)?,
            replays: false,
        })
    }

    fn raw_context(&self) -> *mut c_void {
        self.context.raw().cast()
    }

    fn with_context(&self, call: &mut dyn FnMut()) {
        match self.context.enter() {
            Ok(_current) => call(),
            Err(error) => tracing::warn!(%error, "a tool was not told about memory of the GPU"),
        }
    }

    fn alloc(&self, bytes: u64, align: u64, zeroed: bool) -> Result<Range> {
        let range = self.heap.alloc(bytes, align)?;
        if zeroed {
            // SAFETY: the memory was just allocated and is not published yet.
            let done = unsafe { self.transfer(Transfer::Fill { range, byte: 0 }) };
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
        Ok(Arc::new(CudaVirtualMemory::new(self.context.clone(), self.heap.clone(), &self.raw_info.label)?))
    }

    fn pool(&self, origin: PoolOrigin) -> Result<Arc<dyn PoolBackend>> {
        check_pools(&self.context, origin)?;
        Ok(Arc::new(CudaPool::obtain(self.context.clone(), self.heap.clone(), origin)?))
    }

    fn set_malloc_heap_bytes(&self, bytes: u64) -> Result<u64> {
        // The driver rejects a new size once a kernel has used the heap.
        self.context.set_limit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, bytes)
    }

    fn set_stack_bytes(&self, bytes: u64) -> Result<u64> {
        self.context.set_stack_bytes(bytes)
    }

    fn synchronize(&self) -> Result<()> {
        self.context.synchronize()
    }

    fn report_panics(&self) -> Result<()> {
        self.context.panics().map_or(Ok(()), Panics::report)
    }

    fn drain(&self) {
        // After a fault there is no work to wait for.
        let _ = self.context.synchronize();
    }

    fn stream(&self) -> Result<Arc<dyn StreamBackend>> {
        Ok(Arc::new(CudaStream::create(self.context.clone())?))
    }

    unsafe fn foreign_stream(&self, raw: *mut c_void) -> Result<Arc<dyn StreamBackend>> {
        // SAFETY: the caller's promise: a live stream that outlives this value.
        let stream = unsafe { CudaStream::foreign(self.context.clone(), raw) };
        if !stream.is_of_context()? {
            let (expected, got) = (self.raw_info.label.clone(), "another CUDA context".into());
            return Err(Error::WrongDevice { what: "the stream", expected, got });
        }
        Ok(Arc::new(stream))
    }

    fn module(&self, image: Option<Image<'_>>) -> Result<Box<dyn ModuleBackend>> {
        let image = image.ok_or(NotSupported::Backend {
            what: "kernels without PTX",
            backend: "a CUDA device",
            advice: "build the kernels with warpheap-build and load the PTX with Device::load_module",
        })?;
        let module = CudaModule::load(self.context.clone(), image)?;
        if let Some((Range { address: to, .. }, settings)) = module.panic_settings()? {
            let from = (&raw const settings).cast();
            let write = Transfer::Write { to, from, bytes: size_of_val(&settings) };
            // SAFETY: the range is the variable of these settings, and no kernel of the module was
            // launched yet.
            unsafe { self.transfer(write) }?;
        }
        Ok(Box::new(module))
    }
}
