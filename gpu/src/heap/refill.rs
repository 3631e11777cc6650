//! Where a cursor's next span comes from: slabs that no one has had, free ones, and those that can be made free.

use super::class::SizeClass;
use super::cursor::Span;
use super::entry::Entry;
use super::layout::{ClassInfo, WORD_BITS};
use super::sets::Run;
use super::{Heap, INSTALL};
use crate::lanes::{Group, Lanes};

/// Slabs that are taken of another home's share at once, so that it does not run dry for it.
const FOREIGN_SLABS: u32 = 8;

impl Heap {
    /// The leaders of `peers` that crossed their cursors store the next spans there (I8), less what `peers` get of
    /// them. Returns the next span of the caller's class, with that; a dry one if there is none.
    #[inline(always)]
    pub(super) fn refill<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        crossed: bool,
        class: SizeClass,
        home: u32,
        seen: Span,
    ) -> Span {
        let info = self.class(class);
        let owes = crossed && peers.leads();
        let runs = info.span_runs(peers.count(), true);
        let mut run = Run::NONE;
        if owes && seen.is_unused() {
            self.note_use(class);
            run = self.claim_fresh(home, runs * info.slabs);
        }
        let run = Run {
            first: lanes.read_32(run.first, peers.leader()),
            len: lanes.read_32(run.len, peers.leader()),
        };
        if crossed {
            self.dedicate(peers.rank(), peers.count(), info, class, run);
        }
        let mut span = Span::DRY;
        if run.len > 0 {
            span = Span::new(run.first + run.len, runs * info.blocks);
        }
        if !lanes.all(!crossed || run.len > 0) {
            span = self.find_each(lanes, peers, owes && run.len == 0, class, home, span);
        }
        lanes.sync();
        if owes {
            let wanted = peers.count() - seen.left().unwrap_or(0);
            // ordering: release; pairs with TAKE: the slabs' entries, and what their last owners wrote (I4).
            self.cursor(class, home).span.store_release(span.without(span.granted(wanted)).0, INSTALL);
        }
        span
    }

    /// Writes down what the slabs of a span are, each lane a part of them.
    #[inline(always)]
    fn dedicate(&self, rank: u32, step: u32, info: &ClassInfo, class: SizeClass, run: Run) {
        let mut slab = rank;
        while slab < run.len {
            let place = if info.slabs == 1 { 0 } else { slab % info.slabs };
            // Relaxed: the cursor's release is behind it.
            self.entry(run.first + slab).store_relaxed(Entry::of_class(class, place).0);
            slab += step;
        }
    }

    /// Finds the next spans for those lanes that owe one, one after the other and all lanes together. Returns that
    /// of the caller's class, or `span` if none was looked for.
    #[cold]
    #[inline(never)]
    fn find_each<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        owes: bool,
        class: SizeClass,
        home: u32,
        span: Span,
    ) -> Span {
        let (lanes, mut span) = (lanes.group(), span);
        let mut waiting = lanes.ballot(owes);
        while !waiting.is_empty() {
            let lane = waiting.leader();
            let of = SizeClass(lanes.read_32(class.0, lane));
            let found = self.find(lanes, of, lanes.read_32(home, lane), lanes.read_32(peers.count(), lane));
            if peers.leader() == lane {
                span = found;
            }
            waiting = waiting.without_leader();
        }
        span
    }

    /// Blocks of the class for `count` lanes and more, from wherever there are some. A dry span if there are none.
    #[inline(never)]
    pub(super) fn find(&self, lanes: Group, class: SizeClass, home: u32, count: u32) -> Span {
        let info = self.class(class);
        let most = info.span_runs(count, false) * info.slabs;
        let mut run = self.claim_slabs(lanes, info, home, most);
        if run.len == 0 {
            let span = self.steal(lanes, class, home);
            if !span.is_dry() {
                return span;
            }
            if self.close_all(lanes) {
                run = self.claim_slabs(lanes, info, home, most);
            }
        }
        if run.len == 0 {
            return Span::DRY;
        }
        self.dedicate(lanes.rank(), lanes.count(), info, class, run);
        Span::new(run.first + run.len, run.len / info.slabs * info.blocks)
    }

    /// Takes up to `most` slabs, whole runs of the class: of the home's share first, so that what was used is used
    /// again; then of all.
    fn claim_slabs(&self, lanes: Group, info: &ClassInfo, home: u32, most: u32) -> Run {
        let from = self.layout.share_start(home) / WORD_BITS;
        let to = self.layout.share_start(home + 1).div_ceil(WORD_BITS);
        self.sweep(lanes, from, to, most);
        let run = lanes.lead_run(|| {
            let run = self.claim_free(info, from, most);
            if run.len > 0 { run } else { self.claim_fresh_part(home, info, most) }
        });
        if run.len > 0 {
            return run;
        }
        let run = self.claim_foreign(lanes, info, home, most);
        if run.len > 0 {
            return run;
        }
        if self.sweep(lanes, 0, self.layout.slab_words(), self.layout.slabs) == 0 {
            return Run::NONE;
        }
        lanes.lead_run(|| self.claim_free(info, from, most))
    }

    /// Takes free slabs, whole runs of the class, the first from word `from` on.
    fn claim_free(&self, info: &ClassInfo, from: u32, most: u32) -> Run {
        let free = self.free_slabs();
        let mut run = free.claim_run(from, info.slabs, most);
        let rest = if info.slabs == 1 { 0 } else { run.len % info.slabs };
        run.len -= rest;
        free.insert_run(Run { first: run.first + run.len, len: rest });
        run
    }

    /// Takes some of what another home has not used, the lanes looking at a home each.
    fn claim_foreign(&self, lanes: Group, info: &ClassInfo, home: u32, most: u32) -> Run {
        let homes = self.layout.homes;
        let mut distance = 1;
        while distance < homes {
            let (mine, last) = (distance + lanes.rank(), distance + lanes.rank() >= homes);
            let other = if home + mine < homes { home + mine } else { home + mine - homes };
            let mut candidates = lanes.ballot(!last && self.has_fresh(other));
            while !candidates.is_empty() {
                let from = lanes.read_32(other, candidates.leader());
                let most = most.min(FOREIGN_SLABS.max(info.slabs) / info.slabs * info.slabs);
                let run = lanes.lead_run(|| self.claim_fresh_part(from, info, most));
                if run.len > 0 {
                    return run;
                }
                candidates = candidates.without_leader();
            }
            distance += lanes.count();
        }
        Run::NONE
    }
}
