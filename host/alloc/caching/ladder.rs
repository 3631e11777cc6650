//! What a stream's own cache does not have: one rung after the other, until there is memory.
//!
//! ```text
//!   shared    free for this stream, or for anyone: no driver call, but to look at events that are pending. Of what all share a large request takes
//!             an extent for the stream's cache, and a small one a slab, which may be cut out of such an extent
//!   done      what streams that have nothing to do have freed. Once as much lies free as may (`spare_bytes`): what the stream itself keeps,
//!             merged, then what others have freed and passed, with an event on each that has work left
//!   grown     more of the upstream
//!   stolen    other streams' free blocks, which this stream waits for on the device
//!   released  cached segments go back, and the upstream is asked again
//!   waited    the host waits for all that is pending; then all of that once more
//!   hooked    the user's hook may give something back, and it all begins again
//! ```
//!
//! The upstream is asked before this stream is made to wait for another one's unfinished work, and after blocks whose work is done: so what a pool holds beyond
//! its live blocks is bounded by what is in flight and by what may lie free (`spare_bytes`), and streams stay apart while there is memory. Below that bound a
//! stream that has work left keeps what it will ask for again.
//!
//! The source's lock is held by `grown` and `released` while they ask the upstream; what all share, while other streams are looked at.

use super::class::Need;
use super::live::BlockId;
use super::search::{Climb, MOST_GROWTHS};
use super::slabs::room_for;
use super::source::Short;
use super::{CachingPool, NAME};
use crate::alloc::{DeviceAllocator, lock};
use crate::driver::Stream;
use crate::error::{Bytes, Error, OutOfMemory, Result};
use std::alloc::Layout;
use std::sync::atomic::Ordering::Relaxed;

/// How often the hook is asked for one allocation: a hook that always says yes does not hold a thread for ever.
const MOST_HOOKS: usize = 64;

/// How often a pool of equal blocks looks for one that other threads took before it came to it, each time after one was free.
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
    /// A block that the stream's cache does not have; its address, or why there is none.
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

    /// The rungs of a pool of equal blocks, which does not grow: it fails only if at one moment all blocks were live or on their way.
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
            // Of a stream whose point could not be marked, or freed since.
            self.wait_for_pending();
            if let Some(found) = self.find_done(climb) {
                return Ok(Ok((found, Rung::Waited)));
            }
        }
        Ok(Err(Short::Raced))
    }

    /// Whether more may be asked of the upstream before what streams keep is merged: with it, what lies free is no more than may,
    /// and the upstream had some when it was asked last.
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
