//! Allocation in a debug heap: a larger block with a record, canaries and poison.

use super::fill::Stretch;
use super::record::{Record, Recorded, front_of};
use super::{CANARY, CANARY_LEAST, CallSite, UNSET};
use crate::heap::paths::NAP_NANOS;
use crate::heap::structures::heap_core::HeapCore;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use core::alloc::Layout;
use core::ptr::NonNull;

/// The minimum alignment of a block. The words of a record need 8. A request with a smaller
/// alignment gets this one.
const LEAST_ALIGN: usize = 16;

/// The maximum number of attempts of a request while blocks leave the quarantine. Other threads may
/// allocate the blocks of each attempt, and one thread may own all blocks that are leaving while it
/// checks them one after the other.
const TURNS: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 2 };

/// The pause between two attempts doubles this many times.
const DOUBLINGS: u32 = 10;

impl HeapCore {
    /// Returns the address of memory for `layout`, or 0 if the heap is out of memory. The user's
    /// bytes are [`UNSET`]: all of them, or the first [`POISON_MOST`](super::POISON_MOST).
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn alloc_debugged(&self, layout: Layout, call: CallSite) -> u64 {
        let (size, align) = (layout.size(), layout.align().max(LEAST_ALIGN));
        if size == 0 {
            return layout.align() as u64;
        }
        let front = front_of(align as u64);
        let bytes = size.saturating_add((front + CANARY_LEAST) as usize);
        let start = self.alloc_or_empty(bytes, align);
        if start == 0 {
            // Relaxed: a statistic.
            self.overview().last_failed().store_relaxed(size as u64);
        }
        // If the allocation failed, `start` is 0 and lies in no block.
        let Ok(whole) = self.whole_around(start) else { return 0 };
        let block = Recorded { whole, salt: self.extra().salt };
        let record = Record::new(size as u64, front, self.extra().number_of(call));
        for canary in block.canaries(&record) {
            // SAFETY: this thread owns the block, from its start to its end.
            unsafe { canary.fill(CANARY) };
        }
        // SAFETY: as above.
        unsafe { block.poisoned(&record).fill(UNSET) };
        block.begin(record);
        block.user(&record)
    }

    /// Allocates a block from the heap. If the heap is out of memory, empties the quarantine and
    /// tries again. Returns 0 if that fails, too.
    fn alloc_or_empty(&self, bytes: usize, align: usize) -> u64 {
        let Ok(layout) = Layout::from_size_align(bytes, align) else { return self.fail() };
        let mut last = self.extra().ring.is_none();
        for turn in 0..TURNS {
            if let Some(block) = self.alloc(layout) {
                return block.as_ptr() as u64;
            }
            if last {
                return 0;
            }
            // The allocation has not failed yet: undo its count. Relaxed: a statistic.
            self.failures_of(self.shard()).sub_relaxed(1);
            // If the quarantine was empty, try once more: other threads may have emptied it into
            // the heap just before.
            last = !self.empty_quarantine();
            if !last {
                thread::nanosleep(NAP_NANOS << turn.min(DOUBLINGS));
            }
        }
        self.fail()
    }

    fn fail(&self) -> u64 {
        // Relaxed: a statistic.
        self.failures_of(self.shard()).add_relaxed(1);
        0
    }

    /// Allocates zeroed memory for `layout`.
    pub(in crate::heap) fn alloc_zeroed_debugged(
        &self,
        layout: Layout,
        call: CallSite,
    ) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.alloc_debugged(layout, call) as *mut u8)?;
        // SAFETY: this thread owns the block, which has `layout.size()` bytes.
        unsafe { Stretch::new(block.as_ptr() as u64, layout.size() as u64).fill(0) };
        Some(block)
    }

    /// Moves `block` to a new block of `new_size` bytes. It always moves, so that a use of the old
    /// address is detected.
    ///
    /// # Safety
    /// See [`realloc`](Self::realloc).
    #[cold]
    #[inline(never)]
    pub(in crate::heap) unsafe fn realloc_debugged(
        &self,
        block: NonNull<u8>,
        layout: Layout,
        new_size: usize,
        call: CallSite,
    ) -> Option<NonNull<u8>> {
        let new_layout = Layout::from_size_align(new_size, layout.align()).ok()?;
        let new = NonNull::new(self.alloc_debugged(new_layout, call) as *mut u8)?;
        if layout.size() == 0 {
            return Some(new);
        }
        // SAFETY: both blocks have this length, the old one by the caller's promise; they are
        // distinct.
        unsafe { block.copy_to_nonoverlapping(new, layout.size().min(new_size)) };
        self.free_debugged(block);
        Some(new)
    }
}
