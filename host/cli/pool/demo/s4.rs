//! S4: an arena that kernels allocate from, in one stream and in several.

use super::{Demo, Stage};
use std::collections::BTreeSet;
use warpheap::pool::Bump;
use warpheap::{DeviceBuffer, Error, Result, Stream, kernel_names};
use warpheap_kernels::demo::{NONE, demo_take};

pub const DEMO: Demo = Demo {
    name: "S4",
    shows: "threads of kernels take exactly what an arena has, and no byte twice",
    launched: &kernel_names![demo_take],
    run,
};

/// Threads of each stream.
const THREADS: u32 = 1024;
const WORD: u64 = 4;

fn run(stage: &mut Stage<'_>) -> Result<()> {
    all_of_it(stage)?;
    more_than_it(stage)?;
    pieces(stage)?;
    fewer(stage)?;
    for streams in [1, 2, 4, 8, 32] {
        one_arena(stage, streams)?;
    }
    an_arena_each(stage, 8)
}

fn arena(stage: &Stage<'_>, bytes: u64) -> Result<Bump> {
    Bump::builder(bytes).min_align(WORD).shards(0).build(stage.device())
}

/// A launch, and where it will have written what each thread got.
struct Take {
    offsets: DeviceBuffer<u64>,
    first: u32,
}

impl Take {
    /// Lets `threads` threads take `bytes` each, and write their numbers, from `first` on.
    fn launch(
        stage: &Stage<'_>,
        stream: &Stream,
        arena: &Bump,
        threads: u32,
        bytes: u32,
        first: u32,
    ) -> Result<Take> {
        let offsets = stage.device().from_slice(&vec![NONE; threads as usize])?;
        let args = (arena.handle(), threads, bytes, first, offsets.slice());
        // SAFETY: the arena and the offsets live until the stream is done; nobody else has the offsets.
        unsafe { stage.launch(stream, demo_take, threads, args) }?;
        Ok(Take { offsets, first })
    }

    /// Who got what: the thread's number and the offset of those that were not refused.
    fn granted(&self) -> Result<Vec<(u32, u64)>> {
        let offsets = self.offsets.copy_to_vec()?;
        Ok((self.first..).zip(offsets).filter(|(_, offset)| *offset != NONE).collect())
    }
}

/// One launch, waited for.
fn take(stage: &Stage<'_>, arena: &Bump, threads: u32, bytes: u32) -> Result<Vec<(u32, u64)>> {
    Take::launch(stage, stage.stream(), arena, threads, bytes, 1)?.granted()
}

fn distinct(granted: &[(u32, u64)]) -> usize {
    granted.iter().map(|(_, offset)| offset).collect::<BTreeSet<_>>().len()
}

/// Words at the offsets that are not what their threads wrote.
fn wrong_values(arena: &Bump, granted: &[(u32, u64)]) -> Result<usize> {
    let mut words = vec![0_u32; (arena.memory().bytes() / WORD) as usize];
    arena.memory().read(0, &mut words)?;
    Ok(granted.iter().filter(|(number, offset)| words[(offset / WORD) as usize] != *number).count())
}

/// Bytes that were handed out.
fn cursor(arena: &Bump) -> Result<u64> {
    let stats = arena.stats()?;
    // It waits for the kernels.
    let unsettled =
        || Error::WrongResult { what: "S4".into(), found: "the arena's counters never came to rest".into() };
    stats.map(|stats| stats.granted).ok_or_else(unsettled)
}

fn all_of_it(stage: &mut Stage<'_>) -> Result<()> {
    stage.say("1024 threads take 4 B each of 4096 B");
    let arena = arena(stage, 4096)?;
    let granted = take(stage, &arena, THREADS, 4)?;
    stage.check_is("distinct offsets", distinct(&granted), 1024);
    stage.check_is("the cursor", cursor(&arena)?, 4096);
    stage.check_is("wrong values", wrong_values(&arena, &granted)?, 0);
    Ok(())
}

fn more_than_it(stage: &mut Stage<'_>) -> Result<()> {
    stage.say("2048 threads take 4 B each of 4096 B");
    let arena = arena(stage, 4096)?;
    let granted = take(stage, &arena, 2 * THREADS, 4)?;
    stage.check_is("threads that got nothing", 2048 - granted.len(), 1024);
    stage.check_is("distinct offsets", distinct(&granted), 1024);
    stage.check_is("the cursor", cursor(&arena)?, 4096);
    stage.check_is("wrong values", wrong_values(&arena, &granted)?, 0);
    Ok(())
}

fn pieces(stage: &mut Stage<'_>) -> Result<()> {
    stage.say("4096 B in pieces of 4000, 200 and 96 B");
    let arena = arena(stage, 4096)?;
    for (bytes, expected) in [(4000, 1), (200, 0), (96, 1)] {
        let granted = take(stage, &arena, 1, bytes)?;
        stage.check_is(format!("pieces of {bytes} B that were granted"), granted.len(), expected);
    }
    stage.check_is("the cursor", cursor(&arena)?, 4096);
    Ok(())
}

fn fewer(stage: &mut Stage<'_>) -> Result<()> {
    stage.say("1000 allocations by a grid of 1024 threads");
    let arena = arena(stage, 8192)?;
    let granted = take(stage, &arena, 1000, 4)?;
    stage.check_is("distinct offsets", distinct(&granted), 1000);
    stage.check_is("the cursor", cursor(&arena)?, 4000);
    Ok(())
}

fn one_arena(stage: &mut Stage<'_>, streams: u32) -> Result<()> {
    stage.say(format_args!("{streams} streams on one arena, with 1024 threads each and room for all"));
    let arena = arena(stage, u64::from(streams * THREADS) * WORD)?;
    let all: Vec<Stream> = (0..streams).map(|_| stage.device().stream()).collect::<Result<_>>()?;
    let takes = all.iter().zip((0..).map(|i| 1 + i * THREADS));
    let takes = takes.map(|(stream, first)| Take::launch(stage, stream, &arena, THREADS, 4, first));
    let takes: Vec<Take> = takes.collect::<Result<_>>()?;
    let granted: Vec<_> = takes.iter().map(Take::granted).collect::<Result<Vec<_>>>()?.concat();
    let threads = (streams * THREADS) as usize;
    stage.check_is("distinct offsets", distinct(&granted), threads);
    stage.check_is("the cursor", cursor(&arena)?, threads as u64 * WORD);
    stage.check_is("wrong values", wrong_values(&arena, &granted)?, 0);
    Ok(())
}

fn an_arena_each(stage: &mut Stage<'_>, streams: u32) -> Result<()> {
    stage.say(format_args!("{streams} streams with an arena each"));
    let (mut offsets, mut cursors, mut wrong) = (0, BTreeSet::new(), 0);
    let mut takes = Vec::new();
    for i in 0..streams {
        let (arena, stream) = (arena(stage, 4096)?, stage.device().stream()?);
        takes.push((Take::launch(stage, &stream, &arena, THREADS, 4, 1 + i * THREADS)?, arena));
    }
    for (take, arena) in &takes {
        let granted = take.granted()?;
        offsets += distinct(&granted);
        cursors.insert(cursor(arena)?);
        wrong += wrong_values(arena, &granted)?;
    }
    stage.check_is("distinct offsets of all", offsets, (streams * THREADS) as usize);
    stage.check_is("the cursors", cursors, BTreeSet::from([4096]));
    stage.check_is("wrong values", wrong, 0);
    Ok(())
}
