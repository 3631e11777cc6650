//! S6: blocks of any size, kept for the stream that freed them.

use super::{Demo, Stage};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use warpheap::alloc::{
    CachingPool, CachingPoolBuilder, DeviceAllocator, DriverMemory, Limit, PoolBox, PoolBuffer, Statistics,
};
use warpheap::{Bytes, Device, Error, Result, Stream, kernel_names};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_kernels::bench::bench_spin;
use warpheap_kernels::demo::{demo_count_others, demo_fill};

pub const DEMO: Demo = Demo {
    name: "S6",
    shows: "a pool of size classes serves what was freed at once, in order, to its end, and says what it lacks",
    launched: &kernel_names![demo_fill, demo_count_others, bench_spin],
    run,
};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const HOSTS: u64 = 8;
/// Of each host thread.
const OPERATIONS: u64 = 100_000;

type Block = DevicePtr<u8>;

fn run(stage: &mut Stage<'_>) -> Result<()> {
    roundings(stage)?;
    again(stage)?;
    pending(stage)?;
    handles(stage)?;
    settings(stage)?;
    fifth(stage)?;
    threads(stage)?;
    ladder(stage)?;
    hook(stage)?;
    pair(stage)
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).expect("a layout")
}

fn words(block: Block, bytes: usize) -> DeviceSlice<u32> {
    // SAFETY: a block has as many bytes, and a launch checks that they are live.
    unsafe { DeviceSlice::from_raw_parts(block.0.cast(), bytes as u64 / 4) }
}

fn give(pool: &dyn DeviceAllocator, stream: &Stream, block: Block, size: usize) -> Result<()> {
    // SAFETY: the demonstration uses no block after its free, but in work that the stream was given before.
    unsafe { pool.dealloc(block, layout(size), stream) }
}

fn roundings(stage: &mut Stage<'_>) -> Result<()> {
    let (pool, stream) = (CachingPool::builder().on(stage.device())?, stage.stream().clone());
    let (mib, two_gib) = (MIB as u64, 2 * GIB as u64);
    let above = two_gib + 1;
    for (bytes, class) in [(1, 512), (513, 1024), (mib + 1, 2 * mib), (two_gib, two_gib), (above, above)] {
        stage.check_is(format!("{} are rounded to", Bytes(bytes)), pool.rounded(bytes), class);
    }
    let finer = CachingPool::builder().classes_per_doubling(4).on(stage.device())?;
    for (bytes, class) in [(mib + 1, mib / 4 * 5), (5 << 10, 5 << 10)] {
        stage.check_is(format!("{} by four classes a doubling", Bytes(bytes)), finer.rounded(bytes), class);
    }
    let block = pool.alloc(layout(513), &stream)?;
    stage.check_is("wasted bytes of 513 B", pool.stats().wasted_bytes, 511);
    give(&pool, &stream, block, 513)?;
    stage.check_is("after the free", pool.stats().wasted_bytes, 0);
    Ok(())
}

fn again(stage: &mut Stage<'_>) -> Result<()> {
    let upstream = Statistics::new(DriverMemory::new(stage.device()));
    let (pool, stream) = (CachingPool::builder().over(upstream)?, stage.stream().clone());
    let first = pool.alloc(layout(MIB), &stream)?;
    give(&pool, &stream, first, MIB)?;
    let second = pool.alloc(layout(MIB), &stream)?;
    stage.check_is("1 MiB, freed and allocated again, is at the same address", second.0 == first.0, true);
    stage.check_is("allocations of the driver's for both", pool.upstream().stats().allocs, 1);
    give(&pool, &stream, second, MIB)
}

/// A block that was freed behind a kernel that runs.
fn pending(stage: &mut Stage<'_>) -> Result<()> {
    let size = 2 * MIB;
    let pool = CachingPool::builder().segment_bytes(size as u64).over(DriverMemory::new(stage.device()))?;
    let (first, second) = (stage.device().stream()?, stage.device().stream()?);
    let block = pool.alloc(layout(size), &first)?;
    stage.linger(&first)?;
    give(&pool, &first, block, size)?;
    let again = pool.alloc(layout(size), &first)?;
    let when = if first.is_done()? { "it had ended" } else { "it ran" };
    stage.check(
        "its own stream has it at once",
        format!("when it was allocated, {when}"),
        again.0 == block.0,
    );
    stage.linger(&first)?;
    give(&pool, &first, again, size)?;
    let other = pool.alloc(layout(size), &second)?;
    let (same, pending) = (other.0 == block.0, !first.is_done()?);
    let found = format!(
        "{} memory, and the kernel {}",
        if same { "the same" } else { "other" },
        if pending { "runs" } else { "is done" }
    );
    stage.check("another stream has it only after its event", found, !(same && pending));
    first.synchronize()?;
    let after = if same { other } else { pool.alloc(layout(size), &second)? };
    stage.check_is("and then, with no call to process anything, it has it", after.0 == block.0, true);
    if !same {
        give(&pool, &second, other, size)?;
    }
    give(&pool, &second, after, size)
}

