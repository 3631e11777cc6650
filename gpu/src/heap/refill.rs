//! Where a cursor's next span comes from: free slabs, then other cursors.

use super::class::SizeClass;
use super::cursor::Span;
use super::entry::Entry;
use super::layout::{ClassInfo, WORD_BITS};
use super::sets::Run;
use super::{ARRIVE, Heap, INSTALL, POLL_NANOS, SEARCH, TAKE};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// Polls for the end of a search that another group has begun: more than the longest takes.
const WAITS: u32 = if NATIVE_LAYOUT { 1 << 10 } else { 3 };

/// How often a span is taken from another cursor of the class before that is given up: each failure is another
/// thread's success.
const STEALS: u32 = 64;

impl Heap {
    /// Stores the next span in a cursor that the group crossed, or searches for (I8). Whether there is one.
    #[inline(never)]
    pub(super) fn refill(&self, group: Group, class: SizeClass, home: u32, lanes: u32) -> bool {
        let leads = group.leads();
        let mut run = if leads { self.claim_span(class, home, lanes) } else { Run::NONE };
        let mut span = Span::DRY;
        if leads && run.len == 0 {
            span = self.steal(class, home);
            if span == Span::DRY && self.close_all() {
                run = self.claim_span(class, home, lanes);
            }
        }
        let run = Run { first: group.broadcast_32(run.first), len: group.broadcast_32(run.len) };
        let info = self.class(class);
        let mut slab = group.rank();
        while slab < run.len {
            let place = if info.slabs == 1 { 0 } else { slab % info.slabs };
            // Relaxed: the cursor's release is behind it.
            self.entry(run.first + slab).store_relaxed(Entry::of_class(class, place).0);
            slab += group.count();
        }
        group.sync();
        if leads {
            if run.len > 0 {
                span = Span::new(run.first, run.len / info.slabs * info.blocks);
            }
            self.install(class, home, span);
        }
        group.broadcast_32((span != Span::DRY).into()) == 1
    }

    fn install(&self, class: SizeClass, home: u32, span: Span) {
        let index = self.cursor_index(class, home);
        // ordering: release; pairs with TAKE: the slabs' entries, and what their last owners wrote (I4).
        self.cursor_at(index).span.swap_release(span.0, INSTALL);
        if span != Span::DRY {
            self.live().insert(index);
        }
    }

    /// Takes free slabs for a span, whole runs of them.
    fn claim_span(&self, class: SizeClass, home: u32, lanes: u32) -> Run {
        let info = self.class(class);
        let most = self.layout.span_runs(info, lanes) * info.slabs;
        let free = self.free_slabs();
        let hint = self.hint(home).load_relaxed();
        // Without a look first: in a heap with room the slabs at the hint are free.
        let mut run = free.claim_at(hint, most);
        if run.len < info.slabs {
            free.insert_run(run);
            run = free.claim_run(hint / WORD_BITS, info.slabs, most);
        }
        if info.slabs > 1 {
            let rest = run.len % info.slabs;
            run.len -= rest;
            free.insert_run(Run { first: run.first + run.len, len: rest });
        }
        let next = run.first + run.len;
        self.hint(home).store_relaxed(if next < self.layout.slabs { next } else { 0 });
        run
    }

    /// The later half of what another cursor of the class has, by whole runs; all of it when that is one.
    #[cold]
    #[inline(never)]
    fn steal(&self, class: SizeClass, home: u32) -> Span {
        let info = self.class(class);
        let (start, end) = (self.cursor_index(class, 0), self.cursor_index(class, 0) + self.layout.homes);
        let mut from = start + home;
        // From the next home on to the last, and then from the first.
        for _ in 0..STEALS {
            let found = self.live().next_within(from, end).or(self.live().next_within(start, start + home));
            let Some(index) = found else { return Span::DRY };
            let seen = Span(self.cursor_at(index).span.load_relaxed());
            let left = seen.left().unwrap_or(0);
            if left == 0 {
                if seen.is_dry() {
                    self.live().remove(index);
                }
                from = index + 1;
                continue;
            }
            let kept = left.div_ceil(info.blocks) / 2;
            let rest = if kept == 0 { Span::DRY } else { Span::new(seen.first(), kept * info.blocks) };
            // ordering: acquire; pairs with INSTALL, as a subtraction does.
            if self.cursor_at(index).span.cas_acquire(seen.0, rest.0, TAKE).is_ok() {
                return Span::new(seen.first() + kept * info.slabs, left - kept * info.blocks);
            }
        }
        Span::DRY
    }

