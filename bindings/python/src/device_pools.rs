//! Pools that kernels allocate from: heaps, bump arenas and free lists.

use crate::convert::{Failure, layout, to_python, violations};
use crate::device::{Device, or_default};
use crate::report::Report;
use crate::slot::{Slot, pool_class};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use warpheap::Bytes;
use warpheap::device_pools::{self, BumpBuilder, HeapBuilder};
use warpheap_bindings::{heap, set};
use warpheap_c_device::handle_value;
use warpheap_device::kernel::DevicePtr;

/// What to do with a heap that is out of memory.
const ADVICE: &str = "free blocks, call `grow_to`, or create a larger heap; `report()` shows what is in use";

/// The methods of a class: its own, and those of all pools that kernels allocate from.
macro_rules! device_pool {
    ($Class:ident; $($own:tt)*) => {
        pool_class! {
            $Class;

            /// Frees the pool and its memory. No kernel may use it any more. Later calls raise
            /// `Closed`.
            close = |pool| {
                drop(pool);
                Ok(())
            };

            $($own)*

            /// The device address that kernels pass to the functions of the device library, such as
            /// `wh_malloc`, `wh_bump_alloc` and `wh_freelist_alloc`.
            #[getter]
            fn handle(&self, py: Python<'_>) -> PyResult<u64> {
                self.pool.with(py, |pool| Ok(pool.device_address()))
            }

            /// Waits for the device, then returns the statistics: used and free bytes or blocks.
            fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                to_python(py, &self.pool.with(py, |pool| Ok(pool.stats()?))?)
            }

            /// Waits for the device, then checks the metadata. Returns the violated invariants.
            fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
                Ok(violations(self.pool.with(py, |pool| Ok(pool.check()?))?))
            }

            /// Waits for the device, then frees all blocks and clears the faults. Blocks from
            /// before must not be used any more.
            fn reset(&self, py: Python<'_>) -> PyResult<()> {
                self.pool.with_mut(py, |pool| Ok(pool.reset()?))
            }
        }
    };
}

/// A heap in device memory, from which kernels allocate blocks of any size: `malloc` and `free`
/// for the threads of a GPU.
///
/// `handle` is the argument for kernels. No kernel may use the heap after it was closed; leaving a
/// `with` block closes it.
///
/// `Heap(bytes, device=None, *, initial=None, largest_class=None, shards=None)`
///
/// `bytes`: the size. `initial`: how much of it has memory at first; `grow_to` maps more.
/// `largest_class`: the largest size that a size class serves, in bytes. `shards`: the cursors of
/// each class, one for each multiprocessor by default.
#[pyclass(frozen, module = "warpheap")]
#[derive(Debug)]
pub struct Heap {
    device: Device,
    pool: Slot<device_pools::Heap>,
}

