//! `region`: one region that is allocated from start to end, and then reset.

use super::calls::{Block, MIB, layout, words};
use super::fault::Fault;
use super::stage::{Demo, Stage};
use std::alloc::Layout;
use std::collections::BTreeSet;
use warpheap::error::{InvalidFree, InvalidRequest, OutOfMemory};
use warpheap::host_pools::{BumpPool, Overflow, PoolBuffer};
use warpheap::{Error, Result, Stream};

pub const DEMO: Demo = Demo {
    name: "region",
    shows: "a region serves aligned blocks, rejects what does not fit, and is reset in stream order",
    steps: &[alignments, too_large, reset_and_reuse, stale, order, floats, overflow],
};

const FLOATS: usize = 10_000_000;

fn pool(stage: &Stage, bytes: usize) -> Result<(BumpPool, Stream)> {
    let pool = BumpPool::builder(layout(bytes)).build(&stage.device)?;
    Ok((pool, stage.stream.clone()))
}

fn aligned(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a layout")
}

fn free_all(stage: &Stage, pool: &BumpPool, blocks: &[(Block, Layout)], stream: &Stream) -> Result<()> {
    blocks.iter().try_for_each(|(block, layout)| stage.free(pool, *block, *layout, stream))
}

fn check_cursor(stage: &mut Stage, what: &str, pool: &BumpPool, expected: u64) {
    stage.check_is(what, pool.stats().granted, expected);
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. }))
}

/// Resets the pool.
fn reset(stage: &Stage, pool: &BumpPool, stream: &Stream) -> Result<()> {
    match stage.fault {
        Some(Fault::NeverResets) if pool.stats().live_blocks == 0 => Ok(()),
        // SAFETY: no work uses the blocks.
        Some(Fault::ResetsEarly) => unsafe { pool.reset_unchecked(stream) },
        _ => pool.reset(stage.seen(stream)),
    }
}

fn alignments(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = pool(stage, MIB)?;
    let layouts = (0..=12).map(|power| aligned(3, 1 << power));
    let blocks = layouts.map(|layout| Ok((stage.allocate(&pool, layout, &stream)?, layout)));
    let blocks: Vec<_> = blocks.collect::<Result<_>>()?;
    let wrong = blocks.iter().filter(|(block, layout)| !block.0.addr().is_multiple_of(layout.align()));
    stage.check_is("misaligned blocks of 3 B, with alignments of 1 to 4096", wrong.count(), 0);
    let mut starts: Vec<_> = blocks.iter().map(|(block, _)| block.0.addr()).collect();
    starts.sort_unstable();
    let overlaps = starts.windows(2).filter(|two| two[1] - two[0] < 3).count();
    stage.check_is("blocks that overlap", overlaps, 0);
    free_all(stage, &pool, &blocks, &stream)
}

fn too_large(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = pool(stage, MIB)?;
    let first = stage.allocate(&pool, aligned(100, 4), &stream)?;
    let before = pool.stats();
    let overflows =
        |error: &Error| matches!(error, Error::InvalidRequest(InvalidRequest::SizeOverflow { .. }));
    let all = PoolBuffer::<u8, _>::new_uninit(&pool, usize::MAX, &stream);
    stage.check_fails("usize::MAX bytes", all, overflows);
    let wraps = PoolBuffer::<u32, _>::new_uninit(&pool, usize::MAX / 4 + 2, &stream);
    stage.check_fails("words whose size wraps around to 4 B", wraps, overflows);
    for (what, size, align) in [
        ("the largest size of a layout", isize::MAX as usize, 1),
        ("8 B aligned to 2^62", 8, 1 << 62),
        ("1 MiB when 100 B of 1 MiB are allocated", MIB, 1),
    ] {
        stage.check_fails(what, stage.allocate(&pool, aligned(size, align), &stream), is_full);
    }
    check_cursor(stage, "the cursor after those", &pool, 100);
    stage.check_is("all statistics after those", pool.stats(), before);
    stage.free(&pool, first, aligned(100, 4), &stream)
}

