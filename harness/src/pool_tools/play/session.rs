//! The calls of a script, and their results.
//!
//! I1: `blocks[slot]` is set if and only if the slot is allocated and not yet freed. I2: `live` is
//! the sum of the sizes of those slots.

use super::super::script::{Action, Script, Step};
use std::time::Instant;
use warpheap::driver::Stream;
use warpheap::error::InvalidRequest;
use warpheap::host_pools::DeviceAllocator;
use warpheap::{Error, Result};
use warpheap_device::kernel::DevicePtr;

/// Result of a script. Times are in nanoseconds, the rest in bytes.
#[derive(Clone, Debug, Default)]
pub(in crate::pool_tools) struct Played {
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
    pub failed_allocations: Failed,
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

/// A script that is played on a pool.
pub(in crate::pool_tools) struct Session<'a> {
    pub script: &'a Script,
    pool: &'a dyn DeviceAllocator,
    streams: &'a [Stream],
    blocks: Vec<Option<DevicePtr<u8>>>,
    live: u64,
    played: Played,
}

impl<'a> Session<'a> {
    /// `streams` are those of the script.
    pub fn new(script: &'a Script, pool: &'a dyn DeviceAllocator, streams: &'a [Stream]) -> Session<'a> {
        let blocks = vec![None; script.layouts.len()];
        Session { script, pool, streams, blocks, live: 0, played: Played::default() }
    }

    /// Makes one call.
    ///
    /// # Errors
    /// Any error, except for a failed allocation or a rejected free.
    pub fn step(&mut self, step: &Step) -> Result<()> {
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
                self.played.failed_allocations.add(&error);
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
    pub fn finish(mut self) -> Result<Played> {
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
        self.streams.iter().try_for_each(Stream::synchronize)?;
        self.played.used_at_end = self.pool.usage().used_bytes;
        Ok(self.played)
    }
}

/// Whether the pool is unaffected, and is only out of memory or does not support such a layout.
pub(in crate::pool_tools) fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory(_)
            | Error::InvalidRequest(InvalidRequest::Layout { .. } | InvalidRequest::Alignment { .. })
            | Error::FailureInjected { .. }
    )
}
