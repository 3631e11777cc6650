//! A stream-ordered pool of CPU memory that behaves like a driver pool.
//!
//! Memory freed on a stream can be allocated on the same stream at once, and on another stream
//! - once the work before the free is done (opportunistic reuse), or the host has waited for it;
//! - if the pool cannot grow, after making the stream wait (internal dependencies).
//!
//! It does not track the events that a stream waited for. When the host waits for a stream or the
//! device, fully free segments above the release threshold are returned to the device.

mod segments;
#[cfg(test)]
mod tests;

use self::segments::Segments;
use super::memory::Heap;
use super::queue::Queues;
use crate::driver::backend::{PoolAttribute, PoolBackend, Queue, Range};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::lock::lock;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Block addresses and sizes are multiples of this.
const GRAIN: u64 = 512;
/// Segment sizes are multiples of this, if there is enough room.
const SEGMENT: u64 = 2 << 20;

pub(super) struct CpuPool {
    heap: Arc<Heap>,
    /// The queues of the device, to drain if blocks are live on drop.
    queues: Arc<Queues>,
    max: u64,
    state: Mutex<State>,
}

struct State {
    segments: Segments,
    reserved_high: u64,
    used_high: u64,
    threshold: u64,
    follow_events: bool,
    opportunistic: bool,
    internal_dependencies: bool,
}

impl CpuPool {
    pub fn new(heap: Arc<Heap>, queues: Arc<Queues>, max: Option<u64>) -> CpuPool {
        let state = State {
            segments: Segments::default(),
            reserved_high: 0,
            used_high: 0,
            threshold: 0,
            follow_events: true,
            opportunistic: true,
            internal_dependencies: true,
        };
        CpuPool { heap, queues, max: max.unwrap_or(u64::MAX), state: Mutex::new(state) }
    }

    /// The host has waited for work: releases memory above the threshold.
    fn settle(&self) {
        let mut state = lock(&self.state);
        state.segments.sweep();
        let threshold = state.threshold;
        self.release(&mut state, threshold);
    }

    /// Frees unused segments, lowest address first, as long as at least `keep` bytes remain.
    fn release(&self, state: &mut State, keep: u64) {
        state.segments.release(keep).into_iter().for_each(|range| self.heap.free(range));
    }

    fn full(&self, state: &State, bytes: u64) -> Error {
        Error::OutOfMemory(OutOfMemory::Device {
            device: self.heap.device().into(),
            requested: Bytes(bytes),
            free: Bytes(self.heap.free_bytes().min(self.max - state.segments.reserved())),
            total: Bytes(self.heap.total().min(self.max)),
            advice: "request less".into(),
            report: None,
        })
    }

    /// Adds a segment that can hold a block of `bytes`.
    fn grow(&self, state: &mut State, bytes: u64) -> Result<()> {
        let room = self.max - state.segments.reserved();
        if bytes > room {
            return Err(self.full(state, bytes));
        }
        let roomy = bytes.checked_next_multiple_of(SEGMENT).unwrap_or(bytes).min(room);
        let range = self.heap.alloc(roomy, GRAIN).or_else(|_| self.heap.alloc(bytes, GRAIN))?;
        state.segments.add(range);
        state.reserved_high = state.reserved_high.max(state.segments.reserved());
        Ok(())
    }

    /// Allocates a block for the stream: from free memory, by growing the pool, or from a pending
    /// free.
    fn take(&self, state: &mut State, bytes: u64, stream: &Queue) -> Result<u64> {
        if let Some(address) = state.segments.alloc(bytes, stream.id()) {
            return Ok(address);
        }
        if state.opportunistic {
            state.segments.sweep();
            if let Some(address) = state.segments.alloc(bytes, stream.id()) {
                return Ok(address);
            }
        }
        let grown = self.grow(state, bytes).or_else(|_| {
            // Segments that are free but too small may use up the limit.
            state.segments.sweep();
            self.release(state, 0);
            self.grow(state, bytes)
        });
        if grown.is_ok()
            && let Some(address) = state.segments.alloc(bytes, stream.id())
        {
            return Ok(address);
        }
        let pending = state.segments.pending(bytes).filter(|_| state.internal_dependencies);
        let Some(pending_free) = pending else { return Err(self.full(state, bytes)) };
        stream.backend().wait(pending_free.event.clone())?;
        state.segments.alloc_pending(bytes, &pending_free).ok_or_else(|| self.full(state, bytes))
    }
}

