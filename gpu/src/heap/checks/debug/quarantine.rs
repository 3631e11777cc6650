//! Quarantine: a ring of blocks that were freed by the user, but not yet to the heap.
//!
//! ```text
//! slots  | block | block | 0 | 0 | block | ...          next: the number of frees so far
//! ```
//!
//! A free puts its block in the slot of its sequence number, and takes out the previous block of
//! the slot: that of the free one round earlier. So a block stays for as many frees as there are
//! slots. It stays for fewer if that many frees overlap and a later one swaps first.
//!
//! Q1. A block is in at most one slot. The thread that takes it out by a swap owns it exclusively.
//! Q2. `leaving` counts the blocks that were taken out and are not yet freed to the heap. It is
//!     incremented before a block is taken out, and decremented after the heap has the block.
//!
//! A heap that is out of memory empties the ring before an allocation fails. Wait-free.

use super::{LEFT, QUARANTINE, SEE_LEFT, SEE_QUARANTINE};
use crate::heap::structures::heap_core::HeapCore;
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

/// The ring. Initially all of it is zero in device memory, except for the slots' address and
/// number.
#[derive(Debug)]
#[repr(C)]
pub struct Quarantine {
    /// The address of a block in quarantine, or 0.
    slots: *const AtomicU64,
    /// Number of slots; 0 for no quarantine.
    slot_count: u64,
    /// The slot of the next free, modulo the number of slots.
    next: AtomicU64,
    /// Number of blocks taken out and not yet freed to the heap (Q2).
    leaving: AtomicU64,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Quarantine>() == 32 && align_of::<Quarantine>() == 8);

impl Quarantine {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A ring of these slots.
    ///
    /// # Safety
    /// The slots stay valid while the ring is used, and are 0 initially.
    pub unsafe fn over(slots: *const AtomicU64, slot_count: u64) -> Quarantine {
        Quarantine { slots, slot_count, next: AtomicU64::new(0), leaving: AtomicU64::new(0) }
    }

    /// Whether there is no quarantine.
    pub fn is_none(&self) -> bool {
        self.slot_count == 0
    }

    /// Inserts a block, and passes the evicted one to `leave`. Without a quarantine, that is the
    /// block itself.
    pub fn put(&self, block: u64, leave: impl FnOnce(u64)) {
        if self.is_none() {
            return leave(block);
        }
        // Relaxed: it only assigns slots.
        let i = self.next.add_relaxed(1) % self.slot_count;
        self.exchange(i, block, leave);
    }

    /// Passes all blocks to `leave`. Returns whether there were any or other threads are evicting
    /// some: in both cases memory may be free now.
    pub fn empty(&self, mut leave: impl FnMut(u64)) -> bool {
        let mut any = false;
        for i in 0..self.slot_count {
            // ordering: acquire; pairs with QUARANTINE's release in `exchange`: if another thread
            // has emptied the slot, its increment of `leaving` is visible (Q2).
            if self.slot(i).at(SEE_QUARANTINE).load_acquire() != 0 {
                any |= self.exchange(i, 0, &mut leave);
            }
        }
        // ordering: acquire; pairs with LEFT's release in `exchange`: if the count was decremented,
        // the heap has the block (Q2).
        any | (self.leaving.at(SEE_LEFT).load_acquire() != 0)
    }

    /// Swaps a block or 0 into a slot, and passes the previous block to `leave`. Returns whether
    /// there was one.
    fn exchange(&self, i: u64, block: u64, leave: impl FnOnce(u64)) -> bool {
        // Relaxed: the swap releases it (Q2).
        self.leaving.add_relaxed(1);
        // ordering: acquire and release; pairs with itself: the writes of the thread that freed a
        // block, before those of the thread that takes it out (D4). Release also pairs with
        // SEE_QUARANTINE in `empty`.
        let out = self.slot(i).at(QUARANTINE).swap_acq_rel(block);
        if out != 0 {
            leave(out);
        }
        // ordering: release; pairs with SEE_LEFT in `empty`: the heap has the block before the
        // decrement (Q2).
        self.leaving.at(LEFT).sub_release(1);
        out != 0
    }

    fn slot(&self, i: u64) -> &AtomicU64 {
        debug_assert!(i < self.slot_count);
        // SAFETY: `i` is the index of a slot.
        let slot = unsafe { self.slots.add(i as usize) };
        // SAFETY: `over`'s promise.
        unsafe { &*slot }
    }
}

impl HeapCore {
    /// Puts a block in quarantine. The block is `QUARANTINED`, and the caller owns it.
    pub(super) fn quarantine(&self, start: u64) {
        self.extra().ring.put(start, |out| self.leave(out));
    }

    /// Frees all blocks in quarantine to the heap. Returns whether memory may be free now.
    pub(super) fn empty_quarantine(&self) -> bool {
        self.extra().ring.empty(|out| self.leave(out))
    }
}
