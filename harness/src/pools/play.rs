//! Plays a script on a pool: makes its calls, times each of them, and looks after each allocation at what the pool holds.
//!
//! I1: `blocks[slot]` is set if and only if the slot was allocated and is not given back.
//! I2: `live` is the sum of the sizes of those slots.

mod turns;

use super::script::{Action, Script, Step};
use std::time::{Duration, Instant};
use turns::in_turns;
use warpheap::alloc::DeviceAllocator;
use warpheap::driver::Stream;
use warpheap::error::InvalidRequest;
use warpheap::{Error, Result};
use warpheap_device::kernel::DevicePtr;

/// Who makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// The calling thread, all of them.
    One,
    /// As many threads as the script has, each its own.
    AsLogged,
}

/// What came of a script. Times are in nanoseconds, the rest in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    /// Of each allocation that went well.
    pub alloc_nanos: Vec<f64>,
    /// Of each free that went well.
    pub free_nanos: Vec<f64>,
    /// Of all calls, also those that failed.
    pub nanos: f64,
    pub peak_live: u64,
    pub peak_used: u64,
    pub peak_reserved: u64,
    /// Allocations that the pool had no room for, or does not serve.
    pub refused: Failed,
    /// Frees that were not made, since the allocation was refused.
    pub frees_left_out: u64,
    /// Frees that the pool did not take.
    pub failed_frees: Failed,
    /// What the pool says is used after all was given back.
    pub used_at_end: u64,
}

/// How many calls failed, and what the first of them was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Failed {
    /// How many.
    pub count: u64,
    /// In the pool's words.
    pub first: Option<String>,
}

impl Failed {
    fn add(&mut self, error: &Error) {
        self.count += 1;
        self.first.get_or_insert_with(|| error.to_string());
    }
}

/// As many streams of the pool's device as the script has.
fn streams(script: &Script, pool: &dyn DeviceAllocator) -> Result<Vec<Stream>> {
    (0..script.streams).map(|_| pool.device().stream()).collect()
}

/// Makes all calls of a script, and gives back at the end what it leaves.
///
/// # Errors
/// [`Error::InvalidConfig`] for more threads than the system starts. What a call fails with, unless the pool only refuses an
/// allocation or a free.
pub(super) fn play(script: &Script, pool: &dyn DeviceAllocator, hosts: Hosts) -> Result<Played> {
    let streams = streams(script, pool)?;
    let mut session = Session {
        script,
        pool,
        streams: &streams,
        blocks: vec![None; script.layouts.len()],
        live: 0,
        played: Played::default(),
    };
    match hosts {
        Hosts::One => script.steps.iter().try_for_each(|step| session.step(step))?,
        Hosts::AsLogged => session = in_turns(session)?,
    }
    session.give_back_all()?;
    streams.iter().try_for_each(Stream::synchronize)?;
    session.played.used_at_end = pool.usage().used_bytes;
    Ok(session.played)
}

/// Makes all calls of a script on the calling thread, and says how long that took; what is refused is left out.
///
/// # Errors
/// What a call fails with, unless the pool only refuses an allocation.
pub(super) fn time(script: &Script, pool: &dyn DeviceAllocator) -> Result<Duration> {
    let streams = streams(script, pool)?;
    let mut blocks = vec![None; script.layouts.len()];
    let start = Instant::now();
    for step in &script.steps {
        let (layout, stream) = (script.layouts[step.slot], &streams[step.stream]);
        match step.action {
            Action::Alloc => match pool.allocate(layout, stream) {
                Ok(ptr) => blocks[step.slot] = Some(ptr),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            },
            Action::Free => {
                let Some(ptr) = blocks[step.slot].take() else { continue };
                // SAFETY: allocated by an earlier step, taken out of its slot, and no kernel ever got it.
                unsafe { pool.deallocate(ptr, layout, stream) }?;
            }
        }
    }
    let took = start.elapsed();
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok(took)
}

struct Session<'a> {
    script: &'a Script,
    pool: &'a dyn DeviceAllocator,
    streams: &'a [Stream],
    blocks: Vec<Option<DevicePtr<u8>>>,
    live: u64,
    played: Played,
}

impl Session<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        match step.action {
            Action::Alloc => self.allocate(step),
            Action::Free => self.free(step),
        }
    }

    fn allocate(&mut self, step: &Step) -> Result<()> {
        let (layout, stream) = (self.script.layouts[step.slot], &self.streams[step.stream]);
        let start = Instant::now();
        let done = self.pool.allocate(layout, stream);
        let nanos = start.elapsed().as_nanos() as f64;
        self.played.nanos += nanos;
        match done {
            Ok(ptr) => {
                self.blocks[step.slot] = Some(ptr);
                self.live += layout.size() as u64;
                self.played.alloc_nanos.push(nanos);
                self.look();
                Ok(())
            }
            Err(error) if is_refusal(&error) => {
                self.played.refused.add(&error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// What the pool holds now: no more was ever live than after an allocation.
    fn look(&mut self) {
        let (usage, played) = (self.pool.usage(), &mut self.played);
        played.peak_live = played.peak_live.max(self.live);
        played.peak_used = played.peak_used.max(usage.used_bytes);
        played.peak_reserved = played.peak_reserved.max(usage.reserved_bytes);
    }

    fn free(&mut self, step: &Step) -> Result<()> {
        let Some(ptr) = self.blocks[step.slot] else {
            self.played.frees_left_out += 1;
            return Ok(());
        };
        let (layout, stream) = (self.script.layouts[step.slot], &self.streams[step.stream]);
        let start = Instant::now();
        // SAFETY: allocated by an earlier step, not given back since (I1), and no kernel ever got it.
        let done = unsafe { self.pool.deallocate(ptr, layout, stream) };
        let nanos = start.elapsed().as_nanos() as f64;
        self.played.nanos += nanos;
        match done {
            Ok(()) => {
                self.blocks[step.slot] = None;
                self.live -= layout.size() as u64;
                self.played.free_nanos.push(nanos);
                Ok(())
            }
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => {
                self.played.failed_frees.add(&error);
                Ok(())
            }
        }
    }

    /// What the script did not free, and what the pool did not take. It is not timed.
    fn give_back_all(&mut self) -> Result<()> {
        for (slot, block) in self.blocks.iter_mut().enumerate() {
            let Some(ptr) = block.take() else { continue };
            // SAFETY: as in `free`.
            match unsafe { self.pool.deallocate(ptr, self.script.layouts[slot], &self.streams[0]) } {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => self.played.failed_frees.add(&error),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// Whether the pool is as good as before, and only has no room or does not serve such a layout.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory(_)
            | Error::InvalidRequest(InvalidRequest::Layout { .. } | InvalidRequest::Alignment { .. })
            | Error::FailureInjected { .. }
    )
}
