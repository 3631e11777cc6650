//! Kernels that allocate from and free to the pools.

use std::alloc::Layout;
use std::ptr::NonNull;
use warpheap_device::bump::Bump;
use warpheap_device::freelist::FreeList;
use warpheap_device::heap::Heap;
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::AtomicU32;
use warpheap_device::thread;
use warpheap_device::units::BlockIndex;

/// Stands for a block or an offset if the allocation failed.
pub const NONE: u32 = u32::MAX;

/// Word `i`, shared by all threads.
///
/// # Safety
/// While the kernel runs, the words are live and accessed through this function only.
unsafe fn word<'a>(words: DeviceSlice<u32>, i: u32) -> &'a AtomicU32 {
    assert!(u64::from(i) < words.len());
    // SAFETY: in bounds.
    let place = unsafe { words.as_ptr().add(i as usize) };
    // SAFETY: the words are live and accessed atomically only, as `word` requires; the layouts of
    // `u32` and `AtomicU32` are equal.
    unsafe { &*place.cast() }
}

/// Allocates a block and marks it in `owners` as this thread's. Counts an overlap if the block
/// already has a mark.
///
/// # Safety
/// See [`word`]; `owners` has a word for each block and one more that counts overlaps.
unsafe fn take(list: FreeList, owners: DeviceSlice<u32>) -> Option<BlockIndex> {
    let block = list.alloc_index()?;
    // SAFETY: `take` requires what `word` requires of `owners`.
    let mark = unsafe { word(owners, block.0) };
    // SAFETY: `take` requires what `word` requires of `owners`.
    let overlaps = unsafe { word(owners, list.geometry().capacity()) };
    if mark.cas_relaxed(0, thread::index_1d() + 1).is_err() {
        overlaps.add_relaxed(1);
    }
    Some(block)
}

/// Frees a block that [`take`] returned.
///
/// # Safety
/// See [`take`].
unsafe fn give(list: FreeList, owners: DeviceSlice<u32>, block: BlockIndex) {
    // SAFETY: `give` requires what `word` requires of `owners`.
    unsafe { word(owners, block.0) }.store_relaxed(0);
    // SAFETY: this thread allocated the block and does not use it any more.
    unsafe { list.free_index(block) };
}

/// Which lanes allocate together.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Lanes {
    All = 0,
    Odd = 1,
    /// By thirds, each in its own branch.
    Thirds = 2,
}

kernel! {
    /// Each thread frees the block that `which` names for it, regardless of its owner. [`NONE`]
    /// frees nothing.
    ///
    /// # Safety
    /// The pool is live, and no thread uses the blocks.
    pub unsafe fn free_listed(list: FreeList, which: DeviceSlice<u32>) {
        // SAFETY: no thread writes to `which`.
        let block = unsafe { which.get(thread::index_1d().into()) }.unwrap_or(NONE);
        if block != NONE {
            // SAFETY: `free_listed` requires that no thread uses the block.
            unsafe { list.free_index(BlockIndex(block)) };
        }
    }
}

