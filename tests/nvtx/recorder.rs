//! A library as a tool provides it: it writes each call of the program to a file.
//!
//! `main` compiles this file alone as a `cdylib`. It reads the program's structures by the offsets
//! that NVIDIA's headers define.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::OpenOptions;
use std::io::Write;
use std::ptr::null_mut;
use std::thread::current;

/// Writes one line to the record, in one write: threads do not mix their lines.
fn record(line: std::fmt::Arguments<'_>) {
    let path = std::env::var_os("WARPHEAP_TEST_NVTX_RECORD").expect("a file for the record");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the record");
    file.write_all(format!("{line}\n").as_bytes()).expect("the record");
}

/// Reads the field at an offset.
///
/// # Safety
/// There is a live field of this type.
unsafe fn field<T: Copy>(base: *const c_void, offset: usize) -> T {
    // SAFETY: a live field: the caller's promise.
    unsafe { base.wrapping_byte_add(offset).cast::<T>().read() }
}

/// Reads the text that a field points to.
///
/// # Safety
/// There is a live field that points to a C string.
unsafe fn text(base: *const c_void, offset: usize) -> String {
    // SAFETY: a live field: the caller's promise.
    let text: *const c_char = unsafe { field(base, offset) };
    // SAFETY: a C string: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

type GetTable = unsafe extern "system" fn(c_uint, *mut *const *mut usize, *mut c_uint) -> c_int;

/// # Safety
/// Called by the program's loader of NVTX, with its function for tables.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn InitializeInjectionNvtx2(
    export: unsafe extern "system" fn(u32) -> *const c_void,
) -> c_int {
    // SAFETY: the table of callbacks has number 1.
    let callbacks = unsafe { export(1) };
    // SAFETY: its first field is its size.
    assert_eq!(unsafe { field::<usize>(callbacks, 0) }, 16);
    // SAFETY: the second one is this function.
    let get_table: GetTable = unsafe { field(callbacks, 8) };
    for (module, expected) in [(1, 16), (2, 9), (3, 15), (4, 7), (5, 16), (6, 7)] {
        let (mut table, mut len) = (std::ptr::null(), 0);
        // SAFETY: two places for the answer.
        assert_eq!(unsafe { get_table(module, &raw mut table, &raw mut len) }, 1);
        assert_eq!(len, expected, "slots of module {module}");
        if module == 5 {
            let functions = [(4, push as *const () as usize), (5, pop as *const () as usize)];
            for (slot, function) in functions.into_iter().chain([(12, create as *const () as usize)]) {
                // SAFETY: the table has more entries than that.
                let slot = unsafe { *table.wrapping_add(slot) };
                // SAFETY: the entry points to a slot.
                unsafe { slot.write(function) };
            }
        }
    }
    // SAFETY: there is no module 7, and the places may be null.
    assert_eq!(unsafe { get_table(7, null_mut(), null_mut()) }, 0);
    record(format_args!("core"));
    1
}

/// # Safety
/// Called by the program's loader of NVTX, with a module of the memory extension.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn InitializeInjectionNvtxExtension(module: *const c_void) -> c_int {
    // SAFETY: version, size, module and compatibility of the module.
    let head: [u16; 4] = unsafe { field(module, 0) };
    assert_eq!(head, [3, 40, 1, 0x0102]);
    // SAFETY: the pointer to its only segment.
    let segment: *const c_void = unsafe { field(module, 16) };
    // SAFETY: the segment begins with its number and its length.
    assert_eq!(unsafe { field::<[usize; 2]>(segment, 0) }, [1, 63]);
    // SAFETY: the slots of the segment.
    let slots: *mut usize = unsafe { field(segment, 16) };
    let functions = [
        (0, add_heap as *const () as usize),
        (1, remove_heap as *const () as usize),
        (3, add_region as *const () as usize),
        (5, remove_region as *const () as usize),
        (6, name as *const () as usize),
    ];
    for (slot, function) in functions {
        // SAFETY: there are 63 slots.
        unsafe { slots.wrapping_add(slot).write(function) };
    }
    record(format_args!("memory"));
    1
}

/// The handle of the only domain.
const DOMAIN: usize = 42;

unsafe extern "system" fn create(name: *const c_char) -> usize {
    // SAFETY: the program passes a C string.
    record(format_args!("domain {}", unsafe { CStr::from_ptr(name) }.to_string_lossy()));
    DOMAIN
}

