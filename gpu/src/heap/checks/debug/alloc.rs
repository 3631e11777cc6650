//! Allocation from a debug heap: a longer block, its record, canaries and poison.

use super::fill::Stretch;
use super::record::{Record, Recorded, front_of};
use super::{CANARY, CANARY_LEAST, CallSite, UNSET};
use crate::heap::Heap;
use crate::heap::paths::NAP_NANOS;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use core::alloc::Layout;
use core::ptr::NonNull;

/// The least alignment of a block: a record's words need 8, and what is asked for without more gets this, too.
const LEAST_ALIGN: usize = 16;

/// How often a request goes on because blocks came out of the quarantine, or are on their way. Each time others may
/// take them, and one thread may have all that there were in hand, each of which it looks through.
const TURNS: u32 = if NATIVE_LAYOUT { 1 << 12 } else { 2 };

/// The pause between two turns doubles so often.
const DOUBLINGS: u32 = 10;

impl Heap {
    /// The address of memory for `layout`, of which all bytes are [`UNSET`]; 0 if there is none.
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
            self.core.overview().last_failed().store_relaxed(size as u64);
        }
        // At 0 there is no block.
        let Ok(whole) = self.whole_around(start) else { return 0 };
        let block = Recorded { whole, salt: self.extra().salt };
        let record = Record::new(size as u64, front, self.extra().number_of(call));
        for canary in block.canaries(&record) {
            // SAFETY: the block is this thread's, from its start to its end.
            unsafe { canary.fill(CANARY) };
        }
        // SAFETY: the same.
        unsafe { block.poisoned(&record).fill(UNSET) };
        block.begin(record);
        block.user(&record)
    }

    /// A block of the heap, after the quarantine was emptied if need be; 0 if there is none.
    fn alloc_or_empty(&self, bytes: usize, align: usize) -> u64 {
        let Ok(layout) = Layout::from_size_align(bytes, align) else { return self.refuse() };
        let mut last = self.extra().ring.is_none();
        for turn in 0..TURNS {
            if let Some(block) = self.core.alloc(layout) {
                return block.as_ptr() as u64;
            }
            if last {
                return 0;
            }
            // The allocation has not failed yet. Relaxed: a statistic.
            self.core.failures_of(self.core.shard()).sub_relaxed(1);
            // If the quarantine was empty, one more attempt: other threads may have emptied it into
            // the heap just before.
            last = !self.empty_quarantine();
            if !last {
                thread::nanosleep(NAP_NANOS << turn.min(DOUBLINGS));
            }
        }
        self.refuse()
    }

    fn refuse(&self) -> u64 {
        // Relaxed: a figure.
        self.core.failures_of(self.core.shard()).add_relaxed(1);
        0
    }

    /// `layout` bytes of zeroes.
    pub(in crate::heap) fn alloc_zeroed_debugged(
        &self,
        layout: Layout,
        call: CallSite,
    ) -> Option<NonNull<u8>> {
        let block = self.alloc_at(layout, call)?;
        // SAFETY: this thread's, and so long.
        unsafe { Stretch::new(block.as_ptr() as u64, layout.size() as u64).fill(0) };
        Some(block)
    }

    /// `block`, moved to a new one of `new_size` bytes: always, so that a use of its old address is seen.
    ///
    /// # Safety
    /// As for [`realloc`](Self::realloc).
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
        let new = self.alloc_at(new_layout, call)?;
        if layout.size() == 0 {
            return Some(new);
        }
        // SAFETY: both are so long, the old one by the caller's promise; they are two blocks.
        unsafe { block.copy_to_nonoverlapping(new, layout.size().min(new_size)) };
        // SAFETY: the caller's promise.
        unsafe { self.free(block) };
        Some(new)
    }
}