kernel! {
    /// Thread `i` frees block `i * stride`.
    ///
    /// # Safety
    /// See `take`; the blocks are allocated, and the pool has all of them.
    pub unsafe fn free_every(list: FreeList, owners: DeviceSlice<u32>, stride: u32) {
        let block = BlockIndex(thread::index_1d() * stride);
        if block.0 < list.geometry().capacity() {
            // SAFETY: `free_every` requires that the block is allocated; only thread `i` frees it.
            unsafe { give(list, owners, block) };
        }
    }

    /// Every thread frees an address past the end of the pool.
    ///
    /// # Safety
    /// The pool is live.
    pub unsafe fn free_outside(list: FreeList) {
        let behind = list.base() as u64 + list.geometry().bytes() + u64::from(thread::index_1d());
        let Some(address) = NonNull::new(behind as *mut u8) else { return };
        // SAFETY: the address is not that of a block, so nothing is freed.
        unsafe { list.free(address) };
    }

    /// Every thread that `lanes` selects allocates a block and stores its number.
    ///
    /// # Safety
    /// All arguments are live; `owners` as for `take`; `out` has a word for each thread.
    pub unsafe fn take_all(list: FreeList, owners: DeviceSlice<u32>, out: DeviceSlice<u32>, lanes: u32) {
        let i = thread::index_1d();
        // SAFETY: `take_all` requires what `take` requires of `owners`.
        let one = || unsafe { take(list, owners) }.map_or(NONE, |block| block.0);
        let block = match (lanes, i % 3) {
            (0, _) => one(),
            (1, _) => if i % 2 == 1 { one() } else { NONE },
            (_, 0) => one(),
            (_, 1) => if i % 2 == 1 { one() } else { let block = one(); thread::nanosleep(1); block },
            _ => one(),
        };
        // SAFETY: each thread has its own word.
        unsafe { out.set(i.into(), block) };
    }

    /// Thread `i` frees the block of thread `i * step` modulo the length of `out`.
    ///
    /// # Safety
    /// See `take_all`, which has filled `out`; `step` is coprime to its length.
    pub unsafe fn give_all(list: FreeList, owners: DeviceSlice<u32>, out: DeviceSlice<u32>, step: u32) {
        let i = u64::from(thread::index_1d());
        if i >= out.len() {
            return;
        }
        // SAFETY: no thread writes to `out` in this kernel.
        let block = unsafe { out.get(i * u64::from(step) % out.len()) }.unwrap_or(NONE);
        if block != NONE {
            // SAFETY: `give_all` requires that `take_all` allocated the block; as `step` is coprime
            // to the length, no other thread frees it.
            unsafe { give(list, owners, BlockIndex(block)) };
        }
    }

    /// Every thread repeatedly allocates and frees a block. The word after the overlap counter
    /// counts failed allocations.
    ///
    /// # Safety
    /// See `take_all`.
    pub unsafe fn churn(list: FreeList, owners: DeviceSlice<u32>, rounds: u32) {
        for round in 0..rounds {
            // SAFETY: `churn` requires what `take` requires of `owners`.
            match unsafe { take(list, owners) } {
                // SAFETY: this thread just allocated the block; `churn` requires what `give`
                // requires of `owners`.
                Some(block) => unsafe { give(list, owners, block) },
                None => {
                    let failures = list.geometry().capacity() + 1;
                    // SAFETY: `churn` requires what `word` requires of `owners`, which has a word
                    // for failed allocations.
                    unsafe { word(owners, failures) }.add_relaxed(1);
                }
            }
            if (thread::index_1d() + round).is_multiple_of(5) {
                thread::nanosleep(1);
            }
        }
    }

    /// Thread `i` frees block `i / share`. Every eighth thread frees an address inside the block
    /// instead, which no block starts at.
    ///
    /// # Safety
    /// The blocks were allocated, and no thread uses them.
    pub unsafe fn free_shared(list: FreeList, share: u32) {
        let i = thread::index_1d();
        let block = list.address_of(BlockIndex(i / share)) as usize;
        let address = if i % 8 == 7 { block + 1 } else { block };
        if let Some(address) = NonNull::new(std::ptr::without_provenance_mut(address)) {
            // SAFETY: `free_shared` requires that no thread uses the block. A repeated or interior
            // free is recorded as a fault.
            unsafe { list.free(address) };
        }
    }

    /// Thread `i` allocates `sizes[i]` bytes aligned to `align` and stores the offset of the block.
    ///
    /// # Safety
    /// All arguments are live; `out` and `sizes` have a word for each thread.
    pub unsafe fn ask(bump: Bump, sizes: DeviceSlice<u32>, out: DeviceSlice<u32>, align: u32) {
        let i = thread::index_1d().into();
        // SAFETY: no thread writes to `sizes`.
        let size = unsafe { sizes.get(i) }.unwrap_or(0);
        if size == 0 {
            return;
        }
        let layout = Layout::from_size_align(size as usize, align as usize).unwrap();
        let start = bump.alloc(layout).map(|start| start.addr().get() - bump.base().addr());
        // SAFETY: each thread has its own word.
        unsafe { out.set(i, start.map_or(NONE, |start| start as u32)) };
    }

    /// Each thread frees the block in its word, if there is one, then allocates a block and fills
    /// it with `round`. The size is `min` times one of `sizes` powers of two, which depends on
    /// the thread and on `round`.
    ///
    /// # Safety
    /// The heap is live, and nothing else uses the words or the blocks that they name.
    pub unsafe fn replace(heap: Heap, blocks: DeviceSlice<u64>, min: u64, sizes: u64, round: u64) {
        let i = thread::index_1d().into();
        // SAFETY: each thread has its own word.
        let Some(block) = (unsafe { blocks.get(i) }) else { return };
        if let Some(block) = NonNull::new(block as *mut u8) {
            // SAFETY: `replace` requires that nothing else uses the block.
            unsafe { heap.free(block) };
        }
        let bytes = (min << ((i + 5 * round) % sizes)) as usize;
        let next = heap.alloc(Layout::from_size_align(bytes, 1).unwrap());
        if let Some(block) = next {
            // SAFETY: the block has `bytes` bytes.
            unsafe { block.write_bytes(round as u8, bytes) };
        }
        // SAFETY: each thread has its own word.
        unsafe { blocks.set(i, next.map_or(0, |block| block.as_ptr() as u64)) };
    }

    /// Every thread repeatedly allocates and frees a block, of a different size in each round.
    ///
    /// # Safety
    /// The heap is live, and `out` has a word for each thread, which receives its number of failed
    /// allocations.
    pub unsafe fn heap_churn(heap: Heap, out: DeviceSlice<u64>, rounds: u32) {
        let i = thread::index_1d();
        let mut failed = 0;
        for round in 0..rounds {
            let size = 16 << ((i / 32 + round) % 4);
            match heap.alloc(Layout::from_size_align(size, 1).unwrap()) {
                // SAFETY: this thread allocated the block and does not use it afterwards.
                Some(block) => unsafe { heap.free(block) },
                None => failed += 1,
            }
        }
        // SAFETY: each thread has its own word.
        unsafe { out.set(i.into(), failed) };
    }
}