impl PoolBackend for CpuPool {
    fn alloc(&self, bytes: u64, stream: &Queue) -> Result<u64> {
        let mut state = lock(&self.state);
        let Some(rounded) = bytes.checked_next_multiple_of(GRAIN) else {
            return Err(self.full(&state, bytes));
        };
        let address = self.take(&mut state, rounded, stream)?;
        state.used_high = state.used_high.max(state.segments.used());
        Ok(address)
    }

    unsafe fn free(&self, address: u64, stream: &Queue) -> Result<()> {
        // Under the lock, so that sequence numbers of frees match the order of the events of a
        // stream.
        let mut state = lock(&self.state);
        if !state.segments.is_live(address) {
            return Err(Error::Driver {
                call: "cuMemFreeAsync",
                code: 1,
                name: "CUDA_ERROR_INVALID_VALUE".into(),
                detail: format!("no block of the pool starts at {address:#x}"),
            });
        }
        let event = stream.backend().record()?;
        state.segments.free(address, stream.id(), event);
        Ok(())
    }

    fn trim_to(&self, keep: u64) -> Result<()> {
        let mut state = lock(&self.state);
        state.segments.sweep();
        self.release(&mut state, keep);
        Ok(())
    }

    fn get(&self, attribute: PoolAttribute) -> Result<u64> {
        let state = lock(&self.state);
        Ok(match attribute {
            PoolAttribute::FollowEvents => state.follow_events.into(),
            PoolAttribute::Opportunistic => state.opportunistic.into(),
            PoolAttribute::InternalDependencies => state.internal_dependencies.into(),
            PoolAttribute::ReleaseThreshold => state.threshold,
            PoolAttribute::ReservedCurrent => state.segments.reserved(),
            PoolAttribute::ReservedHigh => state.reserved_high,
            PoolAttribute::UsedCurrent => state.segments.used(),
            PoolAttribute::UsedHigh => state.used_high,
        })
    }

    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        let mut state = lock(&self.state);
        let (reserved, used) = (state.segments.reserved(), state.segments.used());
        match (attribute, value) {
            (PoolAttribute::FollowEvents, _) => state.follow_events = value != 0,
            (PoolAttribute::Opportunistic, _) => state.opportunistic = value != 0,
            (PoolAttribute::InternalDependencies, _) => state.internal_dependencies = value != 0,
            (PoolAttribute::ReleaseThreshold, _) => state.threshold = value,
            (PoolAttribute::ReservedHigh, 0) => state.reserved_high = reserved,
            (PoolAttribute::UsedHigh, 0) => state.used_high = used,
            _ => {
                return Err(Error::Driver {
                    call: "cuMemPoolSetAttribute",
                    code: 1,
                    name: "CUDA_ERROR_INVALID_VALUE".into(),
                    detail: format!("{attribute:?} cannot be made {value}"),
                });
            }
        }
        Ok(())
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for CpuPool {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.segments.used() > 0 {
            // Work that is not ordered before any free may use the live blocks.
            self.queues.drain();
        }
        let (segments, pending) = state.segments.remove_all();
        // Events complete even on failed streams.
        pending.iter().for_each(|event| drop(event.synchronize()));
        segments.into_iter().for_each(|range: Range| self.heap.free(range));
    }
}

/// The pools of a device. They are notified when the host has waited for its work.
#[derive(Default)]
pub(super) struct Pools {
    all: Mutex<Vec<Weak<CpuPool>>>,
}

impl Pools {
    fn all(&self) -> MutexGuard<'_, Vec<Weak<CpuPool>>> {
        let mut all = lock(&self.all);
        all.retain(|pool| pool.strong_count() > 0);
        all
    }

    pub fn register(&self, pool: CpuPool) -> Arc<CpuPool> {
        let pool = Arc::new(pool);
        self.all().push(Arc::downgrade(&pool));
        pool
    }

    /// The host has waited for a stream or the device.
    pub fn settle(&self) {
        // Not under the lock: the last handle of a pool may be dropped here, which waits for
        // pending frees.
        let pools: Vec<_> = self.all().iter().filter_map(Weak::upgrade).collect();
        pools.iter().for_each(|pool| pool.settle());
    }
}
