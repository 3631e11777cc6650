//! Lanes that have a warp to themselves.

use warpheap_device::machine::{Coords, Machine};

/// A machine whose lanes never synchronise. It may serve many threads: it queries the index of
/// each.
pub struct Apart {
    /// The index of the warp and of the SM of the running thread.
    pub lane: fn() -> u32,
    /// Lets other threads run.
    pub pause: fn(),
}

// SAFETY: a lane is alone in its warp and block, so it waits for no other.
unsafe impl Machine for Apart {
    fn coords(&self) -> Coords {
        let lane = (self.lane)();
        Coords { block_idx: [lane, 0, 0], grid_dim: [8, 1, 1], sm: lane, sm_count: 8, ..Coords::SOLE }
    }
    fn pause(&self, _: u32) {
        (self.pause)();
    }
    /// A millisecond passes from look to look, so that no thread waits for long.
    fn clock(&self) -> u64 {
        CLOCK.set(CLOCK.get() + 1_000_000);
        CLOCK.get()
    }
}

thread_local! {
    static CLOCK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(not(loom))]
thread_local! {
    /// The index of the warp and of the SM of the calling thread.
    pub static LANE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Calls `run` on the lane [`LANE`], which is 0 at first.
#[cfg(not(loom))]
pub fn with_lane<R>(run: impl FnOnce() -> R) -> R {
    let lanes = Apart { lane: || LANE.get(), pause: std::thread::yield_now };
    // SAFETY: the machine outlives the guard, which is the only one of this thread.
    let _installed = unsafe { warpheap_device::machine::install(&lanes) };
    LANE.set(0);
    run()
}
