//! Shared memory: a block's own, the same for all its threads, anything at first.

use crate::support::{Words, grid, modes, run, word};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::machine::SharedPieces;
use warpheap_device::shared::{SharedMemory, SharedWord};
use warpheap_device::{kernel, thread};

/// A word for each thread, two kinds of it.
struct Piece<const KIND: u32>;

impl<const KIND: u32> SharedMemory for Piece<KIND> {
    const WORDS: u32 = 48;
}

kernel! {
    /// Every thread writes to both pieces and counts itself if it reads what the next thread of its block wrote, and
    /// if before that its words held garbage. The last warp's threads end in between.
    unsafe fn talk(counts: DeviceSlice<u32>) {
        let (me, threads) = (thread::index_in_block(), thread::block_threads());
        let next = (me + 1) % threads;
        let [one, other] = [SharedWord::first::<Piece<1>>(), SharedWord::first::<Piece<2>>()];
        // SAFETY: there is a word for each thread.
        let at_first = unsafe { one.plus(me).swap_relaxed(u64::from(thread::index_1d())) };
        // SAFETY: the same.
        unsafe { other.plus(me).store_relaxed(u64::from(me)) };
        if me >= 32 {
            return;
        }
        // SAFETY: the threads of the last warp end.
        unsafe { thread::sync_threads() };
        // SAFETY: there is a word for each thread.
        let theirs = unsafe { one.plus(next).load_relaxed() };
        // SAFETY: the same.
        let number = unsafe { other.plus(next).load_relaxed() };
        let expected = thread::block_index() * threads + next;
        if at_first == SharedPieces::GARBAGE && theirs == u64::from(expected) && number == u64::from(next) {
            word(counts, thread::block_index()).add_relaxed(1);
        }
    }
}

#[test]
fn each_block_has_its_own() {
    for mode in modes() {
        let counts = Words::zeroed(40);
        // Blocks of one warp are resident together, and their places are used again.
        run(talk, mode, grid(40, 32), (counts.slice(),)).unwrap();
        assert_eq!(counts.values(), [32; 40], "{mode:?}");
    }
}

#[test]
fn it_outlives_threads_that_end() {
    for mode in modes() {
        let counts = Words::zeroed(10);
        run(talk, mode, grid(10, 33), (counts.slice(),)).unwrap();
        // Thread 31 reads what thread 32 wrote before it ended, if that was before the barrier: it is no part of it.
        assert!(
            counts.values().iter().all(|count| (31..=32).contains(count)),
            "{mode:?}: {:?}",
            counts.values()
        );
    }
}
