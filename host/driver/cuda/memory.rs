//! Device memory of a GPU.
//!
//! I1: `bases` maps each block whose address was moved for alignment to the address from the
//! driver.

use super::context::Context;
use super::sys::{Handle, OUT_OF_MEMORY, PoolApi, Status, VirtualApi};
use crate::driver::backend::{Pages, PoolAttribute, PoolBackend, PoolOrigin, Queue, Range, VirtualMemory};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::lock::lock;
use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

/// The alignment that `cuMemAlloc` guarantees.
const DRIVER_ALIGN: u64 = 256;

pub(super) struct Heap {
    context: Arc<Context>,
    device: String,
    bases: Mutex<HashMap<u64, CUdeviceptr>>,
}

impl Heap {
    pub fn new(context: Arc<Context>, device: &str) -> Heap {
        Heap { context, device: device.into(), bases: Mutex::default() }
    }

    /// Free and total bytes.
    pub fn free_and_total(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes both numbers.
        self.context.call("cuMemGetInfo", |api| unsafe { (api.mem_get_info)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Allocates `bytes`, not 0, aligned to `align`.
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<Range> {
        let padding = if align > DRIVER_ALIGN { align } else { 0 };
        let padded = bytes.checked_add(padding).and_then(|n| usize::try_from(n).ok());
        let Some(padded) = padded else { return Err(self.out_of_memory(bytes)) };
        let mut base = 0;
        // SAFETY: the driver writes the address to `base`.
        let done = self.context.call("cuMemAlloc", |api| unsafe { (api.mem_alloc)(&mut base, padded) });
        match done {
            Err(Error::Driver { code: OUT_OF_MEMORY, .. }) => return Err(self.out_of_memory(bytes)),
            other => other?,
        }
        let address = base.next_multiple_of(align);
        if address != base {
            lock(&self.bases).insert(address, base);
        }
        Ok(Range { address, bytes })
    }

    /// Waits for the work in flight, which may use the memory, and frees it.
    pub fn free(&self, range: Range) -> Result<()> {
        // `cuMemFree` waits too, but its documentation does not promise it. After a fault there is
        // no work to wait for, and the stream reports the fault to its owner.
        let _ = self.context.synchronize();
        // Before the free: as soon as the memory is freed, another block may get the address.
        let moved = lock(&self.bases).remove(&range.address);
        let base = moved.unwrap_or(range.address);
        // SAFETY: the address comes from `cuMemAlloc` and is freed once.
        let done = self.context.call("cuMemFree", |api| unsafe { (api.mem_free)(base) });
        if let (Err(_), Some(base)) = (&done, moved) {
            lock(&self.bases).insert(range.address, base);
        }
        done
    }

    pub fn free_or_log(&self, range: Range) {
        if let Err(error) = self.free(range) {
            tracing::warn!(%error, address = range.address, "device memory could not be freed");
        }
    }

    /// The out-of-memory error for a request of `bytes`.
    pub fn out_of_memory(&self, bytes: u64) -> Error {
        // A failure to read the figures must not hide the error itself.
        let (free, total) = self.free_and_total().unwrap_or((0, 0));
        Error::OutOfMemory(OutOfMemory::Device {
            device: self.device.clone(),
            requested: Bytes(bytes),
            free: Bytes(free),
            total: Bytes(total),
            advice:
                "request less, drop other buffers, or end other programs that use this GPU (`nvidia-smi` lists them)"
                    .into(),
            report: None,
        })
    }
}

// Virtual memory management of the driver: reserved addresses of a GPU and the memory mapped
// there.

pub(super) struct CudaVirtualMemory {
    api: &'static VirtualApi,
    context: Arc<Context>,
    heap: Arc<Heap>,
    device: String,
    granularity: u64,
}

impl CudaVirtualMemory {
    /// Requires a GPU with virtual memory management.
    pub fn new(context: Arc<Context>, heap: Arc<Heap>, device: &str) -> Result<CudaVirtualMemory> {
        let api = VirtualApi::loaded()?;
        let (mut granularity, properties) = (0, properties(&context));
        let min = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        context.call("cuMemGetAllocationGranularity", |_| {
            // SAFETY: the driver reads the properties and writes the number to `granularity`.
            unsafe { (api.mem_get_allocation_granularity)(&mut granularity, &properties, min) }
        })?;
        Ok(CudaVirtualMemory { api, context, heap, device: device.into(), granularity: granularity as u64 })
    }

    /// Calls the driver with the context current.
    fn call(&self, name: &'static str, call: impl FnOnce(&VirtualApi) -> Status) -> Result<()> {
        self.context.call(name, |_| call(self.api))
    }
}

fn location(context: &Context) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device }
}

/// GPU memory without handles for other processes.
fn properties(context: &Context) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(context),
        win32HandleMetaData: null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

impl VirtualMemory for CudaVirtualMemory {
    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn reserve(&self, bytes: u64, align: u64) -> Result<Range> {
        let mut address = 0;
        let done = self.call("cuMemAddressReserve", |api| {
            // SAFETY: the driver writes the address to `address`.
            unsafe { (api.mem_address_reserve)(&mut address, bytes as usize, align as usize, 0, 0) }
        });
        match done {
            Err(Error::Driver { code: OUT_OF_MEMORY, detail, .. }) => {
                Err(Error::OutOfMemory(OutOfMemory::AddressSpace {
                    what: "reserve",
                    bytes: Bytes(bytes),
                    device: self.device.clone(),
                    why: detail,
                    advice: "reserve fewer",
                }))
            }
            other => other.map(|()| {
                debug_assert!(
                    address.is_multiple_of(align),
                    "cuMemAddressReserve aligns as it was requested to"
                );
                Range { address, bytes }
            }),
        }
    }

