//! Every collective compared with its definition, on full and partial masks and partial warps.

use crate::support::{Words, grid, modes, run};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::units::LaneMask;
use warpheap_device::{thread, warp};

/// Number of results that each lane writes.
const RESULTS: u32 = 16;
/// Stands for "no lane found" in the results of `warp_shuffle_up_found_32`. Not a lane number.
const NONE: u32 = u32::MAX;

fn input32(lane: u32) -> u32 {
    lane * 7 % 5
}

fn input64(lane: u32) -> u64 {
    u64::from(lane % 3) << 40 | 1
}

/// The sum of two of these overflows 32 bits.
fn large(lane: u32) -> u32 {
    0xc000_0000 | (lane * 0x0001_0003)
}

/// The bits of no lane are a subset of those of another.
fn bits(lane: u32) -> u32 {
    1 << lane | 1 << ((lane * 7 + 3) % 32)
}

fn predicate(lane: u32) -> bool {
    lane % 3 == 1
}

/// A member of `mask`, chosen by `n`.
fn member(mask: LaneMask, n: u32) -> u32 {
    (0..32).filter(|&lane| mask.contains(lane)).nth((n % mask.count()) as usize).unwrap()
}

/// The source lane of a shuffle by a distance; the calling lane if `source` is `None` or not in
/// `mask`.
fn neighbour(mask: LaneMask, lane: u32, source: Option<u32>) -> u32 {
    source.filter(|&source| source < 32 && mask.contains(source)).unwrap_or(lane)
}

macro_rules! collective {
    ($name:ident($($arg:expr),*)) => {
        // SAFETY: every lane of the mask reaches this call with the same mask.
        unsafe { warp::$name($($arg),*) }
    };
}

kernel! {
    /// Calls every collective with `mask`, on the lanes of the mask.
    unsafe fn all_collectives(mask: u32, out: DeviceSlice<u32>) {
        let (mask, lane) = (LaneMask(mask), warp::lane_id());
        if !mask.contains(lane) {
            return;
        }
        // Shuffles by a distance need their source lanes in the mask, so they are tested on
        // contiguous masks.
        let whole = mask.0 & mask.0.wrapping_add(1) == 0;
        let (x, y, p) = (input32(lane), input64(lane), predicate(lane));
        let results = [
            collective!(warp_vote_ballot(mask, p)).0,
            collective!(warp_vote_all(mask, p)).into(),
            collective!(warp_vote_any(mask, p)).into(),
            collective!(warp_match_any_32(mask, x)).0,
            collective!(warp_match_any_64(mask, y)).0,
            collective!(warp_shuffle_idx_32(mask, x, member(mask, lane + 5))),
            collective!(warp_shuffle_idx_64(mask, y, member(mask, lane + 5))) as u32,
            if whole { collective!(warp_shuffle_up_32(mask, lane, 3)) } else { 0 },
            if mask == LaneMask::ALL { collective!(warp_shuffle_down_32(mask, lane, 3)) } else { 0 },
            if mask == LaneMask::ALL { collective!(warp_shuffle_xor_32(mask, lane, 9)) } else { 0 },
            collective!(warp_reduce_add_32(mask, x)),
            collective!(warp_reduce_add_32(mask, large(lane))),
            collective!(warp_reduce_or_32(mask, bits(lane))),
            if whole { collective!(warp_shuffle_up_found_32(mask, lane, 3)).unwrap_or(NONE) } else { 0 },
            { collective!(order_warp(mask)); 1 },
            { collective!(sync_warp(mask)); 1 },
        ];
        for (i, value) in (0u32..).zip(results) {
            // SAFETY: each thread has its own elements.
            unsafe { out.set((thread::index_1d() * RESULTS + i).into(), value) };
        }
    }
}

/// The results that `all_collectives` must write on `lane`.
fn expected(mask: LaneMask, lane: u32) -> [u32; RESULTS as usize] {
    if !mask.contains(lane) {
        return [0; RESULTS as usize];
    }
    let members = || (0..32).filter(|&l| mask.contains(l));
    let set = |holds: &dyn Fn(u32) -> bool| members().filter(|&l| holds(l)).fold(0, |s, l| s | 1u32 << l);
    let whole = mask.0 & mask.0.wrapping_add(1) == 0;
    let full = mask == LaneMask::ALL;
    let partner = member(mask, lane + 5);
    [
        set(&predicate),
        members().all(predicate).into(),
        members().any(predicate).into(),
        set(&|l| input32(l) == input32(lane)),
        set(&|l| input64(l) == input64(lane)),
        input32(partner),
        input64(partner) as u32,
        if whole { neighbour(mask, lane, lane.checked_sub(3)) } else { 0 },
        if full { neighbour(mask, lane, Some(lane + 3)) } else { 0 },
        if full { lane ^ 9 } else { 0 },
        members().map(input32).sum(),
        members().map(large).fold(0, u32::wrapping_add),
        members().map(bits).fold(0, |all, bits| all | bits),
        if whole { lane.checked_sub(3).unwrap_or(NONE) } else { 0 },
        1,
        1,
    ]
}

/// Runs blocks of `threads` threads. All warps use `mask`, reduced to the existing lanes in the
/// last warp.
fn check(threads: u32, mask: u32) {
    for mode in modes() {
        let out = Words::zeroed((threads * 3 * RESULTS) as usize);
        run(all_collectives, mode, grid(3, threads), (mask, out.slice())).unwrap();
        let values = out.values();
        for (thread, found) in (0u32..).zip(values.chunks(RESULTS as usize)) {
            let lane = thread % threads % 32;
            assert_eq!(found, expected(LaneMask(mask), lane), "{mode:?}, mask {mask:#x}, thread {thread}");
        }
    }
}

#[test]
fn full_warps_meet() {
    check(64, u32::MAX);
}

#[test]
fn parts_of_a_warp_meet() {
    for mask in [1, 1 << 31, 0xffff, 0xaaaa_aaaa, 0x8000_0001, 0x7fff_ffff] {
        check(32, mask);
    }
}

#[test]
fn partial_warps_meet() {
    for threads in [1, 2, 5, 31] {
        check(threads, (1 << threads) - 1);
    }
}

kernel! {
    /// The two halves of the warp run separate collectives repeatedly, of different lengths.
    unsafe fn halves(out: DeviceSlice<u32>) {
        let lane = warp::lane_id();
        let mask = LaneMask(if lane < 16 { 0xffff } else { 0xffff_0000 });
        let mut sum = 0;
        for round in 0..if lane < 16 { 50 } else { 80 } {
            // SAFETY: all lanes of each half execute this the same number of times.
            sum += unsafe { warp::warp_shuffle_idx_32(mask, lane * round, (lane & 16) + round % 16) };
        }
        // SAFETY: each thread has its own element.
        unsafe { out.set(thread::index_1d().into(), sum) };
    }
}

#[test]
fn halves_do_not_disturb_each_other() {
    for mode in modes() {
        let out = Words::zeroed(64);
        run(halves, mode, grid(2, 32), (out.slice(),)).unwrap();
        for (thread, sum) in (0u32..).zip(out.values()) {
            let lane = thread % 32;
            let rounds = if lane < 16 { 0..50 } else { 0..80u32 };
            let expected: u32 = rounds.map(|round| ((lane & 16) + round % 16) * round).sum();
            assert_eq!(sum, expected, "{mode:?}, thread {thread}");
        }
    }
}
