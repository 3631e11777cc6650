//! Grow: the next span of a cursor by the lane that leads its group, alone.
//!
//! In a new heap a warp that asks for many classes needs a span for most of them. Each leading lane
//! makes one for its cursor, all at once: of slabs that follow each other from the hint of its SM
//! on. If they are not all free, or the ring of the cursor has a span that may do, the group
//! [advances](super::advance) cursor by cursor.
//!
//! Cost, one after the other: loads of the ring and the hint; a load of the free slabs there; an
//! atomic that claims them; the fence behind the entries and bits of the runs; an atomic that lists
//! them; and the release at the end of the move.

use super::Heap;
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::Span;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::units::WARP_SIZE;

/// Slots of a ring that a lane looks at.
const LOOKS: usize = if NATIVE_LAYOUT { 4 } else { 2 };
/// The most slabs, and words of the bitmap, of a span that one lane makes.
const MOST: (u32, u32) = (32, 128);

impl Heap {
    /// A new span for the cursor of each lane that `grows`, the leader of `lanes` lanes that crossed
    /// the end of the span `seen`. All lanes of the group take part. Returns whether the caller's
    /// cursor has a new span.
    pub(super) fn grow(
        &self,
        group: Group,
        grows: bool,
        class: SizeClass,
        shard: u32,
        seen: Span,
        lanes: u32,
    ) -> bool {
        let info = self.class(class);
        let place = if grows { self.unused_slot(class, shard, info, seen, lanes) } else { None };
        let (slot, runs) = place.unwrap_or((0, 0));
        // Lanes of one shard take slabs beside each other.
        let sum = group.prefix_sum(runs * info.slabs);
        if runs == 0 {
            return false;
        }
        let (hint, start) = (self.hint(shard), self.layout.partition_start(shard));
        // Relaxed: a hint, as the next one.
        let from = start.wrapping_add(hint.load_relaxed());
        let (first, len) = (from.wrapping_add(sum.before), runs * info.slabs);
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
            hint.store_relaxed(from.wrapping_add(sum.total).wrapping_sub(start));
            let span = self.ring(class, shard).fill(slot, Span::new(info, first, runs));
            self.cursor(class, shard).restart(span);
        }
        is_claimed
    }

    /// The slot for another span of a cursor, and its number of runs. `None` if there is a span that
    /// may have free blocks, or if the group is to decide.
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
