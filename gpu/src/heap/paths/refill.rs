//! Refill: the next span of a cursor, for the group that crossed the end of the last one.
//!
//! All lanes of the group work for one cursor after the other: they read its ring and those of
//! other shards, and prepare new runs. While a group replaces a span, other warps of the SM that
//! need the class draw from other cursors, on their slow path. So the number of consecutive round
//! trips matters: five to continue with a span of the ring that has free blocks.
//!
//! In an [aged](super::aged) heap, and if there is no memory for a span, a cursor gets none: each
//! lane [probes](super::probe) for a block.
//!
//! Without free slabs, a span moves from the ring of another shard to this one, if the other ring
//! is not the shorter one afterwards. If a span were in two rings, it would be occupied whenever
//! the second cursor reaches it, and no ring would have what its SMs need.

use crate::heap::layout::bits::WORD_BITS;
use crate::heap::layout::class::{ClassInfo, SizeClass};
use crate::heap::layout::entry::Entry;
use crate::heap::layout::scatter::{hash, scaled};
use crate::heap::paths::probe::PROBES;
use crate::heap::structures::cursor::Span;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::ring::Survey;
use crate::heap::structures::slabs::{SlabSearch, Slabs};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// Attempts to take slabs of idle runs that other threads take, too.
const ATTEMPTS: u32 = if NATIVE_LAYOUT { 8 } else { 2 };

/// The most spans that are added to a ring at once, where free slabs lie in short rows.
const PIECES: u32 = if NATIVE_LAYOUT { 4 } else { 1 };

/// A cursor that needs a span, and the group that needs it.
#[derive(Clone, Copy)]
struct Demand {
    class: SizeClass,
    shard: u32,
    /// The exhausted span.
    seen: Span,
    /// Number of lanes of the group.
    lanes: u32,
    /// Whether to take free slabs even if the class has free blocks elsewhere.
    must: bool,
}

