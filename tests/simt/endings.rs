//! What becomes of what a thread owns when it ends.

use crate::support::{Words, grid, modes, run, word};
use warpheap::simt::SimtError;
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{thread, warp};

/// Counts when it is dropped, with everything that a destructor may ask of the machine.
struct CountsDrop(DeviceSlice<u32>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        let mask = warp::activemask();
        // SAFETY: the lanes of the mask got it together.
        unsafe { warp::sync_warp(mask) };
        thread::nanosleep(1);
        word(self.0, 0).add_relaxed(1);
    }
}

kernel! {
    /// Half of the lanes return, half exit, all owning something.
    unsafe fn half_exit(words: DeviceSlice<u32>) {
        let _owned = CountsDrop(words);
        if warp::lane_id() >= 16 {
            thread::exit();
        }
    }

    /// Lane 3 panics; the others wait for ever. All own something.
    unsafe fn one_panics(words: DeviceSlice<u32>) {
        let _owned = CountsDrop(words);
        assert!(warp::lane_id() != 3, "lane 3");
        while word(words, 1).load_relaxed() == 0 {}
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
fn a_panic_unwinds_its_thread_and_forgets_the_others() {
    for mode in modes() {
        let words = Words::zeroed(2);
        let error = run(one_panics, mode, grid(1, 32), (words.slice(),)).unwrap_err();
        assert!(matches!(&error, SimtError::Panic { thread, .. } if thread.lane == 3), "{mode:?}: {error}");
        assert_eq!(words.values(), [1, 0], "{mode:?}");
        assert!(!std::thread::panicking(), "the panic is over on this OS thread");
    }
}
