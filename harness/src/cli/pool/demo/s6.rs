//! S6: blocks of any size, cached for the stream that freed them.

mod ladder;
#[cfg(test)]
mod tests;
mod threads;

use super::{Demo, Stage};
use std::alloc::Layout;
use std::sync::Arc;
use std::time::Instant;
use warpheap::error::{InvalidConfig, OutOfMemory};
use warpheap::host_pools::{
    CachingPool, CachingPoolBuilder, CachingPoolStats, DeviceAllocator, PoolBox, PoolBuffer, Statistics,
    SyncDriverAllocator,
};
use warpheap::{Bytes, Device, Error, Result, Stream, kernel_names};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::kernels::demo::{demo_count_others, demo_fill};

pub const DEMO: Demo = Demo {
    name: "S6",
    shows: "a pool of size classes serves what was freed at once, in order, to its end, and says what it lacks",
    launched: &kernel_names![demo_fill, demo_count_others, bench_spin],
    run: |stage| STEPS.iter().try_for_each(|step| step(stage, &|pool| pool)),
};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

type Block = DevicePtr<u8>;

/// The interface of the pools in this demonstration.
trait Caching: DeviceAllocator {
    fn rounded(&self, bytes: u64) -> u64;
    fn stats(&self) -> CachingPoolStats;
}

impl<A: DeviceAllocator> Caching for CachingPool<A> {
    fn rounded(&self, bytes: u64) -> u64 {
        self.rounded(bytes)
    }

    fn stats(&self) -> CachingPoolStats {
        self.stats()
    }
}

type Pool = Box<dyn Caching>;
/// Wraps each real pool before use: the identity, except in tests, which inject a fault.
type Wrap<'a> = &'a dyn Fn(Pool) -> Pool;
type Step = fn(&mut Stage<'_>, Wrap<'_>) -> Result<()>;

const STEPS: [Step; 11] = [
    roundings,
    again,
    pending,
    handles,
    settings,
    fifth,
    threads::threads,
    ladder::ladder,
    ladder::waited,
    ladder::hook,
    pair,
];

fn on(stage: &Stage<'_>, wrap: Wrap<'_>, builder: CachingPoolBuilder) -> Result<Pool> {
    Ok(wrap(Box::new(builder.build(stage.device())?)))
}

fn over(
    wrap: Wrap<'_>,
    builder: CachingPoolBuilder,
    upstream: impl DeviceAllocator + 'static,
) -> Result<Pool> {
    Ok(wrap(Box::new(builder.build_over(upstream)?)))
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).expect("a layout")
}

fn words(block: Block, bytes: usize) -> DeviceSlice<u32> {
    // SAFETY: the block has that many bytes, and a launch checks that they are live.
    unsafe { DeviceSlice::from_raw_parts(block.0.cast(), bytes as u64 / 4) }
}

fn give(pool: &dyn DeviceAllocator, stream: &Stream, block: Block, size: usize) -> Result<()> {
    // SAFETY: after its free, a block is used only by work submitted to the stream before.
    unsafe { pool.deallocate(block, layout(size), stream) }
}

fn roundings(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, stream) = (on(stage, wrap, CachingPool::builder())?, stage.stream().clone());
    let (mib, two_gib) = (MIB as u64, 2 * GIB as u64);
    let above = two_gib + 1;
    for (bytes, class) in [(1, 512), (513, 1024), (mib + 1, 2 * mib), (two_gib, two_gib), (above, above)] {
        stage.check_is(format!("{} are rounded to", Bytes(bytes)), pool.rounded(bytes), class);
    }
    let finer = on(stage, wrap, CachingPool::builder().classes_per_doubling(4))?;
    for (bytes, class) in [(mib + 1, mib / 4 * 5), (5 << 10, 5 << 10)] {
        stage.check_is(format!("{} by four classes a doubling", Bytes(bytes)), finer.rounded(bytes), class);
    }
    let block = pool.allocate(layout(513), &stream)?;
    stage.check_is("wasted bytes of 513 B", pool.stats().wasted_bytes, 511);
    give(&*pool, &stream, block, 513)?;
    stage.check_is("after the free", pool.stats().wasted_bytes, 0);
    Ok(())
}

fn again(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let upstream = Arc::new(Statistics::new(SyncDriverAllocator::new(stage.device())));
    let (pool, stream) = (over(wrap, CachingPool::builder(), upstream.clone())?, stage.stream().clone());
    let first = pool.allocate(layout(MIB), &stream)?;
    give(&*pool, &stream, first, MIB)?;
    let second = pool.allocate(layout(MIB), &stream)?;
    stage.check_is("1 MiB, freed and allocated again, is at the same address", second.0 == first.0, true);
    stage.check_is("allocations of the driver's for both", upstream.stats().allocs, 1);
    give(&*pool, &stream, second, MIB)
}

