//! S3: one region that is allocated from start to end, and then reset.

#[cfg(test)]
mod tests;

use super::{Demo, Stage};
use std::alloc::Layout;
use std::collections::BTreeSet;
use warpheap::error::{InvalidFree, InvalidRequest, OutOfMemory};
use warpheap::host_pools::{
    BumpPool, BumpPoolStats, DeviceAllocator, Overflow, PoolBuffer, SyncDriverAllocator,
};
use warpheap::{Error, Result, Stream, kernel_names};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::kernels::demo::{demo_count_others, demo_fill};

pub const DEMO: Demo = Demo {
    name: "S3",
    shows: "a region is handed out aligned, refuses what does not fit without a trace, and starts again in order",
    launched: &kernel_names![demo_fill, demo_count_others, bench_spin],
    run: |stage| STEPS.iter().try_for_each(|step| step(stage, &|pool| pool)),
};

/// The interface of the pools in this demonstration.
trait Region: DeviceAllocator {
    fn stats(&self) -> BumpPoolStats;
    fn overflow(&self) -> Overflow;
    fn reset(&self, stream: &Stream) -> Result<()>;
    /// # Safety
    /// That of [`BumpPool::reset_unchecked`].
    unsafe fn reset_unchecked(&self, stream: &Stream) -> Result<()>;
}

impl Region for BumpPool<SyncDriverAllocator> {
    fn stats(&self) -> BumpPoolStats {
        self.stats()
    }

    fn overflow(&self) -> Overflow {
        self.overflow()
    }

    fn reset(&self, stream: &Stream) -> Result<()> {
        self.reset(stream)
    }

    unsafe fn reset_unchecked(&self, stream: &Stream) -> Result<()> {
        // SAFETY: `reset_unchecked` requires what the pool's `reset_unchecked` requires.
        unsafe { self.reset_unchecked(stream) }
    }
}

type Pool = Box<dyn Region>;
/// Wraps each real pool before use: the identity, except in tests, which inject a fault.
type Wrap<'a> = &'a dyn Fn(Pool) -> Pool;
type Step = fn(&mut Stage<'_>, Wrap<'_>) -> Result<()>;

const STEPS: [Step; 7] = [alignments, too_much, reset, stale, order, floats, overflow];

const MIB: usize = 1 << 20;
const FLOATS: usize = 10_000_000;
const FLOAT_BYTES: usize = 4 * FLOATS;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a layout")
}

fn pool(stage: &Stage<'_>, wrap: Wrap<'_>, bytes: usize, policy: Overflow) -> Result<Pool> {
    let memory = SyncDriverAllocator::new(stage.device());
    Ok(wrap(Box::new(BumpPool::builder(layout(bytes, 256)).overflow(policy).build_over(memory)?)))
}

/// A pool with the default policy.
fn plain(stage: &Stage<'_>, wrap: Wrap<'_>, bytes: usize) -> Result<Pool> {
    Ok(wrap(Box::new(
        BumpPool::builder(layout(bytes, 256)).build_over(SyncDriverAllocator::new(stage.device()))?,
    )))
}

fn give(pool: &dyn Region, stream: &Stream, block: DevicePtr<u8>, of: Layout) -> Result<()> {
    // SAFETY: after its free, a block is used only by work submitted to the stream before.
    unsafe { pool.deallocate(block, of, stream) }
}

fn alignments(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, stream) = (plain(stage, wrap, MIB)?, stage.stream().clone());
    let (mut blocks, mut wrong) = (Vec::new(), 0);
    for align in (0..=12).map(|power| 1 << power) {
        let block = pool.allocate(layout(3, align), &stream)?;
        wrong += usize::from(!block.0.addr().is_multiple_of(align));
        blocks.push((block, layout(3, align)));
    }
    stage.check_is("blocks of 3 B off their alignment, of 1 to 4096", wrong, 0);
    let mut starts: Vec<_> = blocks.iter().map(|(block, _)| block.0.addr()).collect();
    starts.sort_unstable();
    let overlaps = starts.windows(2).filter(|two| two[1] - two[0] < 3).count();
    stage.check_is("blocks that overlap", overlaps, 0);
    blocks.into_iter().try_for_each(|(block, of)| give(&*pool, &stream, block, of))
}

fn too_much(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, stream) = (plain(stage, wrap, MIB)?, stage.stream().clone());
    let first = pool.allocate(layout(100, 4), &stream)?;
    let before = pool.stats();
    let is_overflow =
        |error: &Error| matches!(error, Error::InvalidRequest(InvalidRequest::SizeOverflow { .. }));
    let is_full = |error: &Error| matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. }));
    let all = PoolBuffer::<u8, _>::new_uninit(&*pool, usize::MAX, &stream);
    stage.check_refused("usize::MAX bytes", all, is_overflow);
    let wraps = PoolBuffer::<u32, _>::new_uninit(&*pool, usize::MAX / 4 + 2, &stream);
    stage.check_refused("as many words as wrap around to 4 B", wraps, is_overflow);
    let most = pool.allocate(layout(isize::MAX as usize, 1), &stream);
    stage.check_refused("the most that a layout can have", most, is_full);
    let far = pool.allocate(layout(8, 1 << 62), &stream);
    stage.check_refused("8 B aligned to 2^62", far, is_full);
    let more = pool.allocate(layout(MIB, 1), &stream);
    stage.check_refused("1 MiB of what is left of 1 MiB", more, is_full);
    stage.check_is("the cursor after those", pool.stats().granted, 100);
    stage.check("and all else", format!("{:?}", pool.stats()), pool.stats() == before);
    give(&*pool, &stream, first, layout(100, 4))
}

