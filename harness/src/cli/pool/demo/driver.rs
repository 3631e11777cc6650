//! `driver`: the driver's stream-ordered pools.

use super::calls::{Block, layout, words};
use super::fault::Fault;
use super::stage::{Demo, Stage};
use std::time::Instant;
use warpheap::error::{Dangling, InvalidRequest};
use warpheap::host_pools::{
    DeviceAllocator, DriverPool, DriverPoolBuilder, ReusePolicies, SyncDriverAllocator,
};
use warpheap::{Bytes, Error, Result, Stream};

pub const DEMO: Demo = Demo {
    name: "driver",
    shows: "stream-ordered pools of the driver: speed, thresholds, trimming, order between streams",
    steps: &[speed, threshold, no_threshold, trim, missing_dependency, two_streams, no_reuse],
};

const MB: u64 = 1_000_000;
const LARGE: usize = 100 * MB as usize;
/// 1,048,576 words.
const BYTES: usize = 4 << 20;

fn build(stage: &Stage, builder: DriverPoolBuilder) -> Result<DriverPool> {
    builder.build(&stage.device)
}

/// Each turn fills a block with a different number, counts the words that differ, and frees it.
/// Returns the microseconds per turn and the count.
fn turns<P: DeviceAllocator>(stage: &Stage, pool: &P, count: u32) -> Result<(f64, u64)> {
    let (stream, different) = (&stage.stream, stage.device.zeroed::<u64>(1)?);
    stream.synchronize()?;
    let start = Instant::now();
    for turn in 1..=count {
        let block = stage.allocate(&pool, layout(BYTES), stream)?;
        stage.fill(stream, words(block, BYTES), turn)?;
        stage.count_different(stream, words(block, BYTES), turn, different.ptr())?;
        stage.free(&pool, block, layout(BYTES), stream)?;
    }
    stream.synchronize()?;
    Ok((start.elapsed().as_secs_f64() * 1e6 / f64::from(count), different.copy_to_vec()?[0]))
}

/// Microseconds per turn, after a tenth as many turns to warm up.
fn timed<P: DeviceAllocator>(stage: &mut Stage, what: &str, pool: &P, count: u32) -> Result<f64> {
    turns(stage, pool, count / 10)?;
    let (micros, different) = turns(stage, pool, count)?;
    stage.check_is(format!("wrong words in {what} memory"), different, 0);
    Ok(micros)
}

fn speed(stage: &mut Stage) -> Result<()> {
    let count = if stage.is_cpu() { 10 } else { 100 };
    stage.say(format_args!("{count} times 4 MiB, filled and read by kernels, after a warm-up"));
    let memory = SyncDriverAllocator::new(&stage.device);
    let pool = build(stage, DriverPool::builder().release_threshold(256 * MB))?;
    let slow = timed(stage, "synchronous", &memory, count)?;
    let fast = timed(stage, "stream-ordered", &pool, count)?;
    let ratio = slow / fast;
    stage
        .say(format_args!("synchronous {slow:.1} us, stream-ordered {fast:.1} us: {ratio:.2} times as fast"));
    Ok(())
}

/// Checks the used and reserved bytes.
fn check_bytes(stage: &mut Stage, what: &str, pool: &DriverPool, holds: fn(u64, u64) -> bool) -> Result<()> {
    let usage = pool.stats()?.usage;
    let (used, reserved) = (usage.used_bytes, usage.reserved_bytes);
    stage.check(
        what,
        format_args!("used {}, reserved {}", Bytes(used), Bytes(reserved)),
        holds(used, reserved),
    );
    Ok(())
}

/// Frees 100 MB, and waits for the free.
fn free_large(stage: &Stage, pool: &DriverPool, block: Block) -> Result<()> {
    stage.free(&pool, block, layout(LARGE), &stage.stream)?;
    settle(stage)
}

fn settle(stage: &Stage) -> Result<()> {
    stage.stream.synchronize()?;
    stage.device.synchronize()
}

fn threshold(stage: &mut Stage) -> Result<()> {
    let pool = build(stage, DriverPool::builder().release_threshold(256 * MB))?;
    stage.check_reported("the release threshold in bytes", pool.release_threshold()?, 256 * MB);
    check_bytes(stage, "at first", &pool, |used, reserved| used == 0 && reserved == 0)?;
    stage.mark_reported();
    let block = stage.allocate(&pool, layout(LARGE), &stage.stream)?;
    settle(stage)?;
    check_bytes(stage, "with 100 MB", &pool, |used, reserved| used >= 100 * MB && reserved >= used)?;
    stage.mark_reported();
    free_large(stage, &pool, block)?;
    check_bytes(stage, "after the free", &pool, |used, reserved| used == 0 && reserved >= 100 * MB)?;
    stage.unless(Fault::NeverTrims, || pool.trim_to(0))?;
    check_bytes(stage, "after a trim", &pool, |used, reserved| used == 0 && reserved == 0)
}

fn no_threshold(stage: &mut Stage) -> Result<()> {
    let pool = build(stage, DriverPool::builder().release_threshold(0))?;
    let block = stage.allocate(&pool, layout(LARGE), &stage.stream)?;
    free_large(stage, &pool, block)?;
    let is_empty = |used, reserved| used == 0 && reserved == 0;
    check_bytes(stage, "with threshold 0, after the free and a wait", &pool, is_empty)
}

