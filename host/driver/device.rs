//! Devices: owners of memory, streams and modules.

use super::backend::{Backend, DeviceBackend, DeviceInfo, Queue, Range};
use super::code::Code;
use super::fork::{check_process, note_device};
use super::registry::Registry;
use super::{cpu, cuda};
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::simt::{Executor, Mode};
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

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
    /// The library's own kernels, while they are in use.
    own_kernels: Mutex<Weak<Code>>,
}

/// All live devices. Used to return the same device for the same GPU, and to name the owner of a
/// foreign address.
static ALIVE: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// The list of live devices, pruned of dropped ones.
fn alive() -> MutexGuard<'static, Vec<Weak<Inner>>> {
    let mut all = lock(&ALIVE);
    all.retain(|device| device.strong_count() > 0);
    all
}

/// Fails in a forked child. Notices later forks.
fn begin() -> Result<()> {
    check_process()?;
    note_device();
    Ok(())
}

impl Device {
    /// The GPU with this ordinal, from 0, through its primary context. The same GPU gives the same
    /// device.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver or no such GPU. The message says what to do.
    pub fn cuda(ordinal: u32) -> Result<Device> {
        begin()?;
        // Dropped after the guard: the last handle of a device must not be dropped under the lock.
        let mut devices = Vec::new();
        let mut all = alive();
        devices.extend(all.iter().filter_map(Device::upgrade));
        if let Some(device) = devices.iter().find(|device| device.inner.primary == Some(ordinal)) {
            return Ok(device.clone());
        }
        let backend = Box::new(cuda::CudaDevice::primary(ordinal)?);
        Ok(Device::register(&mut all, backend, Some(ordinal)))
    }

    /// Number of GPUs.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver.
    pub fn cuda_count() -> Result<u32> {
        check_process()?;
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
        note_device();
        Device::register(&mut alive(), Box::new(cpu::CpuDevice::new(executor, memory_bytes)), None)
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
        begin()?;
        // SAFETY: the caller's promise: a live context that outlives the device.
        let backend = unsafe { cuda::CudaDevice::foreign(context) }?;
        Ok(Device::register(&mut alive(), Box::new(backend), None))
    }

    /// Returns a live device of this context if there is one, whichever call made it. Otherwise
    /// makes one, like [`from_raw_context`](Self::from_raw_context).
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver.
    ///
    /// # Safety
    /// The promises of [`from_raw_context`](Self::from_raw_context).
    pub unsafe fn shared_from_raw_context(context: *mut c_void) -> Result<Device> {
        begin()?;
        // Dropped after the guard: the last handle of a device must not be dropped under the lock.
        let mut devices = Vec::new();
        let mut all = alive();
        devices.extend(all.iter().filter_map(Device::upgrade));
        let has_context = |device: &&Device| !context.is_null() && device.raw_context() == context;
        if let Some(device) = devices.iter().find(has_context) {
            return Ok(device.clone());
        }
        // SAFETY: the caller's promise: a live context that outlives the device.
        let backend = unsafe { cuda::CudaDevice::foreign(context) }?;
        Ok(Device::register(&mut all, Box::new(backend), None))
    }

    /// The `CUcontext` that is current on the calling thread; null if there is none.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver.
    pub fn current_raw_context() -> Result<*mut c_void> {
        cuda::current_context()
    }

    fn register(all: &mut Vec<Weak<Inner>>, backend: Box<dyn DeviceBackend>, primary: Option<u32>) -> Device {
        let inner = Arc::new(Inner {
            backend,
            primary,
            registry: Registry::default(),
            default_stream: Mutex::default(),
            own_kernels: Mutex::default(),
        });
        all.push(Arc::downgrade(&inner));
        Device { inner }
    }

    /// A device of any backend.
    #[cfg(test)]
    pub(super) fn over(backend: Box<dyn DeviceBackend>) -> Device {
        Device::register(&mut alive(), backend, None)
    }

    fn upgrade(weak: &Weak<Inner>) -> Option<Device> {
        weak.upgrade().map(|inner| Device { inner })
    }

