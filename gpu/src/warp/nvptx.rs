//! The collectives as LLVM intrinsics: intrinsics are convergent, inline assembly is not.

use crate::units::LaneMask;
use core::arch::asm;

mod intrinsics {
    #[expect(improper_ctypes, reason = "an intrinsic: LLVM defines what it returns")]
    unsafe extern "unadjusted" {
        #[link_name = "llvm.nvvm.shfl.sync.up.i32p"]
        pub fn shuffle_up_found(mask: u32, value: u32, delta: u32, clamp: u32) -> (u32, bool);
    }
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
        pub fn lane_id() -> u32;
        #[link_name = "llvm.nvvm.activemask"]
        pub fn active_mask() -> u32;
        #[link_name = "llvm.nvvm.bar.warp.sync"]
        pub fn sync(mask: u32);
        #[link_name = "llvm.nvvm.vote.all.sync"]
        pub fn all(mask: u32, predicate: bool) -> bool;
        #[link_name = "llvm.nvvm.vote.any.sync"]
        pub fn any(mask: u32, predicate: bool) -> bool;
        #[link_name = "llvm.nvvm.vote.ballot.sync"]
        pub fn ballot(mask: u32, predicate: bool) -> u32;
        #[link_name = "llvm.nvvm.match.any.sync.i32"]
        pub fn match_any_32(mask: u32, value: u32) -> u32;
        #[link_name = "llvm.nvvm.match.any.sync.i64"]
        pub fn match_any_64(mask: u32, value: u64) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
        pub fn shuffle_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
        pub fn shuffle_up(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
        pub fn shuffle_down(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
        pub fn shuffle_xor(mask: u32, value: u32, lanes: u32, clamp: u32) -> u32;
        #[cfg(target_feature = "sm_80")]
        #[link_name = "llvm.nvvm.redux.sync.add"]
        pub fn reduce_add(value: u32, mask: u32) -> u32;
        #[cfg(target_feature = "sm_80")]
        #[link_name = "llvm.nvvm.redux.sync.or"]
        pub fn reduce_or(value: u32, mask: u32) -> u32;
    }
}

/// Shuffle over the whole warp: no segments, lanes 0 to 31.
const WHOLE_WARP: u32 = 31;
/// Shuffle over the whole warp with `shfl.up`, where the bound is the lowest lane.
const FROM_LANE_0: u32 = 0;

#[inline(always)]
pub fn lane_id() -> u32 {
    // SAFETY: it reads a register.
    unsafe { intrinsics::lane_id() }
}

#[inline(always)]
pub fn activemask() -> LaneMask {
    // SAFETY: it reads a mask and accesses no memory.
    LaneMask(unsafe { intrinsics::active_mask() })
}

/// Returns `mask` as a value that `ptxas` does not recognise as the same mask.
///
/// From sm_90 on, `ptxas` (12.9 to 13.5) omits the convergence check of a barrier if an earlier
/// collective with the same mask has one, even if a call is between them from which lanes return at
/// different times. Without the check, the barrier does not wait for the other lanes. This relies
/// on `ptxas` not using the range of `%warpid`; `tests/ptx/barriers.rs` checks only the PTX.
#[inline(always)]
fn opaque(mask: u32) -> u32 {
    let same: u32;
    // SAFETY: it only computes a mask. A warp's number is below 2^31, so `w` is zero. Not `pure`:
    // each barrier needs a result of its own.
    unsafe {
        asm!("{{ .reg .b32 w; mov.u32 w, %warpid; shr.u32 w, w, 31; xor.b32 {}, {}, w; }}",
            out(reg32) same, in(reg32) mask, options(nostack));
    }
    same
}

macro_rules! collectives {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = |$mask:ident| $body:expr;)+) => {$(
        #[inline(always)]
        pub unsafe fn $name($mask: LaneMask, $($arg: $ty),*) -> $out {
            let $mask = $mask.0;
            // SAFETY: every lane of the mask executes this call, by the caller's promise.
            unsafe { $body }
        }
    )+};
}

