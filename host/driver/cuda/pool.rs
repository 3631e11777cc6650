//! Stream-ordered memory pools of the driver.

use super::context::Context;
use super::memory::Heap;
use super::sys::{Handle, OUT_OF_MEMORY, PoolApi, Status};
use crate::driver::backend::{PoolAttribute, PoolBackend, PoolOrigin, Queue};
use crate::error::{Error, Result};
use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool,
};
use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::null_mut;
use std::sync::Arc;

/// A pool that this program created, or one of the device.
pub(super) struct CudaPool {
    api: &'static PoolApi,
    context: Arc<Context>,
    heap: Arc<Heap>,
    raw: Handle<CUmemoryPool>,
    /// Whether dropping this destroys it.
    owned: bool,
}

impl CudaPool {
    /// Creates a pool of GPU memory, or takes one of the device. A maximum size requires CUDA 12.2.
    pub fn obtain(context: Arc<Context>, heap: Arc<Heap>, origin: PoolOrigin) -> Result<CudaPool> {
        let (api, device, mut raw) = (PoolApi::loaded()?, context.device, null_mut());
        match origin {
            PoolOrigin::New { max } => {
                let properties = properties(&context, max);
                // SAFETY: the driver reads the properties and writes the handle to `raw`.
                context.call("cuMemPoolCreate", |_| unsafe { (api.mem_pool_create)(&mut raw, &properties) })
            }
            PoolOrigin::Default => context.call("cuDeviceGetDefaultMemPool", |_| {
                // SAFETY: the driver writes the handle to `raw`.
                unsafe { (api.device_get_default_mem_pool)(&mut raw, device) }
            }),
            PoolOrigin::Current => context.call("cuDeviceGetMemPool", |_| {
                // SAFETY: the driver writes the handle to `raw`.
                unsafe { (api.device_get_mem_pool)(&mut raw, device) }
            }),
        }?;
        let owned = matches!(origin, PoolOrigin::New { .. });
        Ok(CudaPool { api, context, heap, raw: Handle(raw), owned })
    }

    /// Calls the driver with the context current.
    fn call(&self, name: &'static str, call: impl FnOnce(&PoolApi) -> Status) -> Result<()> {
        self.context.call(name, |_| call(self.api))
    }
}

/// GPU memory without handles for other processes.
fn properties(context: &Context, max: Option<u64>) -> CUmemPoolProps {
    // Since CUDA 12.2 the first reserved bytes are `maxSize`, a `size_t`, where 0 means no limit.
    // Before, all reserved bytes must be 0.
    const { assert!(offset_of!(CUmemPoolProps, reserved) == 24 && size_of::<CUmemPoolProps>() == 88) };
    let mut reserved = [0; 64];
    reserved[..size_of::<u64>()].copy_from_slice(&max.unwrap_or(0).to_ne_bytes());
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device },
        win32SecurityAttributes: null_mut(),
        reserved,
    }
}

/// The driver's name of the attribute, and whether its type is `int`; the others have 64 bits.
fn name_of(attribute: PoolAttribute) -> (CUmemPool_attribute, bool) {
    use CUmemPool_attribute as Name;
    match attribute {
        PoolAttribute::FollowEvents => (Name::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, true),
        PoolAttribute::Opportunistic => (Name::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, true),
        PoolAttribute::InternalDependencies => {
            (Name::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, true)
        }
        PoolAttribute::ReleaseThreshold => (Name::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, false),
        PoolAttribute::ReservedCurrent => (Name::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, false),
        PoolAttribute::ReservedHigh => (Name::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, false),
        PoolAttribute::UsedCurrent => (Name::CU_MEMPOOL_ATTR_USED_MEM_CURRENT, false),
        PoolAttribute::UsedHigh => (Name::CU_MEMPOOL_ATTR_USED_MEM_HIGH, false),
    }
}

impl PoolBackend for CudaPool {
    fn alloc(&self, bytes: u64, stream: &Queue) -> Result<u64> {
        let (mut address, stream) = (0, stream.backend().raw());
        let Ok(size) = usize::try_from(bytes) else { return Err(self.heap.out_of_memory(bytes)) };
        let done = self.call("cuMemAllocFromPoolAsync", |api| {
            // SAFETY: the driver writes the address to `address`; both handles are live.
            unsafe { (api.mem_alloc_from_pool_async)(&mut address, size, self.raw.0, stream.cast()) }
        });
        match done {
            Err(Error::Driver { code: OUT_OF_MEMORY, .. }) => Err(self.heap.out_of_memory(bytes)),
            other => other.map(|()| address),
        }
    }

    unsafe fn free(&self, address: u64, stream: &Queue) -> Result<()> {
        let stream = stream.backend().raw();
        self.call("cuMemFreeAsync", |api| {
            // SAFETY: the address comes from this pool; the caller promises to free it once.
            unsafe { (api.mem_free_async)(address, stream.cast()) }
        })
    }

    fn trim_to(&self, keep: u64) -> Result<()> {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        // SAFETY: the pool outlives `self`.
        self.call("cuMemPoolTrimTo", |api| unsafe { (api.mem_pool_trim_to)(self.raw.0, keep) })
    }

    fn get(&self, attribute: PoolAttribute) -> Result<u64> {
        let (name, is_int) = name_of(attribute);
        let (mut int, mut long): (c_int, u64) = (0, 0);
        let to: *mut c_void = if is_int { (&raw mut int).cast() } else { (&raw mut long).cast() };
        self.call("cuMemPoolGetAttribute", |api| {
            // SAFETY: the driver writes a value of the attribute's type to `to`.
            unsafe { (api.mem_pool_get_attribute)(self.raw.0, name, to) }
        })?;
        Ok(if is_int { u64::from(int != 0) } else { long })
    }

    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        let (name, is_int) = name_of(attribute);
        let (mut int, mut long) = (c_int::from(value != 0), value);
        let from: *mut c_void = if is_int { (&raw mut int).cast() } else { (&raw mut long).cast() };
        self.call("cuMemPoolSetAttribute", |api| {
            // SAFETY: the driver reads a value of the attribute's type from `from`.
            unsafe { (api.mem_pool_set_attribute)(self.raw.0, name, from) }
        })
    }

    fn key(&self) -> usize {
        self.raw.0.addr()
    }
}

impl Drop for CudaPool {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: created by `obtain`, destroyed once; the driver itself waits for pending
            // frees.
            self.context.release("cuMemPoolDestroy", |_| unsafe { (self.api.mem_pool_destroy)(self.raw.0) });
        }
    }
}
