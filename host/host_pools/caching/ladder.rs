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

use super::block_table::BlockId;
use super::class::Need;
use super::search::{Climb, MOST_GROWTHS};
use super::slabs::room_for;
use super::source::Short;
use super::{CachingPool, NAME};
use crate::driver::Stream;
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::host_pools::{DeviceAllocator, lock};
use std::alloc::Layout;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum number of hook calls for one allocation: a hook that always returns `true` must not
/// block a thread for ever.
const MOST_HOOKS: usize = 64;

/// Maximum number of attempts in a pool of equal blocks. Each one saw a free block that another
/// thread took first.
const MOST_TRIES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rung {
    Shared,
    Done,
    Grown,
    Stolen,
    Released,
    Waited,
    Hooked,
    Failed,
}

impl<A: DeviceAllocator> CachingPool<A> {
    /// Allocates a block that the stream's cache does not have. Returns its address, or why the
    /// allocation failed.
    #[cold]
    pub(super) fn alloc_slow(
        &self,
        need: Need,
        layout: Layout,
        stream: &Stream,
    ) -> Result<Result<u64, Short>> {
        let cache = self.streams.get(stream);
        let climb = Climb { need, stream, cache: &cache };
        let mut hooks = 0;
        loop {
            match self.climb(&climb)? {
                Ok((found, rung)) => {
                    self.count(if hooks > 0 { Rung::Hooked } else { rung });
                    return Ok(Ok(self.hand_out(found, &climb, layout)));
                }
                Err(_) if hooks < MOST_HOOKS && self.ask_hook(layout) => hooks += 1,
                Err(short) => {
                    self.count(Rung::Failed);
                    return Ok(Err(short));
                }
            }
        }
    }

    fn hand_out(&self, id: BlockId, climb: &Climb<'_>, layout: Layout) -> u64 {
        let claim = self.live.set_live(id, layout);
        climb.cache.count_miss(claim, layout.size() as u64, &self.live);
        self.live.slot(id).address()
    }

    fn count(&self, rung: Rung) {
        self.rungs[rung as usize].fetch_add(1, Relaxed);
    }

    fn ask_hook(&self, layout: Layout) -> bool {
        self.settings.hook.as_ref().is_some_and(|hook| hook.call(layout.size() as u64))
    }

    /// All rungs but the hook.
    fn climb(&self, climb: &Climb<'_>) -> Result<Result<(BlockId, Rung), Short>> {
        if let Some(found) = self.find_shared(climb) {
            return Ok(Ok((found, Rung::Shared)));
        }
        if self.settings.is_fixed {
            return self.climb_fixed(climb);
        }
        let mut failed = None;
        if self.has_spare(climb) {
            if let Some(found) = self.find_passed(climb) {
                return Ok(Ok((found, Rung::Done)));
            }
            match self.find_spare(climb) {
                Ok(Some(found)) => return Ok(Ok((found, Rung::Grown))),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a caching pool could not grow, and looks for what it has");
                    failed = Some(error);
                }
            }
        }
        if let Some(found) = self.find_done(climb) {
            return Ok(Ok((found, Rung::Done)));
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let grown = self.find_grown(&mut lock(&self.source), climb)?;
        let short = match grown {
            Ok(found) => return Ok(Ok((found, Rung::Grown))),
            Err(short) => short,
        };
        if let Some(found) = self.steal(climb)? {
            return Ok(Ok((found, Rung::Stolen)));
        }
        if let Some(found) = self.release(climb)? {
            return Ok(Ok((found, Rung::Released)));
        }
        self.wait_for_pending();
        if let Some(found) = self.steal(climb)? {
            return Ok(Ok((found, Rung::Waited)));
        }
        Ok(self.release(climb)?.map(|found| (found, Rung::Waited)).ok_or(short))
    }

    /// The rungs of a pool of equal blocks, which does not grow. It fails only if at one moment all
    /// blocks were live or in transit.
    fn climb_fixed(&self, climb: &Climb<'_>) -> Result<Result<(BlockId, Rung), Short>> {
        if let Some(found) = self.find_done(climb) {
            return Ok(Ok((found, Rung::Done)));
        }
        for _ in 0..MOST_TRIES {
            if let Some(found) = self.steal(climb)? {
                return Ok(Ok((found, Rung::Stolen)));
            }
            if self.is_empty() {
                return Ok(Err(Short::Limit));
            }
            // Blocks of a stream without a marked point, or blocks that were freed since.
            self.wait_for_pending();
            if let Some(found) = self.find_done(climb) {
                return Ok(Ok((found, Rung::Waited)));
            }
        }
        Ok(Err(Short::Raced))
    }

    /// Whether the pool may grow before it coalesces what streams cache: the growth keeps free
    /// memory within its limit, and the upstream had memory at the last request.
    fn has_spare(&self, climb: &Climb<'_>) -> bool {
        let usage = self.usage();
        let free = usage.reserved_bytes.saturating_sub(usage.used_bytes);
        let more = room_for(climb.need).max(self.settings.segment_bytes);
        let left = (free + more).saturating_sub(climb.need.bytes);
        let is_tight = self.is_short.load(Relaxed) || left > self.settings.spare(self.streams.count());
        self.is_tight.store(is_tight, Relaxed);
        !is_tight
    }

    pub(super) fn exhausted(&self, layout: Layout, short: &Short) -> Error {
        let (usage, largest) = (self.usage(), lock(&self.shared).largest(&self.live));
        let (why, advice) = match short {
            Short::Limit => (
                format!("at most {}", Bytes(self.settings.most)),
                "give blocks back, raise its limit (max_bytes), or free something in a hook (on_exhausted)",
            ),
            Short::Raced => (
                format!("other threads took what it grew by, {MOST_GROWTHS} times"),
                "try again, give blocks back, or allocate from fewer threads at once",
            ),
            Short::Upstream(error) => (
                format!("its upstream has no more: {error}"),
                "give blocks back, leave the device to fewer programs, or free something in a hook (on_exhausted)",
            ),
        };
        Error::OutOfMemory(OutOfMemory::Pool {
            allocator: format!("{NAME} ({why})"),
            requested: Bytes(layout.size() as u64),
            used: Bytes(usage.used_bytes),
            reserved: Bytes(usage.reserved_bytes),
            cached: Bytes(usage.reserved_bytes.saturating_sub(usage.used_bytes)),
            largest: Bytes(largest),
            advice,
        })
    }
}
