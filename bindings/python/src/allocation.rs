//! Allocations of the pools.

use crate::backing::Backing;
use crate::failure::{Failure, Result};
use crate::streams::RawStream;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use warpheap::driver::RawStreams;
use warpheap::{Backend, Bytes};

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
