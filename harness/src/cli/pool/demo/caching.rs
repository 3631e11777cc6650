//! `caching`: blocks of any size, cached for the stream that freed them.

use super::calls::{MIB, layout};
use super::out_of_memory::{hook, pending_and_cached, wait};
use super::owners::{Load, overlaps};
use super::stage::{Demo, Stage};
use std::sync::Arc;
use std::time::Instant;
use warpheap::error::{InvalidConfig, OutOfMemory};
use warpheap::host_pools::{
    CachingPool, CachingPoolBuilder, PoolBox, PoolBuffer, Statistics, SyncDriverAllocator,
};
use warpheap::{Bytes, Device, Error, Result};

pub const DEMO: Demo = Demo {
    name: "caching",
    shows: "size classes, reuse in stream order, and every step before a pool is out of memory",
    steps: &[
        classes,
        driver_calls,
        pending,
        handles,
        settings,
        fifth_of_four,
        threads,
        pending_and_cached,
        wait,
        hook,
        pair,
    ],
};

const GIB: usize = 1 << 30;

fn build(stage: &Stage, builder: CachingPoolBuilder) -> Result<CachingPool> {
    builder.build(&stage.device)
}

fn classes(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = (build(stage, CachingPool::builder())?, stage.stream.clone());
    let finer = build(stage, CachingPool::builder().classes_per_doubling(4))?;
    let (mib, gib2) = (MIB as u64, 2 * GIB as u64);
    for (pool, what, bytes, class) in [
        (&pool, "rounded to a class", 1, 512),
        (&pool, "rounded to a class", 513, 1024),
        (&pool, "rounded to a class", mib + 1, 2 * mib),
        (&pool, "rounded to a class", gib2, gib2),
        (&pool, "above 2 GiB, not rounded", gib2 + 1, gib2 + 1),
        (&finer, "with four classes per doubling", mib + 1, mib / 4 * 5),
        (&finer, "with four classes per doubling", 5 << 10, 5 << 10),
    ] {
        stage.check_reported(format!("{} {what}", Bytes(bytes)), pool.rounded(bytes), class);
    }
    let block = stage.allocate(&pool, layout(513), &stream)?;
    stage.check_reported("wasted bytes of 513 B", pool.stats().wasted_bytes, 511);
    stage.free(&pool, block, layout(513), &stream)?;
    stage.check_is("after the free", pool.stats().wasted_bytes, 0);
    Ok(())
}

fn driver_calls(stage: &mut Stage) -> Result<()> {
    let upstream = Arc::new(Statistics::new(SyncDriverAllocator::new(&stage.device)));
    let pool = CachingPool::builder().build_over(upstream.clone())?;
    let stream = stage.stream.clone();
    let first = stage.allocate(&pool, layout(MIB), &stream)?;
    stage.free(&pool, first, layout(MIB), &stream)?;
    let second = stage.allocate(&pool, layout(MIB), &stream)?;
    stage.check_is("1 MiB, freed and allocated again, has the same address", second.0 == first.0, true);
    stage.check_is("driver calls for both", upstream.stats().allocs, 1);
    stage.free(&pool, second, layout(MIB), &stream)
}

/// A block that was freed while a kernel was running.
fn pending(stage: &mut Stage) -> Result<()> {
    let size = layout(2 * MIB);
    let memory = SyncDriverAllocator::new(&stage.device);
    let pool = CachingPool::builder().segment_bytes(size.size() as u64).build_over(memory)?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let block = stage.allocate(&pool, size, &first)?;
    stage.linger(&first)?;
    stage.free(&pool, block, size, &first)?;
    let again = stage.allocate(&pool, size, &first)?;
    let when = if first.is_done()? { "after its kernel" } else { "while its kernel ran" };
    stage.check("a freed block serves its own stream at once", when, again.0 == block.0);
    stage.linger(&first)?;
    stage.free(&pool, again, size, &first)?;
    let other = stage.allocate(&pool, size, &second)?;
    let (is_same, is_pending) = (other.0 == block.0, !first.is_done()?);
    let what = if is_same { "the same" } else { "other" };
    let when = if is_pending { "while the kernel ran" } else { "after the kernel" };
    let holds = !(is_same && is_pending);
    stage.check("it serves another stream only after its event", format_args!("{what} memory {when}"), holds);
    first.synchronize()?;
    let after = if is_same { other } else { stage.allocate(&pool, size, &second)? };
    stage.check_is("then, with no call to process anything, it does", after.0 == block.0, true);
    if !is_same {
        stage.free(&pool, other, size, &second)?;
    }
    stage.free(&pool, after, size, &second)
}

