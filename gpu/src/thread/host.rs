//! Thread indices, time and waiting on the host, answered by the installed machine.

use crate::machine;
use core::panic::Location;

macro_rules! coords {
    ($($name:ident $field:ident $axis:literal;)+) => {$(
        #[inline]
        pub fn $name() -> u32 {
            machine::at(|c| c.$field[$axis])
        }
    )+};
}

coords! {
    thread_idx_x thread_idx 0;
    thread_idx_y thread_idx 1;
    thread_idx_z thread_idx 2;
    block_idx_x block_idx 0;
    block_idx_y block_idx 1;
    block_idx_z block_idx 2;
    block_dim_x block_dim 0;
    block_dim_y block_dim 1;
    block_dim_z block_dim 2;
    grid_dim_x grid_dim 0;
    grid_dim_y grid_dim 1;
    grid_dim_z grid_dim 2;
}

pub fn sm_id() -> u32 {
    machine::at(|c| c.sm)
}

pub fn sm_count() -> u32 {
    machine::at(|c| c.sm_count)
}

#[track_caller]
pub unsafe fn sync_threads() {
    let at = Location::caller();
    // SAFETY: the requirements of this function hold.
    unsafe { machine::with(|m| m.sync_block(at)) }
}

pub fn nanosleep(nanos: u32) {
    // SAFETY: no other lane depends on it.
    unsafe { machine::with(|m| m.pause(nanos)) }
}

#[cfg(not(all(test, not(loom))))]
pub fn clock() -> u64 {
    // SAFETY: no other lane depends on it.
    unsafe { machine::with(|m| m.clock()) }
}

#[cfg(all(test, not(loom)))]
pub use crate::test_lanes::clock;

pub fn global_timer_nanos() -> u64 {
    clock()
}

pub fn exit() -> ! {
    // SAFETY: ends this lane, as the function does on a GPU.
    unsafe { machine::with(|m| m.exit()) }
}

pub fn trap() -> ! {
    // SAFETY: ends the grid, as the function does on a GPU.
    unsafe { machine::with(|m| m.trap()) }
}
