//! S1: a pool of equal blocks.

#[cfg(test)]
mod tests;

use super::{Demo, Stage};
use std::alloc::Layout;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::thread;
use warpheap::error::{InvalidFree, OutOfMemory};
use warpheap::host_pools::{BlockPool, DeviceAllocator, SyncDriverAllocator};
use warpheap::{Error, Result, Stream, kernel_names};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::kernels::demo::{demo_count_others, demo_fill};

pub const DEMO: Demo = Demo {
    name: "S1",
    shows: "100 blocks of 4096 B from one allocation, whose count and contents are right whatever is done with them",
    launched: &kernel_names![demo_fill, demo_count_others, bench_spin],
    run: |stage| {
        let pool = pool(stage)?;
        STEPS.iter().try_for_each(|step| step(stage, &pool))
    },
};

const BLOCKS: usize = 100;
const BYTES: usize = 4096;
/// A value that no block holds before.
const NEW: u32 = 1007;
const HOSTS: usize = 8;
/// Pairs of blocks per host thread, which holds two at a time: 5,000 pairs of allocation and free.
const TURNS: usize = 2_500;

/// The interface of the pools in this demonstration.
trait Blocks: DeviceAllocator {
    fn available(&self) -> usize;
}

impl Blocks for BlockPool<SyncDriverAllocator> {
    fn available(&self) -> usize {
        self.stats().free_blocks as usize
    }
}

type Block = DevicePtr<u8>;
/// A step. It leaves the pool as it found it. All steps share one pool, except in tests, where each
/// has its own faulty pool.
type Step = fn(&mut Stage<'_>, &dyn Blocks) -> Result<()>;

const STEPS: [Step; 6] = [count, exhaust, misuse, contents, order, threads];

fn layout() -> Layout {
    Layout::new::<[u8; BYTES]>().align_to(256).expect("an alignment")
}

fn pool(stage: &Stage<'_>) -> Result<BlockPool<SyncDriverAllocator>> {
    BlockPool::builder(layout(), BLOCKS).build_over(SyncDriverAllocator::new(stage.device()))
}

fn take(pool: &dyn Blocks, stream: &Stream, count: usize) -> Result<Vec<Block>> {
    (0..count).map(|_| pool.allocate(layout(), stream)).collect()
}

fn give(pool: &dyn Blocks, stream: &Stream, block: Block) -> Result<()> {
    // SAFETY: after its free, a block is used only by work submitted to the stream before.
    unsafe { pool.deallocate(block, layout(), stream) }
}

fn give_all(pool: &dyn Blocks, stream: &Stream, blocks: &[Block]) -> Result<()> {
    blocks.iter().try_for_each(|block| give(pool, stream, *block))
}

fn words(block: Block) -> DeviceSlice<u32> {
    // SAFETY: the block has that many bytes, and a launch checks that they are live.
    unsafe { DeviceSlice::from_raw_parts(block.0.cast(), BYTES as u64 / 4) }
}

fn count(stage: &mut Stage<'_>, pool: &dyn Blocks) -> Result<()> {
    let stream = stage.stream().clone();
    stage.check_is("blocks available at first", pool.available(), 100);
    let ten = take(pool, &stream, 10)?;
    stage.check_is("with 10 allocated", pool.available(), 90);
    give_all(pool, &stream, &ten)?;
    stage.check_is("with those given back", pool.available(), 100);
    Ok(())
}

fn exhaust(stage: &mut Stage<'_>, pool: &dyn Blocks) -> Result<()> {
    let stream = stage.stream().clone();
    let blocks = take(pool, &stream, BLOCKS)?;
    let starts: BTreeSet<u64> = blocks.iter().map(|block| block.0 as u64).collect();
    stage.check_is("distinct addresses of 100 blocks", starts.len(), 100);
    let starts: Vec<u64> = starts.into_iter().collect();
    let apart = starts.windows(2).filter(|two| two[1] - two[0] == BYTES as u64).count() == BLOCKS - 1;
    stage.check("they are 4096 B apart", format!("from {:#x} on", starts[0]), apart);
    let more = pool.allocate(layout(), &stream);
    stage.check_refused("the 101st", more, |error| {
        matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. }))
    });
    stage.check_is("available then", pool.available(), 0);
    give_all(pool, &stream, &blocks)
}

