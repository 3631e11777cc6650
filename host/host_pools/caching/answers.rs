//! Statistics of a pool, and the reasons for an invalid free.

use super::block_table::ClaimError;
use super::ladder::Rung;
use super::shared::Shared;
use super::stats::{CachingPoolStats, Counts, RungStats};
use super::{CachingPool, NAME};
use crate::error::{Error, InvalidFree};
use crate::host_pools::{DeviceAllocator, Usage, lock, words};
use std::alloc::Layout;
use std::sync::atomic::Ordering::Relaxed;

impl<A: DeviceAllocator> CachingPool<A> {
    /// The sum over all caches.
    pub(super) fn counts(&self, shared: &Shared) -> Counts {
        let mut counts = shared.retired.clone();
        self.streams.all().iter().for_each(|cache| cache.count(&mut counts));
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
            asked_bytes: counts.asked(),
            wasted_bytes: used.saturating_sub(counts.asked()),
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
    pub(super) fn misuse(&self, address: u64, layout: Layout, wrong: ClaimError) -> Error {
        let why = match wrong {
            ClaimError::Free => "the block there is free already".into(),
            ClaimError::Layout(given) => {
                format!("it was allocated as {}, not as {}", words(given), words(layout))
            }
            ClaimError::Unknown => self.whereabouts(address),
        };
        Error::InvalidFree(InvalidFree::Block { allocator: NAME.into(), address, why })
    }

    /// Describes an address at which no block starts.
    fn whereabouts(&self, address: u64) -> String {
        let shared = lock(&self.shared);
        if shared.arena.segment_of(address).is_none() {
            return "it is in no segment of the pool's: it is of another allocator, or its segment was given back before".into();
        }
        let has = |start: u64, bytes: u64| start <= address && address - start < bytes;
        let all = self.live.all().into_iter().map(|id| self.live.slot(id));
        let found = all.into_iter().find(|slot| has(slot.address(), slot.bytes()));
        let asked = found.and_then(|slot| Some((slot.address(), self.live.asked(slot.address())?)));
        match asked {
            Some((start, layout)) => {
                format!("it lies inside of the block of {} at {start:#x}", words(layout))
            }
            None => "nothing is allocated there: it was given back before, or never allocated".into(),
        }
    }
}
