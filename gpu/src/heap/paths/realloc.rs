//! Realloc: resizes blocks. Also allocates zeroed blocks.
//!
//! A block keeps its place if it holds the new size, and a new block for that size would be at
//! least half as large. With a limit of one half, no block is more than half unused beyond the
//! rounding of its class. A block that shrinks repeatedly is copied at sizes that halve, so all its
//! copies together are no larger than the original block. (A limit nearer to 1 would copy for
//! little gain; one nearer to 0 would keep more unused memory.)

use crate::heap::layout::class::{SizeClass, rounded_up};
use crate::heap::paths::alloc::SMALL_ALIGN;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::locate::Located;
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// The unit of copying and clearing blocks. The bytes of every class are a multiple of its size.
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
    /// See [`Heap::realloc`](crate::heap::Heap::realloc).
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
        // SAFETY: this thread owns the block, which has at least this many words; for no bytes it
        // writes none.
        unsafe { block.cast::<Word>().write_bytes(0, words(layout.size())) };
        Some(block)
    }

    /// The usable bytes of a block; 0 for an address outside the heap.
    ///
    /// # Safety
    /// See [`Heap::usable_size`](crate::heap::Heap::usable_size).
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

    /// Whether a block keeps its place for `new_size`.
    ///
    /// # Safety
    /// See [`usable_size`](Self::usable_size).
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

    /// Bytes of the block for a size that was rounded up to its alignment: those of a class, or of
    /// whole slabs.
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
    /// See [`realloc`](Self::realloc).
    #[inline(never)]
    unsafe fn moved(&self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let new_layout = Layout::from_size_align(new_size, layout.align()).ok()?;
        let new = self.alloc(new_layout)?;
        if layout.size() == 0 {
            return Some(new);
        }
        let kept = words(layout.size().min(new_size));
        // SAFETY: both blocks hold `kept` words, the old one by the caller's promise; they are
        // distinct.
        unsafe { block.cast::<Word>().copy_to_nonoverlapping(new.cast(), kept) };
        // SAFETY: the caller's promise.
        unsafe { self.free(block) };
        Some(new)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
