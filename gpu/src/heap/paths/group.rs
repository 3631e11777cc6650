//! One allocation for many threads: for lanes that say which they are, or for a block.
//!
//! One thread of the group, its leader, calls the heap; the others get its answer. For the lanes of a mask the
//! leader is the lowest, and a shuffle tells the others. A block has two words of shared memory for it:
//!
//! ```text
//! Talk  | chosen | answer |      chosen: a thread that is here;  answer: the address, or 0
//! ```
//!
//! I1. Between two barriers of a call no one writes `chosen`, and exactly one thread of the block, which has not
//!     ended, finds its number there. It was the last of the writers before the first barrier.
//! I2. `answer` is written between the two barriers, by the chosen thread alone, and read after the second and
//!     before the first of the next call.
//!
//! Progress: a group waits for all its threads; the leader has the heap's guarantee.

use crate::heap::Heap;
use crate::heap::checks::debug::CallSite;
use crate::heap::layout::class::rounded_up;
use crate::lanes::{Group, Lanes};
use crate::shared::{SharedMemory, SharedWord};
use crate::thread;
use crate::units::LaneMask;
use core::alloc::Layout;
use core::ptr::NonNull;

/// Where the threads of a block tell each other who allocates, and what it got.
struct Talk;

impl SharedMemory for Talk {
    const WORDS: u32 = 2;
}

const ANSWER: u32 = 1;

/// The result of [`Heap::alloc_block_each`] for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShare {
    /// The allocation that contains all shares, the same for every thread; for
    /// [`Heap::free_block`].
    pub whole: NonNull<u8>,
    /// The calling thread's share.
    pub piece: NonNull<u8>,
}

impl Heap {
    /// One allocation for all lanes of `mask`. Every lane receives its address, or every lane
    /// `None`. [`warp::activemask`](crate::warp::activemask) returns the lanes that are converged.
    /// The allocation must be freed once, by [`free_warp`](Self::free_warp) or by one thread's
    /// [`free`](Self::free).
    ///
    /// Cost per call: an [`alloc`](Self::alloc) by one lane, and two shuffles.
    ///
    /// # Safety
    /// The calling lane is in `mask`, and every lane of `mask` executes this call with the same
    /// mask and layout.
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub unsafe fn alloc_warp(&self, mask: LaneMask, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise; the lanes do the same below.
        let lanes = unsafe { Group::of(mask) };
        let call = CallSite::here();
        let address = match lanes.whole() {
            Some(warp) => self.alloc_led(warp, layout, call),
            None => self.alloc_led(lanes, layout, call),
        };
        NonNull::new(address as *mut u8)
    }

