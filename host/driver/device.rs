//! Devices: owners of memory, streams and modules.

use super::backend::{Backend, DeviceBackend, Range};
use super::memory::DeviceMemory;
use super::module::{Module, WeakModule};
use super::registry::Registry;
use super::stream::{Queue, Stream};
use super::{cpu, cuda};
use crate::error::{Error, Result};
use crate::simt::{Executor, Mode};
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A GPU, or the CPU as a substitute. Cloning gives another handle to the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Box<dyn DeviceBackend>,
    /// The ordinal of the GPU if this is its primary context.
    primary: Option<u32>,
    registry: Registry,
    default_stream: Mutex<Option<Arc<Queue>>>,
    /// The module of the library's own kernels, while it is in use.
    own_kernels: Mutex<WeakModule>,
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

/// All live devices. Used to return the same device for the same GPU, and to name the owner of a
/// foreign address.
static ALIVE: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// The list of live devices, pruned of dropped ones. A panic elsewhere leaves it consistent.
fn alive() -> MutexGuard<'static, Vec<Weak<Inner>>> {
    let mut all = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|device| device.strong_count() > 0);
    all
}

impl Device {
    /// The GPU with this ordinal, from 0, through its primary context. The same GPU gives the same
    /// device.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver or no such GPU. The message says what to do.
    pub fn cuda(ordinal: u32) -> Result<Device> {
        // Dropped after the guard: the last handle of a device must not be dropped under the lock.
        let mut devices = Vec::new();
        let mut all = alive();
        devices.extend(all.iter().filter_map(Device::upgrade));
        if let Some(device) = devices.iter().find(|device| device.inner.primary == Some(ordinal)) {
            return Ok(device.clone());
        }
        let backend = Box::new(cuda::CudaDevice::primary(ordinal)?);
        Ok(Device::enlist(&mut all, backend, Some(ordinal)))
    }

    /// Number of GPUs.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver.
    pub fn cuda_count() -> Result<u32> {
        cuda::count()
    }

    /// The CPU with one worker per hardware thread, limited to half of the machine's memory.
    pub fn cpu() -> Device {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        Device::cpu_with(Mode::Parallel { workers })
    }

    /// The CPU with lanes scheduled in `mode`, limited to half of the machine's memory.
    pub fn cpu_with(mode: Mode) -> Device {
        Device::cpu_with_executor(Executor::new(mode), cpu::default_memory_bytes())
    }

    /// The CPU with the caller's executor, limited to `memory_bytes` of device memory. Each call
    /// makes a separate device.
    pub fn cpu_with_executor(executor: Executor, memory_bytes: u64) -> Device {
        Device::enlist(&mut alive(), Box::new(cpu::CpuDevice::new(executor, memory_bytes)), None)
    }

    /// A device for a `CUcontext` that the caller owns.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver.
    ///
    /// # Safety
    /// `context` is a live CUDA context. It stays live as long as the device and everything made
    /// from it.
    pub unsafe fn from_raw_context(context: *mut c_void) -> Result<Device> {
        // SAFETY: the caller's promise: a live context that outlives the device.
        let backend = unsafe { cuda::CudaDevice::foreign(context) }?;
        Ok(Device::enlist(&mut alive(), Box::new(backend), None))
    }

    fn enlist(all: &mut Vec<Weak<Inner>>, backend: Box<dyn DeviceBackend>, primary: Option<u32>) -> Device {
        let registry = Registry::default();
        let inner = Arc::new(Inner {
            backend,
            primary,
            registry,
            default_stream: Mutex::default(),
            own_kernels: Mutex::default(),
        });
        all.push(Arc::downgrade(&inner));
        Device { inner }
    }

    /// A device of any backend.
    #[cfg(test)]
    pub(super) fn over(backend: Box<dyn DeviceBackend>) -> Device {
        Device::enlist(&mut alive(), backend, None)
    }

    fn upgrade(weak: &Weak<Inner>) -> Option<Device> {
        weak.upgrade().map(|inner| Device { inner })
    }

    /// Where kernels run.
    pub fn backend(&self) -> Backend {
        self.driver().backend()
    }

