//! Attributes of a GPU and its driver, and what they support.

use super::context::Context;
use super::sys::Api;
use crate::driver::backend::{Limits, PoolOrigin};
use crate::error::{NotSupported, Result};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::ffi::{CStr, c_int};

pub(super) fn name_of(context: &Context) -> Result<String> {
    let mut name = [0_u8; 256];
    // SAFETY: the driver writes a terminated string of at most this length to `name`.
    let status = unsafe {
        (context.api.device_get_name)(name.as_mut_ptr().cast(), name.len() as c_int, context.device)
    };
    context.api.check("cuDeviceGetName", status)?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

pub(super) fn attribute(context: &Context, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the driver writes the value to `value`.
    let status = unsafe { (context.api.device_get_attribute)(&mut value, attribute, context.device) };
    context.api.check("cuDeviceGetAttribute", status)?;
    Ok(value.try_into().unwrap_or(0))
}

pub(super) fn limits_of(context: &Context) -> Result<Limits> {
    let ask = |which| attribute(context, which);
    Ok(Limits {
        threads_per_block: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        block: [
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
        ],
        grid: [
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
        ],
        shared_bytes_per_block: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
    })
}

pub(super) fn has_virtual_memory(context: &Context) -> Result<bool> {
    Ok(attribute(context, Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0)
}

/// Fails unless the GPU supports pools, and pools with a maximum size if one is requested.
pub(super) fn check_pools(context: &Context, origin: PoolOrigin) -> Result<()> {
    let unsupported = |what, backend, advice| Err(NotSupported::Backend { what, backend, advice }.into());
    let version = driver_version(context.api)?;
    if version < (11, 2) {
        let advice = "update it to one of CUDA 11.2 or later, or allocate from SyncDriverAllocator";
        return unsupported("stream-ordered pools", "this driver", advice);
    }
    if attribute(context, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
        return unsupported(
            "stream-ordered pools",
            "this GPU",
            "allocate from SyncDriverAllocator, or from a pool over it",
        );
    }
    if matches!(origin, PoolOrigin::New { max: Some(_) }) && version < (12, 2) {
        let advice = "update it to one of CUDA 12.2 or later, or wrap the pool in a Limit";
        return unsupported("largest size of a pool", "this driver", advice);
    }
    Ok(())
}

/// Major and minor version. The driver encodes them as 1000 × major + 10 × minor.
pub(super) fn driver_version(api: &Api) -> Result<(u32, u32)> {
    let mut version = 0;
    // SAFETY: the driver writes the version to `version`.
    let status = unsafe { (api.driver_get_version)(&mut version) };
    api.check("cuDriverGetVersion", status)?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}
