//! The fallback ladder for requests that the stream's own cache cannot serve: rung after rung,
//! until one finds memory.
//!
//! - `shared`: memory that is free for this stream or idle. The only driver calls poll pending
//!   events. From the shared state a large request takes an extent for the stream's cache. A small
//!   request takes a slab, which may be cut from such an extent.
//! - `done`: memory that idle streams have freed. Once free memory has reached its limit
//!   (`spare_bytes`), the rung also searches the memory that the stream itself caches, after
//!   coalescing, and then memory that other streams have freed and passed, with an event recorded
//!   on each stream that has work left.
//! - `grown`: new memory of the upstream.
//! - `stolen`: free blocks of other streams; this stream waits for them on the device.
//! - `released`: cached segments are released, and the upstream is asked again.
//! - `waited`: the host waits for all pending work; then `stolen` and `released` are tried once
//!   more.
//! - `hooked`: the user's hook may free memory, and the ladder starts again.
//!
//! The upstream is asked after free blocks with completed work, and before this stream waits for
//! unfinished work of another stream. The memory that a pool holds beyond its live blocks is
//! therefore bounded by what is in flight plus `spare_bytes`, and streams stay independent while
//! there is memory. Below that bound, a stream that has work left keeps the memory that it will
//! allocate again.
//!
//! `grown` and `released` hold the source's lock while they ask the upstream. The shared lock is
//! held while other streams are polled.

use super::super::allocator::DeviceAllocator;
use super::block_map::BlockId;
use super::class::Need;
use super::order_tag::OrderTag;
use super::pool::CachingPool;
use super::search::{MAX_GROWTHS, Request};
use super::slabs::refill_bytes;
use super::source::GrowFailure;
use super::stats::Rung;
use crate::driver::{Event, Stream};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::lock::lock;
use crate::nvtx::NamedRange;
use std::alloc::Layout;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum number of hook calls for one allocation: a hook that always returns `true` must not
/// block a thread for ever.
const MAX_HOOKS: usize = 64;

/// Maximum number of attempts in a pool of equal blocks. Each one saw a free block that another
/// thread took first.
const MAX_ATTEMPTS: usize = 1024;

impl<A: DeviceAllocator> CachingPool<A> {
    /// Allocates a block that the stream's cache does not have. Returns its address, or why the
    /// allocation failed.
    #[cold]
    pub(super) fn alloc_by_ladder(
        &self,
        need: Need,
        layout: Layout,
        stream: &Stream,
    ) -> Result<Result<u64, GrowFailure>> {
        let cache = self.streams.get(stream);
        let request = Request { need, stream, cache: &cache };
        let mut hooks = 0;
        loop {
            match self.run_rungs(&request)? {
                Ok((found, rung)) => {
                    self.count(if hooks > 0 { Rung::Hooked } else { rung });
                    return Ok(Ok(self.make_live(found, &request, layout)));
                }
                Err(_) if hooks < MAX_HOOKS && self.call_hook(layout) => hooks += 1,
                Err(failure) => {
                    self.count(Rung::Failed);
                    return Ok(Err(failure));
                }
            }
        }
    }

    fn make_live(&self, id: BlockId, request: &Request<'_>, layout: Layout) -> u64 {
        let claim = self.live.set_live(id, layout);
        request.cache.bins().count_miss(claim, layout.size() as u64, &self.live);
        self.live.slot(id).address()
    }

    fn count(&self, rung: Rung) {
        self.rungs[rung as usize].fetch_add(1, Relaxed);
    }

    fn call_hook(&self, layout: Layout) -> bool {
        self.settings.hook.as_ref().is_some_and(|hook| (hook.0)(layout.size() as u64))
    }

    /// All rungs but the hook.
    fn run_rungs(&self, request: &Request<'_>) -> Result<Result<(BlockId, Rung), GrowFailure>> {
        if let Some(found) = self.find_shared(request) {
            return Ok(Ok((found, Rung::Shared)));
        }
        if self.settings.is_fixed {
            return self.run_rungs_of_fixed(request);
        }
        let mut failed = None;
        if self.may_grow_early(request) {
            if let Some(found) = self.find_idle(request) {
                return Ok(Ok((found, Rung::Done)));
            }
            match self.try_grow(request) {
                Ok(Some(found)) => return Ok(Ok((found, Rung::Grown))),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a caching pool could not grow and searches its free memory");
                    failed = Some(error);
                }
            }
        }
        if let Some(found) = self.find_completed(request) {
            return Ok(Ok((found, Rung::Done)));
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let grown = self.find_grown(&mut lock(&self.source), request)?;
        let failure = match grown {
            Ok(found) => return Ok(Ok((found, Rung::Grown))),
            Err(failure) => failure,
        };
        if let Some(found) = self.steal(request)? {
            return Ok(Ok((found, Rung::Stolen)));
        }
        if let Some(found) = self.release_and_grow(request)? {
            return Ok(Ok((found, Rung::Released)));
        }
        self.wait_for_pending();
        if let Some(found) = self.steal(request)? {
            return Ok(Ok((found, Rung::Waited)));
        }
        Ok(self.release_and_grow(request)?.map(|found| (found, Rung::Waited)).ok_or(failure))
    }

