//! The source of segments: blocks of the upstream, or one reservation that grows.
//!
//! I1: every byte of a segment, also while it is released, is allocated from the source. I2: a
//! thread that grows or releases holds the source's lock, so that the sum of the segments stays
//! within the limit. I3: new memory is idle, usable on any stream; memory is released after all
//! work that may use it.

use super::super::allocator::DeviceAllocator;
use super::super::request::{address_of, free_on_drop, ptr_at};
use super::arena::{OrderTag, Segment};
use super::class::KIND;
use super::context::{Failure, Source, UpstreamError, is_out_of_memory};
use super::pool::CachingPool;
use super::shared::Shared;
use crate::driver::GrowableBuffer;
use crate::error::{Error, InvalidRequest, Result};
use crate::lock::lock;
use crate::nvtx::NamedRange;
use crate::report::unexplained;
use std::alloc::Layout;
use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

fn layout(bytes: u64, align: u64) -> Result<Layout> {
    let sizes = usize::try_from(bytes).ok().zip(usize::try_from(align).ok());
    let layout = sizes.and_then(|(bytes, align)| Layout::from_size_align(bytes, align).ok());
    let requested = format!("{bytes} B aligned to {align}");
    let why = "the size exceeds the address space".into();
    layout.ok_or_else(|| InvalidRequest::Layout { allocator: format!("a {KIND}"), requested, why }.into())
}

/// The locked shared state with the new memory, or why there is none.
type Grown<'a> = Result<MutexGuard<'a, Shared>, Failure>;

