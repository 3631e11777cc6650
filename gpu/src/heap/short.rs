//! Allocation where a cursor had less than was asked for: who took it below zero stores the next span there, the others
//! look elsewhere or wait.

use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::{Outcome, Span};
use super::full::AllocOutcome;
use super::sets::Run;
use super::take::TURNS;
use super::{Heap, INSTALL, STORE_RUNS};
use crate::lanes::{Group, Lanes, Warp};
use crate::sync::NATIVE_LAYOUT;

/// How often a group starts again because others took what was found for it.
const PATIENCE: u32 = if NATIVE_LAYOUT { 256 } else { 6 };

/// In place of a class, for lanes that ask for nothing any more.
const DONE: u32 = u32::MAX;

impl Heap {
    /// For a warp of which all lanes ask for one class, and that has not all from its cursor. Mostly it has crossed that: it
    /// stores the next span there, of runs that are idle, in few round trips, for who comes to the cursor meanwhile has to go
    /// elsewhere.
    #[inline(never)]
    pub(super) fn alloc_crossed(&self, warp: Warp, class: SizeClass, shard: u32, seen: Span) -> u64 {
        let info = *self.class(class);
        if seen.outcome(warp.count()) != Outcome::Crossed || seen.is_unused() || info.blocks < warp.count() {
            return self.alloc_short(warp, warp.group(), class, shard, seen);
        }
        // A copy, read at once: behind each acquire its parts would be read from memory again.
        let heap = *self;
        heap.cross(warp, class, &info, shard, seen)
    }

    /// The same for a cursor that the warp has crossed.
    #[inline(always)]
    fn cross(&self, warp: Warp, class: SizeClass, info: &ClassInfo, shard: u32, seen: Span) -> u64 {
        let (count, cursor) = (warp.count(), self.cursor(class, shard));
        // Relaxed: a hint, by the last owner.
        let most = info.grown_runs(count, cursor.runs.load_relaxed() as u32);
        let (from, to) = self.partition_words(shard);
        let found = self.idle(class).row::<true, 1>(warp, from, to, info.slabs, most);
        // Of an empty one no lane takes anything.
        let row = self.take_row::<true, true>(warp, class, info, found);
        if row.len == 0 {
            return self.shared().alloc_again(warp, warp.group(), class, shard, seen);
        }
        let end = row.first + row.len * info.slabs;
        let (left, next) = (seen.left().unwrap_or(0), Span::new(end, row.len * info.blocks));
        let rest = next.without(count - left);
        // What all lanes cleared and acquired is before the release of one.
        warp.sync();
        if warp.leads() {
            // ordering: release; pairs with TAKE: the run's bits are clear, and what its blocks' last owners wrote (I4).
            INSTALL.fence_release();
            cursor.install(rest);
            STORE_RUNS.delay();
            cursor.runs.store_relaxed(row.len.into());
        }
        if warp.rank() < left {
            self.block_of_span(info, seen, warp.rank())
        } else {
            self.block_of_span(info, next, rest.signed_left() as u32 + warp.rank() - left)
        }
    }

