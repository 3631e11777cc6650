//! Loads the library of a tool and gets its functions.
//!
//! A tool such as Nsight Systems or compute-sanitizer starts the program with the path of its
//! library in an environment variable. The library has two entry points: one for the core functions
//! and one for extensions.

use super::abi::{
    AnyFn, Callbacks, ExtensionModule, ExtensionSegment, InitializeCore, InitializeExtension, MEMORY_COMPAT,
    MEMORY_MODULE, MEMORY_SLOTS, MODULES, SLOT_DISABLED, Slot, TABLE_CALLBACKS, TABLE_VERSION_INFO, VERSION,
    VersionInfo,
};
use libloading::Library;
use std::cell::UnsafeCell;
use std::error::Error;
use std::ffi::{OsString, c_int, c_uint, c_void};
use std::iter;
use std::mem::ManuallyDrop;
use std::ptr::null;
use std::sync::OnceLock;

/// The environment variable with the path of the tool's library.
const PATH: &str = "NVTX_INJECTION64_PATH";
/// The value that asks for no library.
const NO_LIBRARY: &str = "./.";

/// Functions of the memory extension, by slot.
pub struct MemorySlots(Vec<AnyFn>);

impl MemorySlots {
    /// The tool's function of a slot.
    pub fn get(&self, slot: usize) -> AnyFn {
        *self.0.get(slot)?
    }
}

/// Which functions the tool has.
pub struct Loaded {
    /// Whether it has written functions to the core tables.
    pub has_core: bool,
    pub memory: Option<MemorySlots>,
}

/// A library that could not be used.
pub struct Rejected {
    path: OsString,
    why: String,
}

impl Rejected {
    pub fn log(self) {
        let Rejected { path, why } = self;
        tracing::warn!(?path, why, "NVTX is off: the library that {PATH} names could not be used");
    }
}

/// Loads the tool's library, if a tool has named one.
pub fn load() -> Result<Option<Loaded>, Rejected> {
    let is_library = |path: &OsString| !path.is_empty() && path != NO_LIBRARY;
    let Some(path) = std::env::var_os(PATH).filter(is_library) else { return Ok(None) };
    // SAFETY: the initialisers of a library that the user's environment names for this purpose.
    let library = match unsafe { Library::new(&path) } {
        // Never unloaded: the program keeps its functions.
        Ok(library) => ManuallyDrop::new(library),
        Err(error) => {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            return Err(Rejected { path, why: format!("{error}{cause}") });
        }
    };
    let (has_core, memory) = (start_core(&library), start_memory(&library));
    if !has_core && memory.is_none() {
        return Err(Rejected { path, why: "it has no entry point of NVTX 3, or it failed".into() });
    }
    Ok(Some(Loaded { has_core, memory }))
}

/// Calls the entry point of the core functions. Returns whether there is one and it succeeded.
fn start_core(library: &Library) -> bool {
    // SAFETY: NVTX defines the type of this symbol.
    let Ok(entry) = (unsafe { library.get::<InitializeCore>(b"InitializeInjectionNvtx2\0") }) else {
        return false;
    };
    // SAFETY: the argument is a function of the type that NVTX defines.
    unsafe { entry(get_export_table) != 0 }
}

/// Calls the entry point of extensions for the memory extension.
fn start_memory(library: &Library) -> Option<MemorySlots> {
    // SAFETY: NVTX defines the type of this symbol.
    let entry = unsafe { library.get::<InitializeExtension>(b"InitializeInjectionNvtxExtension\0") }.ok()?;
    // Never freed: the tool may keep the address.
    let slots = Box::leak(Box::new([0_usize; MEMORY_SLOTS])).as_mut_ptr();
    let mut segment = ExtensionSegment { id: 1, slot_count: MEMORY_SLOTS, slots };
    let mut module = ExtensionModule {
        version: VERSION,
        struct_size: size_of::<ExtensionModule>() as u16,
        module: MEMORY_MODULE,
        compat: MEMORY_COMPAT,
        segment_count: 1,
        segments: &raw mut segment,
        get_export_function: None,
        info: null(),
    };
    // SAFETY: the module, its segment and its slots are live and as NVTX defines them.
    if unsafe { entry(&raw mut module) } == 0 {
        return None;
    }
    // SAFETY: the entry point has returned, and the tool writes the slots only in it.
    let slots = unsafe { std::slice::from_raw_parts(slots, MEMORY_SLOTS) };
    Some(MemorySlots(slots.iter().map(|slot| function_of(*slot)).collect()))
}

