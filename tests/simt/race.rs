//! Replay finds a planted race, and the seed reproduces it.

use crate::support::{Words, grid, run, word};
use warpheap::simt::Mode;
use warpheap_device::kernel;
use warpheap_device::kernel::{DeviceSlice, Kernel};
use warpheap_device::thread;

kernel! {
    /// Increments with a load and a store, so that a concurrent increment is lost.
    unsafe fn count_wrongly(words: DeviceSlice<u32>) {
        let count = word(words, 0).load_relaxed();
        word(words, 0).store_relaxed(count + 1);
    }

    /// Increments with one atomic operation.
    unsafe fn count_rightly(words: DeviceSlice<u32>) {
        word(words, 0).add_relaxed(1);
    }

    /// A stack of two nodes without a generation tag: thread 0 pops one node while thread 1 pops
    /// both and pushes the first back (ABA). Word 0 is the top, words 1 and 2 are the nodes'
    /// successors, words 3 and 4 their owners.
    unsafe fn aba(words: DeviceSlice<u32>) {
        let take = || loop {
            let top = word(words, 0).load_relaxed();
            if top == 0 {
                return 0;
            }
            let below = word(words, top).load_relaxed();
            if word(words, 0).cas_relaxed(top, below).is_ok() {
                word(words, 2 + top).add_relaxed(1);
                return top;
            }
        };
        let first = take();
        if thread::thread_idx_x() == 1 && first != 0 {
            take();
            word(words, 2 + first).sub_relaxed(1);
            let top = word(words, 0).load_relaxed();
            word(words, first).store_relaxed(top);
            let _ = word(words, 0).cas_relaxed(top, first);
        }
        // The top must not be a node that a thread owns.
        let top = word(words, 0).load_relaxed();
        if top != 0 && word(words, 2 + top).load_relaxed() != 0 && word(words, 0).load_relaxed() == top {
            word(words, 5).store_relaxed(1);
        }
    }
}

fn counted<K: Kernel<Args = (DeviceSlice<u32>,)>>(
    kernel: K,
    seed: u64,
    blocks: u32,
    threads: u32,
) -> (u64, u32) {
    let words = Words::zeroed(1);
    let stats = run(kernel, Mode::Replay { seed }, grid(blocks, threads), (words.slice(),)).unwrap();
    (stats.schedule_hash, words.values()[0])
}

/// The first seed below `bound` at which two threads lose an increment.
fn first_loss(bound: u64, blocks: u32, threads: u32) -> Option<u64> {
    (0..bound).find(|&seed| counted(count_wrongly, seed, blocks, threads).1 != blocks * threads)
}

#[test]
fn a_lost_update_is_found_and_reproduced() {
    for (blocks, threads) in [(1, 2), (2, 1), (1, 64), (4, 32)] {
        let seed = first_loss(32, blocks, threads).expect("32 seeds find the race");
        let again = counted(count_wrongly, seed, blocks, threads);
        assert_eq!(again, counted(count_wrongly, seed, blocks, threads));
        assert!(again.1 < blocks * threads, "seed {seed} loses a count again");
    }
}

#[test]
fn the_correct_count_is_never_wrong() {
    for seed in 0..200 {
        assert_eq!(counted(count_rightly, seed, 3, 40).1, 120, "seed {seed}");
    }
}

#[test]
fn aba_is_found_and_reproduced() {
    let corrupt = |seed| {
        let words = Words::zeroed(6);
        word(words.slice(), 0).store_relaxed(1);
        word(words.slice(), 1).store_relaxed(2);
        run(aba, Mode::Replay { seed }, grid(1, 2), (words.slice(),)).unwrap();
        words.values()
    };
    let seed = (0..300).find(|&seed| corrupt(seed)[5] == 1).expect("300 seeds find the race");
    assert_eq!(corrupt(seed), corrupt(seed));
}