    /// Where kernels run.
    pub fn backend(&self) -> Backend {
        self.driver().raw_info().backend
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

    /// Sets the size of the heap from which CUDA's own `malloc` allocates in kernels, and returns
    /// the size that is in effect. warpheap's pools do not use this heap. Call it before a module
    /// with such a kernel is loaded: the driver reserves the memory then, and rejects another size
    /// once a kernel has used it.
    ///
    /// # Errors
    /// [`NotSupported`](crate::Error::NotSupported) on the CPU. An error of the driver.
    pub fn set_malloc_heap_bytes(&self, bytes: u64) -> Result<u64> {
        self.driver().set_malloc_heap_bytes(bytes)
    }

    /// Sets the size of the stack that each thread of later kernels has, and returns the size that
    /// is in effect. Only kernels with recursion, `sort`, trait objects, formatting or other calls
    /// through pointers need the setting ([`has_open_stack`]): the driver knows what other kernels
    /// need. Without it, loading a module with such kernels gives them 16 KiB more than their
    /// functions need once. In a context that the program owns
    /// ([`from_raw_context`](Self::from_raw_context)), they have the limit of that context, 1 KiB
    /// by default.
    ///
    /// [`has_open_stack`]: super::KernelAttributes::has_open_stack
    ///
    /// A kernel that needs more fails with an illegal address, or computes wrong results. A launch
    /// fails before that if its functions need more than is set even without recursion.
    ///
    /// The driver reserves this memory for all threads that can be resident at a time: 8 GiB for 32
    /// KiB on an H100. On the CPU, an executor has the setting when it is created.
    ///
    /// # Errors
    /// [`NotSupported`](crate::Error::NotSupported) on the CPU.
    /// [`OutOfMemory`](crate::Error::OutOfMemory), or another error of the driver.
    pub fn set_stack_bytes(&self, bytes: u64) -> Result<u64> {
        self.driver().set_stack_bytes(bytes)
    }

    /// Waits for the work of every stream.
    ///
    /// # Errors
    /// An earlier failure, of a kernel for instance, or panics of threads since the last report
    /// ([`Module::set_on_panic`](super::Module::set_on_panic)).
    pub fn synchronize(&self) -> Result<()> {
        self.driver().synchronize()?;
        self.driver().report_panics()
    }

    /// Total bytes and count of the live allocations made through this device.
    pub fn memory_in_use(&self) -> (u64, usize) {
        self.registry().usage()
    }

    pub(crate) fn driver(&self) -> &dyn DeviceBackend {
        &*self.inner.backend
    }

    /// The queue of the default stream, created by the first call.
    pub(super) fn default_queue(&self) -> Result<Arc<Queue>> {
        let mut slot = lock(&self.inner.default_stream);
        match &*slot {
            Some(queue) => Ok(queue.clone()),
            None => Ok(slot.insert(Arc::new(Queue::new(self.driver().stream()?))).clone()),
        }
    }

    /// The code of the library's own kernels, which all concurrent users share.
    pub(super) fn own_kernels(&self) -> &Mutex<Weak<Code>> {
        &self.inner.own_kernels
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
        write!(f, "{}", self.driver().raw_info().label)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::backend::{EventBackend, StreamWatcher};
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::Duration;

    /// An address that no device has allocated.
    const NOWHERE: Range = Range { address: 64, bytes: 8 };

    /// Searches the list of devices at the end of its stream, as a subscriber to the log of a drop
    /// may.
    struct Searches(Device, Sender<()>);

    impl StreamWatcher for Searches {
        fn ended(&self, _last: &dyn Fn() -> Result<Arc<dyn EventBackend>>) {
            self.0.explain_foreign(NOWHERE);
            self.1.send(()).unwrap();
        }
    }

    /// The search keeps a handle of each device. It is stopped at the registry of `slow` until its
    /// handle of `last` is the only one.
    #[test]
    fn a_device_may_be_searched_for_while_its_last_handle_is_dropped() {
        let [slow, last, other] = [(); 3].map(|()| Device::cpu());
        let (sender, searched) = channel();
        let watcher: Arc<dyn StreamWatcher> = Arc::new(Searches(other.clone(), sender));
        last.default_queue().unwrap().watch(Arc::downgrade(&watcher));
        let mut last = Some(last);
        let submission = slow.registry().submit(|_| {
            let last = last.take().unwrap();
            let other = other.clone();
            let searching = thread::spawn(move || other.explain_foreign(NOWHERE));
            while Arc::strong_count(&last.inner) < 2 {
                assert!(!searching.is_finished(), "the search passed the registry of `slow`");
                thread::yield_now();
            }
            Ok::<_, Error>(())
        });
        drop(submission);
        searched.recv_timeout(Duration::from_secs(60)).expect("the second search ends");
    }
}