impl HeapCore {
    /// Replaces the span `seen` of each cursor if a group of `peers` crossed its end.
    /// Returns whether there was no other span for the caller's group.
    #[cold]
    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "in registers: a structure would be on every thread's stack"
    )]
    pub(in crate::heap) fn refill(
        &self,
        group: Group,
        peers: Group,
        refills: bool,
        class: SizeClass,
        shard: u32,
        seen: Span,
        must: bool,
    ) -> bool {
        let leads = refills && peers.leads();
        let has_grown = self.grow(leads && !must, class, shard, seen, peers.count());
        let mut rest = group.ballot(leads && !has_grown);
        let mut is_dry = false;
        // One turn for each leader of a group of peers.
        while !rest.is_empty() {
            let leader = rest.leader();
            let demand = Demand {
                class: SizeClass(group.read_32(class.0, leader)),
                shard: group.read_32(shard, leader),
                seen: Span(group.read_64(seen.0, leader)),
                lanes: group.read_32(peers.count(), leader),
                must: group.read_32(must.into(), leader) != 0,
            };
            let is_found = self.replace_span(group, demand);
            is_dry |= !is_found && peers.leader() == leader;
            rest = rest.without_leader();
        }
        is_dry
    }

    /// Replaces the span of a cursor. Returns whether there is another one, or lanes are to probe
    /// because the class has holes. Without memory for a span, the cursor is aged, too, and this
    /// returns false.
    fn replace_span(&self, group: Group, demand: Demand) -> bool {
        let Demand { class, shard, seen, .. } = demand;
        let (ring, info) = (self.ring(class, shard), *self.class(class));
        let runs = self.runs();
        let look = |run| runs.starts(run, class, info.slabs).then(|| runs.free_words(run) > 0);
        let survey = ring.survey(group, &info, seen.slot(), look);
        let mut next = survey.free;
        let is_aged = PROBES && next.is_none() && !demand.must && self.is_aged(group, class, &info);
        if next.is_none() && !is_aged && (!seen.is_dry() || self.has_run(group, &info)) {
            next = self.find_span(group, demand, &info, survey);
        }
        if group.leads() {
            // Models have no probes.
            let none = if PROBES { seen.aged() } else { ring.after(&info, seen.slot()).dry() };
            self.cursor(class, shard).restart(next.unwrap_or(none));
        }
        next.is_some() || is_aged
    }

    /// Finds memory for the next span and adds the span to the ring: many free slabs in a row, else
    /// a span of a longer ring, else any free slabs, else the slabs of fully free runs of other
    /// classes. Takes no slabs of other classes while the class has fully free runs: other cursors
    /// have tickets for these, or searches find them.
    fn find_span(&self, group: Group, demand: Demand, info: &ClassInfo, survey: Survey) -> Option<Span> {
        let (most, mut survey) = (info.span_runs(survey.runs, demand.lanes), survey);
        let (mut first, mut rest) = (None, most);
        for _ in 0..PIECES {
            let slabs = self.claim_slabs(group, info, demand.shard, rest, SlabSearch::Brief);
            if slabs.len == 0 {
                break;
            }
            let span = self.new_span(group, demand, info, &mut survey, slabs);
            (first, rest) = (first.or(Some(span)), rest.saturating_sub(span.runs()));
            if rest <= most / PIECES {
                break;
            }
        }
        if first.is_some() {
            return first;
        }
        if let Some(span) = self.take_over(group, demand, info, &mut survey) {
            return Some(span);
        }
        let start = self.layout.partition_start(demand.shard);
        for attempt in 0..ATTEMPTS {
            let slabs = self.claim_slabs(group, info, demand.shard, most, SlabSearch::Full);
            if slabs.len > 0 {
                return Some(self.new_span(group, demand, info, &mut survey, slabs));
            }
            if attempt == 0 && self.has_idle_run(group, demand.class, info) {
                break;
            }
            if !self.retire_idle(group, start, most * info.slabs, false) {
                break;
            }
        }
        None
    }

    /// Claims slabs for at most `most` runs. Returns them to all lanes.
    fn claim_slabs(
        &self,
        group: Group,
        info: &ClassInfo,
        shard: u32,
        most: u32,
        search: SlabSearch,
    ) -> Slabs {
        let (hint, start) = (self.hint(shard), self.layout.partition_start(shard));
        // Relaxed: a hint. Each claim continues where the last one of the shard ended.
        let from = start.wrapping_add(group.broadcast_32(hint.load_relaxed()));
        let from = if from < self.layout.slabs { from } else { start } / WORD_BITS * WORD_BITS;
        let slabs = self.free_slabs().claim(group, from, info.slabs, most * info.slabs, search);
        if slabs.len > 0 && group.leads() {
            hint.store_relaxed((slabs.first + slabs.len).wrapping_sub(start));
        }
        let mut w = slabs.first / WORD_BITS + group.rank();
        while slabs.len > 0 && w * WORD_BITS < slabs.first + slabs.len {
            self.free_slabs().set.settle(w);
            w += group.count();
        }
        slabs
    }

    /// Makes runs of free slabs that the group claimed, ends the move of the claim, and adds the
    /// runs to the ring.
    fn new_span(
        &self,
        group: Group,
        demand: Demand,
        info: &ClassInfo,
        survey: &mut Survey,
        slabs: Slabs,
    ) -> Span {
        let runs = slabs.len / info.slabs;
        let mut i = group.rank();
        while i < runs {
            self.runs().dedicate(slabs.first + i * info.slabs, 1, demand.class, info);
            i += group.count();
        }
        // Orders the runs that each lane published before the leader stores the span in the cursor
        // and ends the move.
        group.sync();
        if group.leads() {
            self.overview().common().end();
        }
        self.ring(demand.class, demand.shard).add(group, survey, info, slabs.first, runs)
    }

    /// Moves the last span of another shard's ring to the ring of this shard, if the first run of
    /// the span is fully free, the other cursor is not at it, and the other ring is not the shorter
    /// one afterwards. Spans of retired runs count, too. Each lane reads one ring.
    fn take_over(&self, group: Group, demand: Demand, info: &ClassInfo, survey: &mut Survey) -> Option<Span> {
        let Demand { class, shard, lanes, .. } = demand;
        let salt = group.broadcast_32(hash(thread::index_1d()));
        let other = self.layout.shard_beside(shard, lanes, group.rank(), salt);
        let (ring, runs) = (self.ring(class, other), self.runs());
        let (last, total) = ring.last(info);
        let is_longer = other != shard && last.runs() > 0 && total >= survey.runs + 2 * last.runs();
        let first = last.first(info);
        let is_free = is_longer
            && self.cursor(class, other).span().slot() != last.slot()
            && runs.starts(first, class, info.slabs)
            && runs.free_words(first).cast_unsigned() == info.words();
        let mut rest = group.ballot(is_free);
        while !rest.is_empty() {
            let leader = rest.leader();
            let is_taken = group.lane() == leader && ring.remove(last);
            if !group.all(!is_taken) {
                let (first, runs) = (group.read_32(first, leader), group.read_32(last.runs(), leader));
                return Some(self.ring(class, shard).add(group, survey, info, first, runs));
            }
            rest = rest.without_leader();
        }
        None
    }

    /// Whether the class has a fully free run.
    fn has_idle_run(&self, group: Group, class: SizeClass, info: &ClassInfo) -> bool {
        let (runs, own) = (self.runs(), Entry::of_class(class, 0, info.slabs));
        let idle = runs.idle();
        // Each group starts at other runs. Otherwise all groups would look at the same ones.
        let salt = group.broadcast_32(hash(thread::index_1d()));
        let middle = scaled(salt, self.layout.slabs) / WORD_BITS * WORD_BITS;
        for (mut from, to) in [(middle, self.layout.slabs), (0, middle)] {
            // Each turn goes on to later words.
            while let Some(next) = idle.next_of(group, from, to) {
                // Each lane looks at a word.
                let w = next / WORD_BITS + group.rank();
                let row = if w < idle.len() { idle.word(w).load_relaxed() } else { 0 };
                let free = if row != 0 { runs.free_by_count(w, row, |entry| entry == own) } else { 0 };
                idle.settle(w);
                if !group.all(free == 0) {
                    return true;
                }
                from = (next / WORD_BITS + group.count()) * WORD_BITS;
            }
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod lane_tests;

#[cfg(all(test, not(loom)))]
mod take_over_tests;
