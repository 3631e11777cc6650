//! The functions of the tool that observes this program.

use super::abi::{
    AnyFn, CORE2, Domain, DomainCreate, EventAttributes, HeapDesc, HeapRegister, HeapUnregister,
    MEMORY_COMPAT, MESSAGE_ASCII, PAYLOAD_U64, REF_POINTER, RangePop, RangePush, RegionName, RegionsName,
    RegionsNameBatch, RegionsRegister, RegionsRegisterBatch, RegionsUnregister, RegionsUnregisterBatch,
    TYPE_VIRTUAL_ADDRESS, USAGE_SUB_ALLOCATOR, VERSION, VirtualRange, core2, memory,
};
use super::load::{Loaded, MemorySlots, function, load};
use std::ffi::{CStr, c_void};
use std::mem::transmute_copy;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Name of the domain of all ranges and memory.
const DOMAIN: &CStr = c"warpheap";

static TOOL: OnceLock<Option<Tool>> = OnceLock::new();

/// The tool, if one observes this program. The first call loads its library.
#[inline]
pub fn tool() -> Option<&'static Tool> {
    TOOL.get().unwrap_or_else(start).as_ref()
}

/// Loads the tool's library, unless another thread does. A failure is logged once, and only after
/// the initialisation: the subscriber may call [`tool`].
#[cold]
fn start() -> &'static Option<Tool> {
    let mut failure = None;
    let tool = TOOL.get_or_init(|| match load() {
        Ok(loaded) => loaded.map(Tool::new),
        Err(rejected) => {
            failure = Some(rejected);
            None
        }
    });
    if let Some(rejected) = failure {
        rejected.log();
    }
    tool
}

/// A tool. Its functions may be called from any thread.
pub struct Tool {
    ranges: Option<RangeTool>,
    memory: Option<MemoryTool>,
}

/// The functions for ranges.
pub struct RangeTool {
    domain: Domain,
    push: RangePush,
    pop: RangePop,
}

/// The functions for memory.
pub struct MemoryTool {
    domain: Domain,
    heap_register: HeapRegister,
    heap_unregister: HeapUnregister,
    regions_register: RegionsRegister,
    regions_unregister: RegionsUnregister,
    regions_name: Option<RegionsName>,
}

/// A heap, as the tool names it.
#[derive(Clone, Copy)]
pub struct HeapHandle(*mut c_void);

// SAFETY: a name for the tool; nothing here accesses what it points to.
unsafe impl Send for HeapHandle {}
// SAFETY: as above.
unsafe impl Sync for HeapHandle {}

// SAFETY: NVTX functions may be called from any thread, with the same domain.
unsafe impl Send for Tool {}
// SAFETY: as above.
unsafe impl Sync for Tool {}

/// The function as a function of type `F`.
///
/// # Safety
/// `F` is a function pointer, and the function has this type.
unsafe fn typed<F: Copy>(function: AnyFn) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<AnyFn>()) };
    // SAFETY: `F` is a pointer to a function of this type: the caller's promise.
    function.map(|function| unsafe { transmute_copy(&function) })
}

/// The function of a core slot.
///
/// # Safety
/// `F` is the type of that function, and the tool's entry point has returned.
unsafe fn core<F: Copy>(slot: usize) -> Option<F> {
    // SAFETY: the caller's promise.
    let function = unsafe { function(CORE2, slot) };
    // SAFETY: the caller's promise.
    unsafe { typed(function) }
}

impl Tool {
    fn new(Loaded { has_core, memory }: Loaded) -> Tool {
        let create = || {
            // SAFETY: the type of this function; the entry point has returned.
            let create = unsafe { core::<DomainCreate>(core2::DOMAIN_CREATE) }?;
            // SAFETY: a C string.
            Some(unsafe { create(DOMAIN.as_ptr()) })
        };
        // A tool without domains gets the default one: null.
        let domain = has_core.then(create).flatten().unwrap_or(null_mut());
        Tool {
            ranges: has_core.then(|| RangeTool::new(domain)).flatten(),
            memory: memory.and_then(|slots| MemoryTool::new(domain, &slots)),
        }
    }

    /// The functions for ranges, if the tool has them.
    pub fn ranges(&self) -> Option<&RangeTool> {
        self.ranges.as_ref()
    }

    /// The functions for memory, if the tool has them.
    pub fn memory(&self) -> Option<&MemoryTool> {
        self.memory.as_ref()
    }
}

impl RangeTool {
    fn new(domain: Domain) -> Option<RangeTool> {
        // SAFETY: the type of this function; the entry point has returned.
        let push = unsafe { core(core2::RANGE_PUSH) }?;
        // SAFETY: as above.
        let pop = unsafe { core(core2::RANGE_POP) }?;
        Some(RangeTool { domain, push, pop })
    }

