//! Threads that do wrong on purpose: what a check must find. Each is for one thread, alone on the device.
//!
//! An allocator that errs is not among them: see `corrupt` of the allocators.

use super::Owner;
use super::ownership::OwnershipMap;
use super::record::Record;
use crate::alloc::DeviceAlloc;
use crate::kernel::DeviceSlice;
use crate::sync::{peek_u8, poke_u8};
use core::ptr::NonNull;

/// Takes the record at `place` of a live block, releases its claim and empties the record.
///
/// # Safety
/// No one else touches the records.
unsafe fn take(records: DeviceSlice<Record>, map: &OwnershipMap, place: u32) -> Option<Record> {
    // SAFETY: the caller's promise.
    let record = unsafe { records.get(place.into()) }?;
    if !record.is_live() {
        return None;
    }
    // A failure is in the log.
    let _ = map.release(record.address(), record.bytes(), Owner::of_record(place));
    // SAFETY: the caller's promise.
    unsafe { records.set(place.into(), record.emptied()) };
    Some(record)
}

/// Gives the block of the record at `place` back, twice.
///
/// # Safety
/// `records` are of `pool` and `map`, and no one else touches any of them.
pub unsafe fn free_twice<A: DeviceAlloc>(
    pool: &A,
    records: DeviceSlice<Record>,
    map: &OwnershipMap,
    place: u32,
) {
    // SAFETY: the caller's promise.
    let Some(record) = (unsafe { take(records, map, place) }) else { return };
    let Some(block) = NonNull::new(record.address() as *mut u8) else { return };
    for _ in 0..2 {
        // SAFETY: the first time it is; the second time it is not, which is what this is for: the pool is
        // to see it, and nothing else allocates in between.
        unsafe { pool.free(block, record.layout()) };
    }
}

/// Forgets the block of the record at `place` without giving it back.
///
/// # Safety
/// As for [`free_twice`].
pub unsafe fn forget(records: DeviceSlice<Record>, map: &OwnershipMap, place: u32) {
    // SAFETY: the caller's promise.
    unsafe { take(records, map, place) };
}

/// Writes `past` bytes behind the end of the block of the record at `place`, as a loop with a wrong bound
/// does.
///
/// # Safety
/// As for [`free_twice`]; the bytes lie inside the pool.
pub unsafe fn overrun(records: DeviceSlice<Record>, place: u32, past: u32) {
    // SAFETY: the caller's promise.
    let Some(record) = (unsafe { records.get(place.into()) }) else { return };
    if !record.is_live() {
        return;
    }
    let end = (record.address() + u64::from(record.bytes())) as *mut u8;
    for i in 0..past {
        // SAFETY: inside the pool, by the caller's promise.
        let byte = unsafe { end.add(i as usize) };
        // SAFETY: live memory. It is another owner's, which is what this is for.
        let before = unsafe { peek_u8(byte) };
        // SAFETY: the same.
        unsafe { poke_u8(byte, !before) };
    }
}
