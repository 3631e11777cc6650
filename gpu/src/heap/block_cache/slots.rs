//! Slots of the threads of a thread block in shared memory, and the threads that use them.

use crate::heap::Heap;
use crate::lanes::Group;
use crate::shared::{SharedMemory, SharedWord};
use crate::thread;
use crate::units::WARP_SIZE;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// The cache's piece of shared memory: the slots, and one word of members for each warp.
pub(super) struct Slots<const THREADS: u32, const SLOTS: u32, Owner>(PhantomData<Owner>);

impl<const THREADS: u32, const SLOTS: u32, Owner: 'static> SharedMemory for Slots<THREADS, SLOTS, Owner> {
    const WORDS: u32 = THREADS * SLOTS + Self::WARPS;
}

impl<const THREADS: u32, const SLOTS: u32, Owner: 'static> Slots<THREADS, SLOTS, Owner> {
    const WARPS: u32 = THREADS.div_ceil(WARP_SIZE);

    /// The word of the members of warp `warp`, one of [`Self::WARPS`].
    #[inline(always)]
    pub fn members(warp: u32) -> SharedWord {
        SharedWord::first::<Self>().plus(THREADS * SLOTS + warp)
    }

    /// The lowest slot of thread `thread`, one of `THREADS`. Its other slots follow at a stride of
    /// `THREADS`.
    #[inline(always)]
    pub fn bottom(thread: u32) -> SharedWord {
        SharedWord::first::<Self>().plus(thread)
    }

    /// Makes the calling thread a member, with empty slots.
    ///
    /// # Safety
    /// See [`BlockCache::begin`](super::BlockCache::begin).
    #[inline(never)]
    pub unsafe fn join() {
        // Every thread clears all words: if all threads of a warp have ended, none of them can
        // clear its word.
        for warp in 0..Self::WARPS {
            // SAFETY: a word of the piece.
            unsafe { Self::members(warp).store_relaxed(0) };
        }
        let thread = thread::index_in_block();
        for slot in 0..if thread < THREADS { SLOTS } else { 0 } {
            // SAFETY: a slot of the calling thread.
            unsafe { Self::bottom(thread).plus(slot * THREADS).store_relaxed(0) };
        }
        // SAFETY: the caller's promise.
        unsafe { thread::sync_threads() };
        let lanes = Group::converged();
        let joining = lanes.ballot(thread < THREADS);
        if lanes.leads() && !joining.is_empty() {
            // SAFETY: a word of the piece: at least one thread of the warp has slots.
            unsafe { Self::members(thread / WARP_SIZE).or_relaxed(joining.0.into()) };
        }
        // No lane leaves before its bit is set.
        lanes.sync();
    }

    /// Ends the calling thread's membership. Its slots are empty.
    #[inline(never)]
    pub fn leave() {
        let thread = thread::index_in_block();
        let lanes = Group::converged();
        let leaving = lanes.ballot(thread < THREADS);
        if lanes.leads() && !leaving.is_empty() {
            // SAFETY: a word of the piece, as in `join`. One lane writes for all: their slots are
            // empty before the ballot.
            unsafe { Self::members(thread / WARP_SIZE).and_relaxed(!u64::from(leaving.0)) };
        }
    }

    /// Frees the blocks in the slots from `top` down to `bottom` to the heap. The calling thread
    /// owns the slots.
    #[inline(never)]
    pub fn flush(heap: &Heap, bottom: SharedWord, top: SharedWord) {
        let mut top = top;
        while top != bottom {
            top = top.minus(THREADS);
            // SAFETY: the calling thread owns the slot.
            let block = unsafe { top.load_relaxed() };
            // SAFETY: as above.
            unsafe { top.store_relaxed(0) };
            if let Some(block) = NonNull::new(block as *mut u8) {
                // SAFETY: the block was freed into the cache (I4).
                unsafe { heap.free(block) };
            }
        }
    }

    /// Frees the blocks in the slots of all threads that ended without leaving.
    ///
    /// # Safety
    /// Each other thread has left and passed a barrier of the block with the caller, or has ended.
    #[inline(never)]
    pub unsafe fn reclaim(heap: &Heap) {
        for warp in 0..Self::WARPS {
            let members = Self::members(warp);
            // SAFETY: a word of the piece.
            if unsafe { members.load_relaxed() } == 0 {
                continue;
            }
            // The thread that clears a bit owns the slots of that lane (I3).
            // SAFETY: a word of the piece.
            let mut gone = unsafe { members.swap_relaxed(0) };
            while gone != 0 {
                let bottom = Self::bottom(warp * WARP_SIZE + gone.trailing_zeros());
                Self::flush(heap, bottom, bottom.plus(SLOTS * THREADS));
                gone &= gone - 1;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
