//! Taking back what cursors hold, when there is nothing else.

use super::class::SizeClass;
use super::class_info::{ClassInfo, full_word};
use super::count::Count;
use super::cursor::Span;
use super::entry::Entry;
use super::layout::WORD_BITS;
use super::sets::Run;
use super::{CLOSE_ENTRY, Heap, RETIRE, TAKE};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;

/// How often a cursor's span is tried to be taken before that is given up: each failure is another thread's
/// success.
const TRIES: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

/// Shards whose cursors a class takes whole runs from; the last scan closes those of all.
const STOLEN_FROM: u32 = 8;

/// Cursors that a lane looks at at once.
const LOOKS: usize = if NATIVE_LAYOUT { 8 } else { 1 };

impl Heap {
    /// What cursors of a class hand out, from `shard` on, `step` shards apart; nothing behind the last.
    #[inline(always)]
    pub(super) fn spans(&self, class: SizeClass, shard: u32, step: u32) -> [Span; LOOKS] {
        let mut spans = [Span::DRY; LOOKS];
        let mut at = shard;
        for span in &mut spans {
            if at < self.layout.shards {
                *span = self.cursor(class, at).span();
            }
            at += step;
        }
        spans
    }

    /// Takes the first half of what another cursor of the class has, by whole runs; all of it when that is one. The
    /// lanes look at a cursor each. A dry span if none has `least` blocks.
    #[inline(never)]
    pub(super) fn steal(&self, lanes: Group, class: SizeClass, shard: u32, least: u32) -> Span {
        let shards = self.layout.shards;
        let mut distance = 1;
        while distance < shards {
            let mine = distance + lanes.rank();
            let other = if shard + mine < shards { shard + mine } else { shard + mine - shards };
            let has_some = mine < shards && self.cursor(class, other).span().left().unwrap_or(0) >= least;
            let mut candidates = lanes.ballot(has_some);
            while !candidates.is_empty() {
                let from = lanes.read_32(other, candidates.leader());
                let span = Span(lanes.lead_64(|| self.steal_from(class, from).0));
                if !span.is_dry() {
                    // What the leader acquired is before what the others do with it.
                    lanes.order();
                    return span;
                }
                candidates = candidates.without_leader();
            }
            distance += lanes.count();
        }
        Span::DRY
    }

    fn steal_from(&self, class: SizeClass, shard: u32) -> Span {
        let info = self.class(class);
        let span = &self.cursor(class, shard).span;
        let mut seen = Span(span.load_relaxed());
        for _ in 0..TRIES {
            let left = seen.left().unwrap_or(0);
            if left == 0 {
                break;
            }
            let kept = left.div_ceil(info.blocks) / 2;
            let rest = Span::new(seen.end(), kept * info.blocks);
            // ordering: acquire; pairs with INSTALL, as a subtraction does.
            match span.at(TAKE).cas_acquire(seen.0, rest.0) {
                Ok(_) => return Span::new(seen.end() - kept * info.slabs, left - kept * info.blocks),
                Err(now) => seen = Span(now),
            }
        }
        Span::DRY
    }

    /// Takes up to `most` slabs of runs that other classes' cursors have whole: of the same shard, then of the next ones.
    #[inline(never)]
    pub(super) fn claim_stolen(&self, lanes: Group, class: SizeClass, shard: u32, most: u32) -> Run {
        let (classes, shards, used) = (self.layout.classes, self.layout.shards, self.used_classes(lanes));
        let near = if shards < STOLEN_FROM { shards } else { STOLEN_FROM };
        for distance in 0..if used.has_others(class) { near } else { 0 } {
            let shard_of =
                if shard + distance < shards { shard + distance } else { shard + distance - shards };
            let (mut other, mut freed) = (lanes.rank(), 0);
            while other < classes {
                if freed < most && other != class.0 && used.has(other) {
                    freed += self.free_part(SizeClass(other), shard_of, most - freed);
                }
                other += lanes.count();
            }
            if !lanes.all(freed == 0) {
                let run = self.claim_near(lanes, class, shard, most);
                if run.len > 0 {
                    return run;
                }
            }
        }
        Run::NONE
    }

