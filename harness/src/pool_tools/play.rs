//! Plays a script on a pool: makes and times its calls, and records after each allocation the
//! memory that the pool holds.
//!
//! I1: `blocks[slot]` is set if and only if the slot is allocated and not yet freed. I2: `live` is
//! the sum of the sizes of those slots.

mod turns;

use super::script::{Action, Script, Step};
use std::time::{Duration, Instant};
use turns::in_turns;
use warpheap::driver::Stream;
use warpheap::error::InvalidRequest;
use warpheap::host_pools::DeviceAllocator;
use warpheap::{Error, Result};
use warpheap_device::kernel::DevicePtr;

/// The host threads that make the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// All calls on the calling thread.
    One,
    /// As many threads as the script has, each making its own calls.
    AsLogged,
}

/// Result of a script. Times are in nanoseconds, the rest in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    /// Times of successful allocations.
    pub alloc_nanos: Vec<f64>,
    /// Times of successful frees.
    pub free_nanos: Vec<f64>,
    /// Time of all calls, including failed ones.
    pub nanos: f64,
    pub peak_live: u64,
    pub peak_used: u64,
    pub peak_reserved: u64,
    /// Allocations that failed because the pool was out of memory or does not support them.
    pub refused: Failed,
    /// Frees that were skipped because the allocation had failed.
    pub frees_left_out: u64,
    /// Frees that the pool rejected.
    pub failed_frees: Failed,
    /// Bytes in use after all blocks were freed, as reported by the pool.
    pub used_at_end: u64,
}

/// Number of failed calls, and the error of the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Failed {
    /// Number of failures.
    pub count: u64,
    /// The pool's message.
    pub first: Option<String>,
}

impl Failed {
    fn add(&mut self, error: &Error) {
        self.count += 1;
        self.first.get_or_insert_with(|| error.to_string());
    }
}

/// Creates as many streams on the pool's device as the script has.
fn streams(script: &Script, pool: &dyn DeviceAllocator) -> Result<Vec<Stream>> {
    (0..script.streams).map(|_| pool.device().stream()).collect()
}

/// Makes all calls of a script, and then frees the remaining blocks.
///
/// # Errors
/// [`Error::InvalidConfig`] if the system cannot start that many threads. Any error of a call,
/// except for a failed allocation or a rejected free.
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

/// Makes all calls of a script on the calling thread and returns the time; failed allocations are
/// skipped.
///
/// # Errors
/// Any error of a call, except for a failed allocation.
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
                // SAFETY: allocated by an earlier step, taken out of its slot, and never passed to
                // a kernel.
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

    /// Records the memory that the pool holds. Live bytes peak right after an allocation.
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
        // SAFETY: allocated by an earlier step, not freed since (I1), and never passed to a kernel.
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

    /// Frees the blocks that the script did not free or the pool rejected. Not timed.
    fn give_back_all(&mut self) -> Result<()> {
        for (slot, block) in self.blocks.iter_mut().enumerate() {
            let Some(ptr) = block.take() else { continue };
            // SAFETY: allocated by an earlier step, not freed since (I1), and never passed to a
            // kernel.
            match unsafe { self.pool.deallocate(ptr, self.script.layouts[slot], &self.streams[0]) } {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => self.played.failed_frees.add(&error),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// Whether the pool is unaffected, and is only out of memory or does not support such a layout.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory(_)
            | Error::InvalidRequest(InvalidRequest::Layout { .. } | InvalidRequest::Alignment { .. })
            | Error::FailureInjected { .. }
    )
}