    /// Makes holes of what all cursors have. Whether there was anything.
    #[cold]
    #[inline(never)]
    pub(super) fn close_all(&self) -> bool {
        let live = self.live();
        let mut any = false;
        for class in 0..self.layout.classes {
            let (start, end) = (class * self.layout.homes, (class + 1) * self.layout.homes);
            let mut from = start;
            while let Some(index) = live.next_within(from, end) {
                any |= self.close(SizeClass(class), index);
                from = index + 1;
            }
        }
        any
    }

    /// The same for one cursor, unless a group is about to store its next span.
    #[cold]
    #[inline(never)]
    fn close(&self, class: SizeClass, index: u32) -> bool {
        let span = &self.cursor_at(index).span;
        let mut seen = Span(span.load_relaxed());
        for _ in 0..STEALS {
            let Some(left) = seen.left() else { return false };
            if seen.is_dry() {
                self.live().remove(index);
                return false;
            }
            // ordering: acquire; pairs with INSTALL, as a subtraction does.
            match span.cas_acquire(seen.0, Span::DRY.0, TAKE) {
                Ok(_) => {
                    self.live().remove(index);
                    self.make_holes(class, seen.first(), left);
                    return left > 0;
                }
                Err(now) => seen = Span(now),
            }
        }
        false
    }

    /// Makes holes of the blocks `0..left` of a span, which are the caller's.
    #[cold]
    #[inline(never)]
    fn make_holes(&self, class: SizeClass, first: u32, left: u32) {
        let info = self.class(class);
        let (mut run, mut left) = (first, left);
        while left > 0 {
            let blocks = left.min(info.blocks);
            self.make_holes_of_run(class, info, run, blocks);
            run += info.slabs;
            left -= blocks;
        }
    }

    fn make_holes_of_run(&self, class: SizeClass, info: &ClassInfo, run: u32, blocks: u32) {
        for w in 0..blocks.div_ceil(WORD_BITS) {
            let rest = blocks - w * WORD_BITS;
            let bits = if rest >= WORD_BITS { u32::MAX } else { (1 << rest) - 1 };
            // ordering: release; pairs with CLAIM and RETIRE: it hands on what the span's claim acquired (I4).
            self.bits(self.word_of(run, w * WORD_BITS)).or_release(bits & info.full_word(w), super::FREE);
        }
        self.holes(run).add_relaxed(blocks);
        self.note_holes(run, class);
    }

    /// Whether a search that began after this call found no memory for the class: another group's, or this
    /// one's own. The cursor was seen dry.
    #[cold]
    #[inline(never)]
    pub(super) fn is_known_full(&self, group: Group, class: SizeClass, home: u32) -> bool {
        let cursor = self.cursor_at(self.cursor_index(class, home));
        // ordering: release; pairs with SEARCH below: what this group has freed, or knows to be freed, before
        // the looks of a search that begins later (I9).
        let arrived = group.lead_64(|| cursor.searches_begun.add_release(0, ARRIVE));
        for _ in 0..WAITS {
            let verdict = group.lead_64(|| cursor.verdict.load_relaxed());
            if verdict / 2 > arrived {
                return verdict % 2 == 1;
            }
            let begun = verdict / 2;
            // ordering: acquire; pairs with ARRIVE above.
            let mine =
                group.lead_64(|| cursor.searches_begun.cas_acquire(begun, begun + 1, SEARCH).is_ok().into());
            if mine == 1 {
                let full = !self.search(group, class, home);
                if group.leads() {
                    // Relaxed: a refusal publishes nothing, and without one every group looks for itself.
                    cursor.verdict.store_relaxed(2 * (begun + 1) + u64::from(full));
                }
                return full;
            }
            thread::nanosleep(POLL_NANOS);
        }
        false
    }

    /// Looks for memory for a class whose cursor was dry: whether there is a span or a hole now, or may be.
    #[cold]
    #[inline(never)]
    fn search(&self, group: Group, class: SizeClass, home: u32) -> bool {
        // Relaxed: only the one search of a cursor stores the next span of a dry one (I8).
        let seen = group.lead_64(|| self.cursor_at(self.cursor_index(class, home)).span.load_relaxed());
        if !Span(seen).is_dry() || self.refill(group, class, home, group.count()) {
            return true;
        }
        group.lead_64(|| self.partial(class).next(0).is_some().into()) == 1
    }
}