    /// The properties of the device and its current free memory.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn info(&self) -> Result<DeviceInfo> {
        self.driver().info()
    }

    /// The `CUcontext`; null on the CPU.
    pub fn raw_context(&self) -> *mut c_void {
        self.driver().raw_context()
    }

    /// A new stream, not ordered with any other.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream::new(self.clone(), self.driver().stream()?))
    }

    /// The default stream of the device, created by the first call. It is not ordered with any
    /// other stream.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn default_stream(&self) -> Result<Stream> {
        let mut slot = self.inner.default_stream.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = match &*slot {
            Some(queue) => queue.clone(),
            None => slot.insert(Arc::new(Queue::new(self.driver().stream()?))).clone(),
        };
        Ok(Stream::of(self.clone(), queue))
    }

    /// Waits for the work of every stream.
    ///
    /// # Errors
    /// An earlier failure, of a kernel for instance.
    pub fn synchronize(&self) -> Result<()> {
        self.driver().synchronize()
    }

    /// Compiles `ptx` for this device. On the CPU only the declarations of the text are read: the
    /// kernels are the native functions of the program.
    ///
    /// # Errors
    /// [`Error::Jit`] with the compiler's log.
    pub fn load_module(&self, ptx: &str) -> Result<Module> {
        Module::load(self, Some(ptx), None)
    }

    /// Compiles some kernels of `ptx`, everything that they can reach, and all variables. A driver
    /// needs seconds for each kernel that reaches much code, the slow paths of a heap for instance.
    /// [`kernel_names!`](crate::kernel_names!) makes the list. Launching any other kernel is an
    /// error, on the CPU too.
    ///
    /// ```
    /// use warpheap::error::{Error, InvalidModule};
    /// use warpheap::{Device, kernel_names};
    /// # use warpheap_device::kernel;
    /// # kernel! {
    /// #     /// # Safety
    /// #     /// None.
    /// #     pub unsafe fn double() {}
    /// #     /// # Safety
    /// #     /// None.
    /// #     pub unsafe fn sum() {}
    /// # }
    /// # const PTX: &str = ".version 7.0 .target sm_70 .visible .entry double() { ret; } .visible .entry sum() { ret; }";
    ///
    /// let module = Device::cpu().load_kernels(PTX, &kernel_names![double])?;
    /// assert_eq!(module.kernels().collect::<Vec<_>>(), ["double"]);
    /// let error = module.check(sum).unwrap_err();
    /// assert!(matches!(
    ///     error,
    ///     Error::InvalidModule(InvalidModule::UnknownKernel { kernel: "sum", .. })
    /// ));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidModule`] for a kernel that is not in `ptx`, [`Error::Jit`].
    pub fn load_kernels(&self, ptx: &str, kernels: &[&'static str]) -> Result<Module> {
        Module::load(self, Some(ptx), Some(kernels))
    }

    /// The kernels that are compiled into this program, without PTX. Only the CPU can run them.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a GPU.
    pub fn native_module(&self) -> Result<Module> {
        Module::load(self, None, None)
    }

    /// As [`native_module`](Self::native_module), restricted to some kernels. Launching any other
    /// kernel is an error, as for [`load_kernels`](Self::load_kernels).
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a GPU.
    pub fn native_kernels(&self, kernels: &[&'static str]) -> Result<Module> {
        Module::load(self, None, Some(kernels))
    }

    /// Allocates `bytes` with arbitrary contents, aligned to `align` and to 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidRequest`].
    pub fn alloc_memory(&self, bytes: u64, align: usize) -> Result<DeviceMemory> {
        DeviceMemory::new(self, bytes, align, false)
    }

    /// Allocates `bytes` of zeroed memory, aligned to `align` and to 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidRequest`].
    pub fn zeroed_memory(&self, bytes: u64, align: usize) -> Result<DeviceMemory> {
        DeviceMemory::new(self, bytes, align, true)
    }

    /// Total bytes and count of the live allocations made through this device.
    pub fn memory_in_use(&self) -> (u64, usize) {
        self.registry().usage()
    }

    /// The module of the library's own kernels. All concurrent users share one. `load` makes it.
    pub(crate) fn shared_module(&self, load: impl FnOnce() -> Result<Module>) -> Result<Module> {
        let mut slot = self.inner.own_kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = slot.upgrade() {
            return Ok(module);
        }
        let module = load()?;
        *slot = module.downgrade();
        Ok(module)
    }

    pub(crate) fn driver(&self) -> &dyn DeviceBackend {
        &*self.inner.backend
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Fails unless `other` is this device.
    #[inline]
    pub(crate) fn same_as(&self, other: &Device, what: &'static str) -> Result<()> {
        if self == other { Ok(()) } else { Err(self.is_not(other, what)) }
    }

    #[cold]
    fn is_not(&self, other: &Device, what: &'static str) -> Error {
        Error::WrongDevice { what, expected: self.to_string(), got: other.to_string() }
    }

    /// Describes the location of memory that a launch on this device cannot use, for messages.
    pub(crate) fn explain_foreign(&self, range: Range) -> String {
        // The guard is dropped before the handles: the last handle of a device must not be dropped
        // under the lock.
        let devices: Vec<_> = alive().iter().filter_map(Device::upgrade).collect();
        match devices.iter().find(|device| *device != self && device.registry().holds(range)) {
            Some(owner) => format!("it belongs to another device, {owner}"),
            None => self.registry().nearest(range.address),
        }
    }
}

impl PartialEq for Device {
    #[inline]
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}
impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.driver().label())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}
