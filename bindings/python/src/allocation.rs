//! Allocations of the pools, and what they share with their pool: the allocator, its streams and
//! its log, which live as long as the pool is open or one of its allocations lives.

use crate::convert::{Failure, Result, layout};
use crate::streams::{Owners, RawStream, pointer};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::alloc::Layout;
use std::fmt;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use warpheap::host_pools::{DeviceAllocator, Logged};
use warpheap::{Backend, Bytes};
use warpheap_bindings::{RawPool, RawStreams};
use warpheap_device::kernel::DevicePtr;

type Flush = Box<dyn Fn() -> warpheap::Result<()> + Send + Sync>;

/// An allocator of any kind.
///
/// The documentation of the pools demands of each stream that it is live until the pool is closed
/// or forgets it, and is not captured.
pub struct Backing {
    flush: Option<Flush>,
    /// The pool, or the adaptor that writes its log.
    pool: RawPool<Box<dyn DeviceAllocator>>,
    /// After all that uses their streams.
    owners: Arc<Owners>,
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backing").field("device", self.device()).finish_non_exhaustive()
    }
}

impl Backing {
    /// Allocates from `pool`, and writes each call to the file `log`, if there is one.
    pub fn new(pool: Arc<impl DeviceAllocator + 'static>, log: Option<&Path>) -> Result<Backing> {
        let owners = Arc::new(Owners::new(pool.device().backend()));
        let Some(path) = log else {
            return Ok(Backing { flush: None, pool: RawPool::new(Box::new(pool)), owners });
        };
        let file = File::create(path)
            .map_err(|error| Failure::invalid_file(format!("{}: {error}", path.display())))?;
        let logged = Arc::new(Logged::new(pool, file));
        let for_flush = logged.clone();
        let flush: Flush = Box::new(move || for_flush.flush());
        Ok(Backing { flush: Some(flush), pool: RawPool::new(Box::new(logged)), owners })
    }

    /// The stream objects.
    pub fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// The device.
    pub fn device(&self) -> &warpheap::Device {
        self.pool.pool().device()
    }

    /// Forgets a stream. The pool then reuses its memory on other streams.
    pub fn forget_stream(&self, raw: u64) {
        self.pool.forget(pointer(raw));
    }

    /// Allocates a block for work on the raw stream.
    pub fn allocate(&self, bytes: u64, align: u64, raw: u64) -> Result<(u64, Layout)> {
        let layout = layout(bytes, align)?;
        // SAFETY: the documentation of the pools demands it of the stream.
        let block = unsafe { self.pool.allocate(layout, pointer(raw)) }?;
        Ok((block.0 as u64, layout))
    }

    /// Records that work of the raw stream uses the live block, too.
    pub fn record_stream(&self, address: u64, raw: u64) -> Result<()> {
        // SAFETY: the documentation of the pools demands it of the stream.
        Ok(unsafe { self.pool.record(DevicePtr(address as *mut u8), pointer(raw)) }?)
    }

    /// Frees a block after the work submitted so far to the raw stream and to those recorded.
    ///
    /// # Safety
    /// P1 and P2 of [`DeviceAllocator::deallocate`], for the work of all these streams.
    pub unsafe fn deallocate(&self, address: u64, layout: Layout, raw: u64) -> Result<()> {
        // SAFETY: the caller's promises P1 and P2; the documentation of the pools demands the rest.
        Ok(unsafe { self.pool.deallocate(DevicePtr(address as *mut u8), layout, pointer(raw)) }?)
    }

    /// Writes the buffered rows of the log.
    pub fn flush(&self) -> Result<()> {
        self.flush.as_ref().map_or(Ok(()), |flush| Ok(flush()?))
    }
}

/// Device memory of a pool. It is freed by `free`, at the end of a `with` block, or with the last
/// reference.
///
/// On a GPU it has `__cuda_array_interface__`: one dimension of bytes.
#[pyclass(frozen, module = "warpheap")]
#[derive(Debug)]
pub struct Allocation {
    /// Taken by the drop.
    backing: ManuallyDrop<Arc<Backing>>,
    address: u64,
    layout: Layout,
    stream: u64,
    live: AtomicBool,
}

impl Allocation {
    /// Allocates.
    pub fn new(backing: &Arc<Backing>, bytes: u64, align: u64, stream: u64) -> Result<Allocation> {
        let (address, layout) = backing.allocate(bytes, align, stream)?;
        let (backing, live) = (ManuallyDrop::new(backing.clone()), AtomicBool::new(true));
        Ok(Allocation { backing, address, layout, stream, live })
    }

