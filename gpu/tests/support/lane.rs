//! Lanes that have a warp to themselves.

use std::panic::Location;
use std::ptr::NonNull;
use warpheap_device::machine::{Collective, Coords, Deposits, Machine};
use warpheap_device::units::LaneMask;

/// A machine whose lanes never synchronise. It may serve many threads: it queries the place of
/// each.
pub struct Apart {
    /// The index of the warp and of the SM of the running thread.
    pub place: fn() -> u32,
    /// Lets other threads run.
    pub pause: fn(),
}

// SAFETY: `exchange` returns nothing.
unsafe impl Machine for Apart {
    fn coords(&self) -> Coords {
        let place = (self.place)();
        Coords { block_idx: [place, 0, 0], grid_dim: [8, 1, 1], sm: place, sm_count: 8, ..Coords::SOLE }
    }
    fn converged(&self, _: &'static Location<'static>) -> LaneMask {
        LaneMask::only(0)
    }
    fn exchange(
        &self,
        mask: LaneMask,
        _: Collective,
        _: u64,
        _: &'static Location<'static>,
    ) -> Option<NonNull<Deposits>> {
        assert_eq!(mask, LaneMask::only(0), "a lane is alone in its warp");
        None
    }
    fn sync_block(&self, _: &'static Location<'static>) {}
    fn step(&self) {}
    fn pause(&self, _: u32) {
        (self.pause)();
    }
    fn clock(&self) -> u64 {
        0
    }
    fn exit(&self) -> ! {
        panic!("no lane exits")
    }
    fn trap(&self) -> ! {
        panic!("no lane traps")
    }
}
