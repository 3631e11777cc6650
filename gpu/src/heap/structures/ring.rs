//! Ring: all spans of a cursor.
//!
//! ```text
//! slot   0     1     2     3 ...
//!      | A  |  B  |  C  |  0  |      the cursor goes on from A to B, to C, and to A again
//! ```
//!
//! A cursor uses its spans one after the other. If they have no free blocks, the group that crosses
//! the end adds a span. So after a few kernels a ring is as large as its SM needs, and allocations
//! do not search any more. If there are no free slabs, the group takes over the last span of a
//! longer ring.
//!
//! - I1. The group that crossed the end of the cursor's span adds spans. Other groups only remove
//!   the last one.
//! - I2. Slots after an unused one are unused, except while a removal overlaps an addition. Spans
//!   after it are then skipped until the slot is used again.
//!
//! Spans are hints: their runs may have been retired since. All operations are relaxed.

use crate::heap::layout::class::ClassInfo;
use crate::heap::structures::cursor::{SLOT_BITS, Span};
use crate::lanes::Group;
use crate::sync::{AtomicU32, NATIVE_LAYOUT};

/// Spans of a ring.
const SLOTS: u32 = if NATIVE_LAYOUT { 32 } else { 2 };
const _: () = assert!(SLOTS <= 1 << SLOT_BITS);
/// A new span replaces the ring if it is at least this many times as large as all spans together:
/// each end of a span costs time.
const REPLACES: u32 = 4;

/// The `range` of each span; 0 for an unused slot. Initially all are zero.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Ring([AtomicU32; SLOTS as usize]);

/// The result of a survey of all spans of a ring.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Survey {
    /// The next span after that of the cursor with a fully free word in its first run.
    pub free: Option<Span>,
    /// Runs of all spans.
    pub runs: u32,
    /// The slots that have a span, except spans with retired runs.
    used: u32,
    /// The slot for another span if all are used.
    oldest: u32,
}

impl Ring {
    #[cfg(not(target_arch = "nvptx64"))]
    /// A ring without spans.
    pub fn new() -> Self {
        Ring(core::array::from_fn(|_| AtomicU32::new(0)))
    }

    #[inline(always)]
    fn slot(&self, slot: u32) -> &AtomicU32 {
        debug_assert!(slot < SLOTS);
        // SAFETY: the slot is less than `SLOTS`, by the callers.
        unsafe { self.0.get_unchecked(slot as usize) }
    }

    /// All spans, each with all of its blocks left.
    pub(in crate::heap) fn spans(&self, info: &ClassInfo) -> impl Iterator<Item = Span> {
        (0..SLOTS).map(|slot| Span::of_range(info, self.slot(slot).load_relaxed()).in_slot(slot))
    }

    /// The span after that in slot `slot`: the span itself if it is the only one.
    #[inline(always)]
    pub(in crate::heap) fn after(&self, info: &ClassInfo, slot: u32) -> Span {
        let after = (slot + 1) % SLOTS;
        // Both loads at once.
        let (next, first) = (self.slot(after).load_relaxed(), self.slot(0).load_relaxed());
        let (slot, range) = if next == 0 { (0, first) } else { (after, next) };
        Span::of_range(info, range).in_slot(slot)
    }

    /// Surveys all spans by all lanes of the group. The cursor's span is in slot `slot`. For the
    /// run at a slab, `look` returns whether it has a fully free word, or `None` if the run is
    /// gone.
    pub(in crate::heap) fn survey(
        &self,
        group: Group,
        info: &ClassInfo,
        slot: u32,
        look: impl Fn(u32) -> Option<bool>,
    ) -> Survey {
        let (mut used, mut free, mut total) = (0, 0, 0);
        let mut i = group.rank();
        while i < SLOTS {
            let span = Span::of_range(info, self.slot(i).load_relaxed());
            let seen = if span.runs() > 0 { look(span.first(info)) } else { None };
            if let Some(is_free) = seen {
                used |= 1 << i;
                free |= u32::from(is_free) << i;
                total += span.runs();
            }
            i += group.count();
        }
        let (used, free, total) = (group.union(used), group.union(free), group.wrapping_sum(total));
        let oldest = (slot + 1) % SLOTS;
        let others = (free & !(1 << slot)).rotate_right(oldest);
        let next = (oldest + others.trailing_zeros()) % SLOTS;
        let free = (others != 0).then(|| Span::of_range(info, self.slot(next).load_relaxed()).in_slot(next));
        Survey { free, runs: total, used, oldest }
    }

    /// The last span, and the number of runs of all spans. The span has no runs if the ring is
    /// empty.
    pub(in crate::heap) fn last(&self, info: &ClassInfo) -> (Span, u32) {
        let used = self.spans(info).filter(|span| span.runs() > 0);
        used.fold((Span::UNUSED, 0), |(_, runs), span| (span, runs + span.runs()))
    }

    /// Removes a span. Returns whether it was there.
    pub(in crate::heap) fn remove(&self, span: Span) -> bool {
        self.slot(span.slot()).cas_relaxed(span.range(), 0).is_ok()
    }