/// A block that was freed while a kernel was running.
fn pending(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let size = 2 * MIB;
    let pool = over(
        wrap,
        CachingPool::builder().segment_bytes(size as u64),
        SyncDriverAllocator::new(stage.device()),
    )?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let block = pool.allocate(layout(size), &first)?;
    stage.linger(&first)?;
    give(&*pool, &first, block, size)?;
    let again = pool.allocate(layout(size), &first)?;
    let when = if first.is_done()? { "it had ended" } else { "it ran" };
    stage.check(
        "its own stream has it at once",
        format!("when it was allocated, {when}"),
        again.0 == block.0,
    );
    stage.linger(&first)?;
    give(&*pool, &first, again, size)?;
    let other = pool.allocate(layout(size), &second)?;
    let (same, pending) = (other.0 == block.0, !first.is_done()?);
    let found = format!(
        "{} memory, and the kernel {}",
        if same { "the same" } else { "other" },
        if pending { "runs" } else { "is done" }
    );
    stage.check("another stream has it only after its event", found, !(same && pending));
    first.synchronize()?;
    let after = if same { other } else { pool.allocate(layout(size), &second)? };
    stage.check_is("and then, with no call to process anything, it has it", after.0 == block.0, true);
    if !same {
        give(&*pool, &second, other, size)?;
    }
    give(&*pool, &second, after, size)
}

fn handles(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, len) = (on(stage, wrap, CachingPool::builder())?, MIB / 4);
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let buffer = PoolBuffer::<u32, _>::new_uninit(&*pool, len, &first)?;
    let address = buffer.address();
    stage.linger(&second)?;
    // SAFETY: the buffer lives until the second stream has finished, because that stream is
    // recorded.
    unsafe { stage.fill(&second, buffer.slice_to_init(), 7) }?;
    buffer.record_stream(&second)?;
    drop(buffer);
    let when = if second.is_done()? { "it had ended" } else { "it ran" };
    let again = PoolBuffer::<u32, _>::new_uninit(&*pool, len, &first)?;
    stage.check_is("a PoolBuffer's memory is its own stream's again", again.address() == address, true);
    // SAFETY: only the first stream uses the buffer.
    let others = unsafe { stage.others(&first, again.slice_to_init(), 7) }?;
    let found = format!("{others} words are from before; at its end {when}");
    stage.check("behind the kernel of a stream that was recorded", found, others == 0);
    drop(again);
    let value = PoolBox::new(&*pool, 6_u32, &first)?;
    // SAFETY: the box lives until its stream has finished.
    unsafe { stage.fill(&first, value.slice(), 7) }?;
    stage.check_is("the value of a PoolBox that a kernel wrote to", value.get()?, 7);
    stage.check_is("blocks allocated for it", pool.stats().live_blocks, 1);
    drop(value);
    stage.check_is("and after its end", pool.stats().live_blocks, 0);
    Ok(())
}

fn settings(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let builder: fn() -> CachingPoolBuilder = CachingPool::builder;
    let wrong = [
        ("a least block of 300 B", builder().min_block(300)),
        ("3 classes a doubling", builder().classes_per_doubling(3)),
        ("a maximum of 1 B", builder().max_bytes(1)),
        ("segments of 1000 B", builder().segment_bytes(1000)),
    ];
    for (what, builder) in wrong {
        let made = builder.build_over(SyncDriverAllocator::new(stage.device()));
        stage.check_refused(what, made, |error| {
            matches!(error, Error::InvalidConfig(InvalidConfig::Pool { .. }))
        });
    }
    let pool = on(stage, wrap, builder().stream_ordered(false))?;
    let foreign = Device::cpu().stream()?;
    let elsewhere = pool.allocate(layout(MIB), &foreign);
    stage.check_refused("a stream of another device", elsewhere, |error| {
        matches!(error, Error::WrongDevice { .. })
    });
    let stream = stage.new_stream()?;
    let block = pool.allocate(layout(MIB), &stream)?;
    stage.linger(&stream)?;
    give(&*pool, &stream, block, MIB)?;
    stage.check_is("without stream order, a free waits for its stream", stream.is_done()?, true);
    Ok(())
}

fn fifth(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let size = if stage.is_cpu() { MIB } else { GIB };
    let (unit, all) = (Bytes(size as u64), Bytes(4 * size as u64));
    stage.say(format_args!(
        "blocks of {unit} in a pool of {all} (on a GPU 1 GiB in 4 GiB, on the CPU 1 MiB in 4 MiB)"
    ));
    let (pool, stream) = (on(stage, wrap, CachingPool::builder().max_bytes(all.0))?, stage.stream().clone());
    let blocks: Vec<_> = (0..4).map(|_| pool.allocate(layout(size), &stream)).collect::<Result<_>>()?;
    stage.check_is("blocks live", pool.stats().live_blocks, 4);
    let more = pool.allocate(layout(size), &stream);
    stage.check_refused("the fifth", more, |error| match error {
        Error::OutOfMemory(OutOfMemory::Pool { requested, used, cached, largest, .. }) => {
            (requested.0, used.0, cached.0, largest.0) == (unit.0, all.0, 0, 0)
        }
        _ => false,
    });
    blocks.into_iter().try_for_each(|block| give(&*pool, &stream, block, size))
}

fn pair(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, stream) = (on(stage, wrap, CachingPool::builder())?, stage.stream().clone());
    let pairs = |count: u32| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            let block = pool.allocate(layout(MIB), &stream)?;
            give(&*pool, &stream, block, MIB)?;
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
