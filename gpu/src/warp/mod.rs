//! Warp collectives, under the names that `cuda_std::warp` uses.
//!
//! Every collective takes the mask of the participating lanes. On sm_90 and later, `ptxas` may
//! compile one without a wait if a call precedes it: call [`sync_warp`] first, which waits for
//! lanes that return at different times. Only [`sync_warp`] and [`order_warp`] order memory among
//! lanes.

use crate::units::LaneMask;
pub use crate::units::WARP_SIZE;

#[cfg(not(target_arch = "nvptx64"))]
#[path = "host.rs"]
mod backend;
#[cfg(target_arch = "nvptx64")]
#[path = "nvptx.rs"]
mod backend;

/// Whether the target reduces over a mask in one instruction (`redux.sync`, sm_80 and later).
/// Without it, a reduction costs one shuffle per lane.
pub const HAS_REDUCE: bool = cfg!(any(not(target_arch = "nvptx64"), target_feature = "sm_80"));

/// This thread's index in its warp, `0..32`.
#[inline(always)]
pub fn lane_id() -> u32 {
    backend::lane_id()
}

/// The lanes that execute this instruction together, including this one.
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
#[inline(always)]
pub fn activemask() -> LaneMask {
    backend::activemask()
}

/// Synchronises the lanes of `mask` and orders memory among them (`bar.warp.sync`).
///
/// # Safety
/// The caller is in `mask`, and every lane of `mask` executes this call with the same mask.
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
#[inline(always)]
pub unsafe fn sync_warp(mask: LaneMask) {
    // SAFETY: the caller's second promise: every lane of `mask` executes this call with this mask.
    unsafe { backend::sync_warp(mask) }
}

/// Orders memory among the lanes of `mask`, which have just synchronised in another collective. On
/// the GPU it is `bar.warp.sync`. On the host, one OS thread runs all lanes of a warp, so they are
/// ordered already.
///
/// # Safety
/// See [`sync_warp`]. In addition, since that collective no lane of `mask` has done anything
/// that the other lanes rely on, and none has called a function that is not inlined.
#[inline(always)]
pub unsafe fn order_warp(mask: LaneMask) {
    // SAFETY: the caller's promise: the lanes of `mask` have just synchronised.
    unsafe { backend::order_warp(mask) }
}

macro_rules! collectives {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty: $doc:literal;)+) => {$(
        #[doc = $doc]
        ///
        /// # Safety
        /// The caller is in `mask`, and every lane of `mask` executes this call with the same mask.
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        #[inline(always)]
        pub unsafe fn $name(mask: LaneMask, $($arg: $ty),*) -> $out {
            // SAFETY: every lane of `mask` executes this call with the same mask, by the caller's
            // promise.
            unsafe { backend::$name(mask, $($arg),*) }
        }
    )+};
}

collectives! {
    warp_vote_all(predicate: bool) -> bool: "Whether `predicate` holds on every lane of `mask`.";
    warp_vote_any(predicate: bool) -> bool: "Whether `predicate` holds on some lane of `mask`.";
    warp_vote_ballot(predicate: bool) -> LaneMask: "The lanes of `mask` on which `predicate` holds.";
    warp_match_any_32(value: u32) -> LaneMask: "The lanes of `mask` that hold the caller's `value`.";
    warp_match_any_64(value: u64) -> LaneMask: "The lanes of `mask` that hold the caller's `value`.";
    warp_shuffle_idx_32(value: u32, lane: u32) -> u32: "The `value` of lane `lane`, which must be in `mask`.";
    warp_shuffle_idx_64(value: u64, lane: u32) -> u64: "The `value` of lane `lane`, which must be in `mask`.";
    warp_shuffle_up_32(value: u32, delta: u32) -> u32:
        "The `value` of the lane `delta` below; the caller's own where there is none. That lane must be in `mask`.";
    warp_shuffle_up_found_32(value: u32, delta: u32) -> Option<u32>:
        "The `value` of the lane `delta` below, which must be in `mask`; `None` where there is none.";
    warp_shuffle_down_32(value: u32, delta: u32) -> u32:
        "The `value` of the lane `delta` above; the caller's own where there is none. That lane must be in `mask`.";
    warp_shuffle_xor_32(value: u32, lanes: u32) -> u32:
        "The `value` of the lane whose number differs by `lanes`, which must be in `mask`.";
    warp_reduce_add_32(value: u32) -> u32:
        "The sum of `value` over the lanes of `mask`, wrapping. See [`HAS_REDUCE`].";
    warp_reduce_or_32(value: u32) -> u32: "The bits of `value` that any lane of `mask` holds. See [`HAS_REDUCE`].";
}
