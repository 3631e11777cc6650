//! How a thread ends, and what happens to the values it owns.

use crate::support::{Words, grid, modes, run, word};
use std::panic::{AssertUnwindSafe, catch_unwind};
use warpheap::simt::{Executor, Mode, OnPanic, SimtError};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{thread, warp};

/// Counts its drops. The destructor uses every operation that a destructor may use.
struct CountsDrop(DeviceSlice<u32>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        let mask = warp::activemask();
        // SAFETY: the lanes of the mask got it from one `activemask`.
        unsafe { warp::sync_warp(mask) };
        thread::nanosleep(1);
        word(self.0, 0).add_relaxed(1);
    }
}

kernel! {
    /// Half of the lanes return and half exit. All own a value.
    unsafe fn half_exit(words: DeviceSlice<u32>) {
        let _owned = CountsDrop(words);
        if warp::lane_id() >= 16 {
            thread::exit();
        }
    }

    /// Lane 3 panics; the others wait for ever. All own a value.
    unsafe fn one_panics(words: DeviceSlice<u32>) {
        let _owned = CountsDrop(words);
        assert!(warp::lane_id() != 3, "lane 3");
        while word(words, 1).load_relaxed() == 0 {}
    }
}

kernel! {
    /// Even lanes panic; the others add to a word at the end. All own a value.
    unsafe fn even_panic(words: DeviceSlice<u32>) {
        let _owned = CountsDrop(words);
        thread::nanosleep(1);
        assert!(!warp::lane_id().is_multiple_of(2), "an even lane");
        let mask = warp::activemask();
        // SAFETY: the lanes of the mask got it from one `activemask`.
        unsafe { warp::sync_warp(mask) };
        word(words, 1).add_relaxed(1);
    }
}

#[test]
fn a_panic_ends_its_thread_and_the_others_continue() {
    for mode in modes() {
        let words = Words::zeroed(2);
        let error = run(even_panic, mode, grid(3, 64), (words.slice(),)).unwrap_err();
        let SimtError::Panic(panic) = &error else { panic!("{mode:?}: {error}") };
        assert_eq!((panic.others, panic.thread % 2, panic.ended_grid), (3 * 32 - 1, 0, false), "{mode:?}");
        assert_eq!(words.values(), [3 * 64, 3 * 32], "{mode:?}");
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the drop of a payload");
    }
}

kernel! {
    /// Lane 0 panics with a payload that panics when it is dropped.
    unsafe fn panics_with_a_bomb() {
        if warp::lane_id() == 0 {
            std::panic::panic_any(Bomb);
        }
    }

    /// Each warp signals the other and waits at the block's barrier. All then count what they see.
    unsafe fn meets(words: DeviceSlice<u32>) {
        word(words, 0).add_relaxed(1);
        // SAFETY: all threads reach this barrier.
        unsafe { thread::sync_threads() };
        if word(words, 0).load_relaxed() == thread::block_dim_x() {
            word(words, 1).add_relaxed(1);
        }
    }
}

#[test]
fn the_drop_of_what_a_panic_carries_may_panic() {
    for mode in modes() {
        let error = run(panics_with_a_bomb, mode, grid(2, 32), ()).unwrap_err();
        let SimtError::Panic(panic) = &error else { panic!("{mode:?}: {error}") };
        assert_eq!((panic.message.as_str(), panic.others), ("no message", 1), "{mode:?}");
    }
}

/// Runs [`meets`] when it is dropped.
struct RunsAtTheEnd<'a>(&'a Words, Mode);

impl Drop for RunsAtTheEnd<'_> {
    fn drop(&mut self) {
        assert!(std::thread::panicking());
        run(meets, self.1, grid(1, 64), (self.0.slice(),)).unwrap();
    }
}

#[test]
fn lanes_wait_for_each_other_also_while_their_caller_unwinds() {
    for mode in modes() {
        let words = Words::zeroed(2);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _end = RunsAtTheEnd(&words, mode);
            panic!("unwinds");
        }));
        assert!(caught.is_err());
        assert_eq!(words.values(), [64, 64], "{mode:?}");
    }
}

#[test]
fn a_return_drops_and_an_exit_forgets() {
    for mode in modes() {
        let words = Words::zeroed(1);
        run(half_exit, mode, grid(3, 32), (words.slice(),)).unwrap();
        assert_eq!(words.values(), [3 * 16], "{mode:?}");
    }
}

#[test]
fn a_panic_that_ends_the_grid_unwinds_its_thread_and_forgets_the_others() {
    for mode in modes() {
        let words = Words::zeroed(2);
        let executor = Executor::new(mode).with_on_panic(OnPanic::EndGrid);
        // SAFETY: the words are live.
        let error = unsafe { executor.run::<one_panics>(grid(1, 32), (words.slice(),)) }.unwrap_err();
        let SimtError::Panic(panic) = &error else { panic!("{mode:?}: {error}") };
        assert!(panic.thread == 3 && panic.ended_grid && panic.then.is_none(), "{mode:?}: {error}");
        assert_eq!(words.values(), [1, 0], "{mode:?}");
        assert!(!std::thread::panicking(), "the panic is over on this OS thread");
    }
}
