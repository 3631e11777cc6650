//! Bump arenas.

use crate::arguments::{Versioned, given};
use crate::call::call;
use crate::device::wh_device;
use crate::registry::Registry;
use crate::status::wh_status;
use host::device_pools::{Bump, BumpBuilder};
use std::ffi::c_char;
use std::sync::RwLock;
use warpheap_bindings::set;

/// A bump arena in device memory, which kernels allocate from. A reset frees all blocks.
pub struct wh_bump {
    _opaque: [u8; 0],
}

/// A bump arena, as the host owns it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_bump_owner {
    /// Identifies the arena; 0 is null. No id is used twice.
    pub id: u64,
}

/// The value of `wh_bump_options.shards` for an arena with one counter, which wastes no memory.
pub const WH_NO_SHARDS: u32 = u32::MAX;

/// Settings of an arena. Set all fields to 0, then `struct_bytes`, `capacity`, and others as
/// needed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_bump_options {
    /// `sizeof(wh_bump_options)`.
    pub struct_bytes: usize,
    /// Size of the arena in bytes.
    pub capacity: u64,
    /// The minimum alignment and the granularity in bytes: a power of two up to 65536. 0: 16.
    pub min_align: u64,
    /// Number of shards, each with its own counter. 0: one per multiprocessor, and none in arenas
    /// under 16 MiB. `WH_NO_SHARDS`: none.
    pub shards: u32,
}

// SAFETY: `repr(C)`, and the first field is a `usize`.
unsafe impl Versioned for wh_bump_options {
    const NAME: &str = "wh_bump_options";
}

static ARENAS: Registry<RwLock<Bump>> = Registry::new("bump", "bump arena", 1);

/// Creates an arena and returns its owner.
///
/// # Safety
/// `options` and `bump` are null or valid. A context of `device` outlives the arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_bump_create(
    device: wh_device,
    options: *const wh_bump_options,
    bump: *mut wh_bump_owner,
) -> wh_status {
    let build = |options: wh_bump_options, device: &host::Device| {
        let shards = given(options.shards).map(|shards| if shards == WH_NO_SHARDS { 0 } else { shards });
        let builder = Bump::builder(options.capacity);
        let builder = set(builder, given(options.min_align), BumpBuilder::min_align);
        let builder = set(builder, shards, BumpBuilder::shards);
        builder.build(device).map(RwLock::new)
    };
    // SAFETY: the caller's promise.
    call(|| unsafe { ARENAS.create(bump, |id| wh_bump_owner { id }, options, device, build) })
}

/// Destroys an arena, after all work of its device, and frees its memory. Pending kernels may use
/// the arena, later ones must not.
#[unsafe(no_mangle)]
pub extern "C" fn wh_bump_destroy(bump: wh_bump_owner) -> wh_status {
    call(|| ARENAS.remove(bump.id).map(drop))
}

/// Returns the arena in device memory: the argument for kernels, valid until the arena is
/// destroyed.
///
/// # Safety
/// `handle` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_bump_handle(bump: wh_bump_owner, handle: *mut *mut wh_bump) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { ARENAS.return_handle(bump.id, handle) })
}

/// Waits for the device, then frees all blocks of an arena. Blocks from before must not be used any
/// more. No kernel may use the arena during the call.
#[unsafe(no_mangle)]
pub extern "C" fn wh_bump_reset(bump: wh_bump_owner) -> wh_status {
    call(|| ARENAS.reset(bump.id))
}

/// Waits for the device, then checks the metadata of an arena. The results are those of
/// `wh_heap_check`.
///
/// # Safety
/// `violations` and `json` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_bump_check(
    bump: wh_bump_owner,
    violations: *mut u64,
    json: *mut *mut c_char,
) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { ARENAS.return_check(bump.id, violations, json) })
}

/// Waits for the device, then returns statistics of an arena as JSON for `wh_string_free`.
///
/// # Safety
/// `json` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_bump_stats_json(bump: wh_bump_owner, json: *mut *mut c_char) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { ARENAS.return_json(bump.id, json, Bump::stats) })
}
