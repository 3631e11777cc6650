//! S5: the driver's stream-ordered pools.

#[cfg(test)]
mod tests;

use super::{Demo, Stage};
use std::alloc::Layout;
use std::time::Instant;
use warpheap::error::{Dangling, InvalidRequest};
use warpheap::host_pools::{
    DeviceAllocator, DriverPool, DriverPoolBuilder, ReusePolicies, SyncDriverAllocator,
};
use warpheap::{Bytes, Error, Result, Stream, kernel_names};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::kernels::demo::{demo_count_others, demo_fill, demo_hold, demo_let_go};

pub const DEMO: Demo = Demo {
    name: "S5",
    shows: "the driver's pools: faster than its synchronous memory, kept and given back as told, ordered by streams",
    launched: &kernel_names![demo_fill, demo_count_others, demo_hold, demo_let_go, bench_spin],
    run: |stage| STEPS.iter().try_for_each(|step| step(stage, &|pool| pool)),
};

const MB: u64 = 1_000_000;
/// 1,048,576 words.
const BYTES: usize = 4 << 20;

/// The interface of the pools in this demonstration.
trait Ordered: DeviceAllocator {
    fn used_bytes(&self) -> Result<u64>;
    fn reserved_bytes(&self) -> Result<u64>;
    fn release_threshold(&self) -> Result<u64>;
    fn trim_to(&self, bytes: u64) -> Result<()>;
}

impl Ordered for DriverPool {
    fn used_bytes(&self) -> Result<u64> {
        self.stats().map(|stats| stats.usage.used_bytes)
    }

    fn reserved_bytes(&self) -> Result<u64> {
        self.stats().map(|stats| stats.usage.reserved_bytes)
    }

    fn release_threshold(&self) -> Result<u64> {
        self.release_threshold()
    }

    fn trim_to(&self, bytes: u64) -> Result<()> {
        self.trim_to(bytes)
    }
}

type Pool = Box<dyn Ordered>;
/// Wraps each real pool before use: the identity, except in tests, which inject a fault.
type Wrap<'a> = &'a dyn Fn(Pool) -> Pool;
type Step = fn(&mut Stage<'_>, Wrap<'_>) -> Result<()>;

const STEPS: [Step; 7] = [speed, threshold, no_threshold, trim, missing, streams, alone];

fn build(stage: &Stage<'_>, wrap: Wrap<'_>, builder: DriverPoolBuilder) -> Result<Pool> {
    Ok(wrap(Box::new(builder.build(stage.device())?)))
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).expect("a layout")
}

fn large() -> Layout {
    layout(100 * MB as usize)
}

fn words(block: DevicePtr<u8>, bytes: usize) -> DeviceSlice<u32> {
    // SAFETY: the block has that many bytes, and a launch checks that they are live.
    unsafe { DeviceSlice::from_raw_parts(block.0.cast(), bytes as u64 / 4) }
}

fn give(pool: &dyn DeviceAllocator, stream: &Stream, block: DevicePtr<u8>, of: Layout) -> Result<()> {
    // SAFETY: after its free, a block is used only by work submitted to the stream before.
    unsafe { pool.deallocate(block, of, stream) }
}

/// Each turn fills a block with a different number, counts the words that differ, and frees it.
/// Returns the seconds and the count.
fn turns(stage: &Stage<'_>, pool: &dyn DeviceAllocator, count: u32) -> Result<(f64, u64)> {
    let (stream, others) = (stage.stream(), stage.device().zeroed::<u64>(1)?);
    stream.synchronize()?;
    let start = Instant::now();
    for turn in 1..=count {
        let block = pool.allocate(layout(BYTES), stream)?;
        let words = words(block, BYTES);
        let threads = stage.threads(words);
        // SAFETY: the block is live, and only this stream uses it.
        unsafe { stage.fill(stream, words, turn) }?;
        // SAFETY: the block is live, and only this stream uses it; the counter lives until the
        // stream is synchronised, and nothing else uses it.
        unsafe { stage.launch(stream, demo_count_others, threads, (words, turn, threads, others.ptr())) }?;
        give(pool, stream, block, layout(BYTES))?;
    }
    stream.synchronize()?;
    Ok((start.elapsed().as_secs_f64(), others.copy_to_vec()?[0]))
}