fn reset_and_reuse(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = pool(stage, MIB)?;
    let layouts = [aligned(100, 4), aligned(5000, 256), aligned(1, 1), aligned(64, 4096)];
    let allocate = |stage: &Stage| -> Result<Vec<_>> {
        layouts.into_iter().map(|layout| Ok((stage.allocate(&pool, layout, &stream)?, layout))).collect()
    };
    let first = allocate(stage)?;
    let granted = pool.stats().granted;
    let early = reset(stage, &pool, &stream);
    stage.check_fails("a reset with live blocks", early, |error| matches!(error, Error::InUse { .. }));
    check_cursor(stage, "the cursor is as before", &pool, granted);
    free_all(stage, &pool, &first, &stream)?;
    reset(stage, &pool, &stream)?;
    check_cursor(stage, "the cursor after the reset", &pool, 0);
    let second = allocate(stage)?;
    let addresses = |blocks: &[(Block, Layout)]| blocks.iter().map(|(block, _)| block.0.addr()).collect();
    let (old, new): (Vec<_>, Vec<_>) = (addresses(&first), addresses(&second));
    stage.check("the same 4 addresses again", format_args!("from {:#x}", new[0]), old == new);
    stage.check_is("distinct ones", new.into_iter().collect::<BTreeSet<_>>().len(), 4);
    free_all(stage, &pool, &second, &stream)
}

/// A handle from before the reset.
fn stale(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = pool(stage, MIB)?;
    let block = stage.allocate(&pool, aligned(100, 4), &stream)?;
    // SAFETY: no work uses the block.
    unsafe { pool.reset_unchecked(&stream) }?;
    let late = stage.free(&pool, block, aligned(100, 4), &stream);
    let is_rejected = |error: &Error| matches!(error, Error::InvalidFree(InvalidFree::Block { .. }));
    stage.check_fails("a free of a block from before a reset", late, is_rejected);
    Ok(())
}

/// Work in flight at the reset precedes later uses of the same memory.
fn order(stage: &mut Stage) -> Result<()> {
    let ((pool, first), second) = (pool(stage, MIB)?, stage.new_stream()?);
    let block = stage.allocate(&pool, layout(MIB), &first)?;
    stage.linger(&first)?;
    stage.fill(&first, words(block, MIB), 7)?;
    stage.free(&pool, block, layout(MIB), &first)?;
    reset(stage, &pool, &second)?;
    let next = stage.allocate(&pool, layout(MIB), &second)?;
    let when = if first.is_done()? { "after its kernel" } else { "while its kernel ran" };
    stage.check_words(
        "the next owner of the memory sees that kernel's writes",
        &second,
        words(next, MIB),
        7,
    )?;
    stage.check("it has the same address", format_args!("reset {when}"), next.0 == block.0);
    stage.free(&pool, next, layout(MIB), &second)
}

fn floats(stage: &mut Stage) -> Result<()> {
    let (small, stream) = pool(stage, 32 * MIB)?;
    let (bytes, one) = (4 * FLOATS, 1.0_f32.to_bits());
    stage.check_fails("10,000,000 floats in 32 MiB", stage.allocate(&small, layout(bytes), &stream), is_full);
    check_cursor(stage, "the cursor then", &small, 0);
    let (pool, _) = pool(stage, bytes)?;
    let block = stage.allocate(&pool, layout(bytes), &stream)?;
    stage.fill(&stream, words(block, bytes), one)?;
    stage.check_words("10,000,000 floats in 40 MB are 1.0", &stream, words(block, bytes), one)?;
    stage.free(&pool, block, layout(bytes), &stream)
}

fn overflow(stage: &mut Stage) -> Result<()> {
    let (default, stream) = pool(stage, MIB)?;
    let large = layout(2 * MIB);
    stage.check_fails("2 MiB in 1 MiB, by default", stage.allocate(&default, large, &stream), is_full);
    let pool = BumpPool::builder(layout(MIB)).overflow(Overflow::Upstream).build(&stage.device)?;
    let block = stage.allocate(&pool, large, &stream)?;
    stage.check_reported("with Overflow::Upstream: blocks of the upstream", pool.stats().overflow_blocks, 1);
    stage.check_reported("the cursor", pool.stats().granted, 0);
    stage.free(&pool, block, large, &stream)?;
    stage.check_is("blocks of the upstream after the free", pool.stats().overflow_blocks, 0);
    Ok(())
}
