//! Threads that misuse an allocator on purpose: what the checks must find. Each function is for a
//! single thread, alone on the device.
//!
//! Planted errors of an allocator are elsewhere: see `corrupt` of the allocators.

use super::ownership::OwnershipMap;
use super::record::{Owner, Record, Records};
use crate::alloc::DeviceAlloc;
use crate::sync::{peek_u8, poke_u8};
use core::ptr::NonNull;

/// Takes the record at `place` if its block is live: releases its claim and empties the record.
///
/// # Safety
/// No other thread accesses the records.
unsafe fn take(records: Records, map: &OwnershipMap, place: u32) -> Option<Record> {
    // SAFETY: no other thread accesses the records, by the caller's promise.
    let record = unsafe { records.get(place.into()) }?;
    if !record.is_live() {
        return None;
    }
    // A failure is in the log.
    let _ = map.release(record.address(), record.bytes(), Owner::of_record(place));
    // SAFETY: no other thread accesses the records, by the caller's promise.
    unsafe { records.set(place.into(), record.emptied()) };
    Some(record)
}

/// Frees the block of the record at `place` twice.
///
/// # Safety
/// `records` are of `pool` and `map`, and no other thread accesses any of them.
pub unsafe fn free_twice<A: DeviceAlloc>(pool: &A, records: Records, map: &OwnershipMap, place: u32) {
    // SAFETY: the caller's second promise: no other thread accesses the records.
    let Some(record) = (unsafe { take(records, map, place) }) else { return };
    let Some(block) = NonNull::new(record.address() as *mut u8) else { return };
    for _ in 0..2 {
        // SAFETY: the first free is valid. The second one is not, which is intended: the pool must
        // detect it, and nothing allocates in between.
        unsafe { pool.free(block, record.layout()) };
    }
}

/// Leaks the block of the record at `place`.
///
/// # Safety
/// See [`free_twice`].
pub unsafe fn forget(records: Records, map: &OwnershipMap, place: u32) {
    // SAFETY: the caller's second promise: no other thread accesses the records.
    unsafe { take(records, map, place) };
}

/// Writes `past` bytes beyond the end of the block of the record at `place`, like a loop with a
/// wrong bound.
///
/// # Safety
/// As for [`free_twice`]; the bytes lie inside the pool.
pub unsafe fn overrun(records: Records, place: u32, past: u32) {
    // SAFETY: the caller's second promise: no other thread accesses the records.
    let Some(record) = (unsafe { records.get(place.into()) }) else { return };
    if !record.is_live() {
        return;
    }
    let end = (record.address() + u64::from(record.bytes())) as *mut u8;
    for i in 0..past {
        // SAFETY: the caller's last promise: the bytes lie inside the pool.
        let byte = unsafe { end.add(i as usize) };
        // SAFETY: live memory. It belongs to another owner, which is intended.
        let before = unsafe { peek_u8(byte) };
        // SAFETY: the byte that was read above; another owner's, which is intended.
        unsafe { poke_u8(byte, !before) };
    }
}