/// The function of a slot of an extension.
fn function_of(slot: usize) -> AnyFn {
    if slot <= SLOT_DISABLED {
        return None;
    }
    let pointer = std::ptr::with_exposed_provenance::<()>(slot);
    // SAFETY: the tool has written a function pointer to the slot. It is not null.
    Some(unsafe { std::mem::transmute::<*const (), unsafe extern "system" fn()>(pointer) })
}

// The tables that a tool gets from the program: a slot for each function of NVTX's core.
//
// ```text
// get_export_table(CALLBACKS) -> get_module_function_table(CORE2)
//     -> entries   | null | slot 1 | slot 2 | .. | null |
//                             v        v
//        slots            | push   | pop    | ..            written by the tool
// ```
//
// I1: entry `i` of a table points to slot `i`; entry 0 and the entry after the last slot are null.
// I2: tables are never freed, because a tool keeps their addresses. I3: a tool writes the slots
// while its entry point runs. The program reads them after that.

static CALLBACKS: Callbacks = Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table };
static VERSION_INFO: VersionInfo = VersionInfo {
    struct_size: size_of::<VersionInfo>(),
    version: VERSION as u32,
    reserved: 0,
    set_injection_version,
};
static TABLES: OnceLock<Vec<Table>> = OnceLock::new();

/// The slots of a module.
struct Table {
    module: c_uint,
    slots: Box<[UnsafeCell<AnyFn>]>,
    /// Pointers to the slots (I1).
    entries: Box<[Slot]>,
}

// SAFETY: the program reads the slots only after the tool has written them (I3). The entries are
// never written.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    fn new((module, len): (c_uint, usize)) -> Table {
        let slots: Box<[_]> = iter::repeat_with(|| UnsafeCell::new(None)).take(len).collect();
        let used = slots.iter().skip(1).map(UnsafeCell::get);
        let entries = iter::once(null_slot()).chain(used).chain(iter::once(null_slot())).collect();
        Table { module, slots, entries }
    }
}

fn null_slot() -> Slot {
    std::ptr::null_mut()
}

/// All tables, created by the first call.
fn tables() -> &'static [Table] {
    TABLES.get_or_init(|| MODULES.map(Table::new).into())
}

/// The function that the tool has written to a slot.
///
/// # Safety
/// The tool's entry point has returned (I3).
pub unsafe fn function(module: c_uint, slot: usize) -> AnyFn {
    let table = tables().iter().find(|table| table.module == module)?;
    // SAFETY: no write is in progress: the caller's promise (I3).
    unsafe { *table.slots.get(slot)?.get() }
}

/// `NvtxGetExportTableFunc_t`.
pub unsafe extern "system" fn get_export_table(id: u32) -> *const c_void {
    match id {
        TABLE_CALLBACKS => (&raw const CALLBACKS).cast(),
        TABLE_VERSION_INFO => (&raw const VERSION_INFO).cast(),
        _ => null(),
    }
}

/// Writes the address and the number of slots of a table. Returns 0 if there is no such table.
unsafe extern "system" fn get_module_function_table(
    module: c_uint,
    table_out: *mut *const Slot,
    len_out: *mut c_uint,
) -> c_int {
    let Some(table) = tables().iter().find(|table| table.module == module) else { return 0 };
    if !table_out.is_null() {
        // SAFETY: the tool passes null or a place for the address.
        unsafe { table_out.write(table.entries.as_ptr()) };
    }
    if !len_out.is_null() {
        // SAFETY: the tool passes null or a place for the number.
        unsafe { len_out.write(table.slots.len() as c_uint) };
    }
    1
}

unsafe extern "system" fn set_injection_version(_version: u32) {}
