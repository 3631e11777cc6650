//! Statistics of a pool, and the errors for an invalid free.

use super::super::allocator::DeviceAllocator;
use super::super::request::{inside_block, invalid_free, wrong_layout};
use super::pool::CachingPool;
use super::shared::Shared;
use super::slot::ClaimError;
use super::stats::{CachingPoolStats, Counts, Rung, RungStats};
use crate::error::Error;
use crate::lock::lock;
use crate::report::{Extent, MemoryReport};
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

    /// The state of the pool, with the live blocks by size. Memory that streams cache counts as
    /// free, as it is before an allocation fails.
    pub(super) fn memory_report(&self) -> MemoryReport {
        let usage = self.usage();
        let (space, live) = {
            let shared = lock(&self.shared);
            (shared.space(&self.live, !self.settings.is_fixed), self.live.slots())
        };
        let live = live.into_iter().filter(|slot| slot.is_live());
        let live: Vec<_> = live.map(|slot| (slot.address(), slot.bytes())).collect();
        let report = MemoryReport::new(&*self.settings.name, usage);
        let report = report.with_space(space, live.iter().copied().map(Extent::used)).held_by_size(live);
        let failed = self.rungs[Rung::Failed as usize].load(Relaxed) as u64;
        MemoryReport { failed_allocations: Some(failed), limit_bytes: self.max_bytes(), ..report }.concluded()
    }

    /// The error for an invalid free.
    #[cold]
    pub(super) fn invalid_free(&self, address: u64, layout: Layout, error: ClaimError) -> Error {
        let why = match error {
            ClaimError::Free => "the block at that address is already free".into(),
            ClaimError::Layout(given) => wrong_layout(given, layout),
            ClaimError::Unknown => self.explain_unknown(address),
        };
        invalid_free(&*self.settings.name, address, why)
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
