//! Errors that end a grid early, and their messages.

use crate::support::{Words, grid, modes, run, run_bounded, word};
use warpheap::simt::{Grid, Mode, SimtError};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::machine::Collective;
use warpheap_device::units::LaneMask;
use warpheap_device::{thread, warp};

kernel! {
    /// Some threads panic. The others pass the barrier without them.
    unsafe fn last_panics() {
        assert!(thread::thread_idx_y() != 3, "this is thread {}", thread::thread_idx_y());
        // SAFETY: all threads that have not ended reach this barrier.
        unsafe { thread::sync_threads() };
    }

    /// Lane 1 panics while lane 0 waits for it.
    unsafe fn waits_for_panicked() {
        assert!(warp::lane_id() != 1, "lane 1");
        // SAFETY: not upheld on purpose: the test is about a lane that never arrives.
        unsafe { warp::sync_warp(LaneMask(3)) };
    }

    /// Thread 40 traps, the others spin for ever.
    unsafe fn one_traps(words: DeviceSlice<u32>) {
        if thread::thread_idx_x() == 40 {
            thread::trap();
        }
        while word(words, 0).load_relaxed() == 0 {}
    }

    /// Lane 1 waits at the block's barrier instead of joining the collective.
    unsafe fn deadlocked() {
        if warp::lane_id() == 1 {
            // SAFETY: the test is about a deadlock.
            unsafe { thread::sync_threads() };
        } else {
            // SAFETY: the test is about a deadlock.
            unsafe { warp::sync_warp(LaneMask(7)) };
        }
    }

    /// Lane 0 votes while lane 1 shuffles.
    unsafe fn different_operations() {
        if warp::lane_id() == 0 {
            // SAFETY: the test is about this mistake.
            unsafe { warp::warp_vote_any(LaneMask(3), true) };
        } else {
            // SAFETY: the test is about this mistake.
            unsafe { warp::warp_shuffle_idx_32(LaneMask(3), 0, 0) };
        }
    }

    /// Lane 0 reduces by addition while lane 1 reduces by `or`.
    unsafe fn different_reductions() {
        if warp::lane_id() == 0 {
            // SAFETY: the test is about this mistake.
            unsafe { warp::warp_reduce_add_32(LaneMask(3), 1) };
        } else {
            // SAFETY: the test is about this mistake.
            unsafe { warp::warp_reduce_or_32(LaneMask(3), 1) };
        }
    }

    /// Lane 0 names lanes 0 and 1, lane 1 names 0, 1 and 2.
    unsafe fn different_masks() {
        let mask = if warp::lane_id() == 0 { 3 } else { 7 };
        // SAFETY: the test is about this mistake.
        unsafe { warp::sync_warp(LaneMask(mask)) };
    }

    /// All lanes name `mask`, but the lanes in `ended` have exited.
    unsafe fn bad_mask(mask: u32, ended: u32) {
        if ended >> warp::lane_id() & 1 == 1 {
            return;
        }
        // SAFETY: the test is about this mistake.
        unsafe { warp::sync_warp(LaneMask(mask)) };
    }

    /// The lanes of a warp wait at two different block barriers.
    unsafe fn two_barriers() {
        if warp::lane_id().is_multiple_of(2) {
            // SAFETY: the test is about this mistake.
            unsafe { thread::sync_threads() };
        } else {
            // SAFETY: the other lanes wait elsewhere: the mistake that the test is about.
            unsafe { thread::sync_threads() };
        }
    }
}

#[test]
fn a_panic_names_its_thread_and_counts_the_others() {
    for mode in modes() {
        let shape = Grid { blocks: [1, 2, 1], threads: [2, 4, 5] };
        let Err(SimtError::Panic(panic)) = run(last_panics, mode, shape, ()) else {
            panic!("{mode:?}: no panic")
        };
        assert_eq!(panic.message, "this is thread 3");
        assert_eq!(panic.thread / 2 % 4, 3, "{panic}");
        assert!(panic.block < 2 && panic.file.ends_with("errors.rs") && panic.line > 0, "{panic}");
        assert_eq!(panic.others, 2 * 2 * 5 - 1);
        assert!(!panic.ended_grid && panic.then.is_none(), "{panic}");
    }
}

#[test]
fn a_collective_that_waits_for_a_panicked_lane_ends_the_grid() {
    for mode in modes() {
        let Err(SimtError::Panic(panic)) = run(waits_for_panicked, mode, grid(1, 2), ()) else {
            panic!("{mode:?}: no panic")
        };
        assert!(panic.ended_grid && panic.message == "lane 1", "{panic}");
        assert!(matches!(panic.then.as_deref(), Some(SimtError::Mask { .. })), "{panic}");
        assert!(panic.to_string().contains("; then the grid failed: thread (0, 0, 0)"), "{panic}");
    }
}

