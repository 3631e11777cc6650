//! The source of segments: blocks of the upstream, or one reservation that grows.
//!
//! I1: a segment of the arena, and a segment that is being released, consists entirely of memory of
//! the source. I2: a thread that grows or releases holds the source's lock, so that the sum of the
//! segments stays within the limit. I3: new memory is idle, usable on any stream; memory is
//! released after all work that may use it.

use super::order_table::OrderTag;
use super::segment::Segment;
use super::shared::Shared;
use super::{CachingPool, NAME};
use crate::device_pools::GrowableBuffer;
use crate::error::{Error, InvalidRequest, Result};
use crate::host_pools::{DeviceAllocator, address_of, give_back_at_the_end, lock};
use std::alloc::Layout;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use warpheap_device::kernel::DevicePtr;

/// State guarded by the source's lock.
pub(super) struct Source {
    /// Replaces blocks of the upstream, if set.
    pub reservation: Option<GrowableBuffer>,
}

/// Why the pool cannot grow.
#[derive(Debug)]
pub(super) enum Short {
    /// The limit of the pool.
    Limit,
    /// The upstream or the device is out of memory.
    Upstream(Shortage),
    /// Other threads took the free memory that the growth relied on, on each attempt.
    Raced,
}

/// The upstream's out-of-memory error. Displayed briefly, because it is embedded in a message of
/// this pool.
#[derive(Debug)]
pub(super) struct Shortage(Error);

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.brief().fmt(f)
    }
}

/// Whether an error means out of memory, rather than a fault.
fn is_shortage(error: &Error) -> bool {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    const OUT_OF_MEMORY: u32 = 2;
    match error {
        Error::OutOfMemory(_) | Error::InvalidRequest(InvalidRequest::Layout { .. }) => true,
        Error::Driver { code, .. } => *code == OUT_OF_MEMORY,
        _ => false,
    }
}

fn block(start: u64) -> DevicePtr<u8> {
    DevicePtr(std::ptr::with_exposed_provenance_mut(start as usize))
}

