//! Pools of device memory that the host allocates.

use crate::allocation::{Allocation, Backing};
use crate::convert::{Failure, Result, layout, to_python};
use crate::device::{Device, or_default};
use crate::report::Report;
use crate::slot::{Slot, pool_class};
use crate::streams::{Owners, RawStream};
use pyo3::prelude::*;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use warpheap::host_pools::{self, BlockPoolBuilder, CachingPoolBuilder as Builder, DeviceAllocator};
use warpheap_bindings::set;

/// An open pool.
#[derive(Debug)]
pub struct Open<P> {
    pool: Arc<P>,
    backing: Arc<Backing>,
}

impl<P> Clone for Open<P> {
    fn clone(&self) -> Open<P> {
        Open { pool: self.pool.clone(), backing: self.backing.clone() }
    }
}

impl<P: DeviceAllocator + 'static> Open<P> {
    /// A pool with its log, if it has one.
    pub fn new(pool: P, log: Option<PathBuf>) -> Result<Open<P>> {
        let pool = Arc::new(pool);
        let backing = Arc::new(Backing::new(pool.clone(), log.as_deref())?);
        Ok(Open { pool, backing })
    }

    /// The allocator and its streams.
    pub fn backing(&self) -> &Arc<Backing> {
        &self.backing
    }

    /// The pool.
    pub fn pool(&self) -> &P {
        &self.pool
    }

    /// Frees a block by its address, size and alignment.
    pub fn free_raw(&self, ptr: u64, nbytes: u64, align: u64, raw: u64) -> Result<()> {
        let layout = layout(nbytes, align)?;
        // SAFETY: the pool rejects addresses that are not those of a live block with this layout
        // (P2). The documentation of `deallocate_raw` demands P1.
        unsafe { self.backing.deallocate(ptr, layout, raw) }
    }
}

/// The methods of a class: its own, and those of all pools that the host allocates from.
macro_rules! host_pool {
    ($Class:ident, align = $align:tt; $($own:tt)*) => {
        pool_class! {
            $Class;

            /// Closes the pool: later calls raise `Closed`. Its memory is freed with its last
            /// allocation.
            close = |open| open.backing().flush();

            $($own)*

            /// Allocates `nbytes`, aligned to `align`, for work submitted to `stream` from now on.
            ///
            /// Raises `OutOfMemory`, or `InvalidRequest` for a size or an alignment that the pool
            /// does not serve.
            #[pyo3(signature = (nbytes, stream = RawStream::default(), align = $align))]
            fn allocate(&self, py: Python<'_>, nbytes: u64, stream: RawStream, align: u64) -> PyResult<Allocation> {
                let raw = self.owners.keep(py, &stream)?;
                self.pool.with(py, |open| Allocation::new(open.backing(), nbytes, align, raw))
            }

            /// As `allocate`, but returns the address. `deallocate_raw` frees it.
            #[pyo3(signature = (nbytes, stream = RawStream::default(), align = $align))]
            fn allocate_raw(&self, py: Python<'_>, nbytes: u64, stream: RawStream, align: u64) -> PyResult<u64> {
                let raw = self.owners.keep(py, &stream)?;
                self.pool.with(py, |open| Ok(open.backing().allocate(nbytes, align, raw)?.0))
            }

            /// Frees a block of `allocate_raw` with the same size and alignment, after the work
            /// submitted to `stream` so far. Only that work may use the block.
            ///
            /// Raises `InvalidFree` if no such block is live.
            #[pyo3(signature = (ptr, nbytes, stream = RawStream::default(), align = $align))]
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

            /// What is in use, what is free, and what holds the memory.
            fn report(&self, py: Python<'_>) -> PyResult<Report> {
                Ok(Report::new(self.pool.with(py, |open| Ok(open.pool().report()))?))
            }

            /// Statistics and report as a dictionary.
            fn snapshot(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                let read = |pool: &host_pools::$Class| json!({ "stats": pool.stats(), "report": pool.report() });
                to_python(py, &self.pool.with(py, |open| Ok(read(open.pool())))?)
            }

            /// Writes the buffered rows of the log. Does nothing without a log.
            fn flush_log(&self, py: Python<'_>) -> PyResult<()> {
                self.pool.with(py, |open| open.backing().flush())
            }

            /// Statistics: live and free memory or blocks, hits and misses.
            fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                to_python(py, &self.pool.with(py, |open| Ok(open.pool().stats()))?)
            }
        }
    };
}

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

host_pool! {
    CachingPool, align = 256;

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

    /// Returns free segments to the device. Returns their bytes.
    fn trim(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |open| Ok(open.pool().trim()?))
    }
}

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

host_pool! {
    BlockPool, align = 1;

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
        let builder = host_pools::BlockPool::builder(layout(block_bytes, align)?, blocks);
        let builder = set(builder, name, BlockPoolBuilder::name);
        let open = py.detach(|| Open::new(builder.build(&device.inner).map_err(Failure::from)?, log))?;
        let owners = open.backing().owners().clone();
        Ok(BlockPool { device, owners, pool: Slot::new("pool", open) })
    }
}
