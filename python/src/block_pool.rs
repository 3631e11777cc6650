//! The pool of equal blocks.

use crate::allocation::Allocation;
use crate::convert::{layout, to_python};
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

/// Device memory in blocks of one size, allocated and freed in constant time.
///
/// Streams and `log` are those of `CachingPool`.
///
/// `BlockPool(block_bytes, blocks, device=None, *, align=256, name=None, log=None)`
#[pyclass(frozen, module = "warpheap")]
#[derive(Debug)]
pub struct BlockPool {
    device: Device,
    owners: Arc<Owners>,
    pool: Slot<Open<host_pools::BlockPool>>,
}

#[pymethods]
impl BlockPool {
    #[new]
    #[pyo3(signature = (block_bytes, blocks, device = None, *, align = 256, name = None, log = None))]
    fn new(
        py: Python<'_>,
        block_bytes: u64,
        blocks: usize,
        device: Option<Device>,
        align: u64,
        name: Option<String>,
        log: Option<PathBuf>,
    ) -> PyResult<BlockPool> {
        let device = or_default(py, device)?;
        let mut builder = host_pools::BlockPool::builder(layout(block_bytes, align)?, blocks);
        if let Some(name) = name {
            builder = builder.name(name);
        }
        let open = py.detach(|| Open::new(builder.build(&device.inner).map_err(Failure::from)?, log))?;
        let owners = open.backing().owners().clone();
        Ok(BlockPool { device, owners, pool: Slot::new("pool", open) })
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        self.device.clone()
    }

    /// Allocates a block for at least `nbytes`, for work submitted to `stream` from now on.
    ///
    /// Raises `OutOfMemory` if all blocks are allocated, or `InvalidRequest` if no block is large
    /// enough.
    #[pyo3(signature = (nbytes, stream = RawStream::default(), align = 1))]
    fn allocate(&self, py: Python<'_>, nbytes: u64, stream: RawStream, align: u64) -> PyResult<Allocation> {
        let raw = self.owners.keep(py, &stream)?;
        self.pool.with(py, |open| Allocation::new(open.backing(), nbytes, align, raw))
    }

    /// As `allocate`, but returns the address. `deallocate_raw` frees it.
    #[pyo3(signature = (nbytes, stream = RawStream::default(), align = 1))]
    fn allocate_raw(&self, py: Python<'_>, nbytes: u64, stream: RawStream, align: u64) -> PyResult<u64> {
        let raw = self.owners.keep(py, &stream)?;
        self.pool.with(py, |open| Ok(open.backing().allocate(nbytes, align, raw)?.0))
    }

    /// Frees a block of `allocate_raw`, after the work submitted to `stream` so far. Only that work
    /// may use the block.
    ///
    /// Raises `InvalidFree` if no such block is live.
    #[pyo3(signature = (ptr, nbytes, stream = RawStream::default(), align = 1))]
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

    /// Ends the use of a stream, before it is destroyed.
    fn forget_stream(&self, py: Python<'_>, stream: RawStream) -> PyResult<()> {
        self.pool.with(py, |open| {
            open.backing().forget_stream(stream.raw);
            Ok(())
        })?;
        Ok(self.owners.forget(py, stream.raw)?)
    }

    /// Statistics: free and live blocks, hits and misses.
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
