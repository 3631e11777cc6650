//! Allocations that the lanes of a warp or the threads of a block share.

use super::super::bench::{Counter, count};
use super::{layout, word};
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::units::{LaneMask, WARP_SIZE};
use warpheap_device::{kernel, thread, warp};

kernel! {
    /// The lanes in the mask `lanes` of each warp share an allocation. Each writes a word and reads
    /// its neighbour's.
    ///
    /// # Safety
    /// The heap and the counter are live. `out` has a word for each thread. An allocation holds 32
    /// words.
    pub unsafe fn groups_warp(
        heap: Heap,
        out: DeviceSlice<u64>,
        lanes: u32,
        bytes: u32,
        keep: u32,
        failures: Counter,
    ) {
        let (i, lane) = (thread::index_1d(), warp::lane_id());
        let present = (thread::block_threads() - (thread::index_in_block() - lane)).min(WARP_SIZE);
        let mask = LaneMask(lanes & (u32::MAX >> (WARP_SIZE - present)));
        if !mask.contains(lane) {
            return;
        }
        // SAFETY: every lane of the mask executes this call.
        let Some(block) = (unsafe { heap.alloc_warp(mask, layout(bytes)) }) else { return };
        // SAFETY: the allocation has a word for each lane.
        unsafe { word(block, lane) }.store_relaxed(i.into());
        // SAFETY: every lane of the mask executes this call.
        unsafe { warp::sync_warp(mask) };
        let above = LaneMask(mask.0 & !(u32::MAX >> (WARP_SIZE - 1 - lane)));
        let next = if above.is_empty() { mask.leader() } else { above.leader() };
        // SAFETY: the allocation has a word for each lane.
        if unsafe { word(block, next) }.load_relaxed() != u64::from(i - lane + next) {
            count(failures);
        }
        // SAFETY: each thread writes its own word.
        unsafe { out.set(i.into(), block.as_ptr() as u64) };
        if keep == 0 {
            // SAFETY: every lane of the mask executes this call, and none uses the block
            // afterwards.
            unsafe { heap.free_warp(mask, block) };
        }
    }

    /// Every block allocates for all its threads. Each thread writes its piece and reads its
    /// neighbour's. If `gone` is not 0, every thread with an index in the block that is a multiple
    /// of `gone` ends before that. Runs three times in a row, or once if the memory is to be kept
    /// (`keep`).
    ///
    /// # Safety
    /// The heap and the counter are live. `out` and `wholes` have a word for each thread.
    pub unsafe fn groups_block(
        heap: Heap,
        out: DeviceSlice<u64>,
        wholes: DeviceSlice<u64>,
        bytes: u32,
        gone: u32,
        keep: u32,
        failures: Counter,
    ) {
        let (i, number) = (thread::index_1d(), thread::index_in_block());
        let ends = |number: u32| gone != 0 && number.is_multiple_of(gone);
        if ends(number) {
            return;
        }
        for _ in 0..if keep == 0 { 3 } else { 1 } {
            // SAFETY: every thread that has not ended executes this call.
            let Some(share) = (unsafe { heap.alloc_block_each(layout(bytes)) }) else { return };
            // SAFETY: a piece has at least one word.
            unsafe { word(share.piece, 0) }.store_relaxed(i.into());
            // SAFETY: every thread that has not ended executes this call: all got a piece, or none
            // did.
            unsafe { thread::sync_threads() };
            let next = number + 1;
            if next < thread::block_threads() && !ends(next) {
                // SAFETY: the next thread's piece is inside the allocation, and was written.
                let piece = unsafe { share.piece.byte_add(bytes.next_multiple_of(8) as usize) };
                // SAFETY: the piece has a word, which was written before the barrier.
                if unsafe { word(piece, 0) }.load_relaxed() != u64::from(i + 1) {
                    count(failures);
                }
            }
            // SAFETY: each thread writes its own words.
            unsafe { out.set(i.into(), share.piece.as_ptr() as u64) };
            // SAFETY: each thread writes its own word of `wholes`.
            unsafe { wholes.set(i.into(), share.whole.as_ptr() as u64) };
            if keep == 0 {
                // SAFETY: every thread that has not ended executes this call, and uses its piece no
                // more.
                unsafe { heap.free_block(share.whole) };
            }
        }
    }
}
