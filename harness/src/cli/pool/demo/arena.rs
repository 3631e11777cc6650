//! `arena`: an arena that kernels allocate from, in one stream and in several.

use super::fault::Fault;
use super::stage::{Demo, Stage};
use std::collections::BTreeSet;
use warpheap::device_pools::Bump;
use warpheap::{DeviceBuffer, Result, Stream};
use warpheap_harness::kernels::demo::{NONE, demo_take};

pub const DEMO: Demo = Demo {
    name: "arena",
    shows: "threads of kernels allocate exactly the capacity of an arena, and no byte twice",
    steps: &[all_of_it, more_than_it, pieces, partial_grid, shared, separate],
};

/// Threads per stream.
const THREADS: u32 = 1024;
const WORD: u64 = 4;

fn arena(stage: &Stage, bytes: u64) -> Result<Bump> {
    let bytes = match stage.fault {
        Some(Fault::Large) => 2 * bytes,
        Some(Fault::Small) => 64,
        _ => bytes,
    };
    Bump::builder(bytes).min_align(WORD).shards(0).build(&stage.device)
}

/// A launch whose threads allocate, and write their numbers to their blocks.
struct Take {
    /// The number of the first thread.
    first: u32,
    /// The offset of each thread's block, once the stream has finished.
    offsets: DeviceBuffer<u64>,
}

impl Take {
    /// Launches `threads` threads that allocate `bytes` each.
    fn launch(
        stage: &Stage,
        stream: &Stream,
        arena: &Bump,
        threads: u32,
        bytes: u32,
        first: u32,
    ) -> Result<Take> {
        let threads = if stage.has(Fault::FullGrid) { threads.next_multiple_of(1024) } else { threads };
        let offsets = stage.device.from_slice(&vec![NONE; threads as usize])?;
        let args = (arena.handle(), threads, bytes, first, offsets.slice());
        // SAFETY: the arena and the offsets live until the stream has finished, because their drops
        // wait for the device; nothing else uses the offsets.
        unsafe { stage.launch(stream, demo_take, threads, args) }?;
        Ok(Take { first, offsets })
    }

    /// As [`launch`](Take::launch), on the `turn`th of several streams.
    fn on_stream(stage: &Stage, stream: &Stream, arena: &Bump, turn: u32) -> Result<Take> {
        Take::launch(stage, stream, arena, THREADS, 4, 1 + turn * THREADS)
    }

    /// The thread number and the offset of each successful allocation.
    fn blocks(&self, stage: &Stage) -> Result<Vec<(u32, u64)>> {
        let mut offsets = self.offsets.copy_to_vec()?;
        if stage.has(Fault::Overlapping) {
            let (one, two) = offsets.split_at_mut(self.offsets.len() / 2);
            two.copy_from_slice(one);
        }
        Ok((self.first..).zip(offsets).filter(|(_, offset)| *offset != NONE).collect())
    }
}

/// One launch, followed by a wait.
fn take(stage: &Stage, arena: &Bump, threads: u32, bytes: u32) -> Result<Vec<(u32, u64)>> {
    let blocks = Take::launch(stage, &stage.stream, arena, threads, bytes, 1)?.blocks(stage)?;
    let rest = arena.stats()?.remaining_bytes as u32;
    if stage.has(Fault::FailureConsumes) && blocks.is_empty() && rest > 0 {
        Take::launch(stage, &stage.stream, arena, 1, rest, 1)?.blocks(stage)?;
    }
    Ok(blocks)
}

fn distinct(blocks: &[(u32, u64)]) -> usize {
    blocks.iter().map(|(_, offset)| offset).collect::<BTreeSet<_>>().len()
}

/// Number of blocks that do not hold the number of their thread.
fn wrong_values(arena: &Bump, blocks: &[(u32, u64)]) -> Result<usize> {
    let mut words = vec![0_u32; (arena.memory().bytes() / WORD) as usize];
    arena.memory().read(0, &mut words)?;
    Ok(blocks.iter().filter(|(number, offset)| words.get((offset / WORD) as usize) != Some(number)).count())
}

