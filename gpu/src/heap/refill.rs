//! Where a cursor's next span comes from: slabs that no one has had, free ones, and those that can be made free.

use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::count::Count;
use super::cursor::Span;
use super::entry::Entry;
use super::layout::WORD_BITS;
use super::sets::Run;
use super::{BEGIN_COUNT, Heap, INSTALL, PART_SHARDS, STORE_ENTRY, STORE_RUNS};
use crate::lanes::{Group, Lanes};
use crate::sync::NATIVE_LAYOUT;

/// Slabs that are taken of another shard's partition at once, so that it does not run dry for it.
const FOREIGN_SLABS: u32 = 16;

/// Idle runs that are taken of another shard's partition at once.
const FOREIGN_RUNS: u32 = 4;

/// Places where a look for idle runs of the class is taken: more than a few only lose to other groups.
const LOOKS: u32 = if NATIVE_LAYOUT { 16 } else { 2 };

impl Heap {
    /// The leaders of `peers` that crossed their cursors store the next spans there (I8), less what `peers` get of
    /// them. Finds the spans one after the other, all lanes together. Returns the next span of the caller's class,
    /// with what `peers` get; a dry one where there is none, or none was looked for.
    #[inline(always)]
    pub(super) fn refill<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        crossed: bool,
        class: SizeClass,
        shard: u32,
        seen: Span,
    ) -> Span {
        let owes = crossed && peers.leads();
        // Relaxed: a hint, by the last owner.
        let last = if owes { self.cursor(class, shard).runs.load_relaxed() as u32 } else { 0 };
        let (mut waiting, mut span) = (lanes.ballot(owes), Span::DRY);
        while !waiting.is_empty() {
            let lane = waiting.leader();
            let of = SizeClass(lanes.read_32(class.0, lane));
            let (shard, count) = (lanes.read_32(shard, lane), lanes.read_32(peers.count(), lane));
            let found = self.find_span(lanes, of, shard, count, lanes.read_32(last, lane));
            if peers.leader() == lane {
                span = found;
            }
            waiting = waiting.without_leader();
        }
        if owes {
            self.note_use(class);
        }
        self.hand_on(lanes);
        if owes {
            let wanted = peers.count() - seen.left().unwrap_or(0);
            let cursor = self.cursor(class, shard);
            cursor.install(span.without(span.granted(wanted)));
            STORE_RUNS.delay();
            cursor.runs.store_relaxed(self.class(class).runs_of(span).into());
        }
        span
    }

    /// Blocks of the class for `count` lanes and more: runs of the shard's partition that are idle, or whatever there is. The
    /// last span had `last` runs.
    #[inline(always)]
    fn find_span<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        class: SizeClass,
        shard: u32,
        count: u32,
        last: u32,
    ) -> Span {
        let info = self.class(class);
        let run = self.reuse(lanes, class, self.own_words(shard, count), info.grown_runs(count, last));
        if run.len == 0 { self.find(lanes.group(), class, shard, count, last) } else { info.span_of(run) }
    }

    /// Before a cursor gets a span: what the lanes have written for it, and acquired with it, is before that.
    #[inline(always)]
    pub(super) fn hand_on<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>) {
        lanes.sync();
        // ordering: release; pairs with TAKE: the slabs' entries, that their bits are clear, and what their last owners
        // wrote (I4). Each lane's own, which the model does not ask for: decision 6 says why.
        INSTALL.fence_release();
        lanes.sync();
    }

    /// Writes down what the slabs of a span are, each lane a part of them.
    #[inline(always)]
    pub(super) fn dedicate(&self, rank: u32, step: u32, info: &ClassInfo, class: SizeClass, run: Run) {
        let (mut slab, slabs) = (rank, info.slabs);
        while slab < run.len {
            let place = if slabs == 1 { 0 } else { slab % slabs };
            STORE_ENTRY.delay();
            // Relaxed: a release is behind it.
            self.entry(run.first + slab).store_relaxed(Entry::of_class(class, place, slabs).0);
            if place == 0 {
                BEGIN_COUNT.delay();
                // Relaxed: the same. An addition: others may have pinned what they take for a run.
                self.count(run.first + slab).add_relaxed(Count::of_class(class).0);
            }
            slab += step;
        }
    }

    /// Blocks of the class for `count` lanes and more, of fully free runs from anywhere. A dry span if there are none.
    #[cold]
    #[inline(never)]
    pub(super) fn find(&self, lanes: Group, class: SizeClass, shard: u32, count: u32, last: u32) -> Span {
        let info = self.class(class);
        let most = info.grown_runs(count, last);
        let run = self.reuse(lanes, class, self.own_words(shard, count), most);
        if run.len > 0 {
            return info.span_of(run);
        }
        let run = lanes.lead_run(|| self.claim_fresh_part(shard, info, most * info.slabs));
        if run.len > 0 {
            return self.make_span(lanes, info, class, run);
        }
        let run = self.reuse(lanes, class, self.near_words(shard), most);
        if run.len > 0 {
            return info.span_of(run);
        }
        let run = self.claim_near(lanes, class, shard, most * info.slabs);
        if run.len > 0 {
            return self.make_span(lanes, info, class, run);
        }
        // Elsewhere: what another cursor of the class has is nearer than what no one does.
        let span = self.steal(lanes, class, shard, 2 * info.blocks);
        if !span.is_dry() {
            return span;
        }
        let run = self.reuse_foreign(lanes, class, shard);
        if run.len > 0 {
            return info.span_of(run);
        }
        let run = self.claim_any(lanes, class, shard, most * info.slabs);
        if run.len > 0 {
            return self.make_span(lanes, info, class, run);
        }
        // What is left of a run, last: to and fro with that would take longer than all of the above.
        self.steal(lanes, class, shard, 1)
    }

    /// A span of slabs that were free.
    fn make_span(&self, lanes: Group, info: &ClassInfo, class: SizeClass, run: Run) -> Span {
        self.dedicate(lanes.rank(), lanes.count(), info, class, run);
        info.span_of(run)
    }

    /// Takes up to `most` slabs, whole runs, from those that are used by no one here but others elsewhere, or by other
    /// classes: what other shards have not had; idle runs of the partitions near by, then of all; what cursors have.
    #[inline(never)]
    fn claim_any(&self, lanes: Group, class: SizeClass, shard: u32, most: u32) -> Run {
        let mut run = self.claim_foreign(lanes, self.class(class), shard, most);
        for everywhere in [false, true] {
            if run.len == 0 {
                run = self.claim_swept(lanes, class, shard, most, everywhere);
            }
        }
        if run.len > 0 { run } else { self.claim_stolen(lanes, class, shard, most) }
    }

    /// Takes up to `most` slabs that are no class', whole runs: of the partitions near by that no one has had, then free ones.
    #[inline(never)]
    pub(super) fn claim_near(&self, lanes: Group, class: SizeClass, shard: u32, most: u32) -> Run {
        let (info, from) = (self.class(class), self.near_words(shard).0);
        let run = lanes.lead_run(|| self.claim_fresh_near(shard, info, most));
        if run.len > 0 {
            return run;
        }
        let run = self.claim_free(lanes, info, from, most);
        if run.len > 0 || from == 0 { run } else { self.claim_free(lanes, info, 0, most) }
    }

    /// Takes up to `most` slabs that no one has had, of the partition of the shard or of those near by.
    fn claim_fresh_near(&self, shard: u32, info: &ClassInfo, most: u32) -> Run {
        let first = shard / PART_SHARDS * PART_SHARDS;
        for i in 0..PART_SHARDS {
            let near = first + (shard + i) % PART_SHARDS;
            if near < self.layout.shards {
                let run = self.claim_fresh_part(near, info, most);
                if run.len > 0 {
                    return run;
                }
            }
        }
        Run::NONE
    }

    /// Takes up to `most` slabs of other classes' idle runs, whole runs, of the partitions near by or of all shards: those of
    /// the next sizes first, which have as many slabs.
    #[inline(never)]
    fn claim_swept(&self, lanes: Group, class: SizeClass, shard: u32, most: u32, everywhere: bool) -> Run {
        let used = self.used_classes(lanes);
        if !used.has_others(class) {
            return Run::NONE;
        }
        for distance in 1..self.layout.classes {
            for other in [class.0.wrapping_sub(distance), class.0 + distance] {
                if !used.has(other) {
                    continue;
                }
                let made = if everywhere {
                    self.sweep_everywhere(lanes, SizeClass(other), most)
                } else {
                    self.sweep_class(lanes, SizeClass(other), self.near_words(shard), most)
                };
                let run = if made > 0 { self.claim_near(lanes, class, shard, most) } else { Run::NONE };
                if run.len > 0 {
                    return run;
                }
            }
        }
        Run::NONE
    }

    /// Takes idle runs of the class from anywhere, few at once, so that other shards are left theirs.
    #[inline(never)]
    fn reuse_foreign(&self, lanes: Group, class: SizeClass, shard: u32) -> Run {
        let (set, len) = (self.idle(class), self.layout.slab_words());
        // From behind the partition to the end, and from the start.
        for start in [self.near_words(shard).1, 0] {
            let mut from = start;
            for _ in 0..LOOKS {
                let Some(w) = set.next_word_together(lanes, from) else { break };
                from = (w + lanes.count()).min(len);
                let run = self.reuse(lanes, class, (w, from), FOREIGN_RUNS);
                if run.len > 0 {
                    return run;
                }
                self.settle_words(lanes, class, w, from);
            }
        }
        Run::NONE
    }

    /// The words of a set of slabs that have bits of a shard's partition, from the first to before the second.
    #[inline(always)]
    pub(super) fn partition_words(&self, shard: u32) -> (u32, u32) {
        self.words_of_partitions(shard, shard + 1)
    }

    /// The words where a group of so many lanes looks first: a warp in its shard's partition, so that shards leave each other
    /// theirs; others in the partitions of those that have their cursor together.
    #[inline(always)]
    fn own_words(&self, shard: u32, lanes: u32) -> (u32, u32) {
        if lanes == WORD_BITS { self.partition_words(shard) } else { self.near_words(shard) }
    }

    /// The same of the partitions of the shards that have a cursor together for parts of warps.
    #[inline(always)]
    pub(super) fn near_words(&self, shard: u32) -> (u32, u32) {
        let first = shard / PART_SHARDS * PART_SHARDS;
        let end = first + PART_SHARDS;
        self.words_of_partitions(first, if end < self.layout.shards { end } else { self.layout.shards })
    }

    #[inline(always)]
    fn words_of_partitions(&self, first: u32, end: u32) -> (u32, u32) {
        let (start, end) = (self.layout.partition_start(first), self.layout.partition_start(end));
        (start / WORD_BITS, end.div_ceil(WORD_BITS))
    }

    /// Takes free slabs, whole runs of the class, the first from word `from` on.
    #[inline(never)]
    fn claim_free(&self, lanes: Group, info: &ClassInfo, from: u32, most: u32) -> Run {
        let free = self.free_slabs();
        let mut run = free.claim_run_together(lanes, from, info.slabs, most);
        let rest = if info.slabs == 1 { 0 } else { run.len % info.slabs };
        run.len -= rest;
        if rest > 0 && lanes.leads() {
            free.insert_run(Run { first: run.first + run.len, len: rest });
        }
        lanes.sync();
        run
    }

    /// Takes some of what another shard has not used, the lanes looking at a shard each.
    #[inline(never)]
    fn claim_foreign(&self, lanes: Group, info: &ClassInfo, shard: u32, most: u32) -> Run {
        let shards = self.layout.shards;
        let mut distance = 1;
        while distance < shards {
            let (mine, last) = (distance + lanes.rank(), distance + lanes.rank() >= shards);
            let other = if shard + mine < shards { shard + mine } else { shard + mine - shards };
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
