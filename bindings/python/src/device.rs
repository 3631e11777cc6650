//! Devices, and the library of functions for kernels on them.

use crate::convert::{Failure, to_python};
use pyo3::prelude::*;
use serde_json::json;
use std::sync::Mutex;
use warpheap::{Backend, DeviceInfo};
use warpheap_bindings::device_library as libraries;
use warpheap_bindings::lock::lock;

/// A GPU, or the CPU in its place.
///
/// Pools on the CPU have memory of the host. They need no GPU, and kernels of Numba, CuPy and
/// CUDA C++ cannot use them.
#[pyclass(frozen, eq, hash, from_py_object, module = "warpheap")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The device.
    pub inner: warpheap::Device,
    /// The ordinal of a GPU; `None` on the CPU.
    #[pyo3(get)]
    pub ordinal: Option<u32>,
}

impl std::hash::Hash for Device {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.inner.to_string().hash(state);
    }
}

#[pymethods]
impl Device {
    /// The GPU with this ordinal, from 0, with its primary context: the one that CuPy, Numba and
    /// PyTorch use.
    ///
    /// Raises `NoDevice` if there is no driver or no such GPU.
    #[staticmethod]
    #[pyo3(signature = (ordinal = 0))]
    fn cuda(py: Python<'_>, ordinal: u32) -> PyResult<Device> {
        let open = || warpheap::Device::cuda(ordinal).map_err(Failure::from);
        Ok(Device { inner: py.detach(open)?, ordinal: Some(ordinal) })
    }

    /// The CPU. Each call makes a separate device.
    #[staticmethod]
    fn cpu() -> PyResult<Device> {
        Failure::check_process()?;
        Ok(Device { inner: warpheap::Device::cpu(), ordinal: None })
    }

    /// Number of GPUs; 0 without a driver.
    #[staticmethod]
    fn cuda_count(py: Python<'_>) -> PyResult<u32> {
        Failure::check_process()?;
        Ok(py.detach(warpheap::Device::cuda_count).unwrap_or(0))
    }

    /// `"cuda"` or `"cpu"`.
    #[getter]
    fn backend(&self) -> &'static str {
        if self.is_cuda() { "cuda" } else { "cpu" }
    }

    /// The compute capability, such as `(9, 0)`; `None` on the CPU.
    #[getter]
    fn compute_capability(&self, py: Python<'_>) -> PyResult<Option<(u32, u32)>> {
        Ok(self.properties(py)?.compute_capability)
    }

    /// The properties: name, multiprocessors, total and free memory, and more.
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let info = self.properties(py)?;
        to_python(
            py,
            &json!({
                "name": info.name,
                "backend": self.backend(),
                "compute_capability": info.compute_capability,
                "driver_version": info.driver_version,
                "multiprocessors": info.multiprocessors,
                "warp_size": info.warp_size,
                "memory_total": info.memory_total,
                "memory_free": info.memory_free,
                "virtual_memory": info.virtual_memory,
            }),
        )
    }

    /// Waits for the work of all streams. Raises the first failure of a kernel, if there was one.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        Failure::check_process()?;
        Ok(py.detach(|| self.inner.synchronize().map_err(Failure::from))?)
    }

    fn __repr__(&self) -> String {
        format!("Device({})", self.inner)
    }
}

impl Device {
    /// Whether it is a GPU.
    pub fn is_cuda(&self) -> bool {
        self.inner.backend() == Backend::Cuda
    }

    fn properties(&self, py: Python<'_>) -> PyResult<DeviceInfo> {
        Failure::check_process()?;
        Ok(py.detach(|| self.inner.info().map_err(Failure::from))?)
    }
}

/// The device of pools that name none: the first GPU if there is one, else the CPU. The same in
/// every call.
#[pyfunction]
pub fn default_device(py: Python<'_>) -> PyResult<Device> {
    static DEFAULT: Mutex<Option<warpheap::Device>> = Mutex::new(None);
    Failure::check_process()?;
    let device = || {
        let mut slot = lock(&DEFAULT);
        if let Some(device) = &*slot {
            return Ok(device.clone());
        }
        let device = match warpheap::Device::cuda(0) {
            Err(error) if error.is_no_device() => warpheap::Device::cpu(),
            device => device.map_err(Failure::from)?,
        };
        Ok::<_, Failure>(slot.insert(device).clone())
    };
    let inner = py.detach(device)?;
    let ordinal = (inner.backend() == Backend::Cuda).then_some(0);
    Ok(Device { inner, ordinal })
}

/// `device`, or the default one. Fails in a forked child.
pub fn or_default(py: Python<'_>, device: Option<Device>) -> PyResult<Device> {
    Failure::check_process()?;
    device.map_or_else(|| default_device(py), Ok)
}

/// The device functions `wh_malloc`, `wh_free` and others as relocatable PTX, for a linker.
///
/// `compute_capability`, such as `(9, 0)`, selects the newest PTX that such a GPU runs. Default:
/// that of the first GPU; without a GPU the oldest PTX, which all supported GPUs run.
#[pyfunction]
#[pyo3(signature = (compute_capability = None))]
pub fn device_library(py: Python<'_>, compute_capability: Option<(u32, u32)>) -> PyResult<&'static str> {
    if compute_capability.is_none() {
        Failure::check_process()?;
    }
    let capability = compute_capability.or_else(|| py.detach(of_first_gpu));
    let capability = capability.map(|(major, minor)| (major.into(), minor.into()));
    let image = libraries::device_library(capability).map_err(Failure::not_supported)?;
    Ok(image.ptx)
}

fn of_first_gpu() -> Option<(u32, u32)> {
    warpheap::Device::cuda(0).and_then(|device| device.info()).ok()?.compute_capability
}

/// The text of `warpheap_inline.cuh`, which `warpheap.cuh` includes.
#[pyfunction]
pub fn inline_header() -> PyResult<String> {
    let header = libraries::libraries().and_then(warpheap_c_device::inline::header);
    Ok(header.map_err(Failure::not_supported)?)
}
