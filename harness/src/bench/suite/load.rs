//! The costs of a heap over its load: fills of a new heap, and turns, in which each thread
//! exchanges one of the live blocks.
//!
//! [`Places`] are the blocks of a heap, with their checks.

use super::extent::LoadExtent;
use super::{Fill, HeapLoad, Setup, Turn};
use crate::bench::engine::{Bench, GIB, Run, Subject};
use crate::bench::results::percent;
use crate::kernels::bench::{
    Draw, LOAD_FAILED, LOAD_GRANTED, Stripe, bench_heap_free_sparse, bench_load_fill, bench_load_turn,
    bench_load_turn_floor,
};
use crate::summary::Spread;
use crate::{Error, Result};
use rayon::prelude::*;
use std::iter::repeat_with;
use warpheap::device_pools::Heap;
use warpheap::driver::DeviceBuffer;
use warpheap::kernel_names;
use warpheap_device::heap::{self, class::SizeClass};
use warpheap_device::kernel::{Arg, DeviceSlice, Kernel};

/// The kernels that are launched, also by drifts.
pub(super) const LAUNCHED: [&str; 4] =
    kernel_names![bench_heap_free_sparse, bench_load_fill, bench_load_turn, bench_load_turn_floor];

/// The smallest and the largest size of blocks.
const SIZES: [(u32, u32); 3] = [(64, 64), (16, 512), (16, 4096)];
/// Rounds of the floor.
const FLOORS: u32 = 8;

/// The largest heap that is measured over its load: its places have numbers of 32 bits.
pub const MOST_HEAP_BYTES: u64 = 128 * GIB;

/// A heap of `bytes`. `None` if it is left out.
pub(super) fn heap(setup: &Setup<'_>, bytes: u64, run: &mut Run<'_>) -> Result<Option<Heap>> {
    let what = format!("load in {}", binary(bytes));
    if bytes > MOST_HEAP_BYTES {
        run.left_out.push(format!("{what}: it has more places than {}", u32::MAX));
        return Ok(None);
    }
    run.keep(&what, setup.bench.heap(bytes).map_err(Error::from))
}

/// `256 MiB`, `16 GiB`.
pub(super) fn binary(bytes: u64) -> String {
    let is_whole = bytes.is_multiple_of(GIB);
    if is_whole { format!("{} GiB", bytes / GIB) } else { format!("{} MiB", bytes >> 20) }
}

/// Measures fills and turns of all sizes at all loads.
pub(super) fn measure_all(setup: &Setup<'_>, heap: &mut Heap, run: &mut Run<'_>) -> Result<Vec<HeapLoad>> {
    let (extent, mut all) = (&setup.extent.load, Vec::new());
    let kernels = (bench_load_fill, bench_load_turn);
    for (min, max) in SIZES {
        let sizes = Draw { min, max, seed: 0 };
        let range = if min == max { format!("{min} B") } else { format!("{min}-{max} B") };
        // The driver loads kernels when they are launched first, so nothing of this is kept.
        let warm_up = LoadExtent { turns: 1, ..extent.clone() };
        let name = format!("load, {range}, warm-up");
        let measured = measure(setup.bench, &warm_up, heap, sizes, 1, &name, kernels);
        if run.keep(&name, measured)?.is_none() {
            continue;
        }
        for percent in &extent.percents {
            let name = format!("load, {range} in {}, {percent} %", binary(heap.capacity()));
            if run.is_over(&format!("{name}, and more")) {
                return Ok(all);
            }
            let load = || measure(setup.bench, extent, heap, sizes, *percent, &name, kernels);
            all.extend(run.measure(&name, load)?);
        }
    }
    Ok(all)
}