fn trim(stage: &mut Stage) -> Result<()> {
    let (stream, pool) = (stage.stream.clone(), build(stage, DriverPool::builder())?);
    let (kept, other) =
        (stage.allocate(&pool, layout(LARGE), &stream)?, stage.allocate(&pool, layout(LARGE), &stream)?);
    stage.fill(&stream, words(kept, BYTES), 5)?;
    free_large(stage, &pool, other)?;
    stage.unless(Fault::NeverTrims, || pool.trim_to(0))?;
    check_bytes(stage, "trimmed with 100 MB of 200 MB live", &pool, |used, reserved| {
        (100 * MB..200 * MB).contains(&used) && (used..200 * MB).contains(&reserved)
    })?;
    stage.check_words("the live values are as before", &stream, words(kept, BYTES), 5)?;
    free_large(stage, &pool, kept)
}

/// Stream 2 writes after stream 1 without waiting for it. The count of the values detects that.
fn missing_dependency(stage: &mut Stage) -> Result<()> {
    let pool = build(stage, DriverPool::builder())?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let block = stage.allocate(&pool, layout(BYTES), &first)?;
    let values = words(block, BYTES);
    // `hold` first waits for the device, and so for the driver's work for the allocation. Stream 1
    // is then held until stream 2 has written, so no two kernels access the block at the same time.
    stage.hold(&first)?;
    let filled = stage
        .fill(&first, values, 1.0_f32.to_bits())
        .and_then(|()| stage.fill(&second, values, 2.0_f32.to_bits()));
    // Also after a failed fill, because the drop of the block waits for stream 1.
    stage.release(&second)?;
    filled?;
    first.synchronize()?;
    settle(stage)?;
    let different = stage.different(&first, values, 2.0_f32.to_bits())?;
    // A count of 0 means that stream 2 wrote last, as if it had waited.
    let advice = match different {
        0 if !stage.is_cpu() => {
            "; unset CUDA_LAUNCH_BLOCKING if it is set, because it serialises all kernels"
        }
        _ => "",
    };
    let found = format!("{different} of 1,048,576 values are not the 2.0 that stream 2 wrote last{advice}");
    stage.check("a missing dependency of stream 2 on stream 1 is detected", found, different == 1_048_576);
    stage.free(&pool, block, layout(BYTES), &first)
}

/// Stream 1 writes a block, and stream 2 uses and frees it after waiting for an event.
fn two_streams(stage: &mut Stage) -> Result<()> {
    // Room for one block, unless the driver rounds up, so the block must be reused.
    let pool = build(stage, DriverPool::builder().max_size(BYTES as u64))?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let block = stage.allocate(&pool, layout(BYTES), &first)?;
    let (values, one, two) = (words(block, BYTES), 1.0_f32.to_bits(), 2.0_f32.to_bits());
    stage.linger(&first)?;
    stage.fill(&first, values, one)?;
    stage.wait(&second, &first)?;
    stage.check_words("on stream 2, after an event, 1,048,576 values are 1.0", &second, values, one)?;
    stage.fill(&second, values, two)?;
    stage.check_words("before the free there they are 2.0", &second, values, two)?;
    stage.linger(&second)?;
    stage.fill(&second, values, 3)?;
    stage.free(&pool, block, layout(BYTES), &second)?;
    let late = stage.fill(&second, values, 4);
    // Before the check, which releases the streams.
    let outcome = reuse(stage, &pool, (&first, &second), block);
    stage.check_fails("a launch with its address", late, |error| {
        matches!(error, Error::Dangling(Dangling::Argument { .. }))
    });
    outcome
}

/// Stream 1 waits for the free, and reuses the memory after it.
fn reuse(
    stage: &mut Stage,
    pool: &DriverPool,
    (first, second): (&Stream, &Stream),
    block: Block,
) -> Result<()> {
    let freed = second.record()?;
    stage.wait(first, second)?;
    let next = stage.allocate(&pool, layout(BYTES), first)?;
    let ready = first.record()?;
    let when = if second.is_done()? { "done" } else { "pending" };
    let is_same = next.0 == block.0;
    let different = stage.different(first, words(next, BYTES), 3)?;
    let what = if is_same { "the same memory" } else { "other memory" };
    let found = format!("{what} with the free {when}, and {different} words from before the free");
    // If the driver rounded up, the block may be other memory with other contents. The CPU's pool
    // has no other memory.
    let holds = if is_same { different == 0 } else { !stage.is_cpu() };
    stage.check("reuse on stream 1 waits for the free on stream 2", found, holds);
    let (found, holds) = match ready.elapsed(&freed) {
        Ok(after) => (format!("{} us after it", after.as_micros()), true),
        Err(Error::InvalidRequest(InvalidRequest::EventOrder)) => ("before it".into(), false),
        Err(error) => return Err(error),
    };
    stage.check("stream 1 has the memory after the free on stream 2", found, holds);
    stage.free(&pool, next, layout(BYTES), first)
}

fn no_reuse(stage: &mut Stage) -> Result<()> {
    let pool = build(stage, DriverPool::builder().reuse(ReusePolicies::none()))?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let block = stage.allocate(&pool, layout(BYTES), &first)?;
    stage.linger(&first)?;
    stage.free(&pool, block, layout(BYTES), &first)?;
    let next = stage.allocate(&pool, layout(BYTES), &second)?;
    let is_other = next.0 != block.0;
    stage.check_is("without reuse between streams, stream 2 gets other memory", is_other, true);
    stage.free(&pool, next, layout(BYTES), &second)
}
