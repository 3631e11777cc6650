//! `blocks`: a pool of equal blocks.

use super::calls::{Block, layout, words};
use super::owners::{Load, overlaps};
use super::stage::{Demo, Stage};
use std::collections::BTreeSet;
use warpheap::error::{InvalidFree, OutOfMemory};
use warpheap::host_pools::BlockPool;
use warpheap::{Error, Result, Stream};
use warpheap_device::kernel::DevicePtr;

pub const DEMO: Demo = Demo {
    name: "blocks",
    shows: "100 blocks of 4096 B from one allocation, with exact counts and separate contents",
    steps: &[count, exhaust, misuse, contents, order, threads],
};

const BLOCKS: usize = 100;
const BYTES: usize = 4096;
/// A value that no block holds before.
const NEW: u32 = 1007;

fn pool(stage: &Stage) -> Result<(BlockPool, Stream)> {
    let pool = BlockPool::builder(layout(BYTES), BLOCKS).build(&stage.device)?;
    Ok((pool, stage.stream.clone()))
}

fn allocate(stage: &Stage, pool: &BlockPool, count: usize, stream: &Stream) -> Result<Vec<Block>> {
    (0..count).map(|_| stage.allocate(pool, layout(BYTES), stream)).collect()
}

fn free(stage: &Stage, pool: &BlockPool, blocks: &[Block], stream: &Stream) -> Result<()> {
    blocks.iter().try_for_each(|block| stage.free(pool, *block, layout(BYTES), stream))
}

fn check_available(stage: &mut Stage, what: &str, pool: &BlockPool, expected: u64) {
    stage.check_is(what, pool.stats().free_blocks, expected);
}

fn count(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = pool(stage)?;
    stage.check_reported("free blocks at first", pool.stats().free_blocks, 100);
    let ten = allocate(stage, &pool, 10, &stream)?;
    check_available(stage, "with 10 allocated", &pool, 90);
    free(stage, &pool, &ten, &stream)?;
    check_available(stage, "after their frees", &pool, 100);
    Ok(())
}

fn exhaust(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = pool(stage)?;
    let blocks = allocate(stage, &pool, BLOCKS, &stream)?;
    let starts: BTreeSet<u64> = blocks.iter().map(|block| block.0 as u64).collect();
    stage.check_is("distinct addresses of 100 blocks", starts.len(), 100);
    let starts: Vec<u64> = starts.into_iter().collect();
    let are_apart = starts.windows(2).filter(|two| two[1] - two[0] == BYTES as u64).count() == BLOCKS - 1;
    stage.check("they are 4096 B apart", format_args!("from {:#x}", starts[0]), are_apart);
    let more = stage.allocate(&pool, layout(BYTES), &stream);
    stage.check_fails("the 101st", more, |error| {
        matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. }))
    });
    check_available(stage, "free blocks then", &pool, 0);
    free(stage, &pool, &blocks, &stream)
}

fn misuse(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = pool(stage)?;
    let blocks = allocate(stage, &pool, BLOCKS, &stream)?;
    let (first, foreign) = (blocks[0], stage.device.zeroed::<u64>(1)?);
    let check_rejected = |stage: &mut Stage, what: &str, block: Block| {
        let outcome = stage.free(&pool, block, layout(BYTES), &stream);
        let is_rejected = |error: &Error| matches!(error, Error::InvalidFree(InvalidFree::Block { .. }));
        stage.check_fails(what, outcome, is_rejected);
    };
    check_rejected(stage, "a free inside of a block", DevicePtr(first.0.wrapping_add(8)));
    check_rejected(stage, "a free of a foreign address", DevicePtr(foreign.ptr().0.cast()));
    free(stage, &pool, &[first], &stream)?;
    check_rejected(stage, "a double free", first);
    check_available(stage, "free blocks after those", &pool, 1);
    let again = stage.allocate(&pool, layout(BYTES), &stream)?;
    stage.check("the only free block is allocated next", format_args!("{:p}", again.0), again.0 == first.0);
    free(stage, &pool, &blocks, &stream)
}

/// Fills every block with a different number, in all its bytes.
fn contents(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = pool(stage)?;
    let blocks = allocate(stage, &pool, BLOCKS, &stream)?;
    for (number, block) in (1..).zip(&blocks) {
        stage.fill(&stream, words(*block, BYTES), number)?;
    }
    let mut different = 0;
    for (number, block) in (1..).zip(&blocks) {
        different += stage.different(&stream, words(*block, BYTES), number)?;
    }
    stage.check_is("wrong words of 102,400, each block filled by a kernel and read again", different, 0);
    free(stage, &pool, &blocks, &stream)?;
    check_available(stage, "free blocks after all frees", &pool, 100);
    Ok(())
}

/// A block that was freed while a kernel still writes to it is reused on another stream, ordered
/// after that write.
fn order(stage: &mut Stage) -> Result<()> {
    let ((pool, first), second) = (pool(stage)?, stage.new_stream()?);
    let mut all = allocate(stage, &pool, BLOCKS, &first)?;
    let block = all.swap_remove(0);
    stage.linger(&first)?;
    stage.fill(&first, words(block, BYTES), NEW)?;
    free(stage, &pool, &[block], &first)?;
    let when = if first.is_done()? { "after its kernel" } else { "while its kernel ran" };
    let next = stage.allocate(&pool, layout(BYTES), &second)?;
    stage.check_words(
        "the next owner, another stream, sees that kernel's writes",
        &second,
        words(next, BYTES),
        NEW,
    )?;
    stage.check(
        "it has the block that was freed behind the kernel",
        format_args!("freed {when}"),
        next.0 == block.0,
    );
    free(stage, &pool, &[next], &second)?;
    free(stage, &pool, &all, &first)
}

/// Every block has one owner at a time.
fn threads(stage: &mut Stage) -> Result<()> {
    let (pool, _) = pool(stage)?;
    let load = Load { operations: 10_000, most_held: BLOCKS / 8, size: |_| BYTES };
    stage.check_is("overlaps, 8 host threads with 10,000 operations each", overlaps(stage, &pool, load)?, 0);
    stage.check_reported("free blocks at the end", pool.stats().free_blocks, 100);
    Ok(())
}