fn handles(stage: &mut Stage<'_>) -> Result<()> {
    let (pool, len) = (CachingPool::builder().on(stage.device())?, MIB / 4);
    let (first, second) = (stage.device().stream()?, stage.device().stream()?);
    let buffer = PoolBuffer::<u32, _>::new_uninit(&pool, len, &first)?;
    let address = buffer.address();
    stage.linger(&second)?;
    // SAFETY: the buffer lives until the second stream is done, for that is recorded.
    unsafe { stage.fill(&second, buffer.slice_to_init(), 7) }?;
    buffer.record_stream(&second)?;
    drop(buffer);
    let when = if second.is_done()? { "it had ended" } else { "it ran" };
    let again = PoolBuffer::<u32, _>::new_uninit(&pool, len, &first)?;
    stage.check_is("a PoolBuffer's memory is its own stream's again", again.address() == address, true);
    // SAFETY: the first stream alone uses it.
    let others = unsafe { stage.others(&first, again.slice_to_init(), 7) }?;
    let found = format!("{others} words are from before; at its end {when}");
    stage.check("behind the kernel of a stream that was recorded", found, others == 0);
    drop(again);
    let value = PoolBox::new(&pool, 7_u32, &first)?;
    stage.check_is("the value of a PoolBox", value.get()?, 7);
    stage.check_is("blocks allocated for it", pool.stats().live_blocks, 1);
    drop(value);
    stage.check_is("and after its end", pool.stats().live_blocks, 0);
    Ok(())
}

fn settings(stage: &mut Stage<'_>) -> Result<()> {
    let builder: fn() -> CachingPoolBuilder = CachingPool::builder;
    let wrong = [
        ("a least block of 300 B", builder().min_block(300)),
        ("3 classes a doubling", builder().classes_per_doubling(3)),
        ("a maximum of 1 B", builder().max_bytes(1)),
        ("segments of 1000 B", builder().segment_bytes(1000)),
    ];
    for (what, builder) in wrong {
        let made = builder.over(DriverMemory::new(stage.device()));
        stage.check_refused(what, made, |error| matches!(error, Error::PoolConfig { .. }));
    }
    let pool = builder().stream_ordered(false).on(stage.device())?;
    let foreign = Device::cpu().stream()?;
    let elsewhere = pool.alloc(layout(MIB), &foreign);
    stage.check_refused("a stream of another device", elsewhere, |error| {
        matches!(error, Error::WrongDevice { .. })
    });
    let stream = stage.device().stream()?;
    let block = pool.alloc(layout(MIB), &stream)?;
    stage.linger(&stream)?;
    give(&pool, &stream, block, MIB)?;
    stage.check_is("without stream order, a free waits for its stream", stream.is_done()?, true);
    Ok(())
}

fn fifth(stage: &mut Stage<'_>) -> Result<()> {
    let size = if stage.is_cpu() { MIB } else { GIB };
    let (unit, all) = (Bytes(size as u64), Bytes(4 * size as u64));
    stage.say(format_args!(
        "blocks of {unit} in a pool of {all} (on a GPU 1 GiB in 4 GiB, on the CPU 1 MiB in 4 MiB)"
    ));
    let (pool, stream) =
        (CachingPool::builder().max_bytes(all.0).on(stage.device())?, stage.stream().clone());
    let blocks: Vec<_> = (0..4).map(|_| pool.alloc(layout(size), &stream)).collect::<Result<_>>()?;
    stage.check_is("blocks live", blocks.len(), 4);
    let more = pool.alloc(layout(size), &stream);
    stage.check_refused("the fifth", more, |error| match error {
        Error::AllocExhausted { requested, used, cached, largest, .. } => {
            (requested.0, used.0, cached.0, largest.0) == (unit.0, all.0, 0, 0)
        }
        _ => false,
    });
    blocks.into_iter().try_for_each(|block| give(&pool, &stream, block, size))
}

/// The blocks that threads have, by their starts, with their ends.
#[derive(Default)]
struct Owned(Mutex<BTreeMap<usize, usize>>);

impl Owned {
    /// Whether someone else has a part of it.
    fn add(&self, start: usize, size: usize) -> bool {
        let mut owned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = owned.range(..start + size).next_back().is_some_and(|(_, end)| *end > start);
        owned.insert(start, start + size);
        before
    }

    fn remove(&self, start: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }
}

fn threads(stage: &mut Stage<'_>) -> Result<()> {
    let (pool, owned) = (CachingPool::builder().on(stage.device())?, Owned::default());
    let work = |seed| operate(&pool, &owned, seed);
    let overlaps = thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS).map(|seed| scope.spawn(move || work(seed))).collect();
        let joined = hosts.into_iter().map(|host| host.join());
        joined
            .map(|host| host.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum::<Result<usize>>()
    })?;
    stage.check_is(format!("overlaps, 8 host threads with {OPERATIONS} random operations each"), overlaps, 0);
    let stats = pool.stats();
    stage.check_is("blocks and bytes in use afterwards", (stats.live_blocks, stats.used_bytes), (0, 0));
    Ok(())
}

