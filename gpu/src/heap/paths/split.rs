//! An allocation and a free in two parts: the fast path, and the rest.
//!
//! ```text
//! begin_alloc ---> done: the address
//!     | rest          the fast path of a full warp, which calls no function
//!     v
//! finish_alloc        parts of warps, large blocks, the end of a span
//! ```
//!
//! After the first part, every ticket and every claim of its warp is either done or recorded in the
//! step. The second part continues as `alloc_small` and `release` do. The two parts have the
//! guarantees and the progress of `Heap::alloc` and `Heap::free`.
//!
//! The first part calls no other function, so that the C library can turn its machine code into
//! inline assembly for other languages. The second part is a call.

use crate::heap::layout::bits::WORD_BITS;
use crate::heap::layout::class::SizeClass;
use crate::heap::layout::{MAX_CLASSES, MAX_SHARDS};
use crate::heap::structures::cursor::Span;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::locate::{Located, Place};
use crate::lanes::Group;
use crate::units::LaneMask;
use core::alloc::Layout;
use core::ptr::NonNull;

// What is left to do after the first part: 0 if nothing, otherwise some of these.
/// The entire operation.
const ALL: u64 = 1;
/// The second half; the other fields have its state.
const SECOND_HALF: u64 = 1 << 1;
/// The operation is one of a full warp: its lanes wait for each other.
const WARP: u64 = 1 << 2;
/// Mark the run idle.
const IDLE: u64 = 1 << 3;
const _: () = assert!(ALL | SECOND_HALF | WARP | IDLE == 0b1111);

/// An allocation after its first part.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocStep {
    /// The address of the block; 0 if there is none, or none yet.
    pub address: u64,
    /// The span of which the group has tickets.
    seen: u64,
    /// What is left to do; 0 if nothing. A second half is left to all lanes of a warp or to none.
    pub rest: u64,
}

/// A free after its first part.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FreeStep {
    place: u64,
    bits: u64,
    /// What is left to do; 0 if nothing.
    pub rest: u64,
}

// Where `rest` has the class, the shard, and the word before a claim or the blocks of a run.
const CLASS_SHIFT: u32 = 8;
const SHARD_SHIFT: u32 = 16;
const WORD_SHIFT: u32 = 32;
const _: () = assert!(MAX_CLASSES <= 1 << (SHARD_SHIFT - CLASS_SHIFT));
const _: () = assert!(MAX_SHARDS <= 1 << (WORD_SHIFT - SHARD_SHIFT) && IDLE < 1 << CLASS_SHIFT);

const _: () = assert!(size_of::<AllocStep>() == 24 && size_of::<FreeStep>() == 24);

impl AllocStep {
    /// An allocation that has ended.
    pub const fn done(address: u64) -> AllocStep {
        AllocStep { address, seen: 0, rest: 0 }
    }
}

impl FreeStep {
    /// A free that has ended.
    pub const DONE: FreeStep = FreeStep { place: 0, bits: 0, rest: 0 };
    const ALL: FreeStep = FreeStep { rest: ALL, ..FreeStep::DONE };
}

impl HeapCore {
    /// The first part of [`alloc`](Self::alloc). If `rest` is not 0,
    /// [`finish_alloc`](Self::finish_alloc) follows. Not for debug heaps.
    #[inline(always)]
    #[must_use = "the second part follows if `rest` is not 0"]
    pub(in crate::heap) fn begin_alloc(&self, layout: Layout) -> AllocStep {
        debug_assert!(!self.is_debugged());
        let all = AllocStep { address: 0, seen: 0, rest: ALL };
        let Some(class) = self.class_of(layout) else { return all };
        let Some(warp) = Group::converged().whole() else { return all };
        // Repeats code of `alloc_small`: with a common function, kernels in Rust spill more
        // registers.
        let shard = self.shard();
        let (drawn, shard) = if warp.all(class.0 == warp.broadcast_32(class.0)) {
            (self.draw(warp, warp, true, class, shard), shard)
        } else {
            let shard = warp.broadcast_32(self.partial_warp_shard(shard));
            (self.draw(warp, warp.matching(class.0), true, class, shard), shard)
        };
        if warp.all(drawn.address != 0) {
            return AllocStep::done(drawn.address);
        }
        let shard = u64::from(warp.broadcast_32(shard)) << SHARD_SHIFT;
        let rest =
            SECOND_HALF | u64::from(class.0) << CLASS_SHIFT | shard | u64::from(drawn.stale) << WORD_SHIFT;
        AllocStep { address: drawn.address, seen: drawn.seen.0, rest }
    }

