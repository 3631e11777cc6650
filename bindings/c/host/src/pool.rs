//! Caching pools: device memory that the host allocates, in stream order.

use crate::arguments::{Out, Versioned, given, layout};
use crate::call::{call, return_json, return_text};
use crate::device::wh_device;
use crate::registry::Registry;
use crate::status::{Failure, wh_status, wh_status::WH_INVALID_FREE};
use host::error::{Error, InvalidFree};
use host::host_pools::{CachingPool, CachingPoolBuilder as Builder, DeviceAllocator};
use std::alloc::Layout;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use warpheap_bindings::{RawPool, set};
use warpheap_device::kernel::DevicePtr;

/// A caching pool.
///
/// A freed block is cached for the stream of its free. The next allocation of that size on this
/// stream gets it at once; other streams get it after that stream has passed the point of the free.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_pool {
    /// Identifies the pool; 0 is null. No id is used twice.
    pub id: u64,
}

/// Settings of a caching pool. Set all fields to 0, then `struct_bytes`, and others as needed.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct wh_pool_options {
    /// `sizeof(wh_pool_options)`.
    pub struct_bytes: usize,
    /// Limit of the memory that the pool takes from the device, in bytes. 0: the device's memory.
    pub max_bytes: u64,
    /// The smallest block in bytes: a power of two from 256 to 1 MiB. 0: 512.
    pub min_block: u64,
    /// The largest size in bytes that slabs serve: a power of two up to 1 MiB. 0: 64 KiB.
    pub slab_limit: u64,
    /// Free memory for each stream in bytes, up to which the pool grows before it coalesces. 0: 256
    /// MiB.
    pub spare_bytes: u64,
    /// Size classes per doubling: 1, 2, 4, 8 or 16. 0: 1.
    pub classes_per_doubling: u32,
}

// SAFETY: `repr(C)`, and the first field is a `usize`.
unsafe impl Versioned for wh_pool_options {
    const NAME: &str = "wh_pool_options";
}

/// The alignment of a request that names none: that of `cudaMalloc`.
const ALIGN: usize = 256;

static POOLS: Registry<RawPool<CachingPool>> = Registry::new("pool", "caching pool", 3);

/// Creates a caching pool. Null `options` stand for the defaults.
///
/// # Safety
/// `options` and `pool` are null or valid. A context of `device` outlives the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_pool_create(
    device: wh_device,
    options: *const wh_pool_options,
    pool: *mut wh_pool,
) -> wh_status {
    let build = |options: wh_pool_options, device: &host::Device| {
        let builder = CachingPool::builder();
        let builder = set(builder, given(options.max_bytes), Builder::max_bytes);
        let builder = set(builder, given(options.min_block), Builder::min_block);
        let builder = set(builder, given(options.slab_limit), Builder::slab_limit);
        let builder = set(builder, given(options.spare_bytes), Builder::spare_bytes);
        let builder = set(builder, given(options.classes_per_doubling), Builder::classes_per_doubling);
        builder.build(device).map(RawPool::new)
    };
    let defaults = wh_pool_options { struct_bytes: size_of::<wh_pool_options>(), ..Default::default() };
    let options = if options.is_null() { &raw const defaults } else { options };
    // SAFETY: the caller's promise.
    call(|| unsafe { POOLS.create(pool, |id| wh_pool { id }, options, device, build) })
}

/// Destroys a caching pool and frees all its memory, after all pending frees. If blocks are still
/// allocated, waits for the device. The streams that the pool has used must be live, except those
/// that it was told to forget.
#[unsafe(no_mangle)]
pub extern "C" fn wh_pool_destroy(pool: wh_pool) -> wh_status {
    call(|| POOLS.remove(pool.id).map(drop))
}

/// Allocates a block for work that is submitted to `stream` from now on. `align` is a power of two;
/// 0 stands for 256. `stream` is a `CUstream` or `cudaStream_t` of the pool's context; null is the
/// legacy default stream. `cudaStreamPerThread` is not supported. On the CPU, null is the default
/// stream, and each other value is a stream of its own.
///
/// The stream must not be capturing a graph. Call `wh_pool_forget_stream` before it is destroyed.
///
/// # Safety
/// `block` is null or valid. `stream` is null or live, and not capturing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_pool_allocate(
    pool: wh_pool,
    bytes: usize,
    align: usize,
    stream: *mut c_void,
    block: *mut *mut c_void,
) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(block, "block", null_mut()) }?;
        let layout = layout(bytes, align, ALIGN)?;
        let pool = POOLS.get(pool.id)?;
        // SAFETY: the caller's promise.
        out.set(unsafe { pool.allocate(layout, stream) }?.0.cast());
        Ok(())
    })
}

/// Frees a block after the work submitted to `stream` so far, and returns at once. Work on other
/// streams that uses the block must be ordered before, by an event that `stream` waits for. The
/// stream may be another than that of the allocation; see `wh_pool_allocate`.
///
/// A double free is an error, unless the block was allocated again in between.
///
/// # Safety
/// Only work that is ordered before this call on `stream` uses the block. `stream` is null or live,
/// and not capturing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_pool_deallocate(
    pool: wh_pool,
    block: *mut c_void,
    stream: *mut c_void,
) -> wh_status {
    call(|| {
        let pool = POOLS.get(pool.id)?;
        let block = DevicePtr(block.cast::<u8>());
        // Without a live block there, no layout is right, and the pool returns the reason.
        let layout = pool.pool().layout_of(block).unwrap_or(Layout::new::<u8>());
        // SAFETY: the caller's promise. Wrong addresses are errors.
        let freed = unsafe { pool.deallocate(block, layout, stream) };
        freed.map_err(|error| match error {
            // Without the advice on layouts, which C does not pass.
            Error::InvalidFree(InvalidFree::Block { allocator, address, why }) => Failure::new(
                WH_INVALID_FREE,
                format!("{allocator} cannot free {address:#x}: {why}; free each block once"),
            ),
            error => error.into(),
        })
    })
}

/// Tells a pool that `stream` is about to be destroyed. Its cached blocks become available to other
/// streams. Does nothing if the pool has not used the stream. No other thread may use the
/// pool with this stream at the same time.
#[unsafe(no_mangle)]
pub extern "C" fn wh_pool_forget_stream(pool: wh_pool, stream: *mut c_void) -> wh_status {
    call(|| {
        POOLS.get(pool.id)?.forget(stream);
        Ok(())
    })
}

/// Waits for all pending frees, then releases cached segments without live blocks to the device.
/// `released`, which may be null, gets the number of their bytes.
///
/// # Safety
/// `released` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_pool_trim(pool: wh_pool, released: *mut u64) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(released, "released", 0) }?;
        let bytes = POOLS.get(pool.id)?.pool().trim()?;
        out.iter().for_each(|out| out.set(bytes));
        Ok(())
    })
}

/// Returns statistics of a pool as JSON for `wh_string_free`.
///
/// # Safety
/// `json` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_pool_stats_json(pool: wh_pool, json: *mut *mut c_char) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(json, "json", null_mut()) }?;
        return_json(&out, &POOLS.get(pool.id)?.pool().stats())
    })
}

/// Returns a report of a pool for `wh_string_free`: what is in use, what is free, and what holds
/// the memory, as text of some 20 lines.
///
/// # Safety
/// `text` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_pool_report(pool: wh_pool, text: *mut *mut c_char) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(text, "text", null_mut()) }?;
        return_text(&out, POOLS.get(pool.id)?.pool().report().to_string());
        Ok(())
    })
}
