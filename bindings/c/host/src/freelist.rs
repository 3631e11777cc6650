//! Free lists: pools of equal blocks.

use crate::arguments::{Versioned, given};
use crate::call::call;
use crate::device::wh_device;
use crate::registry::Registry;
use crate::status::wh_status;
use host::device_pools::{FreeList, FreeListBuilder};
use std::ffi::c_char;
use std::sync::RwLock;
use warpheap_bindings::set;

/// A pool of equal blocks in device memory, which kernels allocate from.
pub struct wh_freelist {
    _opaque: [u8; 0],
}

/// A free list, as the host owns it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_freelist_owner {
    /// Identifies the free list; 0 is null. No id is used twice.
    pub id: u64,
}

/// Settings of a free list. Set all fields to 0, then `struct_bytes`, `blocks`, `block_size`, and
/// `align` as needed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_freelist_options {
    /// `sizeof(wh_freelist_options)`.
    pub struct_bytes: usize,
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of each block.
    pub block_size: u64,
    /// The alignment of every block in bytes: a power of two up to 65536. 0: 16.
    pub align: u64,
}

// SAFETY: `repr(C)`, and the first field is a `usize`.
unsafe impl Versioned for wh_freelist_options {
    const NAME: &str = "wh_freelist_options";
}

static LISTS: Registry<RwLock<FreeList>> = Registry::new("freelist", "free list", 2);

/// Creates a free list and returns its owner.
///
/// # Safety
/// `options` and `freelist` are null or valid. A context of `device` outlives the free list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_freelist_create(
    device: wh_device,
    options: *const wh_freelist_options,
    freelist: *mut wh_freelist_owner,
) -> wh_status {
    let build = |options: wh_freelist_options, device: &host::Device| {
        let builder = FreeList::builder(options.blocks, options.block_size);
        let builder = set(builder, given(options.align), FreeListBuilder::align);
        builder.build(device).map(RwLock::new)
    };
    // SAFETY: the caller's promise.
    call(|| unsafe { LISTS.create(freelist, |id| wh_freelist_owner { id }, options, device, build) })
}

/// Destroys a free list, after all work of its device, and frees its memory. Pending kernels may
/// use the free list, later ones must not.
#[unsafe(no_mangle)]
pub extern "C" fn wh_freelist_destroy(freelist: wh_freelist_owner) -> wh_status {
    call(|| LISTS.remove(freelist.id).map(drop))
}

/// Returns the free list in device memory: the argument for kernels, valid until the free list is
/// destroyed.
///
/// # Safety
/// `handle` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_freelist_handle(
    freelist: wh_freelist_owner,
    handle: *mut *mut wh_freelist,
) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { LISTS.return_handle(freelist.id, handle) })
}

/// Waits for the device, then frees all blocks of a free list and clears its faults. Blocks from
/// before must not be used any more. No kernel may use the free list during the call.
#[unsafe(no_mangle)]
pub extern "C" fn wh_freelist_reset(freelist: wh_freelist_owner) -> wh_status {
    call(|| LISTS.reset(freelist.id))
}

/// Waits for the device, then checks the metadata of a free list. The results are those of
/// `wh_heap_check`.
///
/// # Safety
/// `violations` and `json` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_freelist_check(
    freelist: wh_freelist_owner,
    violations: *mut u64,
    json: *mut *mut c_char,
) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { LISTS.return_check(freelist.id, violations, json) })
}

/// Waits for the device, then returns statistics of a free list as JSON for `wh_string_free`.
///
/// # Safety
/// `json` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_freelist_stats_json(
    freelist: wh_freelist_owner,
    json: *mut *mut c_char,
) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { LISTS.return_json(freelist.id, json, FreeList::stats) })
}

/// Waits for the device, then returns the faults of kernels since the last reset, as
/// `wh_heap_faults_json` does.
///
/// # Safety
/// `json` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_freelist_faults_json(
    freelist: wh_freelist_owner,
    json: *mut *mut c_char,
) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { LISTS.return_json(freelist.id, json, FreeList::faults) })
}
