//! Blocks that were freed, and that the heap does not have back yet: a ring.
//!
//! ```text
//! slots  | block | block | 0 | 0 | block | ...          next: how many frees there were
//! ```
//!
//! A free puts its block in the slot of its number and takes out what lies there: the block of the free that came one
//! round earlier. So a block stays for as many frees as there are slots; if as many frees are under way at the same time, a
//! later one may come first, and it stays for less.
//!
//! Q1. A block is in one slot at most. Who takes it out by a swap has it, alone.
//! Q2. `leaving` counts the blocks that were taken out and that the heap does not have back yet: it grows before a
//!     block is taken out, and shrinks when the heap has it.
//!
//! A heap that has no memory for a request empties the ring first. Wait-free.

use super::{LEFT, QUARANTINE, SEE_LEFT, SEE_QUARANTINE};
use crate::heap::Heap;
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

/// The ring. Initially all of it is zero in device memory, except for the slots' address and
/// number.
#[derive(Debug)]
#[repr(C)]
pub struct Ring {
    /// Blocks in quarantine: 0, or the address of one.
    slots: *const AtomicU64,
    /// How many slots; 0 for no quarantine.
    slot_count: u64,
    /// The slot of the next free, modulo the number.
    next: AtomicU64,
    /// Blocks on their way to the heap (Q2).
    leaving: AtomicU64,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Ring>() == 32 && align_of::<Ring>() == 8);

impl Ring {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A ring of these slots.
    ///
    /// # Safety
    /// The slots stay valid while the ring is used, and are 0 initially.
    pub unsafe fn over(slots: *const AtomicU64, slot_count: u64) -> Ring {
        Ring { slots, slot_count, next: AtomicU64::new(0), leaving: AtomicU64::new(0) }
    }

    /// Whether there is no quarantine.
    pub fn is_none(&self) -> bool {
        self.slot_count == 0
    }

    /// Inserts a block, and passes the evicted one to `leave`: the block itself if there is no
    /// quarantine.
    pub fn put(&self, block: u64, leave: impl FnOnce(u64)) {
        if self.is_none() {
            return leave(block);
        }
        // Relaxed: it only hands out slots.
        let i = self.next.add_relaxed(1) % self.slot_count;
        self.exchange(i, block, leave);
    }

    /// Passes all blocks to `leave`. Returns whether there were any, or other threads are evicting
    /// some: then memory may be free now.
    pub fn empty(&self, mut leave: impl FnMut(u64)) -> bool {
        let mut any = false;
        for i in 0..self.slot_count {
            // ordering: acquire; pairs with QUARANTINE's release in `exchange`: of a slot that another has emptied, that
            // it counts what it took (Q2).
            if self.slot(i).at(SEE_QUARANTINE).load_acquire() != 0 {
                any |= self.exchange(i, 0, &mut leave);
            }
        }
        // ordering: acquire; pairs with LEFT's release in `exchange`: of a count that has shrunk, that the heap has the
        // block (Q2).
        any | (self.leaving.at(SEE_LEFT).load_acquire() != 0)
    }

    /// Puts a block or 0 in a slot, and gives `leave` what was there. Whether something was.
    fn exchange(&self, i: u64, block: u64, leave: impl FnOnce(u64)) -> bool {
        // Relaxed: the swap releases it (Q2).
        self.leaving.add_relaxed(1);
        // ordering: acquire and release; pairs with itself: the writes of the thread that freed a block, before those of
        // the thread that takes it out (D4). Release also pairs with SEE_QUARANTINE in `empty`.
        let out = self.slot(i).at(QUARANTINE).swap_acq_rel(block);
        if out != 0 {
            leave(out);
        }
        // ordering: release; pairs with SEE_LEFT in `empty`: the heap has the block (Q2).
        self.leaving.at(LEFT).sub_release(1);
        out != 0
    }

    fn slot(&self, i: u64) -> &AtomicU64 {
        debug_assert!(i < self.slot_count);
        // SAFETY: one of the slots.
        let slot = unsafe { self.slots.add(i as usize) };
        // SAFETY: `over`'s promise.
        unsafe { &*slot }
    }
}

impl Heap {
    /// Puts a block, which is `QUARANTINED` and the caller's, in quarantine.
    pub(super) fn quarantine(&self, start: u64) {
        self.extra().ring.put(start, |out| self.leave(out));
    }

    /// Gives the heap all blocks in quarantine. Whether there may be memory now.
    pub(super) fn empty_quarantine(&self) -> bool {
        self.extra().ring.empty(|out| self.leave(out))
    }
}