    #[inline(always)]
    fn alloc_led<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, layout: Layout, call: CallSite) -> u64 {
        let address = lanes.lead_64(|| self.shared().alloc_alone(layout, call));
        // The leader acquired for all: what the last owner wrote is now before every lane.
        lanes.order();
        address
    }

    /// Frees an allocation of [`alloc_warp`](Self::alloc_warp), once for all lanes of `mask`. The
    /// mask may differ from that of the allocation.
    ///
    /// Cost per call: a [`free`](Self::free) by one lane.
    ///
    /// # Safety
    /// The calling lane is in `mask`, and every lane of `mask` executes this call with the same
    /// mask and block. No thread uses the block any more.
    #[inline(always)]
    pub unsafe fn free_warp(&self, mask: LaneMask, block: NonNull<u8>) {
        // SAFETY: the caller's promise; the lanes do the same below.
        let lanes = unsafe { Group::of(mask) };
        match lanes.whole() {
            Some(warp) => self.free_led(warp, block),
            None => self.free_led(lanes, block),
        }
    }

    #[inline(always)]
    fn free_led<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, block: NonNull<u8>) {
        // What all lanes wrote, before the leader's release.
        lanes.sync();
        if lanes.leads() {
            self.shared().free_alone(block);
        }
        // A lane that comes back from here finds the block free.
        lanes.sync();
    }

    /// One allocation for the whole thread block. Every thread receives its address, or every
    /// thread `None`. It must be freed once, by [`free_block`](Self::free_block) or by one thread's
    /// [`free`](Self::free).
    ///
    /// Cost per thread block: an [`alloc`](Self::alloc) by one thread, and two `bar.sync`.
    ///
    /// # Safety
    /// Every thread of the thread block that has not ended executes this call with the same layout,
    /// as for [`sync_threads`](thread::sync_threads), even if it needs no memory.
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub unsafe fn alloc_block(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        NonNull::new(unsafe { self.shared().alloc_chosen(layout, CallSite::here()) } as *mut u8)
    }

    /// Memory for `layout` for every thread of the thread block, in one allocation: an array with
    /// an element for each thread index, including threads that have ended. Every thread receives
    /// its element, or every thread `None`. The elements cannot be freed individually, only all
    /// together by [`free_block`](Self::free_block) or [`free`](Self::free) of
    /// [`BlockShare::whole`].
    ///
    /// Cost per thread block: that of [`alloc_block`](Self::alloc_block).
    ///
    /// # Safety
    /// As for [`alloc_block`](Self::alloc_block).
    #[track_caller]
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub unsafe fn alloc_block_each(&self, layout: Layout) -> Option<BlockShare> {
        let stride = rounded_up(layout.size() as u64, layout.align() as u64);
        let bytes = stride.checked_mul(thread::block_threads().into())?;
        // SAFETY: the caller's promise: all threads got here alike, or came back alike above.
        let whole =
            unsafe { self.alloc_block(Layout::from_size_align(bytes as usize, layout.align()).ok()?) }?;
        let offset = stride * u64::from(thread::index_in_block());
        // SAFETY: inside of the allocation; without bytes, nowhere.
        Some(BlockShare { whole, piece: unsafe { whole.byte_add(offset as usize) } })
    }

    /// Frees an allocation of [`alloc_block`](Self::alloc_block) or
    /// [`alloc_block_each`](Self::alloc_block_each), once for the thread block.
    ///
    /// Cost per thread block: a [`free`](Self::free) by one thread, and two `bar.sync`.
    ///
    /// # Safety
    /// Every thread of the thread block that has not ended executes this call with the same
    /// `block`, and does not use it any more.
    #[inline(always)]
    pub unsafe fn free_block(&self, block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.shared().free_chosen(block) }
    }

    /// Out of line, as are those below: one thread of many runs it.
    #[inline(never)]
    fn alloc_alone(&self, layout: Layout, call: CallSite) -> u64 {
        self.alloc_at(layout, call).map_or(0, |block| block.as_ptr() as u64)
    }

    #[inline(never)]
    pub(in crate::heap) fn free_alone(&self, block: NonNull<u8>) {
        // SAFETY: the callers' callers': no thread uses the block any more.
        unsafe { self.free(block) }
    }

    /// # Safety
    /// As for [`alloc_block`](Self::alloc_block).
    #[inline(never)]
    unsafe fn alloc_chosen(&self, layout: Layout, call: CallSite) -> u64 {
        let answer = SharedWord::first::<Talk>().plus(ANSWER);
        // SAFETY: the caller's promise.
        if unsafe { is_chosen() } {
            // SAFETY: a word of the piece.
            unsafe { answer.store_relaxed(self.alloc_alone(layout, call)) };
        }
        // What the last owner wrote is now before every thread of the block: the chosen one has acquired it.
        // SAFETY: the caller's promise.
        unsafe { thread::sync_threads() };
        // SAFETY: a word of the piece, written by the chosen thread (I2).
        unsafe { answer.load_relaxed() }
    }

    /// # Safety
    /// As for [`free_block`](Self::free_block).
    #[inline(never)]
    unsafe fn free_chosen(&self, block: NonNull<u8>) {
        // What all threads wrote is before the release by the chosen one: it has passed the barrier with them.
        // SAFETY: the caller's promise.
        if unsafe { is_chosen() } {
            self.free_alone(block);
        }
        // Keeps the next call's choice from this one's (I1).
        // SAFETY: the caller's promise.
        unsafe { thread::sync_threads() };
    }
}

/// Chooses one of the threads that come here. It may be any: those before it may have ended.
///
/// # Safety
/// Every thread of the block that has not ended comes here, and then to another barrier.
#[inline(always)]
unsafe fn is_chosen() -> bool {
    let chosen = SharedWord::first::<Talk>();
    let number = u64::from(thread::index_in_block());
    // SAFETY: a word of the piece; of the threads that write it the last one is chosen (I1).
    unsafe { chosen.store_relaxed(number) };
    // SAFETY: the caller's promise.
    unsafe { thread::sync_threads() };
    // SAFETY: a word of the piece.
    unsafe { chosen.load_relaxed() == number }
}
