//! Blocks that change their size, and blocks of zeroes.
//!
//! A block keeps its place while it holds the new size and the new size's own block would be at least half
//! of it. A half: then no block is more than half unused beyond what its class rounds up, and a block that
//! shrinks again and again is copied at sizes that halve, so all its copies together are no larger than it
//! was at first. (A limit nearer to 1 would copy for little, one nearer to 0 keep more memory in vain.)

use crate::heap::layout::class::{SizeClass, rounded_up};
use crate::heap::paths::alloc::SMALL_ALIGN;
use crate::heap::structures::heap_core::{HeapCore, Located};
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// What blocks are copied and cleared in: the bytes of every class are a multiple of it.
type Word = MaybeUninit<u32>;

/// Words that hold `bytes`.
const fn words(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<Word>())
}

impl HeapCore {
    /// Resizes a block of an allocation of `layout` to `new_size` bytes. Returns `None` if the heap
    /// is out of memory; the block is then unchanged.
    ///
    /// # Safety
    /// As for [`Heap::realloc`](crate::heap::Heap::realloc).
    #[inline(always)]
    pub(in crate::heap) unsafe fn realloc(
        &self,
        block: NonNull<u8>,
        layout: Layout,
        new_size: usize,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        if unsafe { self.keeps_place(block, layout.align(), new_size) } {
            return Some(block);
        }
        // SAFETY: the caller's promise.
        unsafe { self.shared().moved(block, layout, new_size) }
    }

    /// Allocates memory for `layout`, of which all bytes are 0.
    #[inline(always)]
    pub(in crate::heap) fn alloc_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let block = self.alloc(layout)?;
        // SAFETY: the block is this thread's, and at least so many words long; of no bytes it is none.
        unsafe { block.cast::<Word>().write_bytes(0, words(layout.size())) };
        Some(block)
    }

    /// The usable bytes of a block; 0 for an address outside the heap.
    ///
    /// # Safety
    /// As for [`Heap::usable_size`](crate::heap::Heap::usable_size).
    #[inline(always)]
    pub(in crate::heap) unsafe fn usable_size(&self, block: NonNull<u8>) -> usize {
        // Relaxed: the caller owns the block, or received it from the owner, so the entry was
        // written before (I2 of `runs`).
        match self.locate(block.as_ptr() as u64, |entry| entry.load_relaxed()) {
            Located::Outside => 0,
            Located::Slab(_, entry) => (entry.large_slabs().unwrap_or(0) as usize) << self.layout.slab_log2,
            Located::Block(place) => self.class(place.run.class).bytes as usize,
        }
    }

    /// Whether a block is the right one for `new_size`.
    ///
    /// # Safety
    /// As for [`usable_size`](Self::usable_size).
    #[inline(always)]
    unsafe fn keeps_place(&self, block: NonNull<u8>, align: usize, new_size: usize) -> bool {
        // SAFETY: the caller's promise.
        let usable = unsafe { self.usable_size(block) };
        if new_size > usable {
            return false;
        }
        let needed = self.block_bytes(rounded_up(new_size as u64, align as u64), align as u64);
        needed.saturating_mul(2) >= usable as u64
    }

    /// Bytes of the block for a size that was rounded up to its alignment: a class', or whole slabs.
    #[inline(always)]
    fn block_bytes(&self, size: u64, align: u64) -> u64 {
        let slab_bytes = u64::from(self.layout.slab_bytes());
        match size {
            0 => 0,
            _ if size <= u64::from(self.layout.small_bytes) && align <= SMALL_ALIGN as u64 => {
                SizeClass::of(size as u32).bytes().into()
            }
            _ => size.saturating_add(slab_bytes - 1) & !(slab_bytes - 1),
        }
    }

    /// # Safety
    /// As for [`realloc`](Self::realloc).
    #[inline(never)]
    unsafe fn moved(&self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let new_layout = Layout::from_size_align(new_size, layout.align()).ok()?;
        let new = self.alloc(new_layout)?;
        if layout.size() == 0 {
            return Some(new);
        }
        let kept = words(layout.size().min(new_size));
        // SAFETY: both hold so many words, the old one by the caller's promise; they are two blocks.
        unsafe { block.cast::<Word>().copy_to_nonoverlapping(new.cast(), kept) };
        // SAFETY: the caller's promise.
        unsafe { self.free(block) };
        Some(new)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