/// Memory that a request needs: `bytes` at a multiple of `align`, or less, down to `min` bytes.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    pub bytes: u64,
    pub min: u64,
    pub align: u64,
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// Grows the pool so that the memory of `growth` is free for `order`. It adds a full segment if
    /// possible, otherwise less. The returned guard keeps other threads from taking the new memory.
    /// A reservation also relies on the free memory at its end. If another thread takes the free
    /// tail meanwhile, the caller retries.
    pub(super) fn grow(&self, source: &mut Source, order: OrderTag, growth: Growth) -> Grown<'_> {
        let _range = NamedRange::with_name(|| format!("{}: grow", self.context.settings.name));
        let budget = self.context.settings.max_bytes.saturating_sub(lock(&self.shared).arena.reserved());
        let grown = match &mut source.reservation {
            Some(buffer) => self.grow_in_place(buffer, order, growth, budget),
            None => self.grow_by_segment(growth, budget),
        };
        let exhausted = matches!(grown, Err(Failure::Upstream(_) | Failure::Fault(_)));
        self.upstream_exhausted.store(exhausted, Relaxed);
        grown
    }

    /// Calls `alloc` with each of `sizes` until one succeeds. Returns that size and the result.
    /// Fails at once with any error other than out of memory.
    fn alloc_first_fit_size(
        &self,
        sizes: impl IntoIterator<Item = u64>,
        mut alloc: impl FnMut(u64) -> Result<u64>,
    ) -> Result<(u64, u64), Failure> {
        let mut failure = Failure::Limit;
        for size in sizes {
            self.upstream_allocs.fetch_add(1, Relaxed);
            match alloc(size) {
                Ok(result) => return Ok((size, result)),
                Err(error) if is_out_of_memory(&error) => {
                    failure = Failure::Upstream(UpstreamError(error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(failure)
    }

    fn grow_in_place(
        &self,
        buffer: &mut GrowableBuffer,
        order: OrderTag,
        Growth { bytes, min, align }: Growth,
        budget: u64,
    ) -> Grown<'_> {
        let (start, size) = (buffer.address(), buffer.size());
        let tail = lock(&self.shared).arena.free_tail(start, |tag| tag == order || tag == OrderTag::IDLE);
        // Takes the free memory at the end into account.
        let missing = |bytes: u64| {
            let from = (start + size - tail).next_multiple_of(align);
            (from + bytes).saturating_sub(start + size).next_multiple_of(buffer.granularity())
        };
        let segment = self.context.settings.segment_bytes.next_multiple_of(buffer.granularity());
        let mut sizes = vec![missing(bytes).max(segment), missing(bytes), missing(min)];
        sizes.dedup();
        let max = budget.min(buffer.reserved() - size);
        sizes.retain(|more| (1..=max).contains(more));
        let (_, now) = self.alloc_first_fit_size(sizes, |more| buffer.grow_to(size + more))?;
        Ok(self.add(|shared| shared.arena.extend(start, now - size, align)))
    }

    fn grow_by_segment(&self, growth: Growth, budget: u64) -> Grown<'_> {
        let (classes, Growth { bytes, min, align }) = (self.context.settings.classes, growth);
        // Slab alignment first, so that a slab of any class can start at the segment's start.
        for align in [align.max(classes.slab_limit), align] {
            match self.alloc_segment(Growth { align, ..growth }, budget) {
                // The upstream does not support the alignment.
                Err(Failure::Upstream(UpstreamError(Error::InvalidRequest(InvalidRequest::Layout {
                    ..
                })))) => {}
                grown => return grown,
            }
        }
        // With this many extra bytes, the segment contains an aligned position.
        let padded = Growth { bytes: bytes + align, min: min + align, align: classes.min_block() };
        self.alloc_segment(padded, budget)
    }

    fn alloc_segment(&self, Growth { bytes, min, align }: Growth, budget: u64) -> Grown<'_> {
        let rounded = |bytes: u64| bytes.next_multiple_of(self.context.settings.granularity).min(budget);
        let mut sizes =
            vec![rounded(bytes.max(self.context.settings.segment_bytes)), rounded(bytes), rounded(min)];
        sizes.retain(|size| *size >= min && *size > 0);
        sizes.dedup();
        // This pool handles the failure of a size, or explains that of the last one.
        let alloc = |size| unexplained(|| self.alloc_upstream(size, align));
        let (size, start) = self.alloc_first_fit_size(sizes, alloc)?;
        // The allocation is ordered on the pool's stream, which has no other work. After this wait
        // it is usable on any stream (I3).
        if let Err(error) = self.pool_stream.settle() {
            if self.free_segment(start, size, align).is_err() {
                self.return_segment(start, size, align);
            }
            return Err(error.into());
        }
        Ok(self.add(|shared| shared.arena.add_segment(start, size, align, OrderTag::IDLE)))
    }

    fn alloc_upstream(&self, bytes: u64, align: u64) -> Result<u64> {
        let allocated =
            layout(bytes, align).and_then(|layout| self.upstream.allocate(layout, &self.pool_stream));
        allocated.map(address_of)
    }

    /// Allocates the one upstream block of a pool of equal blocks, and returns its start.
    pub(super) fn alloc_region(&self, bytes: u64, align: u64) -> Result<u64> {
        self.upstream_allocs.fetch_add(1, Relaxed);
        let start = self.alloc_upstream(bytes, align)?;
        drop(self.add(|shared| shared.arena.add_segment(start, bytes, align, OrderTag::IDLE)));
        // On failure the pool is dropped, and the block with it.
        self.pool_stream.settle()?;
        Ok(start)
    }

    fn add(&self, add: impl FnOnce(&mut Shared)) -> MutexGuard<'_, Shared> {
        let mut shared = lock(&self.shared);
        add(&mut shared);
        self.peak.fetch_max(shared.arena.reserved() as usize, Relaxed);
        shared
    }

    /// Frees a block of the upstream. A failure is also logged.
    fn free_segment(&self, start: u64, bytes: u64, align: u64) -> Result<()> {
        self.upstream_frees.fetch_add(1, Relaxed);
        let freed = layout(bytes, align).and_then(|layout| {
            // SAFETY: allocated here with this layout and not freed since (P2); the pool's stream
            // is ordered after all work that may use it (P1, by I3).
            unsafe { self.upstream.deallocate(ptr_at(start), layout, &self.pool_stream) }
        });
        if let Err(error) = &freed {
            tracing::warn!(%error, bytes, address = start, "a caching pool could not free a segment");
        }
        freed
    }

    /// Puts an upstream block that could not be freed back into the arena. No work uses it once the
    /// device has reached what the pool's stream waits for.
    fn return_segment(&self, start: u64, bytes: u64, align: u64) {
        self.device().driver().drain();
        drop(self.add(|shared| shared.arena.add_segment(start, bytes, align, OrderTag::IDLE)));
    }

    /// Releases the fully free segments, except segments freed on a stream with no event recorded
    /// yet. Returns the bytes released and the first failure. Memory that could not be released
    /// returns to the pool.
    pub(super) fn release_segments(&self, source: &mut Source) -> (u64, Result<()>) {
        let _range = NamedRange::with_name(|| format!("{}: release", self.context.settings.name));
        if let Some(buffer) = &mut source.reservation {
            return self.shrink(buffer);
        }
        let (mut bytes, mut outcome) = (0, Ok(()));
        for segment in self.take_free_segments() {
            match self.free_segment(segment.start, segment.bytes, segment.align) {
                Ok(()) => bytes += segment.bytes,
                Err(error) => {
                    self.return_segment(segment.start, segment.bytes, segment.align);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        (bytes, outcome)
    }

    /// Removes the fully free segments from the pool. The pool's stream is ordered after all work
    /// that may use them.
    fn take_free_segments(&self) -> Vec<Segment> {
        let mut shared = lock(&self.shared);
        let pending = shared.pending();
        let free = shared.arena.fully_free();
        let is_ordered = |order: &OrderTag| {
            let event = pending.iter().find(|(other, _)| other == order).map(|(_, event)| event);
            // Memory that is ordered on its stream only has no event yet.
            *order == OrderTag::IDLE || event.is_some_and(|event| self.pool_stream.wait(event).is_ok())
        };
        let is_released = |(_, orders): &(Segment, BTreeSet<OrderTag>)| orders.iter().all(is_ordered);
        let released: Vec<Segment> =
            free.into_iter().filter(is_released).map(|(segment, _)| segment).collect();
        for segment in &released {
            shared.arena.truncate(segment.start, segment.bytes);
        }
        released
    }

    /// Releases the free memory at the end of the reservation.
    fn shrink(&self, buffer: &mut GrowableBuffer) -> (u64, Result<()>) {
        let (start, size) = (buffer.address(), buffer.size());
        let tail = {
            let mut shared = lock(&self.shared);
            let tail = shared.arena.free_tail(start, |_| true) / buffer.granularity() * buffer.granularity();
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
        let remaining = buffer.size() - (size - tail);
        if remaining > 0 {
            drop(self.add(|shared| shared.arena.extend(start, remaining, 1)));
        }
        (tail - remaining, outcome)
    }

    /// Frees the upstream blocks of a dropped pool, whatever they contain, in the order of the
    /// pool's stream. A reservation frees itself.
    pub(super) fn release_all(&mut self) {
        let all: Vec<Segment> = lock(&self.shared).arena.segments().copied().collect();
        let is_segmented = lock(&self.source).reservation.is_none();
        for Segment { start, bytes, align, .. } in all.into_iter().filter(|_| is_segmented) {
            self.upstream_frees.fetch_add(1, Relaxed);
            let layout = layout(bytes, align).expect("the layout of its allocation");
            // SAFETY: allocated here with this layout and not freed since (P2); the drop has
            // ordered the pool's stream after all work that may use the segment, or has waited for
            // the device (P1, by I3).
            unsafe { free_on_drop(&self.upstream, ptr_at(start), layout, &self.pool_stream) };
        }
    }
}