    /// Begins a range of this thread, nested in the last one that was not ended.
    pub fn push(&self, message: &CStr, bytes: u64) {
        let attributes = EventAttributes {
            version: VERSION,
            size: size_of::<EventAttributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: if bytes > 0 { PAYLOAD_U64 } else { 0 },
            reserved: 0,
            payload: bytes,
            message_type: MESSAGE_ASCII,
            message: message.as_ptr(),
        };
        // SAFETY: the attributes and their message are live until the call returns.
        unsafe { (self.push)(self.domain, &raw const attributes) };
    }

    /// Ends the last range of this thread.
    pub fn pop(&self) {
        // SAFETY: takes no pointer but the domain.
        unsafe { (self.pop)(self.domain) };
    }
}

impl MemoryTool {
    fn new(domain: Domain, slots: &MemorySlots) -> Option<MemoryTool> {
        // SAFETY: the types of the functions in these slots.
        let heap_register = unsafe { typed(slots.get(memory::HEAP_REGISTER)) }?;
        // SAFETY: as above.
        let heap_unregister = unsafe { typed(slots.get(memory::HEAP_UNREGISTER)) }?;
        // SAFETY: as above.
        let regions_register = unsafe { typed(slots.get(memory::REGIONS_REGISTER)) }?;
        // SAFETY: as above.
        let regions_unregister = unsafe { typed(slots.get(memory::REGIONS_UNREGISTER)) }?;
        // SAFETY: as above.
        let regions_name = unsafe { typed(slots.get(memory::REGIONS_NAME)) };
        Some(MemoryTool {
            domain,
            heap_register,
            heap_unregister,
            regions_register,
            regions_unregister,
            regions_name,
        })
    }

    /// Registers memory of which only registered regions may be accessed.
    pub fn register_heap(&self, address: u64, bytes: u64, name: &CStr) -> HeapHandle {
        let range = VirtualRange { size: bytes as usize, address };
        let heap = HeapDesc {
            compat: MEMORY_COMPAT,
            struct_size: size_of::<HeapDesc>() as u16,
            reserved: 0,
            usage: USAGE_SUB_ALLOCATOR,
            kind: TYPE_VIRTUAL_ADDRESS,
            range_size: size_of::<VirtualRange>(),
            range: &raw const range,
            category: 0,
            message_type: MESSAGE_ASCII as u32,
            message: name.as_ptr(),
        };
        // SAFETY: the description and what it points to are live until the call returns.
        HeapHandle(unsafe { (self.heap_register)(self.domain, &raw const heap) })
    }

    /// Removes a heap and its regions.
    pub fn unregister_heap(&self, heap: HeapHandle) {
        // SAFETY: the tool returned the handle; it is unregistered once.
        unsafe { (self.heap_unregister)(self.domain, heap.0) };
    }

    /// Makes a part of a heap accessible.
    pub fn register_region(&self, heap: HeapHandle, address: u64, bytes: u64) {
        let range = VirtualRange { size: bytes as usize, address };
        let batch = RegionsRegisterBatch {
            compat: MEMORY_COMPAT,
            struct_size: size_of::<RegionsRegisterBatch>() as u16,
            kind: TYPE_VIRTUAL_ADDRESS,
            heap: heap.0,
            count: 1,
            range_size: size_of::<VirtualRange>(),
            ranges: &raw const range,
            handles_out: null_mut(),
        };
        // SAFETY: the description and what it points to are live until the call returns.
        unsafe { (self.regions_register)(self.domain, &raw const batch) };
    }

    /// Undoes [`register_region`](Self::register_region).
    pub fn unregister_region(&self, address: u64) {
        let batch = RegionsUnregisterBatch {
            compat: MEMORY_COMPAT,
            struct_size: size_of::<RegionsUnregisterBatch>() as u16,
            ref_type: REF_POINTER,
            count: 1,
            ref_size: size_of::<u64>(),
            addresses: &raw const address,
        };
        // SAFETY: the description and what it points to are live until the call returns.
        unsafe { (self.regions_unregister)(self.domain, &raw const batch) };
    }

    /// Names a region or an allocation, for messages of the tool.
    pub fn name(&self, address: u64, name: &CStr) {
        let Some(regions_name) = self.regions_name else { return };
        let (ref_type, name_type) = (REF_POINTER, MESSAGE_ASCII as u32);
        let name = RegionName { ref_type, name_type, address, name: name.as_ptr(), category: 0, reserved: 0 };
        let batch = RegionsNameBatch {
            compat: MEMORY_COMPAT,
            struct_size: size_of::<RegionsNameBatch>() as u16,
            reserved0: 0,
            count: 1,
            name_size: size_of::<RegionName>(),
            names: &raw const name,
            reserved1: 0,
        };
        // SAFETY: the description and what it points to are live until the call returns.
        unsafe { (regions_name)(self.domain, &raw const batch) };
    }
}
