//! Statistics of a pool, and the errors for an invalid free.

use super::super::allocator::DeviceAllocator;
use super::super::request::{inside_block, invalid_free, wrong_layout};
use super::class::NAME;
use super::pool::CachingPool;
use super::shared::Shared;
use super::slot::ClaimError;
use super::stats::{CachingPoolStats, Counts, Rung, RungStats};
use crate::error::Error;
use crate::lock::lock;
use crate::usage::Usage;
use std::alloc::Layout;
use std::sync::atomic::Ordering::Relaxed;

impl<A: DeviceAllocator> CachingPool<A> {
    /// The sum over all caches, including those of ended streams.
    pub(super) fn counts(&self, shared: &Shared) -> Counts {
        let mut counts = shared.retired.clone();
        self.streams.all().iter().for_each(|cache| cache.bins().count(&mut counts));
        counts
    }

    /// Statistics since the pool was created.
    pub fn stats(&self) -> CachingPoolStats {
        let shared = lock(&self.shared);
        let counts = self.counts(&shared);
        let (used, reserved) = (counts.used(), shared.arena.reserved());
        let rung = |rung: Rung| self.rungs[rung as usize].load(Relaxed) as u64;
        CachingPoolStats {
            live_blocks: counts.blocks(),
            usage: Usage { used_bytes: used, reserved_bytes: reserved, largest_free_bytes: None },
            requested_bytes: counts.requested(),
            wasted_bytes: used.saturating_sub(counts.requested()),
            cached_bytes: reserved.saturating_sub(used),
            peak_reserved_bytes: self.peak.load(Relaxed) as u64,
            segments: shared.arena.segments().count() as u64,
            hits: counts.hits(),
            misses: counts.misses(),
            upstream_allocs: self.upstream_allocs.load(Relaxed) as u64,
            upstream_frees: self.upstream_frees.load(Relaxed) as u64,
            rungs: RungStats {
                shared: rung(Rung::Shared),
                done: rung(Rung::Done),
                grown: rung(Rung::Grown),
                stolen: rung(Rung::Stolen),
                released: rung(Rung::Released),
                waited: rung(Rung::Waited),
                hooked: rung(Rung::Hooked),
                failed: rung(Rung::Failed),
            },
            classes: counts.by_class(self.settings.classes),
        }
    }

    /// The error for an invalid free.
    #[cold]
    pub(super) fn invalid_free(&self, address: u64, layout: Layout, error: ClaimError) -> Error {
        let why = match error {
            ClaimError::Free => "the block at that address is already free".into(),
            ClaimError::Layout(given) => wrong_layout(given, layout),
            ClaimError::Unknown => self.explain_unknown(address),
        };
        invalid_free(NAME, address, why)
    }

    /// Describes an address at which no block starts.
    fn explain_unknown(&self, address: u64) -> String {
        let shared = lock(&self.shared);
        if shared.arena.segment_of(address).is_none() {
            let why = "the address is in no segment of the pool: it belongs to another allocator, or \
                       its segment was released";
            return why.into();
        }
        let has = |start: u64, bytes: u64| start <= address && address - start < bytes;
        let found = self.live.slots().into_iter().find(|slot| has(slot.address(), slot.bytes()));
        let live = found.and_then(|slot| Some((slot.address(), self.live.layout_at(slot.address())?)));
        match live {
            Some((start, layout)) => inside_block(start, layout),
            None => "no live block contains the address: its block was freed, or never allocated".into(),
        }
    }
}