/// Measures `heap` with blocks of these sizes at a load of `share` percent. The heap is reset
/// before.
pub(super) fn measure<F, T>(
    bench: &Bench,
    extent: &LoadExtent,
    heap: &mut Heap,
    sizes: Draw,
    share: u32,
    name: &str,
    (fill_kernel, turn_kernel): (F, T),
) -> Result<HeapLoad>
where
    F: Kernel<Args = Args> + Copy,
    T: Kernel<Args = Args> + Copy,
{
    heap.reset()?;
    let (heap, fits) = (&*heap, fits(heap.capacity(), sizes));
    let contended_before = heap.stats()?.contended_failures;
    let count = (fits * u64::from(share) / 100).max(1);
    let places = Places::new(name, bench, heap, count, extent.threads)?;
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
    K: Kernel<Args = Args> + Copy,
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
    K: Kernel<Args = Args> + Copy,
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

/// The arguments of kernels that allocate.
pub(super) type Args = (Arg<heap::Heap>, DeviceSlice<u64>, DeviceSlice<u8>, Stripe, Draw);

/// Bytes of the block that holds `bytes`.
pub(super) fn class_bytes(bytes: u32) -> u64 {
    SizeClass::of(bytes).bytes().into()
}

/// The number of blocks of these sizes that fit into `bytes`: these over the mean block.
pub(super) fn fits(bytes: u64, sizes: Draw) -> u64 {
    let (mut sum, mut count) = (0, 0);
    for size in (sizes.min..=sizes.max).step_by(16) {
        (sum, count) = (sum + class_bytes(size), count + 1);
    }
    bytes * count / sum
}

/// What the threads of a kernel got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub granted: u64,
    pub failed: u64,
}

/// Places for the blocks of a heap.
pub(super) struct Places<'a> {
    pub name: &'a str,
    bench: &'a Bench,
    heap: &'a Heap,
    slots: DeviceBuffer<u64>,
    results: DeviceBuffer<u8>,
}

impl<'a> Places<'a> {
    /// `count` places without blocks, for kernels of at most `threads`.
    pub fn new(name: &'a str, bench: &'a Bench, heap: &'a Heap, count: u64, threads: u32) -> Result<Self> {
        let (slots, results) = (bench.device.zeroed(count as usize)?, bench.device.zeroed(threads as usize)?);
        Ok(Places { name, bench, heap, slots, results })
    }

    pub fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Launches a kernel that allocates, and returns its time in nanoseconds per thread with what
    /// its threads got.
    ///
    /// # Safety
    /// The requirements of the kernel hold. It accesses no place after the last one.
    pub unsafe fn launch<K: Kernel<Args = Args>>(
        &self,
        kernel: K,
        stripe: Stripe,
        draw: Draw,
    ) -> Result<(f64, Counts)> {
        let args = (self.heap.handle(), self.slots.slice(), self.results.slice(), stripe, draw);
        // SAFETY: `launch` requires what the kernel requires.
        unsafe { self.run(kernel, stripe.threads, args) }
    }

    /// The floor of a turn of these threads, in nanoseconds per thread.
    pub fn floor(&self, stripe: Stripe) -> Result<f64> {
        let args = (self.slots.slice(), self.results.slice(), stripe);
        // SAFETY: the buffers are live, the entries are null or live blocks, and only this stream
        // uses them.
        Ok(unsafe { self.run(bench_load_turn_floor, stripe.threads, args) }?.0)
    }

    unsafe fn run<K: Kernel>(&self, kernel: K, threads: u32, args: K::Args) -> Result<(f64, Counts)> {
        let Bench { module, .. } = self.bench;
        // SAFETY: `run` requires what the kernel requires.
        let micros = self.bench.once(|| unsafe { self.bench.launch(module, kernel, threads, args) })?;
        Ok((micros * 1e3 / f64::from(threads), self.counts(threads)?))
    }

    /// The results of the first `threads` threads.
    fn counts(&self, threads: u32) -> Result<Counts> {
        let mut results = self.results.copy_to_vec()?;
        results.truncate(threads as usize);
        let count = |result: u8| results.iter().filter(|one| **one == result).count() as u64;
        let (granted, failed) = (count(LOAD_GRANTED), count(LOAD_FAILED));
        match u64::from(threads) - granted - failed {
            0 => Ok(Counts { granted, failed }),
            wrong => {
                let found = format!("{wrong} of {threads} blocks did not have the content that was written");
                Err(Error::wrong(self.name, found))
            }
        }
    }

