//! The binary interface between a program and a tool's library, as NVTX 3 defines it: names,
//! numbers and layouts of `nvToolsExt.h`, `nvToolsExtMem.h`, `nvtxTypes.h` and `nvtxExtTypes.h`.
//!
//! The layouts are those of 64-bit targets.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// `NVTX_VERSION`.
pub const VERSION: u16 = 3;

/// A function pointer of any type. Null is `None`.
pub type AnyFn = Option<unsafe extern "system" fn()>;
/// A slot for a function: the tool writes its own to it.
pub type Slot = *mut AnyFn;

/// `NvtxGetExportTableFunc_t`: the table with that number, or null.
pub type GetExportTable = unsafe extern "system" fn(u32) -> *const c_void;
/// `NvtxInitializeInjectionNvtxFunc_t`: the entry point of a tool for the core functions.
pub type InitializeCore = unsafe extern "system" fn(GetExportTable) -> c_int;
/// `NvtxExtInitializeInjectionFunc_t`: the entry point of a tool for extensions.
pub type InitializeExtension = unsafe extern "system" fn(*mut ExtensionModule) -> c_int;

/// `nvtxDomainCreateA`.
pub type DomainCreate = unsafe extern "system" fn(*const c_char) -> Domain;
/// `nvtxDomainRangePushEx`.
pub type RangePush = unsafe extern "system" fn(Domain, *const EventAttributes) -> c_int;
/// `nvtxDomainRangePop`.
pub type RangePop = unsafe extern "system" fn(Domain) -> c_int;
/// `nvtxMemHeapRegister`.
pub type HeapRegister = unsafe extern "system" fn(Domain, *const HeapDesc) -> *mut c_void;
/// `nvtxMemHeapUnregister`.
pub type HeapUnregister = unsafe extern "system" fn(Domain, *mut c_void);
/// `nvtxMemRegionsRegister`.
pub type RegionsRegister = unsafe extern "system" fn(Domain, *const RegionsRegisterBatch);
/// `nvtxMemRegionsUnregister`.
pub type RegionsUnregister = unsafe extern "system" fn(Domain, *const RegionsUnregisterBatch);
/// `nvtxMemRegionsName`.
pub type RegionsName = unsafe extern "system" fn(Domain, *const RegionsNameBatch);

/// `nvtxDomainHandle_t`.
pub type Domain = *mut c_void;

/// Numbers of the core tables (`NvtxCallbackModule`), with the number of slots of each, including
/// the unused slot 0.
pub const MODULES: [(c_uint, usize); 6] = [(1, 16), (2, 9), (3, 15), (4, 7), (CORE2, 16), (6, 7)];
/// `NVTX_CB_MODULE_CORE2`: the functions with a domain.
pub const CORE2: c_uint = 5;
/// Slots of [`CORE2`] (`NvtxCallbackIdCore2`).
pub mod core2 {
    pub const RANGE_PUSH: usize = 4;
    pub const RANGE_POP: usize = 5;
    pub const DOMAIN_CREATE: usize = 12;
}

