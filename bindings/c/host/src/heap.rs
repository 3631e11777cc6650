//! Heaps: their life, allocations by the host, statistics and reports.

use crate::arguments::{Out, Versioned, check_struct, given, layout};
use crate::call::{call, return_text};
use crate::device::wh_device;
use crate::registry::Registry;
use crate::status::{Failure, wh_status, wh_status::*};
use host::device_pools::{Heap, HeapBuilder, HeapStats};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::RwLock;
use warpheap_bindings::heap::{allocate, deallocate};
use warpheap_bindings::lock::write;
use warpheap_bindings::set;
use warpheap_c_device::handle_value;
use warpheap_device::heap::Heap as DeviceHeap;
use warpheap_device::kernel::DevicePtr;

/// A heap in device memory, which kernels allocate from.
pub struct wh_heap {
    _opaque: [u8; 0],
}

/// The handle of a heap by value, for kernels in CUDA C++: `warpheap.cuh` inlines the common case
/// of `wh_malloc` and `wh_free` for it. The words have no meaning for other code.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_heap_value {
    /// Addresses on the device; the last one is that of `wh_heap_handle`.
    pub wide: [u64; 14],
    /// Sizes and counts.
    pub narrow: [u32; 8],
}

impl wh_heap_value {
    pub(crate) const NULL: wh_heap_value =
        wh_heap_value { wide: [0; DeviceHeap::ADDRESSES], narrow: [0; DeviceHeap::NUMBERS] };
}

/// A heap, as the host owns it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_heap_owner {
    /// Identifies the heap; 0 is null. No id is used twice.
    pub id: u64,
}

/// Settings of a heap. Set all fields to 0, then `struct_bytes`, `bytes`, and others as needed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_heap_options {
    /// `sizeof(wh_heap_options)`.
    pub struct_bytes: usize,
    /// Size of the heap in bytes; its maximum if it grows.
    pub bytes: u64,
    /// Initial amount of memory in bytes, at least 1 MiB; `wh_heap_grow` adds more. 0: all. Another
    /// value requires a GPU with virtual memory management.
    pub initial_bytes: u64,
    /// The largest size in bytes that a size class serves; larger requests take entire slabs. 0:
    /// three slabs.
    pub largest_class: u32,
    /// Maximum number of cursors per size class. 0: one per multiprocessor.
    pub shards: u32,
}

// SAFETY: `repr(C)`, and the first field is a `usize`.
unsafe impl Versioned for wh_heap_options {
    const NAME: &str = "wh_heap_options";
}

/// The alignment of a request that names none: that of `wh_malloc` in kernels.
const ALIGN: usize = 16;
/// What to do with a heap that is out of memory.
const ADVICE: &str = "free blocks, or grow it; wh_heap_report describes what is in use";

static HEAPS: Registry<RwLock<Heap>> = Registry::new("heap", "heap", 0);

/// Creates a heap and returns its owner.
///
/// # Safety
/// `options` and `heap` are null or valid. A context of `device` outlives the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_create(
    device: wh_device,
    options: *const wh_heap_options,
    heap: *mut wh_heap_owner,
) -> wh_status {
    let build = |options: wh_heap_options, device: &host::Device| {
        let builder = Heap::builder(options.bytes);
        let builder = set(builder, given(options.initial_bytes), HeapBuilder::initial);
        let builder = set(builder, given(options.largest_class), HeapBuilder::largest_class);
        let builder = set(builder, given(options.shards), HeapBuilder::shards);
        builder.build(device).map(RwLock::new)
    };
    // SAFETY: the caller's promise.
    call(|| unsafe { HEAPS.create(heap, |id| wh_heap_owner { id }, options, device, build) })
}

/// Destroys a heap, after all work of its device, and frees its memory. Pending kernels may use
/// the heap, later ones must not.
#[unsafe(no_mangle)]
pub extern "C" fn wh_heap_destroy(heap: wh_heap_owner) -> wh_status {
    call(|| HEAPS.remove(heap.id).map(drop))
}

