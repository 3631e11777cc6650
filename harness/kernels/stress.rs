//! The kernels of the stress harness. What they do is in `warpheap_device::check`.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::bump::Bump;
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::{self, Round};
use warpheap_device::check::{census, exchange, misuse};
use warpheap_device::freelist::FreeList;
use warpheap_device::heap::Heap;
use warpheap_device::kernel;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::sync::AtomicU64;

/// The word as an atomic.
///
/// # Safety
/// The word is live, and accessed through this type alone while the kernel runs.
unsafe fn atomic(word: DevicePtr<u64>) -> &'static AtomicU64 {
    // SAFETY: the caller's promise; an atomic has the layout of its integer.
    unsafe { &*word.0.cast::<AtomicU64>() }
}

/// The layout of these sizes; of one byte if there is none.
fn layout(bytes: u32, align: u32) -> Layout {
    Layout::from_size_align(bytes as usize, align as usize).unwrap_or(Layout::new::<u8>())
}

kernel! {
    /// A round over a bump arena: see [`workload::run`].
    ///
    /// # Safety
    /// As for [`workload::run`].
    pub unsafe fn stress_bump(
        pool: Bump,
        records: DeviceSlice<Record>,
        map: OwnershipMap,
        stripes: DeviceSlice<u64>,
        round: Round,
    ) {
        // SAFETY: the caller's promise.
        unsafe { workload::run(&pool, records, &map, stripes, &round) }
    }

    /// A round over a block pool: see [`workload::run`].
    ///
    /// # Safety
    /// As for [`workload::run`].
    pub unsafe fn stress_freelist(
        pool: FreeList,
        records: DeviceSlice<Record>,
        map: OwnershipMap,
        stripes: DeviceSlice<u64>,
        round: Round,
    ) {
        // SAFETY: the caller's promise.
        unsafe { workload::run(&pool, records, &map, stripes, &round) }
    }

    /// A round over a heap: see [`workload::run`].
    ///
    /// # Safety
    /// As for [`workload::run`].
    pub unsafe fn stress_heap(
        pool: Heap,
        records: DeviceSlice<Record>,
        map: OwnershipMap,
        stripes: DeviceSlice<u64>,
        round: Round,
    ) {
        // SAFETY: the caller's promise.
        unsafe { workload::run(&pool, records, &map, stripes, &round) }
    }

    /// Blocks of a block pool change hands: see [`exchange::run`].
    ///
    /// # Safety
    /// As for [`exchange::run`].
    pub unsafe fn exchange_freelist(
        pool: FreeList,
        records: DeviceSlice<Record>,
        map: OwnershipMap,
        stripes: DeviceSlice<u64>,
        cells: DeviceSlice<u64>,
        round: Round,
    ) {
        // SAFETY: the caller's promise.
        unsafe { exchange::run(&pool, records, &map, stripes, cells, &round) }
    }

    /// Blocks of a heap change hands: see [`exchange::run`].
    ///
    /// # Safety
    /// As for [`exchange::run`].
    pub unsafe fn exchange_heap(
        pool: Heap,
        records: DeviceSlice<Record>,
        map: OwnershipMap,
        stripes: DeviceSlice<u64>,
        cells: DeviceSlice<u64>,
        round: Round,
    ) {
        // SAFETY: the caller's promise.
        unsafe { exchange::run(&pool, records, &map, stripes, cells, &round) }
    }

    /// Looks for blocks that share memory: see [`census::overlap_claim`].
    ///
    /// # Safety
    /// As for [`census::overlap_claim`].
    pub unsafe fn overlap_claim(records: DeviceSlice<Record>, map: OwnershipMap, marks: DeviceSlice<u32>) {
        // SAFETY: the caller's promise.
        unsafe { census::overlap_claim(records, &map, marks) }
    }

    /// Empties a block pool: see [`census::grab`].
    ///
    /// # Safety
    /// As for [`census::grab`].
    pub unsafe fn grab_freelist(
        pool: FreeList,
        bytes: u32,
        align: u32,
        out: DeviceSlice<Record>,
        count: DevicePtr<u64>,
    ) {
        // SAFETY: the caller's promise.
        let count = unsafe { atomic(count) };
        // SAFETY: the same.
        unsafe { census::grab(&pool, layout(bytes, align), out, count) }
    }

    /// Empties a bump arena: see [`census::grab`].
    ///
    /// # Safety
    /// As for [`census::grab`].
    pub unsafe fn grab_bump(
        pool: Bump,
        bytes: u32,
        align: u32,
        out: DeviceSlice<Record>,
        count: DevicePtr<u64>,
    ) {
        // SAFETY: the caller's promise.
        let count = unsafe { atomic(count) };
        // SAFETY: the same.
        unsafe { census::grab(&pool, layout(bytes, align), out, count) }
    }

    /// Empties a heap: see [`census::grab`].
    ///
    /// # Safety
    /// As for [`census::grab`].
    pub unsafe fn grab_heap(
        pool: Heap,
        bytes: u32,
        align: u32,
        out: DeviceSlice<Record>,
        count: DevicePtr<u64>,
    ) {
        // SAFETY: the caller's promise.
        let count = unsafe { atomic(count) };
        // SAFETY: the same.
        unsafe { census::grab(&pool, layout(bytes, align), out, count) }
    }

    /// Takes a whole heap at once: see [`census::take_whole`]. For one thread.
    ///
    /// # Safety
    /// As for [`census::take_whole`].
    pub unsafe fn take_whole_heap(pool: Heap, answer: DevicePtr<u64>) {
        // SAFETY: the caller's promise.
        let answer = unsafe { atomic(answer) };
        // SAFETY: the same.
        unsafe { census::take_whole(&pool, answer) }
    }

    /// Gives blocks back: see [`census::give_back`].
    ///
    /// # Safety
    /// As for [`census::give_back`].
    pub unsafe fn give_back_heap(pool: Heap, records: DeviceSlice<Record>, count: u64) {
        // SAFETY: the caller's promise.
        unsafe { census::give_back(&pool, records, count) }
    }

    /// Gives blocks back: see [`census::give_back`].
    ///
    /// # Safety
    /// As for [`census::give_back`].
    pub unsafe fn give_back_freelist(pool: FreeList, records: DeviceSlice<Record>, count: u64) {
        // SAFETY: the caller's promise.
        unsafe { census::give_back(&pool, records, count) }
    }

    /// Makes the block pool hand out a live block again. For one thread.
    ///
    /// # Safety
    /// As for `FreeList::corrupt_unclaim`.
    pub unsafe fn plant_overlap_freelist(pool: FreeList, address: u64) {
        if let Some(block) = NonNull::new(address as *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { pool.corrupt_unclaim(block) };
        }
    }

    /// Makes the arena hand out memory again. For one thread.
    ///
    /// # Safety
    /// As for `Bump::corrupt_rewind`.
    pub unsafe fn plant_overlap_bump(pool: Bump, bytes: u64) {
        // SAFETY: the caller's promise.
        unsafe { pool.corrupt_rewind(bytes) }
    }

    /// Makes the heap hand out a live block again, by a free behind its owner's back. For one thread.
    ///
    /// # Safety
    /// Never safe for the owner, which is the purpose. No one else uses the heap at the moment.
    pub unsafe fn plant_overlap_heap(pool: Heap, address: u64) {
        if let Some(block) = NonNull::new(address as *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { pool.free(block) };
        }
    }

    /// Frees a block of a heap twice: see [`misuse::free_twice`].
    ///
    /// # Safety
    /// As for [`misuse::free_twice`].
    pub unsafe fn plant_double_free_heap(
        pool: Heap,
        records: DeviceSlice<Record>,
        map: OwnershipMap,
        place: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { misuse::free_twice(&pool, records, &map, place) }
    }

    /// Frees a block twice: see [`misuse::free_twice`].
    ///
    /// # Safety
    /// As for [`misuse::free_twice`].
    pub unsafe fn plant_double_free(
        pool: FreeList,
        records: DeviceSlice<Record>,
        map: OwnershipMap,
        place: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe { misuse::free_twice(&pool, records, &map, place) }
    }

    /// Forgets a block: see [`misuse::forget`].
    ///
    /// # Safety
    /// As for [`misuse::forget`].
    pub unsafe fn plant_lost_block(records: DeviceSlice<Record>, map: OwnershipMap, place: u32) {
        // SAFETY: the caller's promise.
        unsafe { misuse::forget(records, &map, place) }
    }

    /// Writes past the end of a block: see [`misuse::overrun`].
    ///
    /// # Safety
    /// As for [`misuse::overrun`].
    pub unsafe fn plant_torn_write(records: DeviceSlice<Record>, place: u32, past: u32) {
        // SAFETY: the caller's promise.
        unsafe { misuse::overrun(records, place, past) }
    }
}