    /// The second part of [`alloc`](Self::alloc).
    ///
    /// # Safety
    /// [`begin_alloc`](Self::begin_alloc) has returned `step` to this lane for the same layout. All
    /// lanes of a warp to which it returned a `rest` make this call.
    #[inline(always)]
    #[must_use = "memory without an address is never freed"]
    pub(in crate::heap) unsafe fn finish_alloc(
        &self,
        layout: Layout,
        step: AllocStep,
    ) -> Option<NonNull<u8>> {
        if step.rest & ALL != 0 {
            return self.alloc(layout);
        }
        // SAFETY: the caller's promise: a full warp began, and all its lanes are here.
        let warp = unsafe { Group::of(LaneMask::ALL) };
        let (class, shard) =
            (SizeClass((step.rest >> CLASS_SHIFT) as u8 as u32), (step.rest >> SHARD_SHIFT) as u16 as u32);
        let (seen, stale) = (Span(step.seen), (step.rest >> WORD_SHIFT) as u32);
        NonNull::new(self.alloc_slow(warp, class, shard, seen, step.address, stale) as *mut u8)
    }

    /// The first part of [`free`](Self::free). If `rest` is not 0,
    /// [`finish_free_step`](Self::finish_free_step) follows. Not for debug heaps.
    ///
    /// # Safety
    /// See [`free`](Self::free).
    #[inline(always)]
    #[must_use = "the second part follows if `rest` is not 0"]
    pub(in crate::heap) unsafe fn begin_free(&self, block: NonNull<u8>) -> FreeStep {
        debug_assert!(!self.is_debugged());
        let group = Group::converged();
        if let Some(warp) = group.whole() {
            // Orders the writes of all lanes before the release of the lane that frees for them.
            warp.sync();
        }
        // Relaxed: the caller owns the block, so the entry was written before (I2 of `runs`).
        let Located::Block(place) = self.locate(block.as_ptr() as u64, |entry| entry.load_relaxed()) else {
            return FreeStep::ALL;
        };
        if !place.is_start() {
            return FreeStep::ALL;
        }
        let Place { run, block, .. } = place;
        // One lane may free for a warp only if all its lanes were converged above: see `release`.
        let warp = Group::converged().whole().filter(|warp| warp.all(group.whole().is_some()));
        let bits = match warp {
            Some(warp) => self.gather(warp, place),
            None => 1 << (block % WORD_BITS),
        };
        let w = block / WORD_BITS;
        let released = (bits != 0).then(|| self.runs().release(run, w, bits));
        let unfinished = released.filter(|released| released.is_unfinished);
        // When the free ends, the block is free, whichever lane freed it: so all lanes wait for
        // each other, here or at the end of the second part.
        if let Some(warp) = warp
            && warp.all(unfinished.is_none())
        {
            // A vote orders no memory.
            warp.order();
            return FreeStep::DONE;
        }
        let flags = if warp.is_some() { WARP } else { 0 };
        let Some(released) = unfinished else { return FreeStep { rest: flags, ..FreeStep::DONE } };
        let flags = flags | SECOND_HALF | if released.is_idle { IDLE } else { 0 };
        FreeStep {
            place: u64::from(run.first) | u64::from(w) << 32,
            bits: u64::from(bits) | u64::from(released.old) << 32,
            rest: flags | u64::from(run.class.0) << CLASS_SHIFT | u64::from(run.blocks) << WORD_SHIFT,
        }
    }

    /// The second part of [`free`](Self::free).
    ///
    /// # Safety
    /// [`begin_free`](Self::begin_free) has returned `step` to this lane for the same block. All
    /// lanes of a warp to which it returned a `rest` make this call.
    #[inline(always)]
    pub(in crate::heap) unsafe fn finish_free_step(&self, block: NonNull<u8>, step: FreeStep) {
        let FreeStep { place, bits, rest } = step;
        if rest & ALL != 0 {
            // SAFETY: the promise of the caller of `begin_free`.
            return unsafe { self.free(block) };
        }
        if rest & SECOND_HALF != 0 {
            let class = SizeClass((rest >> CLASS_SHIFT) as u8 as u32);
            let (first, w, blocks) = (place as u32, (place >> 32) as u32, (rest >> WORD_SHIFT) as u32);
            self.finish_free(first, class, blocks, w, bits as u32, (bits >> 32) as u32, rest & IDLE != 0);
        }
        if rest & WARP != 0 {
            // SAFETY: the caller's promise: a full warp began, and all its lanes are here.
            unsafe { Group::of(LaneMask::ALL) }.sync();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