/// Returns the heap in device memory: the argument for kernels, valid until the heap is destroyed.
///
/// # Safety
/// `handle` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_handle(heap: wh_heap_owner, handle: *mut *mut wh_heap) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { HEAPS.return_handle(heap.id, handle) })
}

/// Returns the handle of a heap by value, valid until the heap is destroyed.
///
/// # Safety
/// `value` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_get_value(heap: wh_heap_owner, value: *mut wh_heap_value) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(value, "value", wh_heap_value::NULL) }?;
        let Some(words) = HEAPS.with(heap.id, |heap| Ok(handle_value(heap)))? else {
            let why = "libwarpheap was built with the feature `debug`, which changes the handle";
            return Err(Failure::new(WH_NOT_SUPPORTED, why));
        };
        let half = |i: usize| (words[DeviceHeap::ADDRESSES + i / 2] >> (32 * (i % 2))) as u32;
        let wide = std::array::from_fn(|i| words[i]);
        out.set(wh_heap_value { wide, narrow: std::array::from_fn(half) });
        Ok(())
    })
}

/// Waits for the device, then grows the memory of a heap to at least `bytes`, up to
/// `wh_heap_options.bytes`, and returns its size. `size` may be null. Later kernels can use the new
/// memory, through the same handle. No kernel may use the heap during the call.
///
/// # Safety
/// `size` is null or valid. No kernel uses the heap during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_grow(heap: wh_heap_owner, bytes: u64, size: *mut u64) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(size, "size", 0) }?;
        let heap = HEAPS.get(heap.id)?;
        let grown = write(&heap).grow_to(bytes)?;
        out.iter().for_each(|out| out.set(grown));
        Ok(())
    })
}

/// Waits for the device, then frees all blocks of a heap and clears its faults. Blocks from before
/// must not be used any more. No kernel may use the heap during the call.
#[unsafe(no_mangle)]
pub extern "C" fn wh_heap_reset(heap: wh_heap_owner) -> wh_status {
    call(|| HEAPS.reset(heap.id))
}

/// Allocates a block of a heap for kernels, and waits for the device. `align` is a power of two up
/// to 2 MiB; 0 stands for 16. `wh_heap_deallocate` or `wh_free` in a kernel frees the block.
///
/// Launches a kernel. The first call on a GPU compiles it, which takes seconds.
///
/// # Safety
/// `block` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_allocate(
    heap: wh_heap_owner,
    bytes: usize,
    align: usize,
    block: *mut *mut c_void,
) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(block, "block", null_mut()) }?;
        let request = layout(bytes, align, ALIGN)?;
        let found = HEAPS.with(heap.id, |heap| Ok(allocate(heap, request, ADVICE)?))?;
        out.set(found.0.cast());
        Ok(())
    })
}

/// Frees a block that the host or a kernel allocated, and waits for the device. Launches a kernel,
/// as `wh_heap_allocate`. No kernel may use the block any more.
///
/// # Safety
/// No kernel uses the block any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_deallocate(heap: wh_heap_owner, block: *mut c_void) -> wh_status {
    // SAFETY: the caller's promise. Wrong addresses are errors.
    let free = |heap: &Heap| unsafe { deallocate(heap, DevicePtr(block.cast())) };
    call(|| HEAPS.with(heap.id, |heap| Ok(free(heap)?)))
}

/// Statistics of a heap, in bytes if not said otherwise. Set `struct_bytes` before the call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct wh_heap_stats {
    /// `sizeof(wh_heap_stats)`.
    pub struct_bytes: usize,
    /// Bytes of live blocks.
    pub used_bytes: u64,
    /// Bytes of memory that the heap has.
    pub reserved_bytes: u64,
    /// Bytes to which the heap can grow.
    pub max_bytes: u64,
    /// Bytes that can be allocated, in any number of blocks.
    pub free_bytes: u64,
    /// The largest size that one allocation may get.
    pub largest_free_bytes: u64,
    /// High-water mark: bytes of slabs in use at any time since the last reset.
    pub high_water_bytes: u64,
    /// Number of live blocks.
    pub live_blocks: u64,
    /// Number of failed allocations since the last reset, modulo 2^32.
    pub failed_allocations: u64,
    /// Number of faults of kernels since the last reset; `wh_heap_faults_json` describes them.
    pub faults: u64,
    /// `1 - largest_free_bytes / free_bytes`; 0 if nothing is free.
    pub fragmentation: f64,
    /// Those failed allocations that gave up after many attempts, none of which proved that there
    /// was no memory. Modulo 2^32.
    pub contended_failures: u64,
}