fn speed(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let count = if stage.is_cpu() { 10 } else { 100 };
    stage.say(format_args!(
        "{count} times 4 MiB, filled and read by kernels, after a tenth as many that do not count"
    ));
    let memory = SyncDriverAllocator::new(stage.device());
    let pool = build(stage, wrap, DriverPool::builder().release_threshold(256 * MB))?;
    let mut figure = |what: &str, pool: &dyn DeviceAllocator| -> Result<f64> {
        turns(stage, pool, count / 10)?;
        let (seconds, others) = turns(stage, pool, count)?;
        stage.check_is(format!("wrong words of the {what} ones"), others, 0);
        Ok(seconds)
    };
    let (waits, ordered) = (figure("synchronous", &memory)?, figure("stream-ordered", &*pool)?);
    let (slow, fast) = (1e6 * waits / f64::from(count), 1e6 * ordered / f64::from(count));
    stage.say(format_args!(
        "synchronous {slow:.1} us, stream-ordered {fast:.1} us a turn: {:.2} times as fast",
        slow / fast
    ));
    Ok(())
}

/// The used and reserved bytes in words, checked by `holds`.
fn look(
    stage: &mut Stage<'_>,
    what: &str,
    pool: &dyn Ordered,
    holds: impl Fn(u64, u64) -> bool,
) -> Result<()> {
    let (used, reserved) = (pool.used_bytes()?, pool.reserved_bytes()?);
    let found = format!("used {}, reserved {}", Bytes(used), Bytes(reserved));
    stage.check(what, found, holds(used, reserved));
    Ok(())
}

fn settle(stage: &Stage<'_>, stream: &Stream) -> Result<()> {
    stream.synchronize()?;
    stage.device().synchronize()
}

fn threshold(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let stream = stage.stream().clone();
    let pool = build(stage, wrap, DriverPool::builder().release_threshold(256 * MB))?;
    stage.check_is("the threshold, in bytes", pool.release_threshold()?, 256 * MB);
    look(stage, "at first", &*pool, |used, reserved| used == 0 && reserved == 0)?;
    let block = pool.allocate(large(), &stream)?;
    settle(stage, &stream)?;
    look(stage, "with 100 MB", &*pool, |used, reserved| used >= 100 * MB && reserved >= used)?;
    give(&*pool, &stream, block, large())?;
    settle(stage, &stream)?;
    look(stage, "after the free", &*pool, |used, reserved| used == 0 && reserved >= 100 * MB)?;
    pool.trim_to(0)?;
    look(stage, "after the trim", &*pool, |used, reserved| used == 0 && reserved == 0)
}

fn no_threshold(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let stream = stage.stream().clone();
    let pool = build(stage, wrap, DriverPool::builder().release_threshold(0))?;
    let block = pool.allocate(large(), &stream)?;
    settle(stage, &stream)?;
    give(&*pool, &stream, block, large())?;
    settle(stage, &stream)?;
    look(stage, "with threshold 0, freed and waited for", &*pool, |used, reserved| used == 0 && reserved == 0)
}

fn trim(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (stream, pool) = (stage.stream().clone(), build(stage, wrap, DriverPool::builder())?);
    let (kept, other) = (pool.allocate(large(), &stream)?, pool.allocate(large(), &stream)?);
    let some = words(kept, BYTES);
    // SAFETY: the block is live, and only this stream uses it.
    unsafe { stage.fill(&stream, some, 5) }?;
    give(&*pool, &stream, other, large())?;
    settle(stage, &stream)?;
    pool.trim_to(0)?;
    look(stage, "trimmed with 100 MB of 200 MB live", &*pool, |used, reserved| {
        (100 * MB..200 * MB).contains(&used) && (used..200 * MB).contains(&reserved)
    })?;
    // SAFETY: the block is live, and only this stream uses it.
    let others = unsafe { stage.others(&stream, some, 5) }?;
    stage.check_is("wrong words of what is live", others, 0);
    give(&*pool, &stream, kept, large())
}

/// Stream 2 writes after stream 1 without waiting for it. The count of the values detects that.
fn missing(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let pool = build(stage, wrap, DriverPool::builder())?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let block = pool.allocate(layout(BYTES), &first)?;
    let values = words(block, BYTES);
    let (one, two) = (1.0_f32.to_bits(), 2.0_f32.to_bits());
    // By then the driver has also finished its work for the allocation.
    stage.hold(&first)?;
    // SAFETY: the block is live. Stream 1 is held until stream 2 has written, so no two kernels
    // access it at the same time.
    let filled = unsafe { stage.fill(&first, values, one) }
        // SAFETY: the block is live. Stream 1 is held until stream 2 has written, so no two kernels
        // access it at the same time.
        .and_then(|()| unsafe { stage.fill(&second, values, two) });
    // Even if the fill failed, because the drop of the block waits for stream 1.
    stage.let_go(&second)?;
    filled?;
    settle(stage, &first)?;
    // SAFETY: all writes are done.
    let others = unsafe { stage.others(&first, values, two) }?;
    // The values are as after a wait, for example if the kernels ran one after the other.
    let advice = match others {
        0 if !stage.is_cpu() => {
            ": unset CUDA_LAUNCH_BLOCKING, if it is set, for with it no two kernels run at the same time"
        }
        _ => "",
    };
    let found = format!("{others} values of 1,048,576 are not the 2.0 that stream 2 wrote last{advice}");
    stage.check("a missing dependency of stream 2 on stream 1 is reported", found, others == 1_048_576);
    give(&*pool, &first, block, layout(BYTES))
}

