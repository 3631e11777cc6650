//! The machine of a lane has the collectives of a warp, whose requirements it does not check.
use std::panic::Location;

fn main() {
    warpheap_device::machine::with(|machine| machine.sync_block(Location::caller()));
}