fn misuse(stage: &mut Stage<'_>, pool: &dyn Blocks) -> Result<()> {
    let stream = stage.stream().clone();
    let blocks = take(pool, &stream, BLOCKS)?;
    let (first, foreign) = (blocks[0], stage.device().zeroed::<u64>(1)?);
    let mut refused = |what: &str, address: Block| {
        let outcome = give(pool, &stream, address);
        stage.check_refused(what, outcome, |error| {
            matches!(error, Error::InvalidFree(InvalidFree::Block { .. }))
        });
    };
    refused("an address inside of a block", DevicePtr(first.0.wrapping_add(8)));
    refused("a foreign address", DevicePtr(foreign.ptr().0.cast()));
    give(pool, &stream, first)?;
    refused("a block that was given back before", first);
    stage.check_is("available after those", pool.available(), 1);
    let again = pool.allocate(layout(), &stream)?;
    let found = format!("{:#x}", again.0 as usize);
    stage.check("the only free block is the one that is handed out", found, again.0 == first.0);
    give_all(pool, &stream, &blocks)
}

/// Fills every block with a different number, in all its bytes.
fn contents(stage: &mut Stage<'_>, pool: &dyn Blocks) -> Result<()> {
    let stream = stage.stream().clone();
    let blocks = take(pool, &stream, BLOCKS)?;
    for (number, block) in (1_u32..).zip(&blocks) {
        // SAFETY: the block is live, and only this stream uses it.
        unsafe { stage.fill(&stream, words(*block), number) }?;
    }
    let mut others = 0;
    for (number, block) in (1_u32..).zip(&blocks) {
        // SAFETY: the block is live, and only this stream uses it.
        others += unsafe { stage.others(&stream, words(*block), number) }?;
    }
    stage.check_is("wrong words of 102,400 that kernels filled and read again", others, 0);
    give_all(pool, &stream, &blocks)?;
    stage.check_is("available with all given back", pool.available(), 100);
    Ok(())
}

/// A block that was freed while a kernel still writes to it is reused on another stream, ordered
/// after that write.
fn order(stage: &mut Stage<'_>, pool: &dyn Blocks) -> Result<()> {
    let (first, second) = (stage.new_stream()?, stage.new_stream()?);
    let mut all = take(pool, &first, BLOCKS)?;
    let block = all.swap_remove(0);
    stage.linger(&first)?;
    // SAFETY: the block is live, and only that stream uses it until the free.
    unsafe { stage.fill(&first, words(block), NEW) }?;
    give(pool, &first, block)?;
    let pending = !first.is_done()?;
    let next = pool.allocate(layout(), &second)?;
    // Before the checks, which open the gate of a planted disorder.
    // SAFETY: the second stream owns the block now.
    let others = unsafe { stage.others(&second, words(next), NEW) }?;
    let found = format!("{:#x}", next.0 as usize);
    stage.check("a block that was freed behind a kernel goes to another stream", found, next.0 == block.0);
    let while_pending = if pending { "while it ran" } else { "after it had ended" };
    let found = format!("{others} words are from before, with the free {while_pending}");
    stage.check("what that kernel wrote comes first", found, others == 0);
    give(pool, &second, next)?;
    give_all(pool, &first, &all)
}

/// Every block has one owner at a time, and its owner gets it once.
fn threads(stage: &mut Stage<'_>, pool: &dyn Blocks) -> Result<()> {
    let (owned, device) = (Mutex::new(BTreeSet::new()), stage.device().clone());
    let work = || -> Result<usize> {
        let (stream, mut overlaps) = (device.stream()?, 0);
        for _ in 0..TURNS {
            let two = take(pool, &stream, 2)?;
            let mut guard = owned.lock().unwrap_or_else(PoisonError::into_inner);
            overlaps += two.iter().filter(|block| !guard.insert(block.0 as usize)).count();
            drop(guard);
            let mut guard = owned.lock().unwrap_or_else(PoisonError::into_inner);
            overlaps += two.iter().filter(|block| !guard.remove(&(block.0 as usize))).count();
            drop(guard);
            give_all(pool, &stream, &two)?;
        }
        Ok(overlaps)
    };
    let overlaps = thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS).map(|_| scope.spawn(work)).collect();
        let joined = hosts.into_iter().map(|host| host.join());
        joined
            .map(|host| host.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum::<Result<usize>>()
    })?;
    stage.check_is("blocks with two owners, 8 host threads with 5,000 pairs each", overlaps, 0);
    stage.check_is("available at the end", pool.available(), 100);
    Ok(())
}
