//! Grow: the leading lane of a group makes the next span of its cursor alone.
//!
//! In a new heap, a warp that requests many classes needs a span for most of them. The leading
//! lanes make these spans concurrently, each for its own cursor, of consecutive slabs from the hint
//! of its shard on. Each lane adds its slabs to the hint, so that lanes that grow at the same time,
//! also of different SMs, rarely try the same ones. If the slabs are not all free, or the ring of
//! the cursor may have a free span, the group [refills](super::refill) cursor by cursor, and stores
//! the hint anew.
//!
//! Cost, one after the other: loads of the ring; an atomic on the hint; a load of the free slabs
//! there; an atomic that claims them; the fence behind the entries and bits of the runs; an atomic
//! that lists them; and the release at the end of the move.

use crate::heap::layout::class::{ClassInfo, SizeClass};
use crate::heap::structures::cursor::Span;
use crate::heap::structures::heap_core::HeapCore;
use crate::sync::NATIVE_LAYOUT;
use crate::units::WARP_SIZE;

/// Slots of a ring that a lane reads.
const LOOKS: usize = if NATIVE_LAYOUT { 4 } else { 2 };
/// The most slabs, and words of the bitmap, of a span that one lane makes.
const MOST: (u32, u32) = (32, 128);

impl HeapCore {
    /// A new span for the cursor of each lane that `grows`, the leader of `lanes` lanes that
    /// crossed the end of the span `seen`. Returns whether the caller's cursor has a new span.
    pub(in crate::heap) fn grow(
        &self,
        grows: bool,
        class: SizeClass,
        shard: u32,
        seen: Span,
        lanes: u32,
    ) -> bool {
        let info = self.class(class);
        let place = if grows { self.unused_slot(class, shard, info, seen, lanes) } else { None };
        let (slot, runs) = place.unwrap_or((0, 0));
        if runs == 0 {
            return false;
        }
        // Relaxed: a hint.
        let len = runs * info.slabs;
        let first = self.layout.partition_start(shard).wrapping_add(self.hint(shard).add_relaxed(len));
        if first >= self.layout.slabs || len > self.layout.slabs - first {
            return false;
        }
        let (free, common) = (self.free_slabs(), self.overview().common());
        if free.len_at(first, len) < len {
            return false;
        }
        let is_claimed = common.during(|| {
            let is_claimed = free.claim_at_moving(first, len) == len;
            if is_claimed {
                self.runs().dedicate(first, runs, class, info);
            }
            is_claimed
        });
        if is_claimed {
            let span = self.ring(class, shard).fill(slot, Span::new(info, first, runs));
            self.cursor(class, shard).restart(span);
        }
        is_claimed
    }

