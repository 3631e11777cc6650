//! The collectives on the host: each lane brings a word, gets everyone's, and reads its answer off them.

use crate::machine::{self, Collective, Deposits};
use crate::units::{LaneMask, WARP_SIZE};
use core::panic::Location;

#[inline]
pub fn lane_id() -> u32 {
    machine::with(|m| m.lane())
}

#[inline]
#[track_caller]
pub fn activemask() -> LaneMask {
    let at = Location::caller();
    machine::with(|m| m.converged(at))
}

#[inline]
#[track_caller]
fn exchange(mask: LaneMask, what: Collective, value: u64) -> Deposits {
    let at = Location::caller();
    machine::with(|m| m.exchange(mask, what, value, at))
}

/// The lanes of `mask` whose deposit is `value`. Without a branch, so that it becomes vector code.
fn lanes_with(mask: LaneMask, all: &Deposits, value: u64) -> LaneMask {
    let holds = |bits, (lane, deposit): (u32, &u64)| bits | u32::from(*deposit == value) << lane;
    LaneMask((0..WARP_SIZE).zip(all).fold(0, holds) & mask.0)
}

#[inline]
#[track_caller]
pub unsafe fn sync_warp(mask: LaneMask) {
    exchange(mask, Collective::Sync, 0);
}

#[inline(always)]
pub unsafe fn order_warp(_: LaneMask) {}

#[inline]
#[track_caller]
pub unsafe fn warp_vote_ballot(mask: LaneMask, predicate: bool) -> LaneMask {
    lanes_with(mask, &exchange(mask, Collective::Vote, predicate.into()), 1)
}

#[inline]
#[track_caller]
pub unsafe fn warp_vote_all(mask: LaneMask, predicate: bool) -> bool {
    lanes_with(mask, &exchange(mask, Collective::Vote, predicate.into()), 1) == mask
}

#[inline]
#[track_caller]
pub unsafe fn warp_vote_any(mask: LaneMask, predicate: bool) -> bool {
    !lanes_with(mask, &exchange(mask, Collective::Vote, predicate.into()), 1).is_empty()
}

#[inline]
#[track_caller]
pub unsafe fn warp_match_any_64(mask: LaneMask, value: u64) -> LaneMask {
    lanes_with(mask, &exchange(mask, Collective::Match, value), value)
}

#[inline]
#[track_caller]
pub unsafe fn warp_match_any_32(mask: LaneMask, value: u32) -> LaneMask {
    lanes_with(mask, &exchange(mask, Collective::Match, value.into()), value.into())
}

/// The deposit of `source`; the caller's own where the warp has no such lane.
#[inline]
#[track_caller]
fn shuffle(mask: LaneMask, value: u64, source: Option<u32>) -> u64 {
    let all = exchange(mask, Collective::Shuffle, value);
    match source {
        Some(lane) if lane < WARP_SIZE => {
            assert!(
                mask.contains(lane),
                "{}: a shuffle reads lane {lane}, which is not in its mask {:#010x}",
                Location::caller(),
                mask.0
            );
            all[lane as usize]
        }
        _ => value,
    }
}

#[inline]
#[track_caller]
pub unsafe fn warp_shuffle_idx_64(mask: LaneMask, value: u64, lane: u32) -> u64 {
    shuffle(mask, value, Some(lane % WARP_SIZE))
}

#[inline]
#[track_caller]
pub unsafe fn warp_shuffle_idx_32(mask: LaneMask, value: u32, lane: u32) -> u32 {
    shuffle(mask, value.into(), Some(lane % WARP_SIZE)) as u32
}

#[inline]
#[track_caller]
pub unsafe fn warp_shuffle_up_32(mask: LaneMask, value: u32, delta: u32) -> u32 {
    shuffle(mask, value.into(), lane_id().checked_sub(delta)) as u32
}

#[inline]
#[track_caller]
pub unsafe fn warp_shuffle_up_found_32(mask: LaneMask, value: u32, delta: u32) -> Option<u32> {
    let source = lane_id().checked_sub(delta);
    let below = shuffle(mask, value.into(), source) as u32;
    source.map(|_| below)
}

#[inline]
#[track_caller]
pub unsafe fn warp_shuffle_down_32(mask: LaneMask, value: u32, delta: u32) -> u32 {
    shuffle(mask, value.into(), lane_id().checked_add(delta)) as u32
}

#[inline]
#[track_caller]
pub unsafe fn warp_shuffle_xor_32(mask: LaneMask, value: u32, lanes: u32) -> u32 {
    shuffle(mask, value.into(), Some((lane_id() ^ lanes) % WARP_SIZE)) as u32
}

#[track_caller]
pub unsafe fn warp_reduce_add_32(mask: LaneMask, value: u32) -> u32 {
    fold(mask, value, u32::wrapping_add)
}

#[track_caller]
pub unsafe fn warp_reduce_or_32(mask: LaneMask, value: u32) -> u32 {
    fold(mask, value, |a, b| a | b)
}

#[track_caller]
fn fold(mask: LaneMask, value: u32, op: impl Fn(u32, u32) -> u32) -> u32 {
    let all = exchange(mask, Collective::Reduce, value.into());
    (0..WARP_SIZE)
        .zip(&all)
        .filter(|(lane, _)| mask.contains(*lane))
        .fold(0, |sum, (_, v)| op(sum, *v as u32))
}
