//! Free lists.

use crate::convert::{faults, to_python, violations};
use crate::device::{Device, or_default};
use crate::failure::Failure;
use crate::slot::Slot;
use pyo3::prelude::*;
use warpheap::device_pools;

/// Blocks of one size in device memory, for kernels.
///
/// `FreeList(blocks, block_bytes, device=None, *, align=16)`
#[pyclass(frozen, module = "warpheap")]
#[derive(Debug)]
pub struct FreeList {
    device: Device,
    list: Slot<device_pools::FreeList>,
}

#[pymethods]
impl FreeList {
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
        Ok(FreeList { device, list: Slot::new("free list", list) })
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        self.device.clone()
    }

    /// The device address that kernels pass to `wh_freelist_alloc` as the list.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<u64> {
        self.list.with(py, |list| Ok(list.device_address()))
    }

    /// Bytes of all blocks.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        self.list.with(py, |list| Ok(list.geometry().bytes()))
    }

    /// Waits for the device, then returns the numbers of free and live blocks.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.list.with(py, |list| Ok(list.stats()?))?)
    }

    /// Waits for the device, then checks the metadata. Returns the violated invariants.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(violations(self.list.with(py, |list| Ok(list.check()?))?))
    }

    /// Waits for the device, then returns the faults of kernels, such as double frees.
    fn faults(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &faults(&self.list.with(py, |list| Ok(list.faults()?))?))
    }

    /// Waits for the device, then frees all blocks. They must not be used any more.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.list.with_mut(py, |list| Ok(list.reset()?))
    }

    /// Frees the memory. No kernel may use the list any more. Later calls raise `Closed`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.list.close(py, |list| {
            drop(list);
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