    /// The spans of the first `N` slots, and the number of the first of these slots that is unused.
    /// `None` if all are used.
    pub(in crate::heap) fn first_spans<const N: usize>(
        &self,
        info: &ClassInfo,
    ) -> Option<([Span; N], usize)> {
        // All loads at once.
        let ranges: [u32; N] = core::array::from_fn(|slot| self.slot(slot as u32).load_relaxed());
        let unused = ranges.iter().position(|range| *range == 0)?;
        Some((ranges.map(|range| Span::of_range(info, range)), unused))
    }

    /// Puts a span into an unused slot.
    pub(in crate::heap) fn fill(&self, slot: u32, span: Span) -> Span {
        self.slot(slot).store_relaxed(span.range());
        span.in_slot(slot)
    }

    /// Adds a span of `runs` runs from slab `first` on. Returns it to all lanes of the group.
    pub(in crate::heap) fn add(
        &self,
        group: Group,
        survey: &mut Survey,
        info: &ClassInfo,
        first: u32,
        runs: u32,
    ) -> Span {
        let unused = survey.used.trailing_ones();
        let replaces_all = runs >= REPLACES * survey.runs;
        let slot = match unused {
            _ if replaces_all => 0,
            SLOTS => survey.oldest,
            _ => unused,
        };
        let new = Span::new(info, first, runs).in_slot(slot);
        if group.leads() {
            if replaces_all {
                (1..SLOTS).for_each(|slot| self.slot(slot).store_relaxed(0));
            }
            self.slot(slot).store_relaxed(new.range());
        }
        survey.used = if replaces_all { 1 } else { survey.used | 1 << slot };
        if slot == survey.oldest {
            survey.oldest = (slot + 1) % SLOTS;
        }
        survey.runs += runs;
        new
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Ring {
    fn default() -> Self {
        Ring::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::heap::layout::HeapLayout;
    use crate::heap::layout::class::SizeClass;

    #[test]
    fn the_last_span_is_followed_by_the_first() {
        let info = HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(2048));
        let (ring, span) = (Ring::new(), |i: u32| Span::new(&info, 8 * i, i));
        assert_eq!(ring.after(&info, 0).runs(), 0);
        for i in 1..=SLOTS {
            ring.slot(i - 1).store_relaxed(span(i).range());
            assert_eq!(ring.after(&info, 0), span(i.min(2)).in_slot(u32::from(i > 1)));
            assert_eq!(ring.after(&info, i - 1), span(1));
        }
    }

    #[test]
    fn spans_are_added_until_all_slots_are_used_and_a_large_one_replaces_all() {
        let info = HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(2048));
        let (ring, group) = (Ring::new(), Group::alone());
        // The cursor is at `slot`. The runs at the slabs `free` have a free word.
        let survey =
            |slot: u32, free: &[u32]| ring.survey(group, &info, slot, |run| Some(free.contains(&run)));
        let add = |slot: u32, first: u32, runs: u32| {
            let mut survey = survey(slot, &[]);
            let span = ring.add(group, &mut survey, &info, first, runs);
            (span.slot(), span.first(&info), survey.runs, survey.used)
        };
        assert_eq!(add(0, 8, 2), (0, 8, 2, 1));
        assert_eq!(add(0, 100, 7), (1, 100, 9, 3));
        assert_eq!(add(0, 200, 36), (0, 200, 45, 1));
        assert_eq!((survey(0, &[]).runs, ring.after(&info, 0).first(&info)), (36, 200));
        for i in 1..SLOTS {
            assert_eq!(add(0, 1000 * i, 1), (i, 1000 * i, 36 + i, u32::MAX >> (31 - i)));
        }
        assert_eq!(add(5, 7, 1).0, 6);
        // Two with one survey.
        let mut twice = survey(9, &[]);
        assert_eq!([0, 1].map(|_| ring.add(group, &mut twice, &info, 500, 1).slot()), [10, 11]);
        assert_eq!(add(SLOTS - 1, 8, 1).0, 0);
        // The next span with a free word, after the cursor's one.
        let next = |slot: u32, free: &[u32]| survey(slot, free).free.map(|span| span.slot());
        assert_eq!([next(5, &[5000]), next(5, &[4000, 31_000]), next(9, &[4000])], [None, Some(31), Some(4)]);
        assert_eq!([next(31, &[8]), next(31, &[1000, 2000])], [Some(0), Some(1)]);
        assert_eq!((ring.last(&info).0.slot(), ring.last(&info).1), (SLOTS - 1, survey(0, &[]).runs));
        // Without spans of runs that are gone.
        let gone = ring.survey(group, &info, 0, |run| (run != 5000).then_some(true));
        assert_eq!((gone.used, gone.free.unwrap().slot()), (!(1 << 5), 1));
    }

    #[test]
    fn the_last_span_is_removed_once_if_it_is_still_there() {
        let info = HeapLayout::new(8 << 30, 132).unwrap().class(SizeClass::of(2048));
        let (ring, span) = (Ring::new(), |i: u32| Span::new(&info, 8 * i, i));
        assert_eq!(ring.last(&info), (Span::UNUSED, 0));
        [2, 3]
            .into_iter()
            .enumerate()
            .for_each(|(i, runs)| ring.slot(i as u32).store_relaxed(span(runs).range()));
        let (last, runs) = ring.last(&info);
        assert_eq!((last, runs), (span(3).in_slot(1), 5));
        assert!(!ring.remove(span(4).in_slot(1)) && ring.remove(last) && !ring.remove(last));
        assert_eq!(ring.last(&info), (span(2), 2));
    }
}
