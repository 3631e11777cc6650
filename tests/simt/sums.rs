//! Sums over lanes compared with a serial sum: with the instruction that reduces over a mask, and
//! without it, as in kernels for GPUs before sm_80.

use crate::support::{Words, grid, modes, run};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::lane_sums::{Sums, sums};
use warpheap_device::thread;
use warpheap_device::units::LaneMask;

/// Ways to sum: with and without the instruction, each for any set of lanes and for a full warp.
const WAYS: usize = 4;
/// Words that a lane writes per way.
const WORDS: usize = 5;

/// The input of one warp.
struct Case {
    mask: u32,
    /// Values with a total over the mask that fits 32 bits.
    values: [u32; 32],
    /// Arbitrary words.
    any: [u32; 32],
}

fn words(sums: Sums) -> [u32; WORDS] {
    [sums.before, sums.total, sums.early_total, sums.wrapping, sums.union]
}

kernel! {
    /// Warp i sums over mask i the values from 32 i on, in every way.
    unsafe fn sum_every_way(
        masks: DeviceSlice<u32>,
        values: DeviceSlice<u32>,
        any: DeviceSlice<u32>,
        out: DeviceSlice<u32>,
    ) {
        let i = u64::from(thread::index_1d());
        // SAFETY: no thread writes to the masks.
        let mask = LaneMask(unsafe { masks.get(i / 32) }.unwrap());
        if !mask.contains((i % 32) as u32) {
            return;
        }
        // SAFETY: no thread writes to the values.
        let value = unsafe { values.get(i) }.unwrap();
        // SAFETY: no thread writes to these words.
        let any = unsafe { any.get(i) }.unwrap();
        let mut found = [[0; WORDS]; WAYS];
        // SAFETY: every lane of the mask reaches this call with the same mask.
        found[0] = words(unsafe { sums::<true, false>(mask, value, any) });
        // SAFETY: every lane of the mask reaches this call with the same mask.
        found[1] = words(unsafe { sums::<false, false>(mask, value, any) });
        if mask == LaneMask::ALL {
            // SAFETY: every lane of the mask, which is a full warp, reaches this call.
            found[2] = words(unsafe { sums::<true, true>(mask, value, any) });
            // SAFETY: every lane of the mask, which is a full warp, reaches this call.
            found[3] = words(unsafe { sums::<false, true>(mask, value, any) });
        }
        for (place, word) in (i * (WAYS * WORDS) as u64..).zip(found.into_iter().flatten()) {
            // SAFETY: each thread has its own elements.
            unsafe { out.set(place, word) };
        }
    }
}

/// The result of `lane`, computed by serial addition over the lanes.
fn expected(case: &Case, lane: usize) -> [u32; WORDS] {
    let members = || (0..32).filter(|lane| case.mask >> lane & 1 == 1);
    let before = members().filter(|other| *other < lane).map(|other| case.values[other]).sum();
    let total = members().map(|other| case.values[other]).sum();
    let wrapping = members().fold(0, |sum: u32, other| sum.wrapping_add(case.any[other]));
    let union = members().fold(0, |bits, other| bits | case.any[other]);
    [before, total, total, wrapping, union]
}

/// Cases with every kind of value over `mask`.
fn cases(mask: u32, random: &mut Pcg64Mcg) -> Vec<Case> {
    let one = random.next_u32() >> 5;
    let chosen = random.next_u32() % 32;
    let mut large = [0; 32];
    large[chosen as usize] = u32::MAX;
    let mut any = || std::array::from_fn(|_| random.next_u32());
    let uneven = any().map(|word: u32| word >> 5);
    let mut almost_equal = [one; 32];
    almost_equal[chosen as usize] ^= 1;
    [[one; 32], [0; 32], uneven, almost_equal, large]
        .map(|values| Case { mask, values, any: any() })
        .into_iter()
        .chain([Case { mask, values: [one; 32], any: [one; 32] }])
        .collect()
}

/// Full warps, every single lane, two lanes, runs of lanes, and random lanes.
fn all_cases() -> Vec<Case> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut masks = vec![u32::MAX, 0x7fff_ffff, 0xaaaa_aaaa, 0x8000_0001, 0xffff, 0xffff_0000];
    masks.extend((0..32).map(|lane| 1 << lane));
    for _ in 0..20 {
        let (word, other) = (random.next_u32(), random.next_u32());
        masks.extend([word, word & other, word | other, 1 << (word % 32) | 1 << (other % 32)]);
    }
    masks.into_iter().filter(|mask| *mask != 0).flat_map(|mask| cases(mask, &mut random)).collect()
}

#[test]
fn sums_over_lanes_are_serial_sums_with_and_without_reductions() {
    let cases = all_cases();
    let masks = Words::of(cases.iter().map(|case| case.mask));
    let values = Words::of(cases.iter().flat_map(|case| case.values));
    let any = Words::of(cases.iter().flat_map(|case| case.any));
    for mode in modes().take(3) {
        let out = Words::zeroed(cases.len() * 32 * WAYS * WORDS);
        let args = (masks.slice(), values.slice(), any.slice(), out.slice());
        run(sum_every_way, mode, grid(cases.len() as u32, 32), args).unwrap();
        for (warp, (case, found)) in cases.iter().zip(out.values().chunks(32 * WAYS * WORDS)).enumerate() {
            let lanes = found.chunks(WAYS * WORDS).enumerate();
            for (lane, found) in lanes.filter(|(lane, _)| case.mask >> lane & 1 == 1) {
                let expected = expected(case, lane);
                let ways = if case.mask == u32::MAX { WAYS } else { WAYS / 2 };
                for (way, found) in found.chunks(WORDS).take(ways).enumerate() {
                    let mask = case.mask;
                    assert_eq!(
                        found, expected,
                        "{mode:?}, warp {warp}, mask {mask:#x}, lane {lane}, way {way}"
                    );
                }
            }
        }
    }
}
