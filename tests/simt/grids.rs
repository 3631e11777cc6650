//! Every thread of every grid runs once, with its own coordinates, also when several grids run at
//! once.

use crate::support::{PARALLEL, Words, grid, modes, run, word};
use warpheap::simt::{Executor, Grid};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{thread, warp};

kernel! {
    /// Counts this thread in its word if its coordinates are consistent.
    unsafe fn count_me(counts: DeviceSlice<u32>) {
        let in_block = thread::index_in_block();
        assert_eq!(warp::lane_id(), in_block % 32);
        assert_eq!(thread::sm_id(), thread::block_index() % thread::sm_count());
        let threads = thread::block_dim_x() * thread::block_dim_y() * thread::block_dim_z();
        word(counts, thread::block_index() * threads + in_block).add_relaxed(1);
    }

    /// Increments the counter.
    unsafe fn count(counts: DeviceSlice<u32>) {
        word(counts, 0).add_relaxed(1);
    }

    /// Time passes and never goes backwards.
    unsafe fn watch_the_clock() {
        let start = thread::clock();
        let mut now = start;
        while now < start + 50 {
            let next = thread::clock();
            assert!(next >= now);
            now = next;
        }
    }
}

#[test]
fn every_thread_runs_once() {
    let shapes =
        [([1, 1, 1], [1, 1, 1]), ([7, 1, 1], [33, 1, 1]), ([2, 3, 4], [5, 4, 3]), ([1, 1, 2], [1, 1, 64])];
    for (mode, (blocks, threads)) in modes().flat_map(|mode| shapes.map(|shape| (mode, shape))) {
        let shape = Grid { blocks, threads };
        let counts = Words::zeroed(blocks.iter().chain(&threads).product::<u32>() as usize);
        let stats = run(count_me, mode, shape, (counts.slice(),)).unwrap();
        assert!(counts.values().iter().all(|&n| n == 1), "{mode:?}, {shape:?}: {:?}", counts.values());
        assert_eq!(stats.steps, counts.values().len() as u64, "one step a thread");
    }
}

#[test]
fn a_hundred_thousand_threads_finish() {
    let counts = Words::zeroed(100_096);
    run(count_me, PARALLEL, grid(391, 256), (counts.slice(),)).unwrap();
    assert!(counts.values().iter().all(|&n| n == 1));
}

/// An executor can be shared between threads that launch on it.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Executor>();
};

#[test]
fn runs_from_several_threads_do_not_mix() {
    for mode in modes().take(3) {
        let executor = Executor::new(mode);
        let (all, executor) = (Words::zeroed(1), &executor);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let mine = Words::zeroed(1);
                        // SAFETY: the words are live.
                        unsafe { executor.run::<count>(grid(20, 96), (mine.slice(),)) }.unwrap();
                        // SAFETY: the words are live.
                        unsafe { executor.run::<count>(grid(20, 96), (all.slice(),)) }.unwrap();
                        assert_eq!(mine.values(), [20 * 96]);
                    }
                });
            }
        });
        assert_eq!(all.values(), [4 * 5 * 20 * 96]);
    }
}

#[test]
fn clocks_go_on() {
    for mode in modes() {
        run(watch_the_clock, mode, grid(2, 40), ()).unwrap();
    }
}

#[test]
fn the_number_of_multiprocessors_can_be_set() {
    for mode in modes().take(2) {
        let executor = Executor::new(mode).with_sm_count(3);
        assert_eq!(executor.sm_count(), 3);
        let counts = Words::zeroed(64);
        // SAFETY: the words are live.
        unsafe { executor.run::<sm_histogram>(grid(64, 1), (counts.slice(),)) }.unwrap();
        assert_eq!(counts.values()[..4], [22, 21, 21, 0]);
    }
}

kernel! {
    /// Counts threads per SM.
    unsafe fn sm_histogram(counts: DeviceSlice<u32>) {
        word(counts, thread::sm_id()).add_relaxed(1);
    }
}
