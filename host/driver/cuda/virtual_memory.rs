//! Virtual memory management of the driver: reserved addresses of a GPU and the memory mapped
//! there.

use super::context::Context;
use super::memory::Heap;
use super::sys::{OUT_OF_MEMORY, Status, VirtualApi};
use crate::driver::backend::{Pages, Range, VirtualMemory};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation,
    CUmemLocationType,
};
use std::ptr::null_mut;
use std::sync::Arc;

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
