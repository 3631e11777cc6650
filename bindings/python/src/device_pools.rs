//! Pools that kernels allocate from: heaps, bump arenas and free lists.

use crate::convert::{faults, layout, to_python, violations};
use crate::device::{Device, or_default};
use crate::failure::Failure;
use crate::report::Report;
use crate::slot::Slot;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use warpheap::{Bytes, device_pools};
use warpheap_c_device::handle_value;
use warpheap_device::kernel::DevicePtr;

/// The methods of a class: its own, and those that all pools have. PyO3 allows one `impl` of a
/// class to have methods.
macro_rules! device_pool {
    ($Class:ident; $($own:tt)*) => {
        #[pymethods]
        impl $Class {
            $($own)*

            /// The device.
            #[getter]
            fn device(&self) -> Device {
                self.device.clone()
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

            /// Frees the pool and its memory. No kernel may use it any more. Later calls raise
            /// `Closed`.
            fn close(&self, py: Python<'_>) -> PyResult<()> {
                self.pool.close(py, |pool| {
                    drop(pool);
                    Ok(())
                })
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
        let mut builder = device_pools::Heap::builder(bytes);
        if let Some(bytes) = initial {
            builder = builder.initial(bytes);
        }
        if let Some(bytes) = largest_class {
            builder = builder.largest_class(bytes);
        }
        if let Some(count) = shards {
            builder = builder.shards(count);
        }
        let heap = py.detach(|| builder.build(&device.inner).map_err(Failure::from))?;
        Ok(Heap { device, pool: Slot::new("heap", heap) })
    }

    /// The device address that kernels pass to `wh_malloc` and `wh_free` as the heap.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |heap| Ok(heap.device_address()))
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

    /// Waits for the device, then returns the statistics: used, free and largest free bytes, and
    /// the size classes.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.pool.with(py, |heap| Ok(heap.stats()?))?)
    }

    /// Waits for the device, then returns the faults of kernels, such as double frees: their
    /// number, and the first 64.
    fn faults(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &faults(&self.pool.with(py, |heap| Ok(heap.faults()?))?))
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
        self.pool.with(py, |heap| {
            let block = heap.allocate(layout(nbytes, align)?)?;
            block.map(|block| block.0 as u64).ok_or_else(|| {
                let (nbytes, capacity) = (Bytes(nbytes), Bytes(heap.capacity()));
                Failure::out_of_memory(format!(
                    "the heap of {capacity} cannot allocate {nbytes} aligned to {align}: it is out of memory; free \
                     blocks, call `grow_to`, or create a larger heap; `report()` shows what is in use"
                ))
            })
        })
    }

    /// Frees a block that a kernel or `allocate` allocated. No kernel may use it any more.
    ///
    /// Raises `InvalidFree` if no live block starts there.
    fn deallocate(&self, py: Python<'_>, ptr: u64) -> PyResult<()> {
        self.pool.with(py, |heap| {
            // SAFETY: the method's documentation demands that no kernel uses the block.
            unsafe { heap.deallocate(DevicePtr(ptr as *mut u8)) }?;
            Ok(())
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
        let mut builder = device_pools::Bump::builder(bytes);
        if let Some(count) = shards {
            builder = builder.shards(count);
        }
        let arena = py.detach(|| builder.build(&device.inner).map_err(Failure::from))?;
        Ok(Bump { device, pool: Slot::new("arena", arena) })
    }

    /// The device address that kernels pass to `wh_bump_alloc` as the arena.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |arena| Ok(arena.device_address()))
    }

    /// Bytes of the arena.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |arena| Ok(arena.memory().bytes()))
    }

    /// Waits for the device, then returns used, remaining and wasted bytes.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.pool.with(py, |arena| Ok(arena.stats()?))?)
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

    /// The device address that kernels pass to `wh_freelist_alloc` as the list.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |list| Ok(list.device_address()))
    }

    /// Bytes of all blocks.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        self.pool.with(py, |list| Ok(list.geometry().bytes()))
    }

    /// Waits for the device, then returns the numbers of free and live blocks.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.pool.with(py, |list| Ok(list.stats()?))?)
    }

    /// Waits for the device, then returns the faults of kernels, such as double frees.
    fn faults(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &faults(&self.pool.with(py, |list| Ok(list.faults()?))?))
    }
}