    fn release(&self, stream: u64) -> Result<()> {
        Failure::check_process()?;
        // Relaxed: the swap is one atomic operation, so one call frees. No other data
        // depends on the flag.
        if !self.live.swap(false, Relaxed) {
            let text = format!("the allocation at {:#x} was already freed; free it once", self.address);
            return Err(Failure::invalid_free(text));
        }
        // SAFETY: the flag was set, so the block is live (P2). The documentation of `free` demands
        // that only work on this stream uses it (P1).
        let freed = unsafe { self.backing.deallocate(self.address, self.layout, stream) };
        if freed.is_err() {
            self.live.store(true, Relaxed);
        }
        freed
    }
}

#[pymethods]
impl Allocation {
    /// The device address. Raises `Closed` after a free.
    #[getter]
    fn ptr(&self) -> PyResult<u64> {
        if self.live.load(Relaxed) { Ok(self.address) } else { Err(Failure::closed("allocation").into()) }
    }

    /// The size in bytes, as requested.
    #[getter]
    fn nbytes(&self) -> usize {
        self.layout.size()
    }

    /// The raw stream that it was allocated on.
    #[getter]
    fn stream(&self) -> u64 {
        self.stream
    }

    /// Frees the memory after the work submitted so far to `stream`: the stream of the allocation
    /// if it is `None`. Only that work, or work that the stream waits for, may use the memory.
    ///
    /// Raises `InvalidFree` if it was freed before.
    #[pyo3(signature = (stream = None))]
    fn free(&self, py: Python<'_>, stream: Option<RawStream>) -> PyResult<()> {
        let raw = match stream {
            Some(stream) => self.backing.owners().keep(py, &stream)?,
            None => self.stream,
        };
        Ok(py.detach(|| self.release(raw))?)
    }

    /// Records that work of another stream uses the memory, too. A free then also waits for the
    /// work submitted so far to `stream`, which must exist until then.
    fn record_stream(&self, py: Python<'_>, stream: RawStream) -> PyResult<()> {
        let raw = self.backing.owners().keep(py, &stream)?;
        Ok(py.detach(|| {
            Failure::check_process()?;
            if !self.live.load(Relaxed) {
                return Err(Failure::closed("allocation"));
            }
            self.backing.record_stream(self.address, raw)
        })?)
    }

    /// The memory as an array of bytes, for CuPy, Numba, PyTorch and others. Only on a GPU.
    #[getter(__cuda_array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.backing.device().backend() != Backend::Cuda {
            let text = "an allocation on the CPU has no __cuda_array_interface__; allocate on a GPU";
            return Err(PyAttributeError::new_err(text));
        }
        let interface = PyDict::new(py);
        interface.set_item("shape", (self.layout.size(),))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.ptr()?, false))?;
        interface.set_item("version", 3)?;
        // Here 0 is ambiguous.
        let stream = if self.stream == 0 { RawStreams::LEGACY } else { self.stream };
        interface.set_item("stream", stream)?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.layout.size()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: Py<PyAny>,
        _error: Py<PyAny>,
        _trace: Py<PyAny>,
    ) -> PyResult<()> {
        if self.live.load(Relaxed) { self.free(py, None) } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        let state = if self.live.load(Relaxed) { "" } else { ", freed" };
        let (bytes, device) = (Bytes(self.layout.size() as u64), self.backing.device());
        format!("<warpheap.Allocation: {bytes} at {:#x} of {device}{state}>", self.address)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (live, address, layout, stream) = (*self.live.get_mut(), self.address, self.layout, self.stream);
        // SAFETY: this is the drop of the field's owner, so nothing uses the field after.
        let backing = unsafe { ManuallyDrop::take(&mut self.backing) };
        if Failure::check_process().is_err() {
            std::mem::forget(backing);
            return;
        }
        // It may wait for the device, and the last reference to the pool frees the pool.
        let free = move || {
            if !live {
                return Ok(());
            }
            // SAFETY: the flag is set, so the block is live (P2). The documentation of `free`
            // demands that only work on this stream uses it (P1).
            unsafe { backing.deallocate(address, layout, stream) }
        };
        // Without an interpreter, the process ends and the driver frees the memory.
        let _ = Python::try_attach(|py| {
            if let Err(failure) = py.detach(free) {
                PyErr::from(failure).write_unraisable(py, None);
            }
        });
    }
}
