//! S4: an arena that kernels allocate from, in one stream and in several.

#[cfg(test)]
mod tests;

use super::{Demo, Stage};
use std::collections::BTreeSet;
use warpheap::device_pools::{Bump, BumpStats};
use warpheap::{DeviceBuffer, Result, Stream, kernel_names};
use warpheap_harness::kernels::demo::{NONE, demo_take};

pub const DEMO: Demo = Demo {
    name: "S4",
    shows: "threads of kernels take exactly what an arena has, and no byte twice",
    launched: &kernel_names![demo_take],
    run: |stage| STEPS.iter().try_for_each(|step| step(stage, &|arena| Box::new(arena))),
};

/// Threads per stream.
const THREADS: u32 = 1024;
const WORD: u64 = 4;

/// The interface of the arenas in this demonstration.
trait Arena {
    /// Lets `threads` threads allocate `bytes` each and write their numbers, which start at
    /// `first`. The returned buffer holds the offset of each once the stream has finished.
    fn take(
        &self,
        stage: &Stage<'_>,
        stream: &Stream,
        threads: u32,
        bytes: u32,
        first: u32,
    ) -> Result<DeviceBuffer<u64>>;
    /// The contents of its memory.
    fn words(&self) -> Result<Vec<u32>>;
    fn stats(&self) -> Result<BumpStats>;
}

impl Arena for Bump {
    fn take(
        &self,
        stage: &Stage<'_>,
        stream: &Stream,
        threads: u32,
        bytes: u32,
        first: u32,
    ) -> Result<DeviceBuffer<u64>> {
        let offsets = stage.device().from_slice(&vec![NONE; threads as usize])?;
        let args = (self.handle(), threads, bytes, first, offsets.slice());
        // SAFETY: the arena and the offsets live until the stream is synchronised; nothing else
        // uses the offsets.
        unsafe { stage.launch(stream, demo_take, threads, args) }?;
        Ok(offsets)
    }

    fn words(&self) -> Result<Vec<u32>> {
        let mut words = vec![0; (self.memory().bytes() / WORD) as usize];
        self.memory().read(0, &mut words)?;
        Ok(words)
    }

    fn stats(&self) -> Result<BumpStats> {
        self.stats()
    }
}

/// Wraps each real arena before use: the identity, except in tests, which inject a fault.
type Wrap<'a> = &'a dyn Fn(Bump) -> Box<dyn Arena>;
type Step = fn(&mut Stage<'_>, Wrap<'_>) -> Result<()>;

const STEPS: [Step; 6] = [all_of_it, more_than_it, pieces, fewer, one_arena, an_arena_each];

fn build(stage: &Stage<'_>, bytes: u64) -> Result<Bump> {
    Bump::builder(bytes).min_align(WORD).shards(0).build(stage.device())
}

fn arena(stage: &Stage<'_>, wrap: Wrap<'_>, bytes: u64) -> Result<Box<dyn Arena>> {
    Ok(wrap(build(stage, bytes)?))
}

/// A launch, and the buffer that receives each thread's offset.
struct Take {
    offsets: DeviceBuffer<u64>,
    first: u32,
}

impl Take {
    /// Launches on the `turn`th of several streams. Each stream has its own range of thread
    /// numbers.
    fn on_stream(stage: &Stage<'_>, stream: &Stream, arena: &dyn Arena, turn: u32) -> Result<Take> {
        let first = 1 + turn * THREADS;
        Ok(Take { offsets: arena.take(stage, stream, THREADS, 4, first)?, first })
    }

    /// The thread number and the offset of each successful allocation.
    fn granted(&self) -> Result<Vec<(u32, u64)>> {
        let offsets = self.offsets.copy_to_vec()?;
        Ok((self.first..).zip(offsets).filter(|(_, offset)| *offset != NONE).collect())
    }
}

/// One launch, followed by a wait.
fn take(stage: &Stage<'_>, arena: &dyn Arena, threads: u32, bytes: u32) -> Result<Vec<(u32, u64)>> {
    Take { offsets: arena.take(stage, stage.stream(), threads, bytes, 1)?, first: 1 }.granted()
}

fn distinct(granted: &[(u32, u64)]) -> usize {
    granted.iter().map(|(_, offset)| offset).collect::<BTreeSet<_>>().len()
}

/// Number of offsets with a word that their thread did not write.
fn wrong_values(arena: &dyn Arena, granted: &[(u32, u64)]) -> Result<usize> {
    let words = arena.words()?;
    let is_wrong = |(number, offset): &&(u32, u64)| {
        words.get((offset / WORD) as usize).is_none_or(|word| word != number)
    };
    Ok(granted.iter().filter(is_wrong).count())
}