/// `NVTX_ETID_CALLBACKS`.
pub const TABLE_CALLBACKS: u32 = 1;
/// `NVTX_ETID_VERSIONINFO`.
pub const TABLE_VERSION_INFO: u32 = 3;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
pub struct Callbacks {
    pub struct_size: usize,
    pub get_module_function_table: unsafe extern "system" fn(c_uint, *mut *const Slot, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
pub struct VersionInfo {
    pub struct_size: usize,
    pub version: u32,
    pub reserved: u32,
    pub set_injection_version: unsafe extern "system" fn(u32),
}

/// `NVTX_MESSAGE_TYPE_ASCII`.
pub const MESSAGE_ASCII: i32 = 1;
/// `NVTX_PAYLOAD_TYPE_UNSIGNED_INT64`.
pub const PAYLOAD_U64: i32 = 1;

/// `nvtxEventAttributes_v2`.
#[repr(C)]
pub struct EventAttributes {
    pub version: u16,
    pub size: u16,
    pub category: u32,
    pub color_type: i32,
    pub color: u32,
    pub payload_type: i32,
    pub reserved: i32,
    pub payload: u64,
    pub message_type: i32,
    pub message: *const c_char,
}

/// `NVTX_EXT_MODULEID_MEM`.
pub const MEMORY_MODULE: u16 = 1;
/// `NVTX_EXT_COMPATID_MEM`.
pub const MEMORY_COMPAT: u16 = 0x0102;
/// `NVTX_EXT_MEM_SLOT_COUNT`.
pub const MEMORY_SLOTS: usize = 63;
/// `NVTX_EXTENSION_DISABLED`: a slot with at most this value has no function.
pub const SLOT_DISABLED: usize = 1;
/// Slots of the memory extension (`NVTX3EXT_CBID_nvtxMem...`).
pub mod memory {
    pub const HEAP_REGISTER: usize = 0;
    pub const HEAP_UNREGISTER: usize = 1;
    pub const REGIONS_REGISTER: usize = 3;
    pub const REGIONS_UNREGISTER: usize = 5;
    pub const REGIONS_NAME: usize = 6;
}

/// `nvtxExtModuleSegment_t`.
#[repr(C)]
pub struct ExtensionSegment {
    pub id: usize,
    pub slot_count: usize,
    pub slots: *mut usize,
}

/// `nvtxExtModuleInfo_t`.
#[repr(C)]
pub struct ExtensionModule {
    pub version: u16,
    pub struct_size: u16,
    pub module: u16,
    pub compat: u16,
    pub segment_count: usize,
    pub segments: *mut ExtensionSegment,
    pub get_export_function: AnyFn,
    pub info: *const c_void,
}

/// `NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR`: only registered regions of the heap may be accessed.
pub const USAGE_SUB_ALLOCATOR: u32 = 1;
/// `NVTX_MEM_TYPE_VIRTUAL_ADDRESS`: ranges are [`VirtualRange`]s.
pub const TYPE_VIRTUAL_ADDRESS: u32 = 1;
/// `NVTX_MEM_REGION_REF_TYPE_POINTER`: regions are named by their first address.
pub const REF_POINTER: u32 = 1;

/// `nvtxMemVirtualRangeDesc_v1`.
#[repr(C)]
pub struct VirtualRange {
    pub size: usize,
    pub address: u64,
}

/// `nvtxMemHeapDesc_v1`.
#[repr(C)]
pub struct HeapDesc {
    pub compat: u16,
    pub struct_size: u16,
    pub reserved: u32,
    pub usage: u32,
    pub kind: u32,
    pub range_size: usize,
    pub range: *const VirtualRange,
    pub category: u32,
    pub message_type: u32,
    pub message: *const c_char,
}

/// `nvtxMemRegionsRegisterBatch_v1`.
#[repr(C)]
pub struct RegionsRegisterBatch {
    pub compat: u16,
    pub struct_size: u16,
    pub kind: u32,
    pub heap: *mut c_void,
    pub count: usize,
    pub range_size: usize,
    pub ranges: *const VirtualRange,
    pub handles_out: *mut *mut c_void,
}

/// `nvtxMemRegionsUnregisterBatch_v1`.
#[repr(C)]
pub struct RegionsUnregisterBatch {
    pub compat: u16,
    pub struct_size: u16,
    pub ref_type: u32,
    pub count: usize,
    pub ref_size: usize,
    pub addresses: *const u64,
}

/// `nvtxMemRegionNameDesc_v1`.
#[repr(C)]
pub struct RegionName {
    pub ref_type: u32,
    pub name_type: u32,
    pub address: u64,
    pub name: *const c_char,
    pub category: u32,
    pub reserved: u32,
}

/// `nvtxMemRegionsNameBatch_v1`.
#[repr(C)]
pub struct RegionsNameBatch {
    pub compat: u16,
    pub struct_size: u16,
    pub reserved0: u32,
    pub count: usize,
    pub name_size: usize,
    pub names: *const RegionName,
    pub reserved1: usize,
}

/// Asserts the size of a struct, and the offset of each field that is named.
macro_rules! assert_layout {
    ($type:ty, $size:literal, $($field:ident = $offset:literal),*) => {
        const _: () = {
            assert!(size_of::<$type>() == $size && size_of::<$type>() <= u16::MAX as usize);
            $(assert!(offset_of!($type, $field) == $offset);)*
        };
    };
}
assert_layout!(Callbacks, 16, get_module_function_table = 8);
assert_layout!(VersionInfo, 24, version = 8, set_injection_version = 16);
assert_layout!(
    EventAttributes,
    48,
    category = 4,
    payload_type = 16,
    payload = 24,
    message_type = 32,
    message = 40
);
assert_layout!(ExtensionSegment, 24, slot_count = 8, slots = 16);
assert_layout!(ExtensionModule, 40, module = 4, segment_count = 8, segments = 16, get_export_function = 24);
assert_layout!(VirtualRange, 16, address = 8);
assert_layout!(
    HeapDesc,
    48,
    usage = 8,
    kind = 12,
    range_size = 16,
    range = 24,
    message_type = 36,
    message = 40
);
assert_layout!(RegionsRegisterBatch, 48, kind = 4, heap = 8, count = 16, ranges = 32, handles_out = 40);
assert_layout!(RegionsUnregisterBatch, 32, ref_type = 4, count = 8, ref_size = 16, addresses = 24);
assert_layout!(RegionName, 32, name_type = 4, address = 8, name = 16, category = 24);
assert_layout!(RegionsNameBatch, 40, count = 8, name_size = 16, names = 24, reserved1 = 32);
