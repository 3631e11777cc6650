//! Allocation where a cursor had less than was asked for: who took it below zero stores the next span there, the others
//! look elsewhere or wait.

use super::Heap;
use super::class::SizeClass;
use super::cursor::{Outcome, Span};
use super::full::Found;
use super::sets::{Run, WINDOWS};
use super::take::TURNS;
use crate::lanes::{Group, Lanes, Warp};
use crate::sync::NATIVE_LAYOUT;

/// How often a group starts again because others took what was found for it.
const PATIENCE: u32 = if NATIVE_LAYOUT { 256 } else { 6 };

/// In place of a class, for lanes that ask for nothing any more.
const DONE: u32 = u32::MAX;

impl Heap {
    /// For a warp whose cursors have not all that its lanes ask for. Mostly a leader has crossed one: the lanes together
    /// find it the next span, of runs that are idle, in few round trips, for who comes to the cursor meanwhile has to go
    /// elsewhere.
    #[inline(never)]
    pub(super) fn alloc_crossed(
        &self,
        warp: Warp,
        peers: Group,
        class: SizeClass,
        home: u32,
        seen: Span,
    ) -> u64 {
        // A copy, read at once: from memory each part of it would be read again behind each acquire.
        let heap = *self;
        heap.cross(warp, peers, class, home, seen)
    }

    #[inline(always)]
    fn cross(&self, warp: Warp, peers: Group, class: SizeClass, home: u32, seen: Span) -> u64 {
        let info = &{ *self.class(class) };
        let (count, rank) = (peers.count(), peers.rank());
        let (outcome, mut address) = (seen.outcome(count), 0);
        if outcome == Outcome::Got {
            address = self.block_of_span(info, seen, seen.signed_left() as u32 - count + rank);
        }
        let owes = outcome == Outcome::Crossed && !seen.is_unused() && info.blocks >= count;
        let mut waiting = warp.ballot(owes && peers.leads());
        while !waiting.is_empty() {
            let lane = waiting.leader();
            let of = SizeClass(warp.read_32(class.0, lane));
            let (home, lanes) = (warp.read_32(home, lane), warp.read_32(count, lane));
            let (row, cursor) = (self.next_row(warp, of, home, lanes), self.cursor(of, home));
            // All lanes' clearing is before the release.
            warp.sync();
            if peers.leader() == lane && row.len > 0 {
                let end = row.first + row.len * info.slabs;
                let (left, next) = (seen.left().unwrap_or(0), Span::new(end, row.len * info.blocks));
                let rest = next.without(count - left);
                if warp.rank() == lane {
                    cursor.install(rest);
                    cursor.runs.store_relaxed(row.len.into());
                }
                address = if rank < left {
                    self.block_of_span(info, seen, rank)
                } else {
                    self.block_of_span(info, next, rest.signed_left() as u32 + rank - left)
                };
            }
            waiting = waiting.without_leader();
        }
        if warp.all(address != 0) {
            return address;
        }
        self.shared().alloc_short(warp, peers, class, home, seen, address)
    }

    /// Takes the runs of a cursor's next span, for `lanes` lanes that have crossed it: those that are idle where it has its
    /// blocks from, if there are some.
    #[inline(always)]
    fn next_row(&self, warp: Warp, class: SizeClass, home: u32, lanes: u32) -> Run {
        let info = *self.class(class);
        // Relaxed: a hint, by the last owner.
        let last = self.cursor(class, home).runs.load_relaxed() as u32;
        let (from, to) = self.own_words(home, lanes);
        let row =
            self.idle(class).row::<true, WINDOWS>(warp, from, to, info.slabs, info.grown_runs(lanes, last));
        // Of an empty one no lane takes anything.
        self.take_row::<true, true>(warp, class, &info, row)
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
        home: u32,
        seen: Span,
    ) -> Span {
        let info = self.class(class);
        let runs = info.first_runs(peers.count(), home);
        let mut run = Run::NONE;
        if first && runs * info.blocks >= peers.count() {
            run = self.claim_fresh(home, runs * info.slabs);
        }
        let leader = peers.leader();
        let run = Run { first: lanes.read_32(run.first, leader), len: lanes.read_32(run.len, leader) };
        self.dedicate(peers.rank(), peers.count(), info, class, run);
        lanes.sync();
        if !first || run.len == 0 {
            return seen;
        }
        self.note_use(class);
        let span = Span::new(run.first + run.len, runs * info.blocks);
        self.cursor(class, home).install(span.without(peers.count()));
        span
    }

    /// For lanes of which some, those without an `address`, may have seen too little in their class' cursor: begins the
    /// first span of a cursor, or waits for who stores the next one. Whatever takes more is left to `alloc_again`.
    #[inline(never)]
    pub(super) fn alloc_short<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        class: SizeClass,
        home: u32,
        seen: Span,
        address: u64,
    ) -> u64 {
        let (count, leads) = (peers.count(), peers.leads());
        let (mut seen, mut home, mut address) = (seen, home, address);
        for turn in 0..TURNS {
            let first = address == 0 && leads && seen.is_unused() && seen.left() == Some(0);
            if !lanes.all(!first) {
                seen = self.first_span(lanes, peers, first, class, home, seen);
            }
            seen = Span(lanes.read_64(seen.0, peers.leader()));
            // What the last owners wrote is now before every lane (I4).
            lanes.order();
            let rest = seen.signed_left() - count as i32;
            if address == 0 && rest >= 0 {
                address = self.block_of_span(self.class(class), seen, rest as u32 + peers.rank());
            }
            if lanes.all(address != 0) {
                return address;
            }
            // Who owes a span must not wait for another.
            if !lanes.all(address != 0 || seen.left().is_none()) {
                break;
            }
            if leads && address == 0 {
                home = self.next_home(class, home, turn);
                seen = self.take(count, class, home);
            }
        }
        let seen = Span(lanes.read_64(seen.0, peers.leader()));
        let home = lanes.read_32(home, peers.leader());
        lanes.order();
        self.alloc_again(lanes, peers, class, home, seen, address)
    }

    /// A cursor did not have what the lanes without an `address` wanted. Every lane of `lanes` comes here, with the lanes that
    /// ask for its class, and with what their leader saw in the class' cursor.
    #[cold]
    #[inline(never)]
    fn alloc_again<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        class: SizeClass,
        home: u32,
        seen: Span,
        address: u64,
    ) -> u64 {
        let (mut peers, mut home, mut seen) = (peers, home, seen);
        let (mut address, mut asks) = (address, address == 0);
        for turn in 0..=PATIENCE {
            let (count, rank) = (peers.count(), peers.rank());
            let outcome = if asks { seen.outcome(count) } else { Outcome::Got };
            let crossed = outcome == Outcome::Crossed;
            let mut next = Span::DRY;
            if !lanes.all(!crossed) {
                next = self.refill(lanes, peers, crossed, class, home, seen);
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
                home = self.next_home(class, home, turn);
            }
            match self.alloc_dry(lanes.group(), peers, asks && outcome == Outcome::Dry, class, home, seen) {
                Found::Block(hole) => (address, asks) = (hole, false),
                Found::Nothing => asks = false,
                Found::Perhaps => {}
            }
            lanes.sync();
            peers = lanes.matching(if asks { class.0 } else { DONE });
            home = lanes.read_32(home, peers.leader());
            seen = self.take_together(lanes, peers, asks, class, home);
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