device_pool! {
    Heap;

    #[new]
    #[pyo3(signature = (bytes, device = None, *, initial = None, largest_class = None, shards = None))]
    fn new(
        py: Python<'_>,
        bytes: u64,
        device: Option<Device>,
        initial: Option<u64>,
        largest_class: Option<u32>,
        shards: Option<u32>,
    ) -> PyResult<Heap> {
        let device = or_default(py, device)?;
        let builder = set(device_pools::Heap::builder(bytes), initial, HeapBuilder::initial);
        let builder = set(builder, largest_class, HeapBuilder::largest_class);
        let builder = set(builder, shards, HeapBuilder::shards);
        let heap = py.detach(|| builder.build(&device.inner).map_err(Failure::from))?;
        Ok(Heap { device, pool: Slot::new("heap", heap) })
    }

    /// The handle by value, 144 bytes: for kernels in CUDA C++ with a parameter `wh_heap_value`,
    /// into which the common case of `wh_malloc` and `wh_free` is inlined.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let words = self.pool.with(py, |heap| {
            handle_value(heap).ok_or_else(|| {
                Failure::not_supported("this build has the feature `debug`, which changes the handle".into())
            })
        })?;
        Ok(PyBytes::new(py, &words.map(u64::to_le_bytes).concat()))
    }

    /// Bytes that can be allocated in total, once a growable heap has grown to its full size.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |heap| Ok(heap.capacity()))
    }

    /// Waits for the device, then returns the faults of kernels, such as double frees: their
    /// number, and the first 64.
    fn faults(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.pool.with(py, |heap| Ok(heap.faults()?))?)
    }

    /// Waits for the device, then returns the live blocks: their number and bytes, and the first
    /// `limit` in the order of addresses.
    #[pyo3(signature = (limit = 100))]
    fn leaks(&self, py: Python<'_>, limit: usize) -> PyResult<Py<PyAny>> {
        to_python(py, &self.pool.with(py, |heap| Ok(heap.leaks(limit)?))?)
    }

    /// Waits for the device, then reports what is in use and what is free.
    fn report(&self, py: Python<'_>) -> PyResult<Report> {
        Ok(Report::new(self.pool.with(py, |heap| Ok(heap.report()?))?))
    }

    /// Waits for the device, then returns the map of the heap: what each slab contains. Written to
    /// a file as JSON, `read_snapshot` reads it and `warpheap map` draws it.
    #[pyo3(signature = (label = "snapshot"))]
    fn snapshot(&self, py: Python<'_>, label: &str) -> PyResult<Py<PyAny>> {
        to_python(py, &self.pool.with(py, |heap| Ok(heap.snapshot()?.map(label)))?)
    }

    /// Maps memory for at least `bytes`. Returns the bytes that are mapped then. Needs `initial`.
    fn grow_to(&self, py: Python<'_>, bytes: u64) -> PyResult<u64> {
        self.pool.with_mut(py, |heap| Ok(heap.grow_to(bytes)?))
    }

    /// Allocates `nbytes` and returns the device address. A kernel or `deallocate` frees it.
    ///
    /// Launches a kernel and waits for it; on a GPU, the first call compiles that kernel.
    #[pyo3(signature = (nbytes, align = 16))]
    fn allocate(&self, py: Python<'_>, nbytes: u64, align: u64) -> PyResult<u64> {
        let block = self.pool.with(py, |heap| Ok(heap::allocate(heap, layout(nbytes, align)?, ADVICE)?))?;
        Ok(block.0 as u64)
    }

    /// Frees a block that a kernel or `allocate` allocated. No kernel may use it any more.
    ///
    /// Raises `InvalidFree` if no live block starts there.
    fn deallocate(&self, py: Python<'_>, ptr: u64) -> PyResult<()> {
        self.pool.with(py, |heap| {
            // SAFETY: the method's documentation demands that no kernel uses the block.
            Ok(unsafe { heap::deallocate(heap, DevicePtr(ptr as *mut u8)) }?)
        })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let capacity = self.pool.with(py, |heap| Ok(heap.capacity()));
        let size = capacity.map_or_else(|_| "closed".into(), |bytes| Bytes(bytes).to_string());
        format!("<warpheap.Heap: {size} on {}>", self.device.inner)
    }
}

/// An arena in device memory, from which kernels allocate pieces of any size. `reset` frees all of
/// them at once.
///
/// `Bump(bytes, device=None, *, shards=None)`
///
/// `shards`: the counters that blocks of threads share. 0 wastes no memory, but is slower.
#[pyclass(frozen, module = "warpheap")]
#[derive(Debug)]
pub struct Bump {
    device: Device,
    pool: Slot<device_pools::Bump>,
}

device_pool! {
    Bump;

    #[new]
    #[pyo3(signature = (bytes, device = None, *, shards = None))]
    fn new(py: Python<'_>, bytes: u64, device: Option<Device>, shards: Option<u32>) -> PyResult<Bump> {
        let device = or_default(py, device)?;
        let builder = set(device_pools::Bump::builder(bytes), shards, BumpBuilder::shards);
        let arena = py.detach(|| builder.build(&device.inner).map_err(Failure::from))?;
        Ok(Bump { device, pool: Slot::new("arena", arena) })
    }

    /// Bytes of the arena.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |arena| Ok(arena.memory().bytes()))
    }
}

/// Blocks of one size in device memory, for kernels.
///
/// `FreeList(blocks, block_bytes, device=None, *, align=16)`
#[pyclass(frozen, module = "warpheap")]
#[derive(Debug)]
pub struct FreeList {
    device: Device,
    pool: Slot<device_pools::FreeList>,
}

device_pool! {
    FreeList;

    #[new]
    #[pyo3(signature = (blocks, block_bytes, device = None, *, align = 16))]
    fn new(
        py: Python<'_>,
        blocks: u64,
        block_bytes: u64,
        device: Option<Device>,
        align: u64,
    ) -> PyResult<FreeList> {
        let device = or_default(py, device)?;
        let builder = device_pools::FreeList::builder(blocks, block_bytes).align(align);
        let list = py.detach(|| builder.build(&device.inner).map_err(Failure::from))?;
        Ok(FreeList { device, pool: Slot::new("free list", list) })
    }

    /// Bytes of all blocks.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |list| Ok(list.geometry().bytes()))
    }

    /// Waits for the device, then returns the faults of kernels, such as double frees.
    fn faults(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.pool.with(py, |list| Ok(list.faults()?))?)
    }
}
