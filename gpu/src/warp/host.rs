//! The collectives on the host: each lane deposits a word, gets all lanes' words, and computes its
//! result from them.

use crate::machine::{self, Collective, Deposits};
use crate::units::{LaneMask, WARP_SIZE};
use core::panic::Location;

#[inline]
pub fn lane_id() -> u32 {
    machine::at(|c| c.lane)
}

#[inline]
#[track_caller]
pub fn activemask() -> LaneMask {
    let at = Location::caller();
    // SAFETY: the call of this function, with the location of its caller.
    unsafe { machine::with(|m| m.converged(at)) }
}

/// The result of `together` for the words of all lanes of `mask`, or of `alone` if the lane is the
/// only one. `together` must call no collective and no atomic, and must not query its coordinates.
/// Only collectives call this, and their callers keep the requirements of collectives.
#[inline]
#[track_caller]
fn exchange<R>(
    mask: LaneMask,
    what: Collective,
    value: u64,
    alone: impl FnOnce() -> R,
    together: impl FnOnce(&Deposits) -> R,
) -> R {
    let at = Location::caller();
    // SAFETY: a collective calls this, and its requirements hold.
    match unsafe { machine::with(|m| m.exchange(mask, what, value, at)) } {
        // SAFETY: valid until this lane calls the machine again (`Machine`), which `together` does
        // not do.
        Some(all) => together(unsafe { all.as_ref() }),
        None => alone(),
    }
}

/// The lanes of `mask` that hold `value`. Branch-free, so that it compiles to vector code.
fn lanes_with(mask: LaneMask, all: &Deposits, value: u64) -> LaneMask {
    let holds = |bits, (lane, word): (u32, &u64)| bits | u32::from(*word == value) << lane;
    LaneMask((0..WARP_SIZE).zip(&all.words).fold(0, holds) & mask.0)
}

/// The word of lane `source`; the caller's own if the warp has no such lane.
#[inline]
#[track_caller]
fn shuffle(mask: LaneMask, value: u64, source: Option<u32>) -> u64 {
    let at = Location::caller();
    let source = source.filter(|lane| *lane < WARP_SIZE);
    let check = |lane| {
        let absent = "which is not in its mask";
        assert!(mask.contains(lane), "{at}: a shuffle reads lane {lane}, {absent} {:#010x}", mask.0);
    };
    let alone = || {
        source.into_iter().for_each(check);
        value
    };
    exchange(mask, Collective::Shuffle, value, alone, |all| {
        source.map_or(value, |lane| {
            check(lane);
            all.words[lane as usize]
        })
    })
}

fn sum_over(mask: LaneMask, all: &Deposits) -> u32 {
    let lanes = (0..WARP_SIZE).zip(&all.words).filter(|(lane, _)| mask.contains(*lane));
    lanes.fold(0, |sum: u32, (_, word)| sum.wrapping_add(*word as u32))
}

#[inline(always)]
pub unsafe fn order_warp(_: LaneMask) {
    #[cfg(all(test, not(loom)))]
    crate::test_lanes::order_lane();
}

macro_rules! collectives {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = |$mask:ident| $body:expr;)+) => {$(
        #[inline]
        #[track_caller]
        pub unsafe fn $name($mask: LaneMask, $($arg: $ty),*) -> $out {
            $body
        }
    )+};
}

collectives! {
    sync_warp() -> () = |mask| exchange(mask, Collective::Sync, 0, || (), |_| ());
    warp_vote_ballot(predicate: bool) -> LaneMask = |mask| {
        let alone = || if predicate { mask } else { LaneMask(0) };
        exchange(mask, Collective::Vote, predicate.into(), alone, |all| all.nonzero)
    };
    warp_vote_all(predicate: bool) -> bool = |mask|
        exchange(mask, Collective::Vote, predicate.into(), || predicate, |all| all.nonzero == mask);
    warp_vote_any(predicate: bool) -> bool = |mask|
        exchange(mask, Collective::Vote, predicate.into(), || predicate, |all| !all.nonzero.is_empty());
    warp_match_any_64(value: u64) -> LaneMask = |mask|
        exchange(mask, Collective::Match, value, || mask, |all| lanes_with(mask, all, value));
    warp_match_any_32(value: u32) -> LaneMask = |mask| {
        let value = value.into();
        exchange(mask, Collective::Match, value, || mask, |all| lanes_with(mask, all, value))
    };
    warp_shuffle_idx_64(value: u64, lane: u32) -> u64 = |mask| shuffle(mask, value, Some(lane % WARP_SIZE));
    warp_shuffle_idx_32(value: u32, lane: u32) -> u32 = |mask|
        shuffle(mask, value.into(), Some(lane % WARP_SIZE)) as u32;
    warp_shuffle_up_32(value: u32, delta: u32) -> u32 = |mask|
        shuffle(mask, value.into(), lane_id().checked_sub(delta)) as u32;
    warp_shuffle_up_found_32(value: u32, delta: u32) -> Option<u32> = |mask| {
        let source = lane_id().checked_sub(delta);
        let below = shuffle(mask, value.into(), source) as u32;
        source.map(|_| below)
    };
    warp_shuffle_down_32(value: u32, delta: u32) -> u32 = |mask|
        shuffle(mask, value.into(), lane_id().checked_add(delta)) as u32;
    warp_shuffle_xor_32(value: u32, lanes: u32) -> u32 = |mask|
        shuffle(mask, value.into(), Some((lane_id() ^ lanes) % WARP_SIZE)) as u32;
    warp_reduce_add_32(value: u32) -> u32 = |mask|
        exchange(mask, Collective::ReduceAdd, value.into(), || value, |all| sum_over(mask, all));
    warp_reduce_or_32(value: u32) -> u32 = |mask|
        exchange(mask, Collective::ReduceOr, value.into(), || value, |all| all.union as u32);
}