/// Allocated bytes, if the counters have settled.
fn cursor(arena: &Bump) -> Result<Option<u64>> {
    let stats = arena.stats()?;
    Ok((stats.unsettled == 0).then_some(stats.usage.used_bytes))
}

fn check(stage: &mut Stage, arena: &Bump, blocks: &[(u32, u64)], threads: u64) -> Result<()> {
    stage.check_is("distinct offsets", distinct(blocks) as u64, threads);
    stage.check_is("the cursor", cursor(arena)?, Some(threads * WORD));
    stage.check_is("wrong values", wrong_values(arena, blocks)?, 0);
    Ok(())
}

fn all_of_it(stage: &mut Stage) -> Result<()> {
    stage.say("1024 threads allocate 4 B each of 4096 B");
    let arena = arena(stage, 4096)?;
    let blocks = take(stage, &arena, THREADS, 4)?;
    check(stage, &arena, &blocks, 1024)
}

fn more_than_it(stage: &mut Stage) -> Result<()> {
    stage.say("2048 threads allocate 4 B each of 4096 B");
    let arena = arena(stage, 4096)?;
    let blocks = take(stage, &arena, 2 * THREADS, 4)?;
    stage.check_is("failed allocations", 2048 - blocks.len(), 1024);
    check(stage, &arena, &blocks, 1024)
}

fn pieces(stage: &mut Stage) -> Result<()> {
    stage.say("4000, 200 and 96 B of 4096 B");
    let arena = arena(stage, 4096)?;
    for (bytes, expected) in [(4000, 1), (200, 0), (96, 1)] {
        let blocks = take(stage, &arena, 1, bytes)?;
        stage.check_is(format!("successful allocations of {bytes} B"), blocks.len(), expected);
    }
    stage.check_is("the cursor", cursor(&arena)?, Some(4096));
    Ok(())
}

fn partial_grid(stage: &mut Stage) -> Result<()> {
    stage.say("1000 allocations by a grid of 1024 threads");
    let arena = arena(stage, 8192)?;
    let blocks = take(stage, &arena, 1000, 4)?;
    check(stage, &arena, &blocks, 1000)
}

fn shared(stage: &mut Stage) -> Result<()> {
    for streams in [1, 2, 4, 8, 32] {
        stage.say(format_args!("{streams} streams share an arena, with 1024 threads each and room for all"));
        let arena = arena(stage, u64::from(streams * THREADS) * WORD)?;
        let all: Vec<Stream> = (0..streams).map(|_| stage.new_stream()).collect::<Result<_>>()?;
        let takes = (0..).zip(&all).map(|(turn, stream)| Take::on_stream(stage, stream, &arena, turn));
        let takes: Vec<Take> = takes.collect::<Result<_>>()?;
        let blocks = takes.iter().map(|take| take.blocks(stage)).collect::<Result<Vec<_>>>()?.concat();
        check(stage, &arena, &blocks, (streams * THREADS).into())?;
    }
    Ok(())
}

fn separate(stage: &mut Stage) -> Result<()> {
    stage.say("8 streams with an arena each");
    let mut takes = Vec::new();
    for turn in 0..8 {
        let (arena, stream) = (arena(stage, 4096)?, stage.new_stream()?);
        takes.push((Take::on_stream(stage, &stream, &arena, turn)?, arena));
    }
    let (mut offsets, mut cursors, mut wrong) = (0, BTreeSet::new(), 0);
    for (take, arena) in &takes {
        let blocks = take.blocks(stage)?;
        offsets += distinct(&blocks);
        cursors.insert(cursor(arena)?);
        wrong += wrong_values(arena, &blocks)?;
    }
    stage.check_is("distinct offsets in all arenas", offsets, 8 * THREADS as usize);
    stage.check_is("the cursors", cursors, BTreeSet::from([Some(4096)]));
    stage.check_is("wrong values", wrong, 0);
    Ok(())
}
