//! Shared memory: private to a block, shared by all its threads, uninitialised at first.

use crate::support::{Words, grid, modes, run, word};
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::machine::SharedPieces;
use warpheap_device::shared::{SharedMemory, SharedWord};
use warpheap_device::{kernel, thread};

/// A word for each thread, in two kinds.
struct Piece<const KIND: u32>;

impl<const KIND: u32> SharedMemory for Piece<KIND> {
    const WORDS: u32 = 48;
}

kernel! {
    /// Every thread writes to both pieces. It counts itself if it reads the value that the next
    /// thread of its block wrote and if its words held garbage before the write. The threads of the
    /// last warp exit in between.
    unsafe fn talk(counts: DeviceSlice<u32>) {
        let (me, threads) = (thread::index_in_block(), thread::block_threads());
        let next = (me + 1) % threads;
        let [one, other] = [SharedWord::first::<Piece<1>>(), SharedWord::first::<Piece<2>>()];
        // SAFETY: there is a word for each thread.
        let at_first = unsafe { one.plus(me).swap_relaxed(u64::from(thread::index_1d())) };
        // SAFETY: there is a word for each thread.
        unsafe { other.plus(me).store_relaxed(u64::from(me)) };
        if me >= 32 {
            return;
        }
        // SAFETY: the threads of the last warp have exited; all others reach this barrier.
        unsafe { thread::sync_threads() };
        // SAFETY: there is a word for each thread.
        let theirs = unsafe { one.plus(next).load_relaxed() };
        // SAFETY: there is a word for each thread.
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
        // Blocks of one warp are resident together, and their shared memory is reused.
        run(talk, mode, grid(40, 32), (counts.slice(),)).unwrap();
        assert_eq!(counts.values(), [32; 40], "{mode:?}");
    }
}

#[test]
fn it_outlives_threads_that_end() {
    for mode in modes() {
        let counts = Words::zeroed(10);
        run(talk, mode, grid(10, 33), (counts.slice(),)).unwrap();
        // Thread 31 reads the word of thread 32 only if it was written before the barrier: thread
        // 32 exits and does not take part in the barrier.
        assert!(
            counts.values().iter().all(|count| (31..=32).contains(count)),
            "{mode:?}: {:?}",
            counts.values()
        );
    }
}