    /// Leaders that are `first` in an unused cursor store its first span there. Returns that as it was for their
    /// lanes; elsewhere, and where it takes more to find one, `seen`.
    #[inline(always)]
    pub(super) fn first_span<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        first: bool,
        class: SizeClass,
        shard: u32,
        seen: Span,
    ) -> Span {
        let info = self.class(class);
        let runs = info.first_runs(peers.count(), shard);
        let mut run = Run::NONE;
        if first && runs * info.blocks >= peers.count() {
            run = self.claim_fresh(shard, runs * info.slabs);
        }
        let leader = peers.leader();
        let run = Run { first: lanes.read_32(run.first, leader), len: lanes.read_32(run.len, leader) };
        self.dedicate(peers.rank(), peers.count(), info, class, run);
        let found = first && run.len > 0;
        if found {
            self.note_use(class);
        }
        self.hand_on(lanes);
        if !found {
            return seen;
        }
        let span = Span::new(run.first + run.len, runs * info.blocks);
        self.cursor(class, shard).install(span.without(peers.count()));
        span
    }

    /// For lanes of which some saw too little in their class' cursor: begins the first span of a cursor, or waits
    /// for who stores the next one. Whatever takes more is left to `alloc_again`.
    #[inline(never)]
    pub(super) fn alloc_short<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        class: SizeClass,
        shard: u32,
        seen: Span,
    ) -> u64 {
        let (count, leads) = (peers.count(), peers.leads());
        let (mut seen, mut shard) = (seen, shard);
        for turn in 0..TURNS {
            let first = leads && seen.is_unused() && seen.left() == Some(0);
            if !lanes.all(!first) {
                seen = self.first_span(lanes, peers, first, class, shard, seen);
            }
            seen = Span(lanes.read_64(seen.0, peers.leader()));
            // What the last owners wrote is now before every lane (I4).
            lanes.order();
            let rest = seen.signed_left() - count as i32;
            if lanes.all(rest >= 0) {
                return self.block_of_span(self.class(class), seen, rest as u32 + peers.rank());
            }
            // Who owes a span must not wait for another.
            if !lanes.all(rest >= 0 || seen.left().is_none()) {
                break;
            }
            if leads && rest < 0 {
                shard = self.next_shard(class, shard, turn);
                seen = self.take(count, class, shard);
            }
        }
        let seen = Span(lanes.read_64(seen.0, peers.leader()));
        let shard = lanes.read_32(shard, peers.leader());
        lanes.order();
        self.alloc_again(lanes, peers, class, shard, seen)
    }

    /// A cursor did not have what some lanes wanted. Every lane of `lanes` comes here, with the lanes that ask for
    /// its class, and with what their leader saw in the class' cursor.
    #[cold]
    #[inline(never)]
    fn alloc_again<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        class: SizeClass,
        shard: u32,
        seen: Span,
    ) -> u64 {
        let (mut peers, mut shard, mut seen) = (peers, shard, seen);
        let (mut address, mut asks) = (0, true);
        for turn in 0..=PATIENCE {
            let (count, rank) = (peers.count(), peers.rank());
            let outcome = if asks { seen.outcome(count) } else { Outcome::Got };
            let crossed = outcome == Outcome::Crossed;
            let mut next = Span::DRY;
            if !lanes.all(!crossed) {
                next = self.refill(lanes, peers, crossed, class, shard, seen);
            }
            if asks {
                address = self.block_after(class, seen, next, count, rank);
                asks = address == 0;
            }
            // What was taken last was placed above, and what was owed stored: nothing is lost by giving up.
            if lanes.all(!asks) || turn == PATIENCE {
                break;
            }
            if outcome == Outcome::Behind && asks && peers.leads() {
                shard = self.next_shard(class, shard, turn);
            }
            match self.alloc_dry(lanes.group(), peers, asks && outcome == Outcome::Dry, class, shard, seen) {
                AllocOutcome::Block(hole) => (address, asks) = (hole, false),
                AllocOutcome::Nothing => asks = false,
                AllocOutcome::Perhaps => {}
            }
            lanes.sync();
            peers = lanes.matching(if asks { class.0 } else { DONE });
            shard = lanes.read_32(shard, peers.leader());
            seen = self.take_together(lanes, peers, asks, class, shard);
        }
        let refused = lanes.ballot(address == 0).count();
        if refused > 0 && lanes.leads() {
            // Relaxed: a figure.
            self.refusal_count().add_relaxed(refused);
        }
        address
    }

    /// The block of the lane of this rank: of the span as it was seen, or of the next one; 0 for none.
    #[inline(always)]
    fn block_after(&self, class: SizeClass, seen: Span, next: Span, count: u32, rank: u32) -> u64 {
        let info = self.class(class);
        let left = seen.left().unwrap_or(0);
        if rank < left {
            return self.block_of_span(info, seen, left.saturating_sub(count) + rank);
        }
        let granted = next.granted(count - left);
        if rank - left < granted {
            let rest = next.left().unwrap_or(0) - granted;
            return self.block_of_span(info, next, rest + rank - left);
        }
        0
    }
}