fn layout(bytes: u64, align: u64) -> Result<Layout> {
    let made = usize::try_from(bytes).ok().zip(usize::try_from(align).ok());
    let layout = made.and_then(|(bytes, align)| Layout::from_size_align(bytes, align).ok());
    let asked = format!("{bytes} B aligned to {align}");
    let why = "that is more than an address can count".into();
    layout.ok_or_else(|| InvalidRequest::Layout { allocator: NAME.into(), asked, why }.into())
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// Grows the pool so that `bytes` at a multiple of `align` are free for `own`. It adds a full
    /// segment if possible, otherwise less, down to `least` bytes. The returned guard keeps other
    /// threads from taking the new memory. A reservation also relies on the free memory at its end.
    /// Another thread may take that during the growth; the caller then tries again.
    pub(super) fn grow(
        &self,
        source: &mut Source,
        own: OrderTag,
        (bytes, least): (u64, u64),
        align: u64,
    ) -> Result<Result<MutexGuard<'_, Shared>, Short>> {
        let left = self.settings.most.saturating_sub(lock(&self.shared).arena.reserved());
        let grown = match &mut source.reservation {
            Some(buffer) => self.grow_in_place(buffer, own, (bytes, least), align, left),
            None => self.grow_by_block((bytes, least), align, left),
        };
        let is_short = matches!(grown, Ok(Err(Short::Upstream(_))) | Err(_));
        self.is_short.store(is_short, Relaxed);
        grown
    }

    fn grow_in_place(
        &self,
        buffer: &mut GrowableBuffer,
        own: OrderTag,
        (bytes, least): (u64, u64),
        align: u64,
        left: u64,
    ) -> Result<Result<MutexGuard<'_, Shared>, Short>> {
        let (start, size) = (buffer.address(), buffer.size());
        let tail = lock(&self.shared).arena.tail(start, |order| order == own || order == OrderTag::IDLE);
        // Takes the free memory at the end into account.
        let missing = |bytes: u64| {
            let from = (start + size - tail).next_multiple_of(align);
            (from + bytes).saturating_sub(start + size).next_multiple_of(buffer.granularity())
        };
        let mut sizes = vec![missing(bytes).max(self.settings.segment_bytes), missing(bytes), missing(least)];
        sizes[0] = sizes[0].next_multiple_of(buffer.granularity());
        sizes.dedup();
        let mut short = Short::Limit;
        let most = left.min(buffer.reserved() - size);
        for more in sizes.into_iter().filter(|more| (1..=most).contains(more)) {
            self.upstream_allocs.fetch_add(1, Relaxed);
            match buffer.grow_to(size + more) {
                Ok(now) => {
                    return Ok(Ok(self.add(|shared| shared.arena.extend(start, now - size, align))));
                }
                Err(error) if is_shortage(&error) => short = Short::Upstream(Shortage(error)),
                Err(error) => return Err(error),
            }
        }
        Ok(Err(short))
    }

    fn grow_by_block(
        &self,
        (bytes, least): (u64, u64),
        align: u64,
        left: u64,
    ) -> Result<Result<MutexGuard<'_, Shared>, Short>> {
        let classes = self.settings.classes;
        // A larger alignment first: a slab of any class can then start where the segment does.
        let wanted = [align.max(classes.slab_limit), align];
        for align in wanted {
            match self.take_block((bytes, least), align, left)? {
                // The upstream does not serve this alignment.
                Err(Short::Upstream(Shortage(Error::InvalidRequest(InvalidRequest::Layout { .. })))) => {}
                other => return Ok(other),
            }
        }
        // With this many extra bytes, the segment contains an aligned position.
        self.take_block((bytes + align, least + align), classes.least(), left)
    }

    fn take_block(
        &self,
        (bytes, least): (u64, u64),
        align: u64,
        left: u64,
    ) -> Result<Result<MutexGuard<'_, Shared>, Short>> {
        let whole = |bytes: u64| bytes.next_multiple_of(self.settings.granularity).min(left);
        let mut sizes = vec![whole(bytes.max(self.settings.segment_bytes)), whole(bytes), whole(least)];
        sizes.retain(|size| *size >= least && *size > 0);
        sizes.dedup();
        let mut short = Short::Limit;
        for size in sizes {
            self.upstream_allocs.fetch_add(1, Relaxed);
            let taken =
                layout(size, align).and_then(|layout| self.upstream.allocate(layout, &self.pool_stream));
            let start = match taken {
                Ok(ptr) => address_of(ptr),
                Err(error) if is_shortage(&error) => {
                    short = Short::Upstream(Shortage(error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            // The allocation is ordered on the pool's stream, which has no other work. After this
            // wait it is usable on any stream (I3).
            if let Err(error) = self.pool_stream.synchronize() {
                if self.give_block(start, size, align).is_err() {
                    self.keep_block(start, size, align);
                }
                return Err(error);
            }
            return Ok(Ok(self.add(|shared| shared.arena.add_segment(start, size, align, OrderTag::IDLE))));
        }
        Ok(Err(short))
    }

    /// Allocates the one upstream block of a pool of equal blocks, and returns its start.
    pub(super) fn take_whole(&self, bytes: u64, align: u64) -> Result<u64> {
        self.upstream_allocs.fetch_add(1, Relaxed);
        let ptr =
            layout(bytes, align).and_then(|layout| self.upstream.allocate(layout, &self.pool_stream))?;
        let start = address_of(ptr);
        drop(self.add(|shared| shared.arena.add_segment(start, bytes, align, OrderTag::IDLE)));
        // On failure the pool is dropped, and the block with it.
        self.pool_stream.synchronize()?;
        Ok(start)
    }

    fn add(&self, add: impl FnOnce(&mut Shared)) -> MutexGuard<'_, Shared> {
        let mut shared = lock(&self.shared);
        add(&mut shared);
        self.peak.fetch_max(shared.arena.reserved() as usize, Relaxed);
        shared
    }

    /// Frees a block of the upstream. A failure is also logged.
    fn give_block(&self, start: u64, bytes: u64, align: u64) -> Result<()> {
        self.upstream_frees.fetch_add(1, Relaxed);
        let given = layout(bytes, align).and_then(|layout| {
            // SAFETY: allocated here with this layout and not freed since (P2); the pool's stream is
            // ordered after all work that may use it (P1, by I3).
            unsafe { self.upstream.deallocate(block(start), layout, &self.pool_stream) }
        });
        if let Err(error) = &given {
            tracing::warn!(%error, bytes, address = start, "a caching pool could not give a segment back");
        }
        given
    }

    /// Returns an upstream block that could not be freed to the pool. No work uses it once the
    /// device has reached what the pool's stream waits for.
    fn keep_block(&self, start: u64, bytes: u64, align: u64) {
        self.device().driver().drain();
        drop(self.add(|shared| shared.arena.add_segment(start, bytes, align, OrderTag::IDLE)));
    }

    /// Releases the fully free segments, except memory that has only a stream's order. Returns the
    /// bytes released and the first failure. Memory that could not be released returns to the pool.
    pub(super) fn give_back(&self, source: &mut Source) -> (u64, Result<()>) {
        if let Some(buffer) = &mut source.reservation {
            return self.shrink(buffer);
        }
        let (mut bytes, mut outcome) = (0, Ok(()));
        for segment in self.take_empty() {
            match self.give_block(segment.start, segment.bytes, segment.align) {
                Ok(()) => bytes += segment.bytes,
                Err(error) => {
                    self.keep_block(segment.start, segment.bytes, segment.align);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        (bytes, outcome)
    }

    /// Removes the fully free segments from the pool. The pool's stream is ordered after all work
    /// that may use them.
    fn take_empty(&self) -> Vec<Segment> {
        let mut shared = lock(&self.shared);
        let pending = shared.pending();
        let empty = shared.arena.empty();
        let is_ordered = |order: &OrderTag| {
            let event = pending.iter().find(|(of, _)| of == order).map(|(_, event)| event);
            // Memory with only a stream's order is not behind an event yet.
            *order == OrderTag::IDLE || event.is_some_and(|event| self.pool_stream.wait(event).is_ok())
        };
        let goes = |(_, orders): &(Segment, BTreeSet<OrderTag>)| orders.iter().all(is_ordered);
        let going: Vec<Segment> = empty.into_iter().filter(goes).map(|(segment, _)| segment).collect();
        for segment in &going {
            shared.arena.truncate(segment.start, segment.bytes);
        }
        going
    }

    /// Releases the free memory at the end of the reservation.
    fn shrink(&self, buffer: &mut GrowableBuffer) -> (u64, Result<()>) {
        let (start, size) = (buffer.address(), buffer.size());
        let tail = {
            let mut shared = lock(&self.shared);
            let tail = shared.arena.tail(start, |_| true) / buffer.granularity() * buffer.granularity();
            shared.arena.truncate(start, tail);
            tail
        };
        if tail == 0 {
            // Retries what the driver could not release before.
            return (0, buffer.shrink_quietly(size).map(drop));
        }
        self.upstream_frees.fetch_add(1, Relaxed);
        // This waits for the device, so the remaining memory is idle.
        let outcome = buffer.shrink_quietly(size - tail).map(drop).inspect_err(|error| {
            tracing::warn!(%error, bytes = tail, "a caching pool could not shrink its segment");
            self.device().driver().drain();
        });
        let stays = buffer.size() - (size - tail);
        if stays > 0 {
            drop(self.add(|shared| shared.arena.extend(start, stays, 1)));
        }
        (tail - stays, outcome)
    }

    /// Frees all segments when the pool is dropped, whatever they contain, in the order of the pool_stream
    /// stream.
    pub(super) fn give_all(&mut self) {
        let all: Vec<Segment> = lock(&self.shared).arena.segments().copied().collect();
        let has_blocks = lock(&self.source).reservation.is_none();
        for Segment { start, bytes, align, .. } in all.into_iter().filter(|_| has_blocks) {
            self.upstream_frees.fetch_add(1, Relaxed);
            let layout = layout(bytes, align).expect("it was allocated with it");
            // SAFETY: allocated here with this layout and not freed since (P2); the drop has
            // ordered the pool's stream after all work that may use the segment, or has waited for
            // the device (P1, by I3).
            unsafe { give_back_at_the_end(&self.upstream, block(start), layout, &self.pool_stream) };
        }
    }
}
