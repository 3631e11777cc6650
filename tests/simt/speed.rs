//! Speed of both modes. `cargo test --release --test simt -- --ignored --nocapture speed`

use crate::support::{Words, grid, word};
use std::time::{Duration, Instant};
use warpheap::simt::{Executor, Mode, Stats};
use warpheap_device::kernel;
use warpheap_device::kernel::{DeviceSlice, Kernel};
use warpheap_device::units::LaneMask;
use warpheap_device::{thread, warp};

/// Alloc and free pairs per thread.
const PAIRS: u32 = 16;

kernel! {
    /// The operations of a pair of alloc and free: 12 collectives and 6 atomics per lane.
    unsafe fn pairs(words: DeviceSlice<u32>) {
        let mine = thread::index_1d() % words.len() as u32;
        for _ in 0..PAIRS {
            for phase in 0..2 {
                let mask = warp::activemask();
                // SAFETY: the lanes of the mask got it from one `activemask`.
                let group = unsafe { warp::warp_match_any_32(mask, phase) };
                // SAFETY: the lanes of `group` got it from one `match`.
                let ballot = unsafe { warp::warp_vote_ballot(group, true) };
                let leader = ballot.leader();
                let seen = word(words, mine).load_relaxed();
                // SAFETY: the lanes of `group` got it from one `match`.
                let base = unsafe { warp::warp_shuffle_idx_32(group, seen, leader) };
                word(words, mine).or_relaxed(base & 1);
                // SAFETY: the lanes of `group` got it from one `match`.
                let base = unsafe { warp::warp_shuffle_idx_64(group, base.into(), leader) } as u32;
                word(words, mine).and_relaxed(base & 2);
                // SAFETY: the lanes of the mask got it from one `activemask`.
                unsafe { warp::sync_warp(mask) };
            }
        }
    }

    /// Collectives only.
    unsafe fn votes() {
        for _ in 0..PAIRS * 12 {
            // SAFETY: all lanes reach this call.
            unsafe { warp::warp_vote_ballot(LaneMask::ALL, true) };
        }
    }

    /// Does nothing.
    unsafe fn nothing() {}
}

const BLOCKS: u32 = 400;
const THREADS: u32 = 256;

fn time<K: Kernel>(_: K, executor: &Executor, args: K::Args) -> (Duration, Stats) {
    let runs = (0..5).map(|_| {
        let start = Instant::now();
        // SAFETY: the words are live.
        let stats = unsafe { executor.run::<K>(grid(BLOCKS, THREADS), args) }.unwrap();
        (start.elapsed(), stats)
    });
    runs.min_by_key(|(time, _)| *time).expect("there are five")
}

#[test]
#[ignore = "a measurement, for release builds on a quiet machine"]
fn speed() {
    let threads = f64::from(BLOCKS * THREADS);
    for workers in [1, 2] {
        let executor = Executor::new(Mode::Parallel { workers });
        let words = Words::zeroed(1 << 16);
        let (time_pairs, stats) = time(pairs, &executor, (words.slice(),));
        let (time_votes, _) = time(votes, &executor, ());
        let (time_empty, _) = time(nothing, &executor, ());
        let rate = threads * f64::from(PAIRS) / time_pairs.as_secs_f64();
        let per_vote = time_votes.as_nanos() as f64 * workers as f64 / threads / f64::from(PAIRS * 12);
        let per_lane = time_empty.as_nanos() as f64 * workers as f64 / threads;
        println!(
            "{workers} workers: {:.2} M pairs/s; {per_vote:.0} ns of a core per lane and collective, \
             {per_lane:.0} ns per lane begun and ended; {} steps",
            rate / 1e6,
            stats.steps
        );
        assert!(workers < 2 || rate >= 2e6, "{rate:.0} pairs/s are too few");
    }
    for seed in 0..8 {
        let words = Words::zeroed(1 << 16);
        let executor = Executor::new(Mode::Replay { seed });
        let start = Instant::now();
        // SAFETY: the words are live.
        let stats = unsafe { executor.run::<pairs>(grid(40, THREADS), (words.slice(),)) }.unwrap();
        println!(
            "replay, seed {seed}: {:.1} M steps/s",
            stats.steps as f64 / start.elapsed().as_secs_f64() / 1e6
        );
    }
}