    /// The slot for another span of a cursor, and its number of runs. `None` if the first run of
    /// one of the leading spans may have free blocks, or if the group is to decide.
    fn unused_slot(
        &self,
        class: SizeClass,
        shard: u32,
        info: &ClassInfo,
        seen: Span,
        lanes: u32,
    ) -> Option<(u32, u32)> {
        if lanes == WARP_SIZE || seen.is_dry() {
            return None;
        }
        let (spans, unused) = self.ring(class, shard).first_spans::<LOOKS>(info)?;
        let used = || spans.iter().take(unused);
        let is_free =
            |(slot, span): (u32, &Span)| slot != seen.slot() && self.runs().free_words(span.first(info)) > 0;
        if (0..).zip(used()).any(is_free) {
            return None;
        }
        let runs = info.span_runs(used().map(|span| span.runs()).sum(), lanes);
        let is_small = runs * info.slabs <= MOST.0 && runs * info.words() <= MOST.1;
        is_small.then_some((unused as u32, runs))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::heap::tests::heap::{OwnedHeap, heap};
    use crate::machine::Coords;
    use crate::test_lanes::interrupted_at;
    use std::vec::Vec;

    /// One class for each lane.
    const CLASSES: [SizeClass; 4] =
        [SizeClass::of(16), SizeClass::of(64), SizeClass::of(128), SizeClass::of(256)];

    /// Lets four lanes cross the ends of new cursors. Returns the span of each, if it grew.
    fn grown(owned: &OwnedHeap) -> Vec<Option<(u32, u32)>> {
        let done = owned.on_lanes(0b1111, Coords::SOLE, |owned, group| {
            let class = CLASSES[group.rank() as usize];
            let (info, seen) = (owned.core().class(class), owned.core().cursor(class, 0).take(1));
            assert!(seen.is_crossed_by(1));
            let has_grown = owned.core().grow(true, class, 0, seen, 1);
            let span = owned.core().cursor(class, 0).span();
            assert_eq!(has_grown, span.left() > 0);
            has_grown.then(|| (span.first(info), span.runs() * info.slabs))
        });
        done.results
    }

    #[test]
    fn lanes_make_spans_beside_each_other_of_free_runs() {
        let owned = heap(1024, 1);
        let mut from = 0;
        let mut spans: Vec<_> =
            grown(&owned).into_iter().map(|span| span.expect("a span")).zip(CLASSES).collect();
        // Any lane may come first.
        spans.sort_unstable();
        for ((first, slabs), class) in spans {
            assert_eq!(first, from);
            let info = *owned.core().class(class);
            for run in (first..first + slabs).step_by(info.slabs as usize) {
                assert!(owned.core().runs().starts(run, class, info.slabs));
                assert_eq!(owned.free_blocks(class, run).len(), info.blocks as usize);
                assert_eq!(owned.hints(class, run), (true, true));
            }
            assert!((first..first + slabs).all(|slab| !owned.is_free_slab(slab)));
            from = first + slabs;
        }
        assert!(owned.is_free_slab(from));
        assert_eq!(owned.core().hint(0).load_relaxed(), from);
        assert_eq!(owned.core().overview().common().open(), 0);
    }

    #[test]
    fn a_lane_whose_slabs_are_not_free_or_whose_ring_has_a_free_span_leaves_it_to_the_group() {
        let owned = heap(1024, 1);
        assert_eq!(owned.core().free_slabs().claim_at(0, 1), 1);
        let spans = grown(&owned);
        // One lane gets the range with that slab.
        assert_eq!(spans.iter().filter(|span| span.is_none()).count(), 1, "{spans:?}");
        assert_eq!(owned.core().overview().common().open(), 0);
        // Any lane may come first, and be the one without a span.
        let grown = spans.iter().position(|span| span.is_some()).expect("a span");
        // The cursor is at slot 1, so the span in slot 0 is another one.
        let seen = Span::UNUSED.in_slot(1);
        assert!(!owned.core().grow(true, CLASSES[grown], 0, seen, 1));
    }

    #[test]
    fn lanes_that_grow_at_the_same_time_take_different_slabs() {
        for at in 0.. {
            let owned = heap(1024, 1);
            let grow = |class: SizeClass| owned.core().grow(true, class, 0, Span::UNUSED, 1);
            let mut is_other = false;
            let (is_one, was_there) = interrupted_at(at, || is_other = grow(CLASSES[1]), || grow(CLASSES[0]));
            if !was_there {
                assert!(at > 5, "{at} operations");
                break;
            }
            assert!(is_one && is_other, "before operation {at}");
            let ends = [0, 1].map(|i| owned.core().cursor(CLASSES[i], 0).span().end());
            assert_eq!(owned.core().hint(0).load_relaxed(), ends[0].max(ends[1]));
        }
    }

    /// Whether a lone lane grows a new cursor of the class, for a group of `lanes` lanes.
    fn grows(class: SizeClass, lanes: u32, prepare: impl FnOnce(&OwnedHeap) -> Span) -> bool {
        let owned = heap(1024, 1);
        let seen = prepare(&owned);
        let has_grown = owned.core().grow(true, class, 0, seen, lanes);
        assert_eq!(owned.core().overview().common().open(), 0);
        let is_restarted = owned.core().cursor(class, 0).span() != Span::UNUSED;
        assert_eq!(has_grown, is_restarted);
        has_grown
    }

    #[test]
    fn a_lane_grows_no_cursor_of_whole_warps_or_beyond_its_limits() {
        let class = CLASSES[1];
        let unused = |_: &OwnedHeap| Span::UNUSED;
        assert!(grows(class, 1, unused));
        assert!(!grows(class, WARP_SIZE - 1, unused), "more words than a lane makes runs of");
        assert!(!grows(class, WARP_SIZE, unused), "a whole warp");
        assert!(!grows(class, 1, |_| Span::UNUSED.dry()), "a dry cursor");
        assert!(!grows(SizeClass::of(8192), 1, unused), "more slabs than a lane makes runs of");
        let at = |hint: u32| {
            move |owned: &OwnedHeap| {
                owned.core().hint(0).store_relaxed(hint);
                Span::UNUSED
            }
        };
        assert!(grows(class, 1, at(1020)));
        assert!(!grows(class, 1, at(1021)), "the last slabs are beyond the heap");
        assert!(!grows(class, 1, at(1024)), "at the end of the heap");
        // A ring whose first slots are used, by runs that are gone.
        let used = |owned: &OwnedHeap| {
            let info = owned.core().class(class);
            (0..LOOKS as u32).for_each(|slot| {
                owned.core().ring(class, 0).fill(slot, Span::new(info, 100 + 4 * slot, 1));
            });
            Span::UNUSED
        };
        assert!(!grows(class, 1, used), "no unused slot");
    }

    #[test]
    fn a_lane_that_loses_a_slab_puts_the_others_back() {
        let class = CLASSES[1];
        let mut lost = 0;
        for at in 0..100 {
            let owned = heap(1024, 1);
            let take = || _ = owned.core().free_slabs().claim_at(2, 1);
            let grow = || owned.core().grow(true, class, 0, Span::UNUSED, 1);
            let (has_grown, was_there) = interrupted_at(at, take, grow);
            lost += u32::from(!has_grown);
            // All four slabs, or none of them.
            let free = (0..4).filter(|slab| owned.is_free_slab(*slab)).count();
            assert_eq!(free, if has_grown { 0 } else { 3 }, "before operation {at}");
            if !was_there {
                break;
            }
        }
        assert!(lost > 2, "{lost}");
    }
}