    /// Makes free the later half of the runs that a cursor has whole, `most` slabs at most. Returns how many.
    fn free_part(&self, class: SizeClass, shard: u32, most: u32) -> u32 {
        let info = self.class(class);
        let span = &self.cursor(class, shard).span;
        let seen = Span(span.load_relaxed());
        let whole = seen.left().unwrap_or(0) / info.blocks;
        let runs = whole.div_ceil(2).min((most / info.slabs).max(1));
        if whole == 0 {
            return 0;
        }
        let rest = Span::new(seen.end() - runs * info.slabs, seen.left().unwrap_or(0) - runs * info.blocks);
        // ordering: acquire; pairs with INSTALL, as a subtraction does. A failure is another thread's success.
        if span.at(TAKE).cas_acquire(seen.0, rest.0).is_err() {
            return 0;
        }
        (0..runs).map(|i| self.free_run(class, info, rest.end() + i * info.slabs)).sum()
    }

    /// Makes free a run of which the caller has every block, none of them a hole; or makes holes of all if some thread
    /// is looking for one. Returns how many slabs it made free.
    fn free_run(&self, class: SizeClass, info: &ClassInfo, run: u32) -> u32 {
        let empty = Count::of_class(class);
        // ordering: acquire; pairs with CLAIM: the looks at the bits of who has pinned it.
        if self.count(run).at(RETIRE).cas_acquire(empty.0, Count::NONE.0).is_err() {
            self.make_holes(info, run + info.slabs, info.blocks);
            return 0;
        }
        for slab in run..run + info.slabs {
            CLOSE_ENTRY.delay();
            // Relaxed: the set's release is behind it.
            self.entry(slab).store_relaxed(Entry::FREE.0);
        }
        self.free_slabs().insert_run(Run { first: run, len: info.slabs });
        info.slabs
    }

    /// Makes holes of what all cursors have, the lanes taking a cursor each. Whether there was anything.
    #[cold]
    #[inline(never)]
    pub(super) fn close_all(&self, lanes: Group) -> bool {
        let mut any = false;
        let used = self.used_classes(lanes);
        for class in (0..self.layout.classes).map(SizeClass) {
            if !used.has(class.0) {
                continue;
            }
            let mut shard = lanes.rank();
            while shard < self.layout.shards {
                for span in self.spans(class, shard, lanes.count()) {
                    if span.left().unwrap_or(0) > 0 {
                        any |= self.close(class, shard);
                    }
                    shard += lanes.count();
                }
            }
        }
        !lanes.all(!any)
    }

    /// The same for one cursor, unless a group is about to store its next span.
    fn close(&self, class: SizeClass, shard: u32) -> bool {
        let span = &self.cursor(class, shard).span;
        let mut seen = Span(span.load_relaxed());
        for _ in 0..TRIES {
            let left = seen.left().unwrap_or(0);
            if left == 0 {
                return false;
            }
            // ordering: acquire; pairs with INSTALL, as a subtraction does.
            match span.at(TAKE).cas_acquire(seen.0, Span::new(seen.end(), 0).0) {
                Ok(_) => {
                    self.make_holes(self.class(class), seen.end(), left);
                    return true;
                }
                Err(now) => seen = Span(now),
            }
        }
        false
    }

    /// Makes holes of the last `left` blocks of the runs before slab `end`, which are the caller's.
    #[cold]
    #[inline(never)]
    fn make_holes(&self, info: &ClassInfo, end: u32, left: u32) {
        let (mut run, mut left) = (end, left);
        while left > 0 {
            run -= info.slabs;
            let blocks = left.min(info.blocks);
            for w in 0..blocks.div_ceil(WORD_BITS) {
                // Of a part of a run they are the first.
                self.put_back(self.word_of(run, 0) + w, full_word(blocks, w));
            }
            left -= blocks;
        }
    }
}
