//! The pool of blocks of any size.

use crate::allocation::Allocation;
use crate::convert::to_python;
use crate::device::{Device, or_default};
use crate::failure::Failure;
use crate::pools::Open;
use crate::report::Report;
use crate::slot::Slot;
use crate::streams::{Owners, RawStream};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use warpheap::host_pools::{self, DeviceAllocator};

/// Device memory of any size, cached for each stream.
///
/// Memory is freed in the order of a stream, and is reused at once on that stream. A stream is an
/// integer, the `CUstream`, or an object with `__cuda_stream__`; 0 is the default stream, and
/// `cudaStreamPerThread` is rejected. The pool keeps stream objects alive. A stream that is passed
/// as an integer must exist until the pool is closed and its allocations are freed, or until
/// `forget_stream`. No stream may be captured into a graph.
///
/// `max_bytes` limits the memory that the pool takes from the device. The other settings are those
/// of the Rust type of this name. `log` names a file for a row for each call, which `replay` and
/// `read_log` read. `name` is for errors and reports.
#[pyclass(frozen, module = "warpheap")]
#[derive(Debug)]
pub struct CachingPool {
    device: Device,
    owners: Arc<Owners>,
    pool: Slot<Open<host_pools::CachingPool>>,
}

impl CachingPool {
    /// The Python object of an open pool.
    pub fn of(device: Device, open: Open<host_pools::CachingPool>) -> CachingPool {
        let owners = open.backing().owners().clone();
        CachingPool { device, owners, pool: Slot::new("pool", open) }
    }

    /// Another handle of the open pool.
    pub fn open(&self, py: Python<'_>) -> PyResult<Open<host_pools::CachingPool>> {
        self.pool.with(py, |open| Ok(open.clone()))
    }
}

#[pymethods]
impl CachingPool {
    #[new]
    #[pyo3(signature = (
        device = None, *, max_bytes = None, min_block = None, segment_bytes = None, classes_per_doubling = None,
        slab_limit = None, spare_bytes = None, stream_ordered = true, name = None, log = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        device: Option<Device>,
        max_bytes: Option<u64>,
        min_block: Option<u64>,
        segment_bytes: Option<u64>,
        classes_per_doubling: Option<u32>,
        slab_limit: Option<u64>,
        spare_bytes: Option<u64>,
        stream_ordered: bool,
        name: Option<String>,
        log: Option<PathBuf>,
    ) -> PyResult<CachingPool> {
        use host_pools::CachingPoolBuilder as Builder;
        fn set<T>(builder: Builder, value: Option<T>, setter: fn(Builder, T) -> Builder) -> Builder {
            match value {
                Some(value) => setter(builder, value),
                None => builder,
            }
        }
        let device = or_default(py, device)?;
        let builder = host_pools::CachingPool::builder().stream_ordered(stream_ordered);
        let builder = set(builder, max_bytes, Builder::max_bytes);
        let builder = set(builder, min_block, Builder::min_block);
        let builder = set(builder, segment_bytes, Builder::segment_bytes);
        let builder = set(builder, classes_per_doubling, Builder::classes_per_doubling);
        let builder = set(builder, slab_limit, Builder::slab_limit);
        let builder = set(builder, spare_bytes, Builder::spare_bytes);
        let builder = set(builder, name, Builder::name);
        let open = py.detach(|| Open::new(builder.build(&device.inner).map_err(Failure::from)?, log))?;
        Ok(CachingPool::of(device, open))
    }

    /// The device.
    #[getter]
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// Allocates `nbytes`, aligned to `align`, for work submitted to `stream` from now on.
    ///
    /// Raises `OutOfMemory`, or `InvalidRequest` for a size of 0.
    #[pyo3(signature = (nbytes, stream = RawStream::default(), align = 256))]
    fn allocate(&self, py: Python<'_>, nbytes: u64, stream: RawStream, align: u64) -> PyResult<Allocation> {
        let raw = self.owners.keep(py, &stream)?;
        self.pool.with(py, |open| Allocation::new(open.backing(), nbytes, align, raw))
    }

    /// As `allocate`, but returns the address. `deallocate_raw` frees it.
    #[pyo3(signature = (nbytes, stream = RawStream::default(), align = 256))]
    fn allocate_raw(&self, py: Python<'_>, nbytes: u64, stream: RawStream, align: u64) -> PyResult<u64> {
        let raw = self.owners.keep(py, &stream)?;
        self.pool.with(py, |open| Ok(open.backing().allocate(nbytes, align, raw)?.0))
    }

    /// Frees a block of `allocate_raw` with the same size and alignment, after the work submitted
    /// to `stream` so far. Only that work may use the block.
    ///
    /// Raises `InvalidFree` if no such block is live.
    #[pyo3(signature = (ptr, nbytes, stream = RawStream::default(), align = 256))]
    fn deallocate_raw(
        &self,
        py: Python<'_>,
        ptr: u64,
        nbytes: u64,
        stream: RawStream,
        align: u64,
    ) -> PyResult<()> {
        let raw = self.owners.keep(py, &stream)?;
        self.pool.with(py, |open| open.free_raw(ptr, nbytes, align, raw))
    }

    /// Returns free segments to the device. Returns their bytes.
    fn trim(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |open| Ok(open.pool().trim()?))
    }

    /// Ends the use of a stream, before it is destroyed.
    fn forget_stream(&self, py: Python<'_>, stream: RawStream) -> PyResult<()> {
        self.pool.with(py, |open| {
            open.backing().forget_stream(stream.raw);
            Ok(())
        })?;
        Ok(self.owners.forget(py, stream.raw)?)
    }

    /// Statistics: live, cached and reserved bytes, hits and misses, and the size classes.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.pool.with(py, |open| Ok(open.pool().stats()))?)
    }

    /// What is in use, what is free, and what holds the memory.
    fn report(&self, py: Python<'_>) -> PyResult<Report> {
        Ok(Report::new(self.pool.with(py, |open| Ok(open.pool().report()))?))
    }

    /// Statistics and report as a dictionary.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let text = self.pool.with(py, |open| open.snapshot(open.pool().stats()))?;
        Ok(py.import("json")?.call_method1("loads", (text,))?.unbind())
    }

    /// Writes the buffered rows of the log. Does nothing without a log.
    fn flush_log(&self, py: Python<'_>) -> PyResult<()> {
        self.pool.with(py, |open| open.backing().flush())
    }

    /// Closes the pool: later calls raise `Closed`. Its memory is freed with its last allocation.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.pool.close(py, |open| open.backing().flush())
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
        self.close(py)
    }
}
