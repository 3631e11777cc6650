//! Devices: what owns memory, streams and modules.

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

/// A GPU, or the CPU in its place. Cloning gives another handle of the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    backend: Box<dyn DeviceBackend>,
    /// The ordinal of a GPU whose primary context this is.
    primary: Option<u32>,
    registry: Registry,
    default_stream: Mutex<Option<Arc<Queue>>>,
    /// The library's own kernels, while something uses them.
    own_kernels: Mutex<WeakModule>,
}

/// What a device is. Sizes are in bytes; what a backend does not know is 0 or `None`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The product's name.
    pub name: String,
    /// What runs the kernels.
    pub backend: Backend,
    /// Major and minor compute capability: (9, 0) for sm_90.
    pub compute_capability: Option<(u32, u32)>,
    /// Major and minor CUDA version that the driver supports.
    pub driver_version: Option<(u32, u32)>,
    /// Multiprocessors; on the CPU, the executor's.
    pub multiprocessors: u32,
    /// Lanes of a warp.
    pub warp_size: u32,
    /// Threads of a block, at most.
    pub max_threads_per_block: u32,
    /// Threads that one multiprocessor holds at a time, at most.
    pub max_threads_per_multiprocessor: u32,
    /// Warps that the device runs at a time, at most; on the CPU, those of one kernel.
    pub resident_warps: u64,
    /// Shared memory of a block, at most.
    pub shared_bytes_per_block: u32,
    /// Device memory. On the CPU, the cap that the device was made with.
    pub memory_total: u64,
    /// Device memory that nobody uses at the moment.
    pub memory_free: u64,
    /// The second-level cache.
    pub l2_bytes: u64,
    /// Whether addresses can be reserved first and memory mapped there later.
    pub virtual_memory: bool,
    /// Whether a kernel runs the same way each time: the CPU in replay mode.
    pub replays: bool,
}

/// Every device that is alive: to find the same GPU again, and to name the owner of a foreign address.
static ALIVE: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// The list, without the devices that are gone. A panic elsewhere leaves it whole.
fn alive() -> MutexGuard<'static, Vec<Weak<Inner>>> {
    let mut all = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|device| device.strong_count() > 0);
    all
}

impl Device {
    /// GPU number `ordinal`, from 0, through its primary context. The same GPU gives the same device.
    ///
    /// # Errors
    /// [`Error::NoDevice`] where there is no driver or no such GPU; it says what to do.
    pub fn cuda(ordinal: u32) -> Result<Device> {
        // They go after the guard: the last handle of a device must not be dropped under it.
        let mut devices = Vec::new();
        let mut all = alive();
        devices.extend(all.iter().filter_map(Device::upgrade));
        if let Some(device) = devices.iter().find(|device| device.inner.primary == Some(ordinal)) {
            return Ok(device.clone());
        }
        let backend = Box::new(cuda::CudaDevice::primary(ordinal)?);
        Ok(Device::enlist(&mut all, backend, Some(ordinal)))
    }

    /// How many GPUs there are.
    ///
    /// # Errors
    /// [`Error::NoDevice`] where there is no driver to ask.
    pub fn cuda_count() -> Result<u32> {
        cuda::count()
    }

    /// The CPU, a worker for each of its threads, and half of the machine's memory at most.
    pub fn cpu() -> Device {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        Device::cpu_with(Mode::Parallel { workers })
    }

    /// The CPU with lanes scheduled as `mode` says, and half of the machine's memory at most.
    pub fn cpu_with(mode: Mode) -> Device {
        Device::cpu_with_executor(Executor::new(mode), cpu::default_memory_bytes())
    }

    /// The CPU through an executor of the caller's settings, and `memory_bytes` of device memory at most.
    /// Each call makes a device of its own.
    pub fn cpu_with_executor(executor: Executor, memory_bytes: u64) -> Device {
        Device::enlist(&mut alive(), Box::new(cpu::CpuDevice::new(executor, memory_bytes)), None)
    }

    /// A device over a `CUcontext` of the caller's.
    ///
    /// # Errors
    /// [`Error::NoDevice`] where there is no driver.
    ///
    /// # Safety
    /// `context` is a live CUDA context, and stays so for as long as the device or anything made from it
    /// does.
    pub unsafe fn from_raw_context(context: *mut c_void) -> Result<Device> {
        // SAFETY: the caller's promise.
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

    /// One of any backend.
    #[cfg(test)]
    pub(super) fn over(backend: Box<dyn DeviceBackend>) -> Device {
        Device::enlist(&mut alive(), backend, None)
    }

    fn upgrade(weak: &Weak<Inner>) -> Option<Device> {
        weak.upgrade().map(|inner| Device { inner })
    }

    /// What runs the kernels.
    pub fn backend(&self) -> Backend {
        self.driver().backend()
    }

    /// What the device is, and how much of its memory is free right now.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn info(&self) -> Result<DeviceInfo> {
        self.driver().info()
    }

    /// The `CUcontext`; null on the CPU.
    pub fn raw_context(&self) -> *mut c_void {
        self.driver().raw_context()
    }

    /// A new stream, which waits for no other.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream::new(self.clone(), self.driver().stream()?))
    }

    /// The device's own stream, made at the first call. It waits for no other stream.
    ///
    /// # Errors
    /// What the driver answers.
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
    /// What failed since, a kernel for instance.
    pub fn synchronize(&self) -> Result<()> {
        self.driver().synchronize()
    }

    /// Compiles `ptx` for this device. On the CPU the text is read for its declarations alone: the kernels
    /// are the program's own functions.
    ///
    /// # Errors
    /// [`Error::Jit`] with the compiler's log.
    pub fn load_module(&self, ptx: &str) -> Result<Module> {
        Module::load(self, Some(ptx), None)
    }

    /// Compiles some of the kernels of `ptx`, all its variables, and nothing that those kernels cannot reach. A driver
    /// needs seconds for each kernel that can reach much, a heap's slow paths for instance.
    /// [`kernel_names!`](crate::kernel_names!) makes the list. Any other kernel is refused when it is launched, on the CPU, too.
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

    /// The kernels as this program itself contains them, without any PTX. Only the CPU can run those.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a GPU.
    pub fn native_module(&self) -> Result<Module> {
        Module::load(self, None, None)
    }

    /// The same, of some kernels: as [`load_kernels`](Self::load_kernels), it refuses others.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a GPU.
    pub fn native_kernels(&self, kernels: &[&'static str]) -> Result<Module> {
        Module::load(self, None, Some(kernels))
    }

    /// `bytes` of memory, of any content, at an address divisible by `align` and by 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidRequest`].
    pub fn alloc_memory(&self, bytes: u64, align: usize) -> Result<DeviceMemory> {
        DeviceMemory::new(self, bytes, align, false)
    }

    /// `bytes` of memory, all 0, at an address divisible by `align` and by 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::InvalidRequest`].
    pub fn zeroed_memory(&self, bytes: u64, align: usize) -> Result<DeviceMemory> {
        DeviceMemory::new(self, bytes, align, true)
    }

    /// Bytes and number of the live allocations made through this device.
    pub fn memory_in_use(&self) -> (u64, usize) {
        self.registry().usage()
    }

    /// The module of the library's own kernels: one for all that use them at the same time, made by
    /// `load`.
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

    /// Where the memory that a launch on this device cannot use is, in words.
    pub(crate) fn explain_foreign(&self, range: Range) -> String {
        // The guard goes before the handles: the last handle of a device must not be dropped under it.
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
