//! Checks, statistics and reports of heaps.

use crate::arguments::{Out, Versioned, check_struct};
use crate::call::call;
use crate::failure::Result;
use crate::heap::{wh_heap_owner, with_heap};
use crate::status::wh_status;
use crate::strings::{return_json, return_text};
use host::device_pools::{Heap, HeapStats, Violation};
use serde::Serialize;
use std::ffi::c_char;
use std::ptr::null_mut;

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

/// Returns the number of violated invariants and, unless `json` is null, their list.
///
/// # Safety
/// `violations` and `json` are null or valid.
pub(crate) unsafe fn return_check(
    violations: *mut u64,
    json: *mut *mut c_char,
    check: impl FnOnce() -> Result<Vec<Violation>>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let count = unsafe { Out::new(violations, "violations", 0) }?;
    // SAFETY: the caller's promise.
    let list = unsafe { Out::optional(json, "json", null_mut()) }?;
    let found = check()?;
    count.set(found.len() as u64);
    list.iter().try_for_each(|list| return_json(list, &found))
}

/// Returns a value as JSON.
///
/// # Safety
/// `json` is null or valid.
pub(crate) unsafe fn return_value<T: Serialize>(
    json: *mut *mut c_char,
    value: impl FnOnce() -> Result<T>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let out = unsafe { Out::new(json, "json", null_mut()) }?;
    return_json(&out, &value()?)
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
    call(|| unsafe { return_check(violations, json, || with_heap(heap, |heap| Ok(heap.check()?))) })
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
        out.set(with_heap(heap, |heap| Ok(heap.stats()?))?.into());
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
    call(|| unsafe { return_value(json, || with_heap(heap, |heap| Ok(heap.stats()?))) })
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
    call(|| unsafe { return_value(json, || with_heap(heap, |heap| Ok(heap.leaks(limit)?))) })
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
    call(|| unsafe { return_value(json, || with_heap(heap, |heap| Ok(heap.faults()?))) })
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
        let report = with_heap(heap, |heap: &Heap| Ok(heap.report()?))?;
        return_text(&out, report.to_string());
        Ok(())
    })
}
