//! Warp collectives, and the identity and time of a thread.

use crate::probe;
use warpheap_device::units::LaneMask;
use warpheap_device::{thread, warp};

macro_rules! collectives {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)+) => {$(
        probe! { warp $name(mask: LaneMask, $($arg: $ty,)* out: *mut $out) {
            // SAFETY: the launch passes a mask of lanes that all execute this call.
            let result = unsafe { warp::$name(mask, $($arg),*) };
            // SAFETY: the launch passes room for the result.
            unsafe { out.write(result) };
        } }
    )+};
}

collectives! {
    sync_warp() -> ();
    order_warp() -> ();
    warp_vote_all(predicate: bool) -> bool;
    warp_vote_any(predicate: bool) -> bool;
    warp_vote_ballot(predicate: bool) -> LaneMask;
    warp_match_any_32(value: u32) -> LaneMask;
    warp_match_any_64(value: u64) -> LaneMask;
    warp_shuffle_idx_32(value: u32, lane: u32) -> u32;
    warp_shuffle_idx_64(value: u64, lane: u32) -> u64;
    warp_shuffle_up_32(value: u32, delta: u32) -> u32;
    warp_shuffle_up_found_32(value: u32, delta: u32) -> Option<u32>;
    warp_shuffle_down_32(value: u32, delta: u32) -> u32;
    warp_shuffle_xor_32(value: u32, lanes: u32) -> u32;
    warp_reduce_add_32(value: u32) -> u32;
    warp_reduce_or_32(value: u32) -> u32;
}

macro_rules! readings {
    ($($group:ident $name:ident $out:ty;)+) => {$(
        probe! { $group $name(out: *mut $out) {
            let result = $group::$name();
            // SAFETY: the launch passes room for the result.
            unsafe { out.write(result) };
        } }
    )+};
}

readings! {
    warp lane_id u32;
    warp activemask LaneMask;
    thread thread_idx_x u32;
    thread thread_idx_y u32;
    thread thread_idx_z u32;
    thread block_idx_x u32;
    thread block_idx_y u32;
    thread block_idx_z u32;
    thread block_dim_x u32;
    thread block_dim_y u32;
    thread block_dim_z u32;
    thread grid_dim_x u32;
    thread grid_dim_y u32;
    thread grid_dim_z u32;
    thread sm_id u32;
    thread sm_count u32;
    thread clock u64;
    thread global_timer_nanos u64;
}

probe! { thread nanosleep(nanos: u32) { thread::nanosleep(nanos) } }
probe! { thread exit() { thread::exit() } }
probe! { thread trap() { thread::trap() } }
probe! { thread sync_threads() {
    // SAFETY: every thread of the launch reaches this barrier.
    unsafe { thread::sync_threads() }
} }
