//! Fills and turns: the costs of a heap over its load.

use super::places::{self, Block, Places, check_apart, fits};
use crate::Result;
use crate::bench::load::Pool;
use crate::bench::results::{Fill, HeapLoad, Turn, percent};
use crate::bench::suite::extent::LoadExtent;
use crate::bench::timing::Timer;
use crate::kernels::bench::{Draw, Stripe, bench_load_fill, bench_load_turn};
use crate::summary::Spread;
use std::iter::repeat_with;
use warpheap::device_pools::Heap;
use warpheap_device::kernel::Kernel;

/// Rounds of the floor.
const FLOORS: u32 = 8;

/// Measures `heap` with blocks of these sizes at a load of `share` percent. The heap is reset
/// before.
pub(super) fn measure(
    timer: &Timer,
    extent: &LoadExtent,
    heap: &mut Heap,
    sizes: Draw,
    share: u32,
    name: &str,
) -> Result<HeapLoad> {
    measure_with(timer, extent, heap, sizes, share, name, (bench_load_fill, bench_load_turn))
}

/// As [`measure`], with these kernels.
pub(super) fn measure_with<F, T>(
    timer: &Timer,
    extent: &LoadExtent,
    heap: &mut Heap,
    sizes: Draw,
    share: u32,
    name: &str,
    (fill_kernel, turn_kernel): (F, T),
) -> Result<HeapLoad>
where
    F: Kernel<Args = places::Args> + Copy,
    T: Kernel<Args = places::Args> + Copy,
{
    heap.reset()?;
    let (heap, fits) = (&*heap, fits(heap.capacity(), sizes));
    let contended_before = heap.stats()?.contended_failures;
    let count = (fits * u64::from(share) / 100).max(1);
    let places = Places::new(name, timer, heap, count, extent.threads)?;
    let fill = fill(&places, extent.threads, sizes, fill_kernel)?;
    let stripes = Vec::from_iter(stripes(&places, extent.threads).take((extent.turns + FLOORS) as usize));
    let (turns, floors) = stripes.split_at(extent.turns as usize);
    let turn = turn(&places, turns, sizes, turn_kernel)?;
    check_apart(name, heap, blocks_after(&places, turns, sizes)?)?;
    heap.check_freed(name)?;
    let contended = heap.stats()?.contended_failures.wrapping_sub(contended_before);
    let floors = floors.iter().map(|stripe| places.floor(*stripe)).collect::<Result<Vec<_>>>()?;
    let floor_ns = Spread::of(floors).median;
    let (heap_bytes, threads) = (heap.capacity(), extent.threads);
    let Draw { min: min_bytes, max: max_bytes, .. } = sizes;
    Ok(HeapLoad {
        heap_bytes,
        min_bytes,
        max_bytes,
        percent: share,
        fits,
        threads,
        fill,
        turn,
        contended,
        floor_ns,
    })
}

/// Allocates the blocks of all places.
fn fill<K>(places: &Places<'_>, threads: u32, sizes: Draw, kernel: K) -> Result<Fill>
where
    K: Kernel<Args = places::Args> + Copy,
{
    let (mut nanos, mut fill) = (0.0, Fill::default());
    let total = places.count();
    for first in (0..total).step_by(threads as usize) {
        let stripe = Stripe { first, step: 1, total, threads: threads.min(total - first) };
        // SAFETY: the places exist and have no blocks.
        let (each, counts) = unsafe { places.launch(kernel, stripe, sizes) }?;
        if first == 0 {
            fill.first_ns = each;
        }
        nanos += each * f64::from(stripe.threads);
        fill.requests += counts.granted + counts.failed;
        fill.failed += counts.failed;
    }
    let failed_percent = percent(fill.failed, fill.requests);
    Ok(Fill { mean_ns: nanos / fill.requests as f64, failed_percent, ..fill })
}

/// The stripes of consecutive kernels: each begins after the last place of the one before, so that
/// all places are used equally often. The places of adjacent threads are far apart.
fn stripes(places: &Places<'_>, threads: u32) -> impl Iterator<Item = Stripe> + use<> {
    let total = places.count();
    let threads = threads.min(total);
    let step = coprime(total);
    let mut next = Stripe { first: 0, step, total, threads };
    repeat_with(move || {
        let stripe = next;
        next.first = stripe.place(threads);
        stripe
    })
}

/// The least number from 7919 on without a common divisor with `total`.
fn coprime(total: u32) -> u32 {
    let divisor = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (7919..).find(|step| divisor(*step, total) == 1).unwrap_or(1)
}

/// The sizes of turn `k`.
fn drawn(sizes: Draw, k: usize) -> Draw {
    Draw { seed: sizes.seed + 1 + k as u32, ..sizes }
}

/// Exchanges blocks: one turn for each stripe.
fn turn<K>(places: &Places<'_>, stripes: &[Stripe], sizes: Draw, kernel: K) -> Result<Turn>
where
    K: Kernel<Args = places::Args> + Copy,
{
    let (mut times, mut turn) = (Vec::new(), Turn::default());
    for (k, stripe) in stripes.iter().enumerate() {
        // SAFETY: the places exist, and their blocks are live or null.
        let (each, counts) = unsafe { places.launch(kernel, *stripe, drawn(sizes, k)) }?;
        times.push(each);
        turn.requests += counts.granted + counts.failed;
        turn.failed += counts.failed;
    }
    let (first_ns, spread) = (times[0], Spread::of(times));
    Ok(Turn {
        turns: stripes.len() as u32,
        first_ns,
        median_ns: spread.median,
        min_ns: spread.min,
        worst_ns: spread.max,
        failed_percent: percent(turn.failed, turn.requests),
        ..turn
    })
}

/// The live blocks after these turns, with their sizes.
fn blocks_after(places: &Places<'_>, stripes: &[Stripe], sizes: Draw) -> Result<Vec<Block>> {
    if sizes.min == sizes.max {
        return places.blocks(|_| sizes.min);
    }
    let mut held: Vec<u32> = (0..places.count()).map(|place| sizes.of(place)).collect();
    for (k, stripe) in stripes.iter().enumerate() {
        for place in (0..stripe.threads).map(|i| stripe.place(i)) {
            held[place as usize] = drawn(sizes, k).of(place);
        }
    }
    places.blocks(|place| held[place as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_stripes_use_all_places_equally_often() {
        for total in [1, 2, 3, 7919, 7920, 15838] {
            let step = coprime(total);
            let stripe = Stripe { first: total / 2, step, total, threads: total };
            let mut places: Vec<u32> = (0..total).map(|i| stripe.place(i)).collect();
            places.sort_unstable();
            assert_eq!(places, Vec::from_iter(0..total), "step {step} of {total}");
        }
        assert_eq!([coprime(1 << 20), coprime(7919)], [7919, 7920]);
    }

    #[test]
    fn sizes_are_multiples_of_16_of_the_whole_range() {
        let draw = Draw { min: 16, max: 64, seed: 3 };
        let mut counts = [0; 5];
        (0..4000).for_each(|place| {
            assert!(draw.of(place).is_multiple_of(16));
            counts[draw.of(place) as usize / 16] += 1;
        });
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        assert!((0..100).any(|place| draw.of(place) != drawn(draw, 0).of(place)), "turns draw anew");
    }
}
