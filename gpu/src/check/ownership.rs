//! The ownership map: one word per granule of a pool, so that two owners of a byte conflict in a
//! word.
//!
//! ```text
//! pool   | granule 0 | granule 1 | granule 2 | granule 3 | ...   a block is one or more granules
//! words  |     7     |     7     |     0     |    12     | ...   7 owns two, 12 one, one is free
//! ```
//!
//! I1. A word changes from 0 to an owner by the owner's compare-and-swap, and back to 0 by that of
//! the same owner.
//! I2. While an owner has claimed a granule and not released it, and no claim of the granule
//! failed, the owner holds it exclusively.
//!
//! A claim right after an allocation and a release right before the free also catch an overlap that
//! lasts only a moment. All accesses are relaxed: an allocator that orders the next owner's writes
//! after the last owner's also orders these, and a failed claim reports one that does not.
//!
//! Cost: one relaxed atomic per granule. Wait-free.

use super::log::{Breach, BreachKind, CheckLog};
use super::record::{Owner, Record};
use crate::kernel::DeviceHandle;
use crate::sync::{AtomicU32, NATIVE_LAYOUT};
use core::ops::Range;

/// The map, in the form that kernels use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OwnershipMap {
    words: *const AtomicU32,
    log: *const CheckLog,
    base: u64,
    granules: u64,
    granule_log2: u32,
}

const _: () = assert!(size_of::<OwnershipMap>() == 40 && align_of::<OwnershipMap>() == 8);

// SAFETY: `repr(C)` of addresses and integers. Any thread may use it: its words and its log are
// atomic.
unsafe impl DeviceHandle for OwnershipMap {
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        found(self.words as u64, self.granules * size_of::<u32>() as u64);
    }
}

/// A granule that the caller could not claim or release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The granule's index in the pool.
    pub granule: u64,
    /// The owner of the granule; [`Owner::NONE`] if the granule to be released had none.
    pub other: Owner,
}

/// A block at a place where no block can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Misplaced(BreachKind);

impl OwnershipMap {
    /// A map of the memory that starts at `base`.
    ///
    /// # Safety
    /// `words` are `granules` words, all 0 at first; `log` is a log. Both stay valid while the map
    /// or a copy of it is used.
    pub unsafe fn from_raw_parts(
        words: *const AtomicU32,
        log: *const CheckLog,
        base: u64,
        granules: u64,
        granule_log2: u32,
    ) -> Self {
        OwnershipMap { words, log, base, granules, granule_log2 }
    }

    /// The log that the map writes to.
    #[inline(always)]
    pub fn log(&self) -> &CheckLog {
        // SAFETY: `from_raw_parts`' promise for `log`.
        unsafe { &*self.log }
    }

    /// Claims every granule of the block for `owner`. If other owners hold some of them, the first
    /// such granule is returned and recorded. A block that is not inside the pool, or does not
    /// start at a granule, is recorded too and claims nothing.
    #[inline(always)]
    pub fn claim(&self, address: u64, bytes: u32, owner: Owner) -> Result<(), Clash> {
        let span = self.span_or_record(address, bytes, owner)?;
        let clash = self.claim_granules(span, 1, owner, |_| {});
        clash.map_or(Ok(()), |clash| Err(self.report(BreachKind::Overlap, address, bytes, owner, clash)))
    }

    /// Releases every granule of the block. If `owner` does not hold all of them, the first such
    /// granule is returned and recorded. Granules of other owners are left unchanged.
    #[inline(always)]
    pub fn release(&self, address: u64, bytes: u32, owner: Owner) -> Result<(), Clash> {
        let mut clash = None;
        for granule in self.span_or_record(address, bytes, owner)? {
            if let Err(found) = self.word(granule).cas_relaxed(owner.0, 0) {
                clash = clash.or(Some(Clash { granule, other: Owner(found) }));
            }
        }
        clash.map_or(Ok(()), |clash| Err(self.report(BreachKind::Usurped, address, bytes, owner, clash)))
    }

    /// Claims every `step`th granule of `span`. Calls `met` with each other owner found, and
    /// returns the first conflict.
    #[inline(always)]
    pub(super) fn claim_granules(
        &self,
        span: Range<u64>,
        step: u32,
        owner: Owner,
        mut met: impl FnMut(Owner),
    ) -> Option<Clash> {
        let mut clash = None;
        let mut granule = span.start;
        while granule < span.end {
            if let Err(found) = self.word(granule).cas_relaxed(0, owner.0) {
                let other = Owner(found);
                met(other);
                clash = clash.or(Some(Clash { granule, other }));
            }
            granule += u64::from(step.max(1));
        }
        clash
    }

    /// The granules of a block, if it starts at a granule and ends inside the pool.
    #[inline(always)]
    pub(super) fn span(&self, address: u64, bytes: u32) -> Result<Range<u64>, Misplaced> {
        let granule_bytes = 1u64 << self.granule_log2;
        // An address below the base wraps to an offset above every end.
        let offset = address.wrapping_sub(self.base);
        let end = offset.checked_add(u64::from(bytes) + granule_bytes - 1);
        let end = end.map_or(u64::MAX, |end| end >> self.granule_log2);
        if end > self.granules {
            return Err(Misplaced(BreachKind::OutOfBounds));
        }
        if !offset.is_multiple_of(granule_bytes) {
            return Err(Misplaced(BreachKind::Misaligned));
        }
        Ok(offset >> self.granule_log2..end)
    }

    #[inline(always)]
    fn span_or_record(&self, address: u64, bytes: u32, owner: Owner) -> Result<Range<u64>, Clash> {
        self.span(address, bytes).map_err(|misplaced| self.report_misplaced(misplaced, address, bytes, owner))
    }