unsafe extern "system" fn push(domain: usize, attributes: *const c_void) -> c_int {
    assert_eq!(domain, DOMAIN);
    // SAFETY: version and size.
    assert_eq!(unsafe { field::<[u16; 2]>(attributes, 0) }, [3, 48]);
    // SAFETY: the payload.
    let payload: u64 = unsafe { field(attributes, 24) };
    // SAFETY: its type.
    assert_eq!(unsafe { field::<i32>(attributes, 16) }, i32::from(payload > 0));
    // SAFETY: the type of the message.
    assert_eq!(unsafe { field::<i32>(attributes, 32) }, 1);
    // SAFETY: the message.
    let message = unsafe { text(attributes, 40) };
    record(format_args!("push {:?} {payload} {message}", current().id()));
    0
}

unsafe extern "system" fn pop(domain: usize) -> c_int {
    assert_eq!(domain, DOMAIN);
    record(format_args!("pop {:?}", current().id()));
    0
}

/// The address and the size that a range has.
///
/// # Safety
/// A live range.
unsafe fn range(range: *const c_void) -> (u64, u64) {
    // SAFETY: the size, then the address.
    let [bytes, address]: [u64; 2] = unsafe { field(range, 0) };
    (address, bytes)
}

/// Asserts the head of a structure of the memory extension: its version and its size.
///
/// # Safety
/// A live structure.
unsafe fn check_head(base: *const c_void, size: u16) {
    // SAFETY: the first two fields.
    assert_eq!(unsafe { field::<[u16; 2]>(base, 0) }, [0x0102, size]);
}

/// The handle of a heap is its address plus 1.
unsafe extern "system" fn add_heap(domain: usize, heap: *const c_void) -> u64 {
    assert_eq!(domain, DOMAIN);
    // SAFETY: the program passes a heap.
    unsafe { check_head(heap, 48) };
    // SAFETY: usage and type, then the size of a range, then the range.
    assert_eq!(unsafe { field::<[u32; 2]>(heap, 8) }, [1, 1]);
    // SAFETY: as above.
    assert_eq!(unsafe { field::<usize>(heap, 16) }, 16);
    // SAFETY: as above.
    let described: *const c_void = unsafe { field(heap, 24) };
    // SAFETY: as above.
    let (address, bytes) = unsafe { range(described) };
    // SAFETY: the type of the message.
    assert_eq!(unsafe { field::<u32>(heap, 36) }, 1);
    // SAFETY: the message.
    record(format_args!("+heap {address:#x} {bytes} {}", unsafe { text(heap, 40) }));
    address + 1
}

unsafe extern "system" fn remove_heap(domain: usize, heap: u64) {
    assert_eq!(domain, DOMAIN);
    record(format_args!("-heap {:#x}", heap - 1));
}

unsafe extern "system" fn add_region(domain: usize, batch: *const c_void) {
    assert_eq!(domain, DOMAIN);
    // SAFETY: the program passes a batch.
    unsafe { check_head(batch, 48) };
    // SAFETY: the type of the ranges.
    assert_eq!(unsafe { field::<u32>(batch, 4) }, 1);
    // SAFETY: the heap, the number of ranges, and their size.
    let [heap, count, size]: [u64; 3] = unsafe { field(batch, 8) };
    assert_eq!((count, size), (1, 16));
    // SAFETY: the ranges.
    let ranges: *const c_void = unsafe { field(batch, 32) };
    // SAFETY: as above.
    let (address, bytes) = unsafe { range(ranges) };
    record(format_args!("+region {address:#x} {bytes} of {:#x}", heap - 1));
}

unsafe extern "system" fn remove_region(domain: usize, batch: *const c_void) {
    assert_eq!(domain, DOMAIN);
    // SAFETY: the program passes a batch.
    unsafe { check_head(batch, 32) };
    // SAFETY: the type of the references.
    assert_eq!(unsafe { field::<u32>(batch, 4) }, 1);
    // SAFETY: their number and size.
    assert_eq!(unsafe { field::<[usize; 2]>(batch, 8) }, [1, 8]);
    // SAFETY: the references.
    let references: *const c_void = unsafe { field(batch, 24) };
    // SAFETY: there is one.
    record(format_args!("-region {:#x}", unsafe { field::<u64>(references, 0) }));
}

unsafe extern "system" fn name(domain: usize, batch: *const c_void) {
    assert_eq!(domain, DOMAIN);
    // SAFETY: the program passes a batch.
    unsafe { check_head(batch, 40) };
    // SAFETY: the number of names and the size of each.
    assert_eq!(unsafe { field::<[usize; 2]>(batch, 8) }, [1, 32]);
    // SAFETY: the names.
    let names: *const c_void = unsafe { field(batch, 24) };
    // SAFETY: the types of the reference and of the text.
    assert_eq!(unsafe { field::<[u32; 2]>(names, 0) }, [1, 1]);
    // SAFETY: the address.
    let address: u64 = unsafe { field(names, 8) };
    // SAFETY: the text.
    record(format_args!("name {address:#x} {}", unsafe { text(names, 16) }));
}
