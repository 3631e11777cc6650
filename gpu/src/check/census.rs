//! A census of all blocks at one point in time: whether any two overlap, and whether the pool has
//! exactly as many as it should.

use super::log::BreachKind;
use super::ownership::OwnershipMap;
use super::record::{Owner, Record, Records};
use crate::alloc::DeviceAlloc;
use crate::kernel::{DevicePtr, DeviceSlice};
use crate::lanes::Group;
use crate::sync::{AtomicU32, AtomicU64};
use crate::thread;
use crate::units::LaneMask;
use core::alloc::Layout;
use core::ops::Range;
use core::ptr::NonNull;

/// The longest block, in granules, that one thread claims on its own. The full warp claims a longer
/// one.
const ALONE: u64 = 32;

/// One thread per record: claims the record's block in `map`, which must be empty. Blocks that
/// share a granule are counted in the map's log, each once, regardless of the order of the threads:
/// a failing claim marks both blocks.
///
/// Cost per live block: 16 bytes read and one relaxed atomic per granule.
///
/// # Safety
/// No thread writes `records`. `marks` has at least as many words, all 0, and no other thread
/// accesses them.
pub unsafe fn overlap_claim(records: Records, map: &OwnershipMap, marks: DeviceSlice<u32>) {
    let place = thread::index_1d();
    // SAFETY: no thread writes it, and all of it was written before.
    let record = unsafe { records.get(place.into()) }.unwrap_or_default();
    let group = Group::converged();
    let live = group.ballot(record.is_live());
    if group.leads() && !live.is_empty() {
        map.log().count_checked(live.count());
    }
    let span = span(map, record, Owner::of_record(place));
    let long = span.end - span.start > ALONE;
    if !long {
        claim(map, marks, span.clone(), 1, record, Owner::of_record(place));
    }
    let mut waiting: LaneMask = group.ballot(long);
    while !waiting.is_empty() {
        let from = waiting.leader();
        let (start, end) = (group.read_64(span.start, from), group.read_64(span.end, from));
        let theirs = group.read_32(place, from);
        let (rank, step) = (group.rank(), group.count());
        // Only the owning lane has the record in registers. The lane that finds a conflict marks
        // both blocks. Any other lane than the owning one reports the granule instead of the block.
        let record = if place == theirs { record } else { Record::default() };
        claim(map, marks, start + u64::from(rank)..end, step, record, Owner::of_record(theirs));
        waiting = waiting.without_leader();
    }
}

/// The granules of a record's block. Empty if the record is empty or its block is misplaced.
#[inline(always)]
fn span(map: &OwnershipMap, record: Record, owner: Owner) -> Range<u64> {
    if !record.is_live() {
        return 0..0;
    }
    map.span(record.address(), record.bytes()).unwrap_or_else(|misplaced| {
        map.report_misplaced(misplaced, record.address(), record.bytes(), owner);
        0..0
    })
}

#[inline(always)]
fn claim(
    map: &OwnershipMap,
    marks: DeviceSlice<u32>,
    span: Range<u64>,
    step: u32,
    record: Record,
    owner: Owner,
) {
    let clash = map.claim_granules(span, step, owner, |other| {
        mark(map, marks, owner);
        mark(map, marks, other);
    });
    if let Some(clash) = clash {
        let address = if record.is_live() { record.address() } else { map.address_of(clash.granule) };
        map.report(BreachKind::Overlap, address, record.bytes(), owner, clash);
    }
}

/// Counts the block of `owner`, unless it was counted before.
#[cold]
fn mark(map: &OwnershipMap, marks: DeviceSlice<u32>, owner: Owner) {
    let Some(place) = owner.record().filter(|place| u64::from(*place) < marks.len()) else { return };
    // SAFETY: `place < marks.len()`.
    let word = unsafe { marks.as_ptr().add(place as usize) };
    // SAFETY: live memory that all threads access through this type; an atomic has its integer's
    // layout.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    if word.swap_relaxed(1) == 0 {
        map.log().count_overlapping();
    }
}

/// Every thread allocates `bytes` bytes aligned to `align` until the allocation fails. The blocks
/// are written to `out`. Their number, including those that do not fit into `out`, is added to
/// `count`.
///
/// # Safety
/// `count` and `out` are live; nothing else accesses them.
pub unsafe fn exhaust<A: DeviceAlloc>(pool: &A, bytes: u32, align: u32, out: Records, count: DevicePtr<u64>) {
    let layout = Layout::from_size_align(bytes as usize, align as usize).unwrap_or(Layout::new::<u8>());
    // SAFETY: the caller's promises: `count` is live, and nothing else accesses it. An atomic has
    // the layout of its integer.
    let count = unsafe { &*count.0.cast::<AtomicU64>() };
    // A thread stops at its first block that does not fit into `out`.
    for _ in 0..=out.len() {
        let Some(block) = pool.alloc(layout) else { return };
        // Relaxed: it only assigns places in `out`.
        let place = count.add_relaxed(1);
        let record = Record::default().next(block.as_ptr() as u64, layout);
        // SAFETY: the place belongs to this thread only.
        if !unsafe { out.set(place, record) } {
            return;
        }
    }
}

/// One thread per record, for the first `count` records: frees the record's block and empties the
/// record.
///
/// # Safety
/// The records are unused blocks of `pool`, and no other thread accesses the records.
pub unsafe fn free_all<A: DeviceAlloc>(pool: &A, records: Records, count: u64) {
    let place = u64::from(thread::index_1d());
    // SAFETY: the caller's second promise: no other thread accesses the records.
    let Some(record) = (unsafe { records.get(place) }) else { return };
    if let Some(block) = NonNull::new(record.address() as *mut u8).filter(|_| place < count) {
        // SAFETY: the caller's first promise: an unused block of `pool`.
        unsafe { pool.free(block, record.layout()) };
        // SAFETY: the caller's second promise: no other thread accesses the records.
        unsafe { records.set(place, record.emptied()) };
    }
}

/// Allocates all of the pool's memory in one piece and frees it. One thread writes to `answer`
/// whether the allocation succeeded: 1 or 0.
///
/// # Safety
/// `answer` is live; no other thread accesses it or the pool.
pub unsafe fn alloc_entire_pool<A: DeviceAlloc>(pool: &A, answer: &AtomicU64) {
    let bytes = pool.region().1 as usize;
    let Ok(layout) = Layout::from_size_align(bytes, 1) else { return };
    let whole = pool.alloc(layout);
    // Relaxed: the host reads after the kernel has ended.
    answer.store_relaxed(whole.is_some().into());
    if let Some(whole) = whole {
        // SAFETY: allocated above, and not used.
        unsafe { pool.free(whole, layout) };
    }
}
