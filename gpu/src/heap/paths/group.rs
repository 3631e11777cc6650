//! Group: one allocation shared by the lanes of a mask or by a thread block.
//!
//! One thread of the group calls the heap, and the others get the result. For the lanes of a mask
//! it is the lowest lane, and a shuffle broadcasts the address. A thread block has two words of
//! shared memory:
//!
//! ```text
//! Talk  | chosen | answer |      chosen: a thread of the block;  answer: the address, or 0
//! ```
//!
//! - I1. Between the two barriers of a call no thread writes `chosen`, and exactly one thread that
//!   has not ended finds its number there: the last writer before the first barrier.
//! - I2. Only the chosen thread writes `answer`, between the two barriers. Threads read it after
//!   the second barrier and before the first barrier of the next call.
//!
//! Progress: a group waits for all its threads; the leader has the heap's guarantee.

use crate::lanes::Lanes;
use crate::shared::{SharedMemory, SharedWord};
use crate::thread;
use core::ptr::NonNull;

/// Shared memory of a thread block: the number of the thread that allocates, and the address.
struct Talk;

impl SharedMemory for Talk {
    const WORDS: u32 = 2;
}

const ANSWER: u32 = 1;

/// The result of [`Heap::alloc_block_each`](crate::heap::Heap::alloc_block_each) for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShare {
    /// The allocation that contains all shares, the same for every thread; for
    /// [`Heap::free_block`](crate::heap::Heap::free_block).
    pub whole: NonNull<u8>,
    /// The calling thread's share.
    pub piece: NonNull<u8>,
}

/// Calls `alloc` by the leader of `lanes`. All of them get the address, or 0.
#[inline(always)]
pub(in crate::heap) fn alloc_by_leader<const WHOLE: bool>(
    lanes: Lanes<WHOLE>,
    alloc: impl FnOnce() -> u64,
) -> u64 {
    let address = lanes.lead_64(alloc);
    // The leader acquired for all: this orders the last owner's writes before every lane.
    lanes.order();
    address
}

/// Calls `free` by the leader of `lanes`.
#[inline(always)]
pub(in crate::heap) fn free_by_leader<const WHOLE: bool>(lanes: Lanes<WHOLE>, free: impl FnOnce()) {
    // Orders the writes of all lanes before the leader's release.
    lanes.sync();
    if lanes.leads() {
        free();
    }
    // When a lane returns, the block is free.
    lanes.sync();
}

/// Calls `alloc` by one thread of the block. All of them get the address, or 0.
///
/// # Safety
/// See [`Heap::alloc_block`](crate::heap::Heap::alloc_block).
#[inline(always)]
pub(in crate::heap) unsafe fn alloc_by_chosen(alloc: impl FnOnce() -> u64) -> u64 {
    let answer = SharedWord::first::<Talk>().plus(ANSWER);
    // SAFETY: the caller's promise.
    if unsafe { is_chosen() } {
        // SAFETY: a word of the piece.
        unsafe { answer.store_relaxed(alloc()) };
    }
    // Orders the last owner's writes, which the chosen thread has acquired, before every thread of
    // the block.
    // SAFETY: the caller's promise.
    unsafe { thread::sync_threads() };
    // SAFETY: a word of the piece, written by the chosen thread (I2).
    unsafe { answer.load_relaxed() }
}

/// Calls `free` by one thread of the block.
///
/// # Safety
/// See [`Heap::free_block`](crate::heap::Heap::free_block).
#[inline(always)]
pub(in crate::heap) unsafe fn free_by_chosen(free: impl FnOnce()) {
    // The writes of all threads are before the release by the chosen thread, which has passed the
    // barrier with them.
    // SAFETY: the caller's promise.
    if unsafe { is_chosen() } {
        free();
    }
    // Separates the next call's choice from this one's (I1).
    // SAFETY: the caller's promise.
    unsafe { thread::sync_threads() };
}

/// Chooses one of the calling threads. It may be any of them: threads with lower numbers may have
/// ended.
///
/// # Safety
/// Every thread of the block that has not ended makes this call, and then reaches another barrier.
#[inline(always)]
unsafe fn is_chosen() -> bool {
    let chosen = SharedWord::first::<Talk>();
    let number = u64::from(thread::index_in_block());
    // SAFETY: a word of the piece; the last thread that writes it is chosen (I1).
    unsafe { chosen.store_relaxed(number) };
    // SAFETY: the caller's promise.
    unsafe { thread::sync_threads() };
    // SAFETY: a word of the piece.
    unsafe { chosen.load_relaxed() == number }
}