    /// The rungs of a pool of equal blocks, which does not grow. It fails only if at one moment all
    /// blocks were live or in transit.
    fn run_rungs_of_fixed(&self, request: &Request<'_>) -> Result<Result<(BlockId, Rung), GrowFailure>> {
        if let Some(found) = self.find_completed(request) {
            return Ok(Ok((found, Rung::Done)));
        }
        for _ in 0..MAX_ATTEMPTS {
            if let Some(found) = self.steal(request)? {
                return Ok(Ok((found, Rung::Stolen)));
            }
            if self.is_empty() {
                return Ok(Err(GrowFailure::Limit));
            }
            // Blocks of a stream without a marked point, or blocks that were freed since.
            self.wait_for_pending();
            if let Some(found) = self.find_completed(request) {
                return Ok(Ok((found, Rung::Waited)));
            }
        }
        Ok(Err(GrowFailure::Raced))
    }

    /// Waits on the host until all memory that was freed so far is idle.
    pub(super) fn wait_for_pending(&self) {
        let _range = NamedRange::with_name(|| format!("{}: wait", self.settings.name));
        let (unmarked, pending) = {
            let mut shared = lock(&self.shared);
            self.flush_all(&mut shared);
            (shared.unmarked(), shared.pending())
        };
        if !unmarked.is_empty() {
            self.device().driver().drain();
        }
        let completed = |(order, event): (OrderTag, Event)| event.settle().is_ok().then_some(order);
        let completed: Vec<_> = pending.into_iter().filter_map(completed).chain(unmarked).collect();
        let mut shared = lock(&self.shared);
        completed.into_iter().for_each(|order| shared.mark_idle(order));
        shared.dissolve(|order| order == OrderTag::IDLE, None, &self.live);
    }

    /// Whether the pool may grow before it coalesces what streams cache: the growth keeps free
    /// memory within its limit, and the upstream had memory at the last request.
    fn may_grow_early(&self, request: &Request<'_>) -> bool {
        let usage = self.usage();
        let free = usage.reserved_bytes.saturating_sub(usage.used_bytes);
        let more = refill_bytes(request.need).max(self.settings.segment_bytes);
        let left = (free + more).saturating_sub(request.need.bytes);
        let at_free_limit =
            self.upstream_exhausted.load(Relaxed) || left > self.settings.spare(self.streams.count());
        self.at_free_limit.store(at_free_limit, Relaxed);
        !at_free_limit
    }

    pub(super) fn out_of_memory(&self, layout: Layout, failure: &GrowFailure) -> Error {
        let (usage, largest) = (self.usage(), lock(&self.shared).largest(&self.live));
        let (why, advice) = match failure {
            GrowFailure::Limit => (
                format!("at most {}", Bytes(self.settings.max_bytes)),
                "free blocks, raise its limit (max_bytes), or free memory in a hook (on_exhausted)",
            ),
            GrowFailure::Raced => (
                format!("other threads allocated the memory that it grew by, {MAX_GROWTHS} times"),
                "try again, free blocks, or allocate from fewer threads at once",
            ),
            GrowFailure::Upstream(error) => (
                format!("its upstream is out of memory: {error}"),
                "free blocks, run fewer programs on the device, or free memory in a hook (on_exhausted)",
            ),
        };
        Error::OutOfMemory(OutOfMemory::Pool {
            allocator: format!("{} ({why})", self.settings.name),
            requested: Bytes(layout.size() as u64),
            used: Bytes(usage.used_bytes),
            reserved: Bytes(usage.reserved_bytes),
            cached: Bytes(usage.reserved_bytes.saturating_sub(usage.used_bytes)),
            largest: Bytes(largest),
            advice,
            report: None,
        })
    }
}
