//! The device library as PTX.

use crate::failure::Failure;
use pyo3::prelude::*;
use warpheap::{Device, KernelImage};

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
    let libraries =
        warpheap_c_device::libraries().map_err(|why| Failure::not_supported(why.trim().to_owned()))?;
    let capability = compute_capability.or_else(|| py.detach(of_first_gpu));
    let oldest = libraries.first().map(|image| image.capability);
    if let (Some((major, minor)), Some(oldest)) = (capability, oldest)
        && (major, minor) < oldest
    {
        let (old_major, old_minor) = oldest;
        let text = format!(
            "the device library needs compute capability {old_major}.{old_minor} or newer, not {major}.{minor}"
        );
        return Err(Failure::not_supported(text).into());
    }
    let image = KernelImage::newest_for(libraries, capability);
    image
        .map(|image| image.ptx)
        .ok_or_else(|| Failure::not_supported("this build has no device library".into()).into())
}

fn of_first_gpu() -> Option<(u32, u32)> {
    Device::cuda(0).and_then(|device| device.info()).ok()?.compute_capability
}

/// The text of `warpheap_inline.cuh`, which `warpheap.cuh` includes.
#[pyfunction]
pub fn inline_header() -> PyResult<String> {
    let libraries =
        warpheap_c_device::libraries().map_err(|why| Failure::not_supported(why.trim().to_owned()))?;
    warpheap_c_device::inline::header(libraries).map_err(|why| Failure::not_supported(why).into())
}