    /// All live blocks by place, of the sizes that `size` returns.
    pub fn blocks(&self, size: impl Fn(u32) -> u32 + Sync) -> Result<Vec<Block>> {
        let (base, capacity) = (self.heap.memory().address(), self.heap.capacity());
        let addresses = self.slots.copy_to_vec()?;
        let block = |(place, address): (usize, &u64)| {
            let (offset, size) = (address.wrapping_sub(base), size(place as u32));
            if offset >= capacity {
                return Err(Error::wrong(self.name, format!("a block is at {address:#x}, outside the heap")));
            }
            Ok(Block::new(offset, size))
        };
        addresses.par_iter().enumerate().filter(|(_, address)| **address != 0).map(block).collect()
    }
}

/// Frees these blocks of a heap.
///
/// # Safety
/// The blocks are live, and nothing uses them.
pub(super) unsafe fn free(name: &str, bench: &Bench, heap: &Heap, blocks: &[Block]) -> Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    let base = heap.memory().address();
    let addresses: Vec<u64> = blocks.par_iter().map(|block| base + block.offset()).collect();
    let addresses = bench.device.from_slice(&addresses)?;
    let (threads, args) = (blocks.len() as u32, (heap.handle(), addresses.slice()));
    // SAFETY: the caller's promises; the heap and the buffer are live.
    unsafe { bench.launch(&bench.module, bench_heap_free_sparse, threads, args) }?;
    bench.device.synchronize()?;
    heap.check_freed(name).map(drop)
}

/// A live block: its offset in the heap and its requested size, in one word that sorts by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block(u64);

impl Block {
    const SIZE_BITS: u32 = 16;

    /// `size` is less than 2^16, and `offset` less than 2^48.
    pub fn new(offset: u64, size: u32) -> Block {
        debug_assert!(size >> Self::SIZE_BITS == 0 && offset >> (64 - Self::SIZE_BITS) == 0);
        Block(offset << Self::SIZE_BITS | u64::from(size))
    }

    pub fn offset(self) -> u64 {
        self.0 >> Self::SIZE_BITS
    }

    pub fn size(self) -> u32 {
        (self.0 & ((1 << Self::SIZE_BITS) - 1)) as u32
    }

    fn end(self) -> u64 {
        self.offset() + u64::from(self.size())
    }
}

/// Checks that the blocks lie in the heap and that no byte is in two of them.
pub(super) fn check_apart(name: &str, heap: &Heap, mut blocks: Vec<Block>) -> Result<()> {
    blocks.par_sort_unstable();
    let overlaps = blocks.par_windows(2).filter(|pair| pair[0].end() > pair[1].offset()).count();
    let is_inside = blocks.last().is_none_or(|last| last.end() <= heap.capacity());
    match (overlaps, is_inside) {
        (0, true) => Ok(()),
        (0, false) => Err(Error::wrong(name, "a block ends outside the heap".into())),
        _ => Err(Error::wrong(name, format!("{overlaps} of {} blocks overlap the next one", blocks.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap::driver::Device;

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

    #[test]
    fn fitting_blocks_are_a_share_of_the_bytes() {
        let one = |bytes| Draw { min: bytes, max: bytes, seed: 0 };
        assert_eq!(fits(1 << 20, one(64)), 1 << 14);
        // Of 144 B is the class of 160 B.
        assert_eq!(fits(1 << 20, one(144)), (1 << 20) / class_bytes(144));
        assert_eq!(fits(1 << 20, Draw { min: 16, max: 48, seed: 0 }), (1 << 20) * 3 / (16 + 32 + 48));
    }

    #[test]
    fn planted_overlaps_are_found() {
        let heap = Heap::builder(1 << 20).build(&Device::cpu()).unwrap();
        let check = |blocks: &[(u64, u32)]| {
            let blocks = blocks.iter().map(|(offset, size)| Block::new(*offset, *size)).collect();
            check_apart("x", &heap, blocks).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[(64, 64), (0, 64), (256, 16)]), Ok(()));
        let found = check(&[(64, 64), (0, 80), (64, 16)]).unwrap_err();
        assert!(found.ends_with("2 of 3 blocks overlap the next one"), "{found}");
        let found = check(&[((1 << 20) - 16, 32)]).unwrap_err();
        assert!(found.ends_with("a block ends outside the heap"), "{found}");
    }
}