    #[inline(always)]
    pub(super) fn report_misplaced(
        &self,
        misplaced: Misplaced,
        address: u64,
        bytes: u32,
        owner: Owner,
    ) -> Clash {
        self.log().record(&Breach::of(misplaced.0, owner, address, bytes));
        Clash { granule: u64::MAX, other: Owner::NONE }
    }

    #[inline(always)]
    pub(super) fn report(
        &self,
        kind: BreachKind,
        address: u64,
        bytes: u32,
        owner: Owner,
        clash: Clash,
    ) -> Clash {
        let offset = self.address_of(clash.granule) - address;
        let breach = Breach::of(kind, owner, address, bytes);
        self.log().record(&Breach { other: clash.other, offset, ..breach });
        clash
    }

    /// The address of a granule.
    #[inline(always)]
    pub fn address_of(&self, granule: u64) -> u64 {
        self.base + (granule << self.granule_log2)
    }

    /// Records that a block does not have the alignment that its owner requested.
    // Inlined like everything here, so that the map stays in registers; the log's `record` is not.
    #[inline(always)]
    pub(super) fn report_misaligned(&self, record: Record, owner: Owner) {
        let (address, expected) = (record.address(), record.align());
        let breach = Breach::of(BreachKind::Misaligned, owner, address, record.bytes());
        self.log().record(&Breach { expected, found: address & (expected - 1), ..breach });
    }

    #[inline(always)]
    fn word(&self, granule: u64) -> &AtomicU32 {
        debug_assert!(granule < self.granules && NATIVE_LAYOUT);
        // SAFETY: `span` returns only granules of the pool.
        let word = unsafe { self.words.add(granule as usize) };
        // SAFETY: `from_raw_parts`' promise for `words`.
        unsafe { &*word }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::check::log::{LOG_WORDS, LogView};
    use std::vec::Vec;

    const BASE: u64 = 0x1_0000;

    /// 64 granules of 16 bytes, starting at `BASE`.
    fn with_map(body: impl FnOnce(&OwnershipMap, &dyn Fn() -> Vec<Breach>)) {
        let words: Vec<_> = (0..64).map(|_| AtomicU32::new(0)).collect();
        let log = CheckLog::default();
        // SAFETY: the words and the log outlive the map.
        let map = unsafe { OwnershipMap::from_raw_parts(words.as_ptr(), &log, BASE, 64, 4) };
        body(&map, &|| {
            // SAFETY: a log is `LOG_WORDS` words.
            let words = unsafe { core::slice::from_raw_parts((&raw const log).cast::<u64>(), LOG_WORDS) };
            LogView::new(words).unwrap().breaches().collect()
        });
    }

    #[test]
    fn disjoint_blocks_pass_and_their_memory_can_be_claimed_again() {
        with_map(|map, breaches| {
            for owner in 1..=100 {
                assert_eq!(map.claim(BASE, 17, Owner(owner)), Ok(()));
                assert_eq!(map.claim(BASE + 32, 62 * 16, Owner(owner + 1000)), Ok(()));
                assert_eq!(map.release(BASE + 32, 62 * 16, Owner(owner + 1000)), Ok(()));
                assert_eq!(map.release(BASE, 17, Owner(owner)), Ok(()));
            }
            assert!(breaches().is_empty());
        });
    }

    #[test]
    fn an_overlap_names_both_owners_and_the_place() {
        with_map(|map, breaches| {
            assert_eq!(map.claim(BASE + 64, 64, Owner(1)), Ok(()));
            assert_eq!(map.claim(BASE + 32, 33, Owner(2)), Err(Clash { granule: 4, other: Owner(1) }));
            let found = breaches();
            assert_eq!(found.len(), 1);
            assert_eq!(
                (found[0].kind, found[0].owner, found[0].other, found[0].address, found[0].offset),
                (BreachKind::Overlap, Owner(2), Owner(1), BASE + 32, 32)
            );
            // The first owner still holds all of its granules.
            assert_eq!(map.release(BASE + 64, 64, Owner(1)), Ok(()));
        });
    }

    #[test]
    fn a_release_of_another_owners_block_is_recorded_and_changes_nothing() {
        with_map(|map, breaches| {
            assert_eq!(map.claim(BASE, 16, Owner(1)), Ok(()));
            assert_eq!(map.release(BASE, 32, Owner(2)), Err(Clash { granule: 0, other: Owner(1) }));
            assert_eq!(breaches()[0].kind, BreachKind::Usurped);
            assert_eq!(map.release(BASE, 16, Owner(1)), Ok(()));
        });
    }

    #[test]
    fn blocks_outside_or_misaligned_are_recorded() {
        with_map(|map, breaches| {
            let cases = [
                (BASE - 16, 16, BreachKind::OutOfBounds),
                (BASE + 63 * 16, 17, BreachKind::OutOfBounds),
                (BASE + 64 * 16, 1, BreachKind::OutOfBounds),
                (u64::MAX, u32::MAX, BreachKind::OutOfBounds),
                (0, 1, BreachKind::OutOfBounds),
                (BASE + 8, 8, BreachKind::Misaligned),
            ];
            for (i, (address, bytes, kind)) in cases.into_iter().enumerate() {
                assert!(map.claim(address, bytes, Owner(1)).is_err());
                assert_eq!(breaches()[i].kind, kind, "{address:#x} {bytes}");
            }
            assert_eq!(map.claim(BASE, 64 * 16, Owner(9)), Ok(()));
        });
    }
}
