//! Bump arenas.

use crate::arguments::{Out, Versioned, given, options};
use crate::call::call;
use crate::device::wh_device;
use crate::failure::Result;
use crate::heap_reports::{return_check, return_value};
use crate::lock::{read, write};
use crate::registry::Registry;
use crate::status::wh_status;
use host::device_pools::Bump;
use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::RwLock;

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

const NULL: wh_bump_owner = wh_bump_owner { id: 0 };

static ARENAS: Registry<RwLock<Bump>> = Registry::new("bump", "bump arena", 1);

fn with_arena<R>(owner: wh_bump_owner, body: impl FnOnce(&Bump) -> Result<R>) -> Result<R> {
    let arena = ARENAS.get(owner.id)?;
    body(&read(&arena))
}

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
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(bump, "bump", NULL) }?;
        // SAFETY: the caller's promise.
        let options: wh_bump_options = unsafe { self::options(options, "options") }?;
        // SAFETY: the caller's promise.
        let device = unsafe { device.open() }?;
        let mut builder = Bump::builder(options.capacity);
        if let Some(bytes) = given(options.min_align) {
            builder = builder.min_align(bytes);
        }
        if let Some(shards) = given(options.shards) {
            builder = builder.shards(if shards == WH_NO_SHARDS { 0 } else { shards });
        }
        out.set(wh_bump_owner { id: ARENAS.insert(RwLock::new(builder.build(&device)?)) });
        Ok(())
    })
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
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(handle, "handle", null_mut()) }?;
        out.set(with_arena(bump, |arena| Ok(arena.device_address()))? as *mut wh_bump);
        Ok(())
    })
}

/// Waits for the device, then frees all blocks of an arena. Blocks from before must not be used any
/// more. No kernel may use the arena during the call.
#[unsafe(no_mangle)]
pub extern "C" fn wh_bump_reset(bump: wh_bump_owner) -> wh_status {
    call(|| Ok(write(&*ARENAS.get(bump.id)?).reset()?))
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
    call(|| unsafe { return_check(violations, json, || with_arena(bump, |arena| Ok(arena.check()?))) })
}

/// Waits for the device, then returns statistics of an arena as JSON for `wh_string_free`.
///
/// # Safety
/// `json` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_bump_stats_json(bump: wh_bump_owner, json: *mut *mut c_char) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { return_value(json, || with_arena(bump, |arena| Ok(arena.stats()?))) })
}