/// Allocates and frees at random, up to 64 blocks of up to 256 KiB; how many overlap another.
fn operate(pool: &CachingPool<DriverMemory>, owned: &Owned, seed: u64) -> Result<usize> {
    let stream = pool.device().stream()?;
    let (mut rng, mut held, mut overlaps) = (Pcg64Mcg::seed_from_u64(seed), Vec::new(), 0);
    for _ in 0..OPERATIONS {
        let word = rng.next_u64() as usize;
        if held.is_empty() || held.len() < 64 && word & 1 == 0 {
            let size = 1 + (word >> 8) % (1 << (4 + (word >> 40) % 15));
            let block = pool.alloc(layout(size), &stream)?;
            overlaps += usize::from(owned.add(block.0.addr(), size));
            held.push((block, size));
        } else {
            let (block, size) = held.swap_remove((word >> 8) % held.len());
            owned.remove(block.0.addr());
            give(pool, &stream, block, size)?;
        }
    }
    for (block, size) in held {
        owned.remove(block.0.addr());
        give(pool, &stream, block, size)?;
    }
    Ok(overlaps)
}

/// An upstream of two segments: pending frees, then cached segments, then the error.
fn ladder(stage: &mut Stage<'_>) -> Result<()> {
    let size = 2 * MIB;
    let upstream = Limit::new(DriverMemory::new(stage.device()), 2 * size as u64);
    let pool = CachingPool::builder().segment_bytes(size as u64).over(upstream)?;
    let (first, second) = (stage.device().stream()?, stage.device().stream()?);
    let (one, two) = (pool.alloc(layout(size), &first)?, pool.alloc(layout(size), &first)?);
    stage.linger(&first)?;
    // SAFETY: the block is live, and that stream alone uses it until the free.
    unsafe { stage.fill(&first, words(one, size), 9) }?;
    give(&pool, &first, one, size)?;
    let next = pool.alloc(layout(size), &second)?;
    // SAFETY: the block is the second stream's now.
    let others = unsafe { stage.others(&second, words(next, size), 9) }?;
    stage.check_is(
        "no memory upstream: a pending free serves another stream, which waits; words from before",
        others,
        0,
    );
    let rungs = pool.stats().rungs;
    stage.check_is("served by that rung", rungs.stolen + rungs.done, 1);
    give(&pool, &first, two, size)?;
    give(&pool, &second, next, size)?;
    let whole = pool.alloc(layout(2 * size), &first)?;
    let rungs = pool.stats().rungs;
    stage.check_is("4 MiB after cached segments of 2 MiB were given back", rungs.released + rungs.waited, 1);
    let more = pool.alloc(layout(size), &first);
    stage.check_refused("and then", more, |error| matches!(error, Error::AllocExhausted { .. }));
    stage.check_is("refused", pool.stats().rungs.failed, 1);
    give(&pool, &first, whole, 2 * size)
}

/// The last rung: a hook gives something of the program's back.
fn hook(stage: &mut Stage<'_>) -> Result<()> {
    let (size, stream) = (2 * MIB, stage.stream().clone());
    let upstream = Arc::new(Limit::new(DriverMemory::new(stage.device()), 2 * size as u64));
    let spare = PoolBuffer::<u8, _>::new_uninit(upstream.clone(), size, &stream)?;
    let spare = Mutex::new(Some(spare));
    let hook = move |_| spare.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
    let pool = CachingPool::builder().segment_bytes(size as u64).on_exhausted(hook).over(upstream)?;
    let one = pool.alloc(layout(size), &stream)?;
    let two = pool.alloc(layout(size), &stream)?;
    stage.check_is("allocations that the hook made room for", pool.stats().rungs.hooked, 1);
    let more = pool.alloc(layout(size), &stream);
    stage.check_refused("when it has no more", more, |error| matches!(error, Error::AllocExhausted { .. }));
    give(&pool, &stream, one, size)?;
    give(&pool, &stream, two, size)
}

fn pair(stage: &mut Stage<'_>) -> Result<()> {
    let (pool, stream) = (CachingPool::builder().on(stage.device())?, stage.stream().clone());
    let pairs = |count: u32| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            let block = pool.alloc(layout(MIB), &stream)?;
            give(&pool, &stream, block, MIB)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(count))
    };
    pairs(1_000)?;
    let nanos = pairs(100_000)?;
    stage.say(format_args!("a cached pair of 1 MiB: {nanos:.0} ns; the bar is 100 ns, which `warpheap pool bench` judges on a GPU"));
    let stats = pool.stats();
    stage.check_is("of 101,000 pairs, those that the stream's cache did not serve", stats.misses, 1);
    Ok(())
}