/// Allocates blocks of several sizes and alignments.
fn some(pool: &dyn Region, stream: &Stream) -> Result<Vec<(DevicePtr<u8>, Layout)>> {
    let layouts = [layout(100, 4), layout(5000, 256), layout(1, 1), layout(64, 4096)];
    layouts.into_iter().map(|of| pool.allocate(of, stream).map(|block| (block, of))).collect()
}

fn reset(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, stream) = (plain(stage, wrap, MIB)?, stage.stream().clone());
    let first = some(&*pool, &stream)?;
    let granted = pool.stats().granted;
    let early = pool.reset(&stream);
    stage.check_refused("a reset with blocks live", early, |error| matches!(error, Error::InUse { .. }));
    stage.check_is("the cursor then", pool.stats().granted, granted);
    first.iter().try_for_each(|(block, of)| give(&*pool, &stream, *block, *of))?;
    pool.reset(&stream)?;
    stage.check_is("the cursor after the reset", pool.stats().granted, 0);
    let second = some(&*pool, &stream)?;
    let same = first.iter().zip(&second).filter(|(one, two)| one.0.0 == two.0.0).count();
    stage.check_is("the same addresses again, of 4", same, 4);
    let distinct: BTreeSet<_> = second.iter().map(|(block, _)| block.0.addr()).collect();
    stage.check_is("distinct ones", distinct.len(), 4);
    second.iter().try_for_each(|(block, of)| give(&*pool, &stream, *block, *of))
}

/// A handle from before the reset.
fn stale(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, stream) = (plain(stage, wrap, MIB)?, stage.stream().clone());
    let block = pool.allocate(layout(100, 4), &stream)?;
    // SAFETY: no work uses the block.
    unsafe { pool.reset_unchecked(&stream) }?;
    let late = give(&*pool, &stream, block, layout(100, 4));
    let is_it = |error: &Error| matches!(error, Error::InvalidFree(InvalidFree::Block { .. }));
    stage.check_refused("a free of a block that a reset took back", late, is_it);
    Ok(())
}

/// Work in flight at the reset precedes later uses of the same memory.
fn order(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, of) = (plain(stage, wrap, MIB)?, layout(MIB, 256));
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let block = pool.allocate(of, &first)?;
    stage.linger(&first)?;
    // SAFETY: the block is live, and only that stream uses it until the free.
    unsafe { stage.fill(&first, words(block, MIB), 7) }?;
    give(&*pool, &first, block, of)?;
    pool.reset(&second)?;
    let next = pool.allocate(of, &second)?;
    let when = if first.is_done()? { "it had ended" } else { "it ran" };
    // Before the checks, which open the gate of a planted disorder.
    // SAFETY: the second stream owns the block now.
    let others = unsafe { stage.others(&second, words(next, MIB), 7) }?;
    stage.check_is("a reset while a kernel writes gives the same address", next.0 == block.0, true);
    let found = format!("{others} words are from before; at the reset {when}");
    stage.check("what that kernel wrote comes first", found, others == 0);
    give(&*pool, &second, next, of)
}

fn words(block: DevicePtr<u8>, bytes: usize) -> DeviceSlice<u32> {
    // SAFETY: the block has that many bytes, and a launch checks that they are live.
    unsafe { DeviceSlice::from_raw_parts(block.0.cast(), bytes as u64 / 4) }
}

fn floats(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (stream, of) = (stage.stream().clone(), layout(FLOAT_BYTES, 4));
    let small = plain(stage, wrap, 32 * MIB)?;
    let is_full = |error: &Error| matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. }));
    stage.check_refused("10,000,000 floats in 32 MiB", small.allocate(of, &stream), is_full);
    stage.check_is("the cursor then", small.stats().granted, 0);
    let pool = plain(stage, wrap, FLOAT_BYTES)?;
    let block = pool.allocate(of, &stream)?;
    let one = 1.0_f32.to_bits();
    // SAFETY: the block is live, and only this stream uses it.
    unsafe { stage.fill(&stream, words(block, FLOAT_BYTES), one) }?;
    // SAFETY: the block is live, and only this stream uses it.
    let others = unsafe { stage.others(&stream, words(block, FLOAT_BYTES), one) }?;
    stage.check_is("floats of 10,000,000 in 40 MB that are not 1.0 after the kernel", others, 0);
    give(&*pool, &stream, block, of)
}

fn overflow(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (stream, of) = (stage.stream().clone(), layout(2 * MIB, 256));
    stage.check_is(
        "the policy unless another is asked for",
        plain(stage, wrap, MIB)?.overflow(),
        Overflow::Error,
    );
    let pool = pool(stage, wrap, MIB, Overflow::Upstream)?;
    let block = pool.allocate(of, &stream)?;
    let stats = pool.stats();
    stage.check_is("with the upstream's as policy: its blocks for 2 MiB of 1 MiB", stats.overflow_blocks, 1);
    stage.check_is("the cursor", stats.granted, 0);
    give(&*pool, &stream, block, of)?;
    stage.check_is("the upstream's blocks after the free", pool.stats().overflow_blocks, 0);
    Ok(())
}
