//! The tables that a tool gets from the program: a slot for each function of NVTX's core.
//!
//! ```text
//! get_export_table(CALLBACKS) -> get_module_function_table(CORE2)
//!     -> entries   | null | slot 1 | slot 2 | .. | null |
//!                             v        v
//!        slots            | push   | pop    | ..            written by the tool
//! ```
//!
//! I1: entry `i` of a table points to slot `i`; entry 0 and the entry after the last slot are null.
//! I2: tables are never freed, because a tool keeps their addresses. I3: a tool writes the slots
//! while its entry point runs. The program reads them after that.

use super::abi::{
    AnyFn, Callbacks, MODULES, Slot, TABLE_CALLBACKS, TABLE_VERSION_INFO, VERSION, VersionInfo,
};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::iter;
use std::ptr::null;
use std::sync::OnceLock;

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