collectives! {
    sync_warp() -> () = |mask| intrinsics::sync(opaque(mask));
    order_warp() -> () = |mask| intrinsics::sync(mask);
    warp_vote_all(predicate: bool) -> bool = |mask| intrinsics::all(mask, predicate);
    warp_vote_any(predicate: bool) -> bool = |mask| intrinsics::any(mask, predicate);
    warp_match_any_32_raw(value: u32) -> u32 = |mask| intrinsics::match_any_32(mask, value);
    warp_match_any_64_raw(value: u64) -> u32 = |mask| intrinsics::match_any_64(mask, value);
    warp_ballot_raw(predicate: bool) -> u32 = |mask| intrinsics::ballot(mask, predicate);
    warp_shuffle_idx_32(value: u32, lane: u32) -> u32 = |mask| intrinsics::shuffle_idx(mask, value, lane, WHOLE_WARP);
    warp_shuffle_up_32(value: u32, delta: u32) -> u32 = |mask| intrinsics::shuffle_up(mask, value, delta, FROM_LANE_0);
    warp_shuffle_down_32(value: u32, delta: u32) -> u32 = |mask| intrinsics::shuffle_down(mask, value, delta, WHOLE_WARP);
    warp_shuffle_xor_32(value: u32, lanes: u32) -> u32 = |mask| intrinsics::shuffle_xor(mask, value, lanes, WHOLE_WARP);
}

#[inline(always)]
pub unsafe fn warp_vote_ballot(mask: LaneMask, predicate: bool) -> LaneMask {
    // SAFETY: every lane of the mask executes this call, by the caller's promise.
    LaneMask(unsafe { warp_ballot_raw(mask, predicate) })
}

#[inline(always)]
pub unsafe fn warp_match_any_32(mask: LaneMask, value: u32) -> LaneMask {
    // SAFETY: every lane of the mask executes this call, by the caller's promise.
    LaneMask(unsafe { warp_match_any_32_raw(mask, value) })
}

#[inline(always)]
pub unsafe fn warp_match_any_64(mask: LaneMask, value: u64) -> LaneMask {
    // SAFETY: every lane of the mask executes this call, by the caller's promise.
    LaneMask(unsafe { warp_match_any_64_raw(mask, value) })
}

#[inline(always)]
pub unsafe fn warp_shuffle_up_found_32(mask: LaneMask, value: u32, delta: u32) -> Option<u32> {
    // SAFETY: every lane of the mask executes this call, by the caller's promise.
    let (below, found) = unsafe { intrinsics::shuffle_up_found(mask.0, value, delta, FROM_LANE_0) };
    found.then_some(below)
}

#[inline(always)]
pub unsafe fn warp_shuffle_idx_64(mask: LaneMask, value: u64, lane: u32) -> u64 {
    // SAFETY: every lane of the mask executes this call, by the caller's promise.
    let low = unsafe { warp_shuffle_idx_32(mask, value as u32, lane) };
    // SAFETY: every lane of the mask executes this call, by the caller's promise.
    let high = unsafe { warp_shuffle_idx_32(mask, (value >> 32) as u32, lane) };
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(target_feature = "sm_80")]
collectives! {
    warp_reduce_add_32(value: u32) -> u32 = |mask| intrinsics::reduce_add(value, mask);
    warp_reduce_or_32(value: u32) -> u32 = |mask| intrinsics::reduce_or(value, mask);
}

#[cfg(not(target_feature = "sm_80"))]
pub unsafe fn warp_reduce_add_32(mask: LaneMask, value: u32) -> u32 {
    // SAFETY: every lane of the mask executes this call, by the caller's promise.
    unsafe { fold(mask, value, u32::wrapping_add) }
}

#[cfg(not(target_feature = "sm_80"))]
pub unsafe fn warp_reduce_or_32(mask: LaneMask, value: u32) -> u32 {
    // SAFETY: every lane of the mask executes this call, by the caller's promise.
    unsafe { fold(mask, value, |a, b| a | b) }
}

/// # Safety
/// Every lane of `mask` executes this call with the same mask, which each collective requires.
#[cfg(not(target_feature = "sm_80"))]
#[inline(always)]
unsafe fn fold(mask: LaneMask, value: u32, op: impl Fn(u32, u32) -> u32) -> u32 {
    let mut rest = mask.0;
    let mut result = 0;
    while rest != 0 {
        // SAFETY: every lane of the mask runs the same iterations.
        result = op(result, unsafe { warp_shuffle_idx_32(mask, value, rest.trailing_zeros()) });
        rest &= rest - 1;
    }
    result
}
