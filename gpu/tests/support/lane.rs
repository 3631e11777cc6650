//! Lanes that have a warp to themselves.

use warpheap_device::machine::{Coords, Machine};

/// A machine whose lanes never synchronise. It may serve many threads: it queries the place of
/// each.
pub struct Apart {
    /// The index of the warp and of the SM of the running thread.
    pub place: fn() -> u32,
    /// Lets other threads run.
    pub pause: fn(),
}

// SAFETY: a lane alone in its warp, with the default collectives.
unsafe impl Machine for Apart {
    fn coords(&self) -> Coords {
        let place = (self.place)();
        Coords { block_idx: [place, 0, 0], grid_dim: [8, 1, 1], sm: place, sm_count: 8, ..Coords::SOLE }
    }
    fn pause(&self, _: u32) {
        (self.pause)();
    }
    fn clock(&self) -> u64 {
        0
    }
}