    unsafe fn unreserve(&self, range: Range) -> Result<()> {
        self.call("cuMemAddressFree", |api| {
            // SAFETY: the addresses come from `cuMemAddressReserve` and are freed once.
            unsafe { (api.mem_address_free)(range.address, range.bytes as usize) }
        })
    }

    fn create(&self, bytes: u64) -> Result<Pages> {
        let (mut handle, properties) = (0, properties(&self.context));
        let done = self.call("cuMemCreate", |api| {
            // SAFETY: the driver reads the properties and writes the handle to `handle`.
            unsafe { (api.mem_create)(&mut handle, bytes as usize, &properties, 0) }
        });
        match done {
            Err(Error::Driver { code: OUT_OF_MEMORY, .. }) => Err(self.heap.out_of_memory(bytes)),
            other => other.map(|()| Pages(handle)),
        }
    }

    unsafe fn release(&self, Pages(handle): Pages) -> Result<()> {
        // SAFETY: the handle comes from `cuMemCreate` and is released once.
        self.call("cuMemRelease", |api| unsafe { (api.mem_release)(handle) })
    }

    unsafe fn map(&self, range: Range, Pages(handle): Pages) -> Result<()> {
        self.call("cuMemMap", |api| {
            // SAFETY: the caller's promise: reserved, unmapped addresses and memory of the same
            // length.
            unsafe { (api.mem_map)(range.address, range.bytes as usize, 0, handle, 0) }
        })
    }

    unsafe fn unmap(&self, range: Range) -> Result<()> {
        self.call("cuMemUnmap", |api| {
            // SAFETY: the caller's promise: an entire mapping that no work in flight uses.
            unsafe { (api.mem_unmap)(range.address, range.bytes as usize) }
        })
    }

    unsafe fn allow(&self, range: Range) -> Result<()> {
        let access = CUmemAccessDesc {
            location: location(&self.context),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        self.call("cuMemSetAccess", |api| {
            // SAFETY: an entire mapping; the driver reads one access descriptor.
            unsafe { (api.mem_set_access)(range.address, range.bytes as usize, &access, 1) }
        })
    }
}

// Stream-ordered memory pools of the driver.

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
                let properties = pool_properties(&context, max);
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

/// A pool of GPU memory without handles for other processes.
fn pool_properties(context: &Context, max: Option<u64>) -> CUmemPoolProps {
    // Since CUDA 12.2 the first reserved bytes are `maxSize`, a `size_t`, where 0 means no limit.
    // Before, all reserved bytes must be 0.
    const { assert!(offset_of!(CUmemPoolProps, reserved) == 24 && size_of::<CUmemPoolProps>() == 88) };
    let mut reserved = [0; 64];
    reserved[..size_of::<u64>()].copy_from_slice(&max.unwrap_or(0).to_ne_bytes());
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(context),
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