fn handles(stage: &mut Stage) -> Result<()> {
    let (pool, len) = (build(stage, CachingPool::builder())?, MIB / 4);
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let buffer = PoolBuffer::<u32, _>::new_uninit(&pool, len, &first)?;
    let address = buffer.address();
    stage.linger(&second)?;
    stage.fill(&second, buffer.slice_to_init(), 7)?;
    buffer.record_stream(&second)?;
    stage.release_memory(buffer);
    let when = if second.is_done()? { "after the kernel" } else { "while the kernel ran" };
    let again = PoolBuffer::<u32, _>::new_uninit(&pool, len, &first)?;
    let is_same = again.address() == address;
    stage.check(
        "a dropped PoolBuffer's memory serves its stream again",
        format_args!("dropped {when}"),
        is_same,
    );
    let what = "ordered after the kernel of a recorded stream";
    stage.check_words(what, &first, again.slice_to_init(), 7)?;
    drop(again);
    let value = PoolBox::new(&pool, 6_u32, &first)?;
    stage.fill(&first, value.slice(), 7)?;
    stage.check_is("a kernel writes to a PoolBox", value.get()?, 7);
    stage.check_is("its blocks", pool.stats().live_blocks, 1);
    stage.release_memory(value);
    stage.check_is("after its drop", pool.stats().live_blocks, 0);
    Ok(())
}

fn settings(stage: &mut Stage) -> Result<()> {
    let builder: fn() -> CachingPoolBuilder = CachingPool::builder;
    for (what, builder) in [
        ("a minimum block of 300 B", builder().min_block(300)),
        ("3 classes per doubling", builder().classes_per_doubling(3)),
        ("a maximum of 1 B", builder().max_bytes(1)),
        ("segments of 1000 B", builder().segment_bytes(1000)),
    ] {
        let is_expected = |error: &Error| matches!(error, Error::InvalidConfig(InvalidConfig::Pool { .. }));
        stage.check_fails(what, builder.build(&stage.device), is_expected);
    }
    let pool = build(stage, builder().stream_ordered(false))?;
    let foreign = stage.allocate(&pool, layout(MIB), &Device::cpu().stream()?);
    let is_expected = |error: &Error| matches!(error, Error::WrongDevice { .. });
    stage.check_fails("a stream of another device", foreign, is_expected);
    let stream = stage.new_stream()?;
    let block = stage.allocate(&pool, layout(MIB), &stream)?;
    stage.linger(&stream)?;
    stage.free(&pool, block, layout(MIB), &stream)?;
    stage.check_is("without stream order, a free waits for its stream", stream.is_done()?, true);
    Ok(())
}

fn fifth_of_four(stage: &mut Stage) -> Result<()> {
    let size = if stage.is_cpu() { MIB } else { GIB };
    let (unit, all) = (size as u64, 4 * size as u64);
    stage.say(format_args!("blocks of {} in a pool of {}", Bytes(unit), Bytes(all)));
    let (pool, stream) = (build(stage, CachingPool::builder().max_bytes(all))?, stage.stream.clone());
    let blocks: Vec<_> =
        (0..4).map(|_| stage.allocate(&pool, layout(size), &stream)).collect::<Result<_>>()?;
    stage.check_is("live blocks", pool.stats().live_blocks, 4);
    let fifth = stage.allocate(&pool, layout(size), &stream);
    stage.check_fails("the fifth", fifth, |error| match error {
        Error::OutOfMemory(OutOfMemory::Pool { requested, used, cached, largest, .. }) => {
            (requested.0, used.0, cached.0, largest.0) == (unit, all, 0, 0)
        }
        _ => false,
    });
    blocks.into_iter().try_for_each(|block| stage.free(&pool, block, layout(size), &stream))
}

fn threads(stage: &mut Stage) -> Result<()> {
    let pool = build(stage, CachingPool::builder())?;
    // Up to 256 KiB, each doubling as often as the others.
    let size = |random: usize| 1 + random % (1 << (4 + (random >> 32) % 15));
    let load = Load { operations: 100_000, most_held: 64, size };
    stage.check_is("overlaps, 8 host threads with 100,000 operations each", overlaps(stage, &pool, load)?, 0);
    let stats = pool.stats();
    stage.check_reported("blocks and bytes in use then", (stats.live_blocks, stats.usage.used_bytes), (0, 0));
    Ok(())
}

fn pair(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = (build(stage, CachingPool::builder())?, stage.stream.clone());
    let pairs = |count: u32| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            stage.free(&pool, stage.allocate(&pool, layout(MIB), &stream)?, layout(MIB), &stream)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(count))
    };
    pairs(1_000)?;
    let nanos = pairs(100_000)?;
    stage.say(format_args!(
        "a cached pair of 1 MiB: {nanos:.0} ns (`warpheap pool bench` compares it with its target)"
    ));
    stage.check_reported("cache misses of 101,000 pairs", pool.stats().misses, 1);
    Ok(())
}