/// Allocated bytes, if the counters have settled.
fn cursor(arena: &dyn Arena) -> Result<Option<u64>> {
    let stats = arena.stats()?;
    Ok((stats.unsettled == 0).then_some(stats.usage.used_bytes))
}

fn check_cursor(stage: &mut Stage<'_>, arena: &dyn Arena, expected: u64) -> Result<()> {
    match cursor(arena)? {
        Some(used) => stage.check_is("the cursor", used, expected),
        None => stage.check("the cursor", "the counters of the arena never settled", false),
    }
    Ok(())
}

fn all_of_it(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    stage.say("1024 threads take 4 B each of 4096 B");
    let arena = arena(stage, wrap, 4096)?;
    let granted = take(stage, &*arena, THREADS, 4)?;
    stage.check_is("distinct offsets", distinct(&granted), 1024);
    check_cursor(stage, &*arena, 4096)?;
    stage.check_is("wrong values", wrong_values(&*arena, &granted)?, 0);
    Ok(())
}

fn more_than_it(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    stage.say("2048 threads take 4 B each of 4096 B");
    let arena = arena(stage, wrap, 4096)?;
    let granted = take(stage, &*arena, 2 * THREADS, 4)?;
    stage.check_is("threads that got nothing", 2048 - granted.len(), 1024);
    stage.check_is("distinct offsets", distinct(&granted), 1024);
    check_cursor(stage, &*arena, 4096)?;
    stage.check_is("wrong values", wrong_values(&*arena, &granted)?, 0);
    Ok(())
}

fn pieces(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    stage.say("4096 B in pieces of 4000, 200 and 96 B");
    let arena = arena(stage, wrap, 4096)?;
    for (bytes, expected) in [(4000, 1), (200, 0), (96, 1)] {
        let granted = take(stage, &*arena, 1, bytes)?;
        stage.check_is(format!("pieces of {bytes} B that were granted"), granted.len(), expected);
    }
    check_cursor(stage, &*arena, 4096)?;
    Ok(())
}

fn fewer(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    stage.say("1000 allocations by a grid of 1024 threads");
    let arena = arena(stage, wrap, 8192)?;
    let granted = take(stage, &*arena, 1000, 4)?;
    stage.check_is("distinct offsets", distinct(&granted), 1000);
    check_cursor(stage, &*arena, 4000)?;
    Ok(())
}

fn one_arena(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    [1, 2, 4, 8, 32].into_iter().try_for_each(|streams| streams_on_one(stage, wrap, streams))
}

fn streams_on_one(stage: &mut Stage<'_>, wrap: Wrap<'_>, streams: u32) -> Result<()> {
    stage.say(format_args!("{streams} streams on one arena, with 1024 threads each and room for all"));
    let arena = arena(stage, wrap, u64::from(streams * THREADS) * WORD)?;
    let all: Vec<Stream> = (0..streams).map(|_| stage.new_stream()).collect::<Result<_>>()?;
    let takes = (0..).zip(&all).map(|(turn, stream)| Take::on_stream(stage, stream, &*arena, turn));
    let takes: Vec<Take> = takes.collect::<Result<_>>()?;
    let granted: Vec<_> = takes.iter().map(Take::granted).collect::<Result<Vec<_>>>()?.concat();
    let threads = (streams * THREADS) as usize;
    stage.check_is("distinct offsets", distinct(&granted), threads);
    check_cursor(stage, &*arena, threads as u64 * WORD)?;
    stage.check_is("wrong values", wrong_values(&*arena, &granted)?, 0);
    Ok(())
}

fn an_arena_each(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let streams = 8;
    stage.say(format_args!("{streams} streams with an arena each"));
    let (mut offsets, mut cursors, mut wrong) = (0, BTreeSet::new(), 0);
    let mut takes = Vec::new();
    for turn in 0..streams {
        let (arena, stream) = (arena(stage, wrap, 4096)?, stage.new_stream()?);
        takes.push((Take::on_stream(stage, &stream, &*arena, turn)?, arena));
    }
    for (take, arena) in &takes {
        let granted = take.granted()?;
        offsets += distinct(&granted);
        cursors.insert(cursor(&**arena)?);
        wrong += wrong_values(&**arena, &granted)?;
    }
    stage.check_is("distinct offsets of all", offsets, (streams * THREADS) as usize);
    stage.check_is("the cursors", cursors, BTreeSet::from([Some(4096)]));
    stage.check_is("wrong values", wrong, 0);
    Ok(())
}
