//! Bump arenas.

use crate::convert::{to_python, violations};
use crate::device::{Device, or_default};
use crate::failure::Failure;
use crate::slot::Slot;
use pyo3::prelude::*;
use warpheap::device_pools;

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
    arena: Slot<device_pools::Bump>,
}

#[pymethods]
impl Bump {
    #[new]
    #[pyo3(signature = (bytes, device = None, *, shards = None))]
    fn new(py: Python<'_>, bytes: u64, device: Option<Device>, shards: Option<u32>) -> PyResult<Bump> {
        let device = or_default(py, device)?;
        let mut builder = device_pools::Bump::builder(bytes);
        if let Some(count) = shards {
            builder = builder.shards(count);
        }
        let arena = py.detach(|| builder.build(&device.inner).map_err(Failure::from))?;
        Ok(Bump { device, arena: Slot::new("arena", arena) })
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        self.device.clone()
    }

    /// The device address that kernels pass to `wh_bump_alloc` as the arena.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<u64> {
        self.arena.with(py, |arena| Ok(arena.device_address()))
    }

    /// Bytes of the arena.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        self.arena.with(py, |arena| Ok(arena.memory().bytes()))
    }

    /// Waits for the device, then returns used, remaining and wasted bytes.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, &self.arena.with(py, |arena| Ok(arena.stats()?))?)
    }

    /// Waits for the device, then checks the metadata. Returns the violated invariants.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(violations(self.arena.with(py, |arena| Ok(arena.check()?))?))
    }

    /// Waits for the device, then frees everything. Memory from before must not be used any more.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.arena.with_mut(py, |arena| Ok(arena.reset()?))
    }

    /// Frees the arena's memory. No kernel may use it any more. Later calls raise `Closed`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.arena.close(py, |arena| {
            drop(arena);
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
