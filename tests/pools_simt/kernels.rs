//! What threads do with the pools.

use std::alloc::Layout;
use std::ptr::NonNull;
use warpheap_device::bump::Bump;
use warpheap_device::freelist::FreeList;
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::AtomicU32;
use warpheap_device::thread;
use warpheap_device::units::BlockIndex;

/// In place of a block or an offset: there was none.
pub const NONE: u32 = u32::MAX;

/// Word `i`, shared by all threads.
///
/// # Safety
/// The words live, and are used through this function alone while the kernel runs.
unsafe fn word<'a>(words: DeviceSlice<u32>, i: u32) -> &'a AtomicU32 {
    assert!(u64::from(i) < words.len());
    // SAFETY: in bounds.
    let place = unsafe { words.as_ptr().add(i as usize) };
    // SAFETY: the caller's promise; the layouts are the same.
    unsafe { &*place.cast() }
}

/// Takes a block, and marks it as this thread's in `owners`, where nobody's mark may be.
///
/// # Safety
/// As for [`word`]; `owners` has a word for each block and one for counting overlaps.
unsafe fn take(list: FreeList, owners: DeviceSlice<u32>) -> Option<BlockIndex> {
    let block = list.alloc_index()?;
    // SAFETY: the caller's promise.
    let mark = unsafe { word(owners, block.0) };
    // SAFETY: the same.
    let overlaps = unsafe { word(owners, list.geometry().capacity()) };
    if mark.cas_relaxed(0, thread::index_1d() + 1).is_err() {
        overlaps.add_relaxed(1);
    }
    Some(block)
}

/// Gives a block back that [`take`] gave.
///
/// # Safety
/// As for [`take`].
unsafe fn give(list: FreeList, owners: DeviceSlice<u32>, block: BlockIndex) {
    // SAFETY: the caller's promise.
    unsafe { word(owners, block.0) }.store_relaxed(0);
    // SAFETY: taken by this thread, and not used any more.
    unsafe { list.free_index(block) };
}

/// Which lanes allocate together.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Who {
    All = 0,
    Odd = 1,
    /// By thirds, each in a branch of its own.
    Thirds = 2,
}

kernel! {
    /// Each thread gives back the block that `which` names for it, whoever took it; none for [`NONE`].
    ///
    /// # Safety
    /// The pool lives, and no one uses the blocks.
    pub unsafe fn free_listed(list: FreeList, which: DeviceSlice<u32>) {
        // SAFETY: only read.
        let block = unsafe { which.get(thread::index_1d().into()) }.unwrap_or(NONE);
        if block != NONE {
            // SAFETY: the caller's promise.
            unsafe { list.free_index(BlockIndex(block)) };
        }
    }
}

kernel! {
    /// Thread `i` gives block `i * stride` back.
    ///
    /// # Safety
    /// As for `take`; the blocks are taken, and there are as many.
    pub unsafe fn free_every(list: FreeList, owners: DeviceSlice<u32>, stride: u32) {
        let block = BlockIndex(thread::index_1d() * stride);
        if block.0 < list.geometry().capacity() {
            // SAFETY: the caller's promise.
            unsafe { give(list, owners, block) };
        }
    }

    /// Every thread frees an address behind the pool.
    ///
    /// # Safety
    /// The pool lives.
    pub unsafe fn free_outside(list: FreeList) {
        let behind = list.base() as u64 + list.geometry().bytes() + u64::from(thread::index_1d());
        let Some(address) = NonNull::new(behind as *mut u8) else { return };
        // SAFETY: no block is there, so nothing is freed.
        unsafe { list.free(address) };
    }

    /// Every thread of `who` takes a block and writes down which.
    ///
    /// # Safety
    /// All arguments live; `owners` as for `take`; `out` has a word for each thread.
    pub unsafe fn take_all(list: FreeList, owners: DeviceSlice<u32>, out: DeviceSlice<u32>, who: u32) {
        let i = thread::index_1d();
        // SAFETY: the caller's promise.
        let one = || unsafe { take(list, owners) }.map_or(NONE, |block| block.0);
        let block = match (who, i % 3) {
            (0, _) => one(),
            (1, _) => if i % 2 == 1 { one() } else { NONE },
            (_, 0) => one(),
            (_, 1) => if i % 2 == 1 { one() } else { let block = one(); thread::nanosleep(1); block },
            _ => one(),
        };
        // SAFETY: each thread has its own word.
        unsafe { out.set(i.into(), block) };
    }

    /// Thread `i` frees the block of thread `i * step` modulo their number.
    ///
    /// # Safety
    /// As for `take_all`, which has filled `out`; `step` has no divisor in common with the length.
    pub unsafe fn give_all(list: FreeList, owners: DeviceSlice<u32>, out: DeviceSlice<u32>, step: u32) {
        let i = u64::from(thread::index_1d());
        if i >= out.len() {
            return;
        }
        // SAFETY: nobody writes.
        let block = unsafe { out.get(i * u64::from(step) % out.len()) }.unwrap_or(NONE);
        if block != NONE {
            // SAFETY: the caller's promise: no other thread frees it.
            unsafe { give(list, owners, BlockIndex(block)) };
        }
    }

    /// Every thread takes a block and frees it, again and again. The word behind the overlaps counts
    /// refusals.
    ///
    /// # Safety
    /// As for `take_all`.
    pub unsafe fn churn(list: FreeList, owners: DeviceSlice<u32>, rounds: u32) {
        for round in 0..rounds {
            // SAFETY: the caller's promise.
            match unsafe { take(list, owners) } {
                // SAFETY: the same; the block is this thread's.
                Some(block) => unsafe { give(list, owners, block) },
                None => {
                    let refusals = list.geometry().capacity() + 1;
                    // SAFETY: the same.
                    unsafe { word(owners, refusals) }.add_relaxed(1);
                }
            }
            if (thread::index_1d() + round).is_multiple_of(5) {
                thread::nanosleep(1);
            }
        }
    }

    /// Thread `i` frees block `i / share`, and every eighth frees nothing of the pool instead.
    ///
    /// # Safety
    /// The blocks were allocated, and nobody uses them.
    pub unsafe fn free_shared(list: FreeList, share: u32) {
        let i = thread::index_1d();
        let block = list.address_of(BlockIndex(i / share)) as usize;
        let address = if i % 8 == 7 { block + 1 } else { block };
        if let Some(address) = NonNull::new(std::ptr::without_provenance_mut(address)) {
            // SAFETY: the caller's promise.
            unsafe { list.free(address) };
        }
    }

    /// Thread `i` asks for `sizes[i]` bytes aligned to `align` and writes down at which offset it got them.
    ///
    /// # Safety
    /// All arguments live; `out` and `sizes` have a word for each thread.
    pub unsafe fn ask(bump: Bump, sizes: DeviceSlice<u32>, out: DeviceSlice<u32>, align: u32) {
        let i = thread::index_1d().into();
        // SAFETY: nobody writes.
        let size = unsafe { sizes.get(i) }.unwrap_or(0);
        if size == 0 {
            return;
        }
        let layout = Layout::from_size_align(size as usize, align as usize).unwrap();
        let start = bump.alloc(layout).map(|start| start.addr().get() - bump.base().addr());
        // SAFETY: each thread has its own word.
        unsafe { out.set(i, start.map_or(NONE, |start| start as u32)) };
    }
}
