//! Kernels of `warpheap pool demo`: typical uses of the host's memory, in a few lines each.

use core::alloc::Layout;
use warpheap_device::bump::Bump;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::sync::{AtomicU32, AtomicU64, Site};
use warpheap_device::{kernel, thread};

/// In place of an offset: the allocation failed.
pub const NONE: u64 = u64::MAX;

const HOLD: Site = Site::new("demo/hold");

/// Accesses the word as a flag between concurrent kernels.
///
/// # Safety
/// The word is live while the flag is used.
unsafe fn flag<'a>(word: DevicePtr<u32>) -> &'a AtomicU32 {
    // SAFETY: live, by the caller's promise; an atomic has the layout of its integer.
    unsafe { &*word.0.cast() }
}

kernel! {
    /// Holds its stream until [`demo_let_go`] runs on another stream. Polls at most `patience`
    /// times, on a GPU with a microsecond between polls, so that streams that do not run
    /// concurrently end as well. For one thread.
    ///
    /// # Safety
    /// The word is live, and only these two kernels access it.
    pub unsafe fn demo_hold(word: DevicePtr<u32>, patience: u32) {
        // SAFETY: the caller's first promise: the word is live.
        let flag = unsafe { flag(word) };
        for _ in 0..patience {
            // ordering: acquire; pairs with HOLD of `demo_let_go`: what its stream did before comes
            // before what this stream does next.
            if flag.at(HOLD).load_acquire() == 1 {
                return;
            }
            thread::nanosleep(1000);
        }
    }

    /// Releases the stream that [`demo_hold`] holds. For one thread.
    ///
    /// # Safety
    /// As for [`demo_hold`]: the word is live, and only these two kernels access it.
    pub unsafe fn demo_let_go(word: DevicePtr<u32>) {
        // SAFETY: the caller's first promise: the word is live.
        let flag = unsafe { flag(word) };
        // ordering: release; pairs with HOLD of `demo_hold`.
        flag.at(HOLD).store_release(1);
    }

    /// `threads` threads write `value` to all words. Threads beyond that do nothing.
    ///
    /// # Safety
    /// The words are live and nothing else accesses them; `threads` is not 0.
    pub unsafe fn demo_fill(words: DeviceSlice<u32>, value: u32, threads: u32) {
        let mut i = u64::from(thread::index_1d());
        while i < words.len() && thread::index_1d() < threads {
            // SAFETY: each thread has its own words: the one at its index, and every `threads`th
            // after it.
            unsafe { words.set(i, value) };
            i += u64::from(threads);
        }
    }

    /// `threads` threads count in `others` the words that differ from `value`. Threads beyond that
    /// do nothing.
    ///
    /// # Safety
    /// The words are live and no thread writes them; `others` is live; `threads` is not 0.
    pub unsafe fn demo_count_others(words: DeviceSlice<u32>, value: u32, threads: u32, others: DevicePtr<u64>) {
        let (mut i, mut count) = (u64::from(thread::index_1d()), 0);
        while i < words.len() && thread::index_1d() < threads {
            // SAFETY: `words` is only read.
            count += u64::from(unsafe { words.get(i) } != Some(value));
            i += u64::from(threads);
        }
        // SAFETY: the word is live, and an atomic has the layout of its integer.
        let others = unsafe { &*others.0.cast::<AtomicU64>() };
        // Relaxed: the host reads after the kernel has ended.
        others.add_relaxed(count);
    }

    /// Each of the first `threads` threads allocates `bytes` from the arena, aligned to 4, and
    /// writes the sum of `first` and its index there. It stores the block's offset in `offsets`, or
    /// [`NONE`] if the allocation fails.
    ///
    /// # Safety
    /// The arena is live. `offsets` is live, and nothing else accesses it. `bytes` is 4 or more.
    pub unsafe fn demo_take(arena: Bump, threads: u32, bytes: u32, first: u32, offsets: DeviceSlice<u64>) {
        let i = thread::index_1d();
        if i >= threads {
            return;
        }
        let Ok(layout) = Layout::from_size_align(bytes as usize, align_of::<u32>()) else { return };
        let block = arena.alloc(layout);
        if let Some(block) = block {
            // SAFETY: this thread owns the block, which has room for a word.
            unsafe { block.cast::<u32>().write(first + i) };
        }
        let offset = block.map_or(NONE, |block| block.as_ptr() as u64 - arena.base() as u64);
        // SAFETY: each thread has its own word.
        unsafe { offsets.set(i.into(), offset) };
    }
}