/// A block that moved from the stream of its allocation to another one.
struct Crossed {
    pool: Pool,
    first: Stream,
    second: Stream,
    block: DevicePtr<u8>,
}

/// Stream 1 writes, and stream 2 reads after waiting for an event.
fn cross(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<Crossed> {
    // Room for one block, unless the driver rounds up, so the block must be reused.
    let pool = build(stage, wrap, DriverPool::builder().max_size(BYTES as u64))?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let (block, one) = (pool.allocate(layout(BYTES), &first)?, 1.0_f32.to_bits());
    let values = words(block, BYTES);
    stage.linger(&first)?;
    // SAFETY: the block is live, and only this stream uses it until the event.
    unsafe { stage.fill(&first, values, one) }?;
    stage.wait(&second, &first)?;
    // SAFETY: the second stream is ordered after the fill, and the first does not use the block any
    // more.
    let others = unsafe { stage.others(&second, values, one) }?;
    stage.check_is("values of 1,048,576 that are not 1.0 on stream 2", others, 0);
    Ok(Crossed { pool, first, second, block })
}

/// A block moves from one stream to another and back.
fn streams(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let Crossed { pool, first, second, block } = cross(stage, wrap)?;
    let (values, two) = (words(block, BYTES), 2.0_f32.to_bits());
    // SAFETY: stream 1 does not use the block any more.
    unsafe { stage.fill(&second, values, two) }?;
    // SAFETY: stream 1 does not use the block any more.
    let others = unsafe { stage.others(&second, values, two) }?;
    stage.check_is("that are not 2.0 before the free there", others, 0);
    stage.linger(&second)?;
    // SAFETY: stream 1 does not use the block any more.
    unsafe { stage.fill(&second, values, 3) }?;
    give(&*pool, &second, block, layout(BYTES))?;
    // SAFETY: the launch is rejected, because the block was freed.
    let late = unsafe { stage.fill(&second, values, 4) };
    // Before the check, which opens the gate of a planted disorder.
    let outcome = reuse(stage, &*pool, (&first, &second), block);
    stage.check_refused("a launch with its address", late, |error| {
        matches!(error, Error::Dangling(Dangling::Argument { .. }))
    });
    outcome
}

/// Stream 1 depends on the free, and reuses the memory after it.
fn reuse(
    stage: &mut Stage<'_>,
    pool: &dyn Ordered,
    (first, second): (&Stream, &Stream),
    block: DevicePtr<u8>,
) -> Result<()> {
    let freed = second.record()?;
    stage.wait(first, second)?;
    let next = pool.allocate(layout(BYTES), first)?;
    let ready = first.record()?;
    let pending = !second.is_done()?;
    let same = next.0 == block.0;
    // SAFETY: the first stream owns the block now.
    let others = unsafe { stage.others(first, words(next, BYTES), 3) }?;
    let (what, when) =
        (if same { "the same memory" } else { "other memory" }, if pending { "pending" } else { "done" });
    let found = format!("{what} with the free {when}, and {others} words of before the free's kernel");
    // If the driver rounded up, the block may be other memory with other contents. The CPU's pool
    // has no other memory.
    let holds = if same { others == 0 } else { !stage.is_cpu() };
    stage.check("reuse on stream 1 waits for stream 2's free", found, holds);
    let (found, holds) = match ready.elapsed(&freed) {
        Ok(after) => (format!("{} us after it", after.as_micros()), true),
        Err(Error::InvalidRequest(InvalidRequest::EventOrder)) => ("before it".into(), false),
        Err(error) => return Err(error),
    };
    stage.check("stream 1 comes to that memory after stream 2 to the free", found, holds);
    give(pool, first, next, layout(BYTES))
}

/// A pool without any reuse between streams.
fn alone(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let pool = build(stage, wrap, DriverPool::builder().reuse(ReusePolicies::none()))?;
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let block = pool.allocate(layout(BYTES), &first)?;
    stage.linger(&first)?;
    give(&*pool, &first, block, layout(BYTES))?;
    let next = pool.allocate(layout(BYTES), &second)?;
    stage.check_is("with no reuse between streams, stream 2 gets other memory", next.0 != block.0, true);
    give(&*pool, &second, next, layout(BYTES))
}