// SAFETY: `repr(C)`, and the first field is a `usize`.
unsafe impl Versioned for wh_heap_stats {
    const NAME: &str = "wh_heap_stats";
}

impl From<HeapStats> for wh_heap_stats {
    fn from(stats: HeapStats) -> wh_heap_stats {
        wh_heap_stats {
            struct_bytes: size_of::<wh_heap_stats>(),
            used_bytes: stats.usage.used_bytes,
            reserved_bytes: stats.usage.reserved_bytes,
            max_bytes: stats.max_bytes,
            free_bytes: stats.free_bytes,
            largest_free_bytes: stats.usage.largest_free_bytes.unwrap_or(0),
            high_water_bytes: stats.high_water_bytes,
            live_blocks: stats.live_blocks,
            failed_allocations: stats.failed_allocations,
            faults: stats.faults,
            fragmentation: stats.fragmentation,
            contended_failures: stats.contended_failures,
        }
    }
}

/// Waits for the device, then checks all metadata of a heap. Returns the number of violated
/// invariants: 0 for a heap that was used correctly. At most 256 are counted. Unless it is null,
/// `json` gets their list, for `wh_string_free`:
/// `[{"invariant": "I1", "found": "a text"}]`.
///
/// # Safety
/// `violations` and `json` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_check(
    heap: wh_heap_owner,
    violations: *mut u64,
    json: *mut *mut c_char,
) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { HEAPS.return_check(heap.id, violations, json) })
}

/// Waits for the device, then returns statistics of a heap. Copies its metadata to the host, about
/// 1/100 of its size.
///
/// # Safety
/// `stats` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_get_stats(heap: wh_heap_owner, stats: *mut wh_heap_stats) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { check_struct(stats, "stats") }?;
        let empty = wh_heap_stats { struct_bytes: size_of::<wh_heap_stats>(), ..Default::default() };
        // SAFETY: the caller's promise; the size was checked.
        let out = unsafe { Out::new(stats, "stats", empty) }?;
        out.set(HEAPS.with(heap.id, |heap| Ok(heap.stats()?))?.into());
        Ok(())
    })
}

/// As `wh_heap_get_stats`, with all statistics, also by size class, as JSON for `wh_string_free`.
///
/// # Safety
/// `json` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_stats_json(heap: wh_heap_owner, json: *mut *mut c_char) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { HEAPS.return_json(heap.id, json, Heap::stats) })
}

/// Waits for the device, then returns the live blocks of a heap as JSON for `wh_string_free`: their
/// number, their bytes, and the first `limit` of them with address and bytes.
///
/// # Safety
/// `json` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_leaks_json(
    heap: wh_heap_owner,
    limit: usize,
    json: *mut *mut c_char,
) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { HEAPS.return_json(heap.id, json, |heap| heap.leaks(limit)) })
}

/// Waits for the device, then returns the faults of kernels since the last reset, such as double
/// frees, as JSON for `wh_string_free`: their number, and the first 64 with kind, address, thread
/// and block.
///
/// # Safety
/// `json` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_faults_json(heap: wh_heap_owner, json: *mut *mut c_char) -> wh_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { HEAPS.return_json(heap.id, json, Heap::faults) })
}

/// Waits for the device, then returns a report of a heap for `wh_string_free`: what is in use, what
/// is free, what holds the memory, and why allocations failed, as text of some 20 lines.
///
/// # Safety
/// `text` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_report(heap: wh_heap_owner, text: *mut *mut c_char) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(text, "text", null_mut()) }?;
        let report = HEAPS.with(heap.id, |heap| Ok(heap.report()?))?;
        return_text(&out, report.to_string());
        Ok(())
    })
}
