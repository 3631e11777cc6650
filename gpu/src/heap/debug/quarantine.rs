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
//! A heap that has no memory for a request empties the ring first.

use super::{Extra, LEFT, QUARANTINE};
use crate::heap::Heap;
use crate::sync::AtomicU64;

impl Extra {
    fn slot(&self, i: u64) -> &AtomicU64 {
        debug_assert!(i < self.slot_count);
        // SAFETY: one of the slots.
        let slot = unsafe { self.slots.add(i as usize) };
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*slot }
    }
}

impl Heap {
    /// Puts a block, which is `QUARANTINED` and the caller's, in the ring. What comes out goes back to the heap.
    pub(super) fn quarantine(&self, start: u64) {
        let extra = self.extra();
        if extra.slot_count == 0 {
            return self.leave(start);
        }
        // Relaxed: it only hands out slots.
        let i = extra.next.add_relaxed(1) % extra.slot_count;
        self.take_out(i, start);
    }

    /// Takes all blocks out of the ring. Whether there were some, or others had some in hand: then there may be memory
    /// now.
    pub(super) fn empty_quarantine(&self) -> bool {
        let extra = self.extra();
        let mut any = false;
        for i in 0..extra.slot_count {
            // ordering: acquire; pairs with QUARANTINE's release: of a slot that another has emptied, that it counts what
            // it took (Q2).
            if extra.slot(i).load_acquire(QUARANTINE) != 0 {
                any |= self.take_out(i, 0);
            }
        }
        // ordering: acquire; pairs with LEFT's release: of a count that has shrunk, that the heap has the block (Q2).
        any | (extra.leaving.load_acquire(LEFT) != 0)
    }

    /// Puts a block or 0 in a slot, and gives the heap what was there. Whether something was.
    fn take_out(&self, i: u64, start: u64) -> bool {
        let extra = self.extra();
        // Relaxed: the swap releases it (Q2).
        extra.leaving.add_relaxed(1);
        // ordering: acquire and release; pairs with itself: what who freed a block wrote there, before who takes it out
        // (D4).
        let out = extra.slot(i).swap_acq_rel(start, QUARANTINE);
        if out != 0 {
            self.leave(out);
        }
        // ordering: release; pairs with the acquire in `empty_quarantine`: the heap has the block (Q2).
        extra.leaving.sub_release(1, LEFT);
        out != 0
    }
}