#[test]
fn a_trap_ends_the_grid() {
    for mode in modes() {
        let words = Words::zeroed(1);
        let Err(SimtError::Trap { thread }) = run(one_traps, mode, grid(2, 64), (words.slice(),)) else {
            panic!("{mode:?}: not ended by the trap")
        };
        assert_eq!((thread.thread, thread.lane), ([40, 0, 0], 8));
    }
}

#[test]
fn a_deadlock_lists_the_waiting_lanes() {
    for mode in modes() {
        let error = run(deadlocked, mode, grid(1, 3), ()).unwrap_err();
        assert!(matches!(error, SimtError::Deadlock { block: [0, 0, 0], lanes: 3, .. }), "{mode:?}: {error}");
        let text = error.to_string();
        assert!(
            text.contains(
                "lanes 0x00000005 of warp 0 wait for Sync with mask 0x00000007 at tests/simt/errors.rs"
            ),
            "{text}"
        );
        assert!(
            text.contains("lanes 0x00000002 of warp 0 wait for the block barrier at tests/simt/errors.rs"),
            "{text}"
        );
    }
}

#[test]
fn a_mismatch_names_both_lanes() {
    for mode in modes() {
        for (kinds, error) in [
            ([Collective::Vote, Collective::Shuffle], run(different_operations, mode, grid(1, 2), ())),
            ([Collective::ReduceAdd, Collective::ReduceOr], run(different_reductions, mode, grid(1, 2), ())),
        ] {
            let Err(SimtError::Mismatch { first, second }) = error else {
                panic!("{mode:?}: {kinds:?} differ")
            };
            let mut calls = [(first.thread.lane, first.what), (second.thread.lane, second.what)];
            calls.sort_by_key(|(lane, _)| *lane);
            assert_eq!(calls, [(0, kinds[0]), (1, kinds[1])]);
            assert_ne!(first.at.line(), second.at.line());
        }

        let error = run(different_masks, mode, grid(1, 3), ()).unwrap_err();
        let SimtError::Mismatch { first, second } = error else {
            panic!("{mode:?}: the masks differ, but {error}")
        };
        assert_ne!(first.mask, second.mask);
    }
}

#[test]
fn a_bad_mask_is_rejected() {
    let cases = [
        (0b0010, 0b1110, 0b0001, "the caller is not in its mask"),
        (0xff, 0, 0xf0, "lanes that the warp does not have"),
        (0b1111, 0b0100, 0b0100, "ended"),
    ];
    for (mode, (mask, ended, wrong, why)) in modes().flat_map(|mode| cases.map(|case| (mode, case))) {
        let error = run(bad_mask, mode, grid(1, 4), (mask, ended)).unwrap_err();
        let SimtError::Mask { call, lanes, .. } = &error else { panic!("{mode:?}: {error}") };
        assert_eq!((call.what, call.mask, *lanes), (Collective::Sync, LaneMask(mask), LaneMask(wrong)));
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_warp_waits_for_its_block_at_one_place() {
    for mode in modes() {
        let error = run(two_barriers, mode, grid(1, 32), ()).unwrap_err();
        let SimtError::Barrier { at, other, .. } = error else { panic!("{mode:?}: {error}") };
        assert_ne!(at.line(), other.line());
    }
}

#[test]
fn a_livelock_ends() {
    for mode in modes() {
        let words = Words::zeroed(1);
        let error = run_bounded(spin_for_ever, mode, 20_000, grid(4, 64), (words.slice(),)).unwrap_err();
        assert!(matches!(error, SimtError::StepLimit { .. }), "{mode:?}: {error}");
    }
}

kernel! {
    /// Waits for a word that is never written.
    unsafe fn spin_for_ever(words: DeviceSlice<u32>) {
        while word(words, 0).load_relaxed() == 0 {}
    }
}

#[test]
fn sizes_are_checked() {
    let cases = [
        ([0, 1, 1], [32, 1, 1], "no blocks"),
        ([1, 1, 1], [32, 0, 1], "no threads"),
        ([1, 1, 1], [32, 33, 1], "more than 1024 threads"),
        ([u32::MAX; 3], [32, 1, 1], "too many blocks"),
        ([1, 1, 1], [u32::MAX; 3], "more than 1024 threads"),
    ];
    for (blocks, threads, why) in cases {
        let error = run(last_panics, Mode::Replay { seed: 0 }, Grid { blocks, threads }, ()).unwrap_err();
        assert!(matches!(error, SimtError::Grid { .. }) && error.to_string().contains(why), "{error}");
    }
}

/// After an error the executor and its stacks can be reused.
#[test]
fn an_error_leaves_nothing_behind() {
    let executor = warpheap::simt::Executor::new(crate::support::PARALLEL);
    for _ in 0..20 {
        let words = Words::zeroed(1);
        // SAFETY: the words are live.
        let failed = unsafe { executor.run::<one_traps>(grid(8, 64), (words.slice(),)) };
        assert!(matches!(failed, Err(SimtError::Trap { .. })));
        // SAFETY: the kernel has no requirements.
        unsafe { executor.run::<bad_mask>(grid(8, 64), (u32::MAX, 0)) }.unwrap();
    }
}
