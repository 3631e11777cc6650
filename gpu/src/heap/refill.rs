//! Refill: the next span of an exhausted cursor, and allocation until it is there.

use super::alloc::Drawn;
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::Position;
use super::index_set::WORD_BITS;
use super::ring::{SLOTS, Span};
use super::search::Found;
use super::slabs::Slabs;
use super::{Heap, POLL_NANOS};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// The number of attempts of an allocation. More than a few are needed only while other threads
/// take all memory that is found, or keep the heap busy.
const TURNS: u32 = if NATIVE_LAYOUT { 256 } else { 16 };

/// The number of other cursors of the class to draw from while a group refills the own one.
const HOPS: u32 = 3;

/// Turns after which a group that still waits for a refill searches for single blocks. Searches
/// take blocks from the spans that others wait for.
const PATIENCE: u32 = if NATIVE_LAYOUT { 32 } else { 2 };

/// The number of looks at a cursor that another group is refilling, before the group searches for
/// single blocks.
const POLLS: u32 = if NATIVE_LAYOUT { 1 << 8 } else { 2 };

/// The number of words of a span that a group looks at for a free block.
const LOOKS: u32 = if NATIVE_LAYOUT { 32 } else { 4 };

/// In place of a class, for lanes that do not ask.
const NONE: u32 = u32::MAX;

/// The next step of a group that got none of its blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// More tickets.
    Draw,
    /// Another group is looking for a span.
    Wait,
    /// There is no other span.
    Search,
}

impl Heap {
    /// Allocates for the lanes without an address. All lanes of `group` have drawn tickets from
    /// the cursors of `shard`, in groups of the same class.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, group: Group, class: SizeClass, shard: u32, drawn: Drawn) -> u64 {
        let (mut address, mut drawn, mut peers) = (drawn.address, drawn, group.matching(class.0));
        let (mut shard, mut asks) = (shard, true);
        for turn in 0..TURNS {
            let served = group.ballot(address != 0);
            let missed = asks && peers.members().without(served) == peers.members();
            let refills = asks && drawn.at.is_crossed_by(peers.count()) && drawn.next == Span::NONE;
            let looks = missed && !refills && peers.leads();
            let step = if looks { self.step(class, shard, drawn.at) } else { Step::Draw };
            let waits = group.ballot(step == Step::Wait).contains(peers.leader());
            let mut is_dry = group.ballot(step == Step::Search).contains(peers.leader());
            if !group.all(!refills) {
                is_dry |= self.refill(group, peers, refills, class, shard, drawn.at);
            }
            asks &= address == 0;
            if asks && waits {
                if turn < HOPS {
                    shard = self.layout.neighbour(shard, turn);
                } else {
                    is_dry = !self.await_span(class, shard) && turn >= PATIENCE;
                }
            }
            if asks && is_dry {
                match self.search(class, thread::index_1d().wrapping_add(turn)) {
                    Found::Block(found) => address = found,
                    Found::Nothing => asks = false,
                    Found::Unsure => thread::nanosleep(POLL_NANOS),
                }
            }
            asks &= address == 0;
            if group.all(!asks) {
                break;
            }
            peers = group.matching(if asks { class.0 } else { NONE });
            shard = group.read_32(shard, peers.leader());
            drawn = self.draw(group, peers, asks, class, shard);
            if asks {
                address = drawn.address;
            }
        }
        let failed = group.ballot(address == 0).count();
        if failed > 0 && group.leads() {
            // Relaxed: a statistic.
            self.overview().failures().add_relaxed(failed);
        }
        address
    }

    /// The next step of a group that got nothing for tickets drawn at `at`.
    fn step(&self, class: SizeClass, shard: u32, at: Position) -> Step {
        let (info, cursor) = (self.class(class), self.cursor(class, shard));
        let (now, is_dry) = (cursor.position(), at.is_dry());
        if now.left() > 0 {
            let left = self.first_free(info, now.span(), now.left() as u32);
            if left > 0 && left == now.left() as u32 {
                return Step::Draw;
            }
            cursor.skip_to(now, left);
        }
        if is_dry && !self.has_run(info, &mut self.overview().common().search()) {
            Step::Search
        } else if at.left() < 0 && at.is_before(now) {
            Step::Wait
        } else {
            Step::Draw
        }
    }

    /// The number of blocks of a span, at most `left`, at which a block may be free. 0 if none is in
    /// the current run and the next one.
    fn first_free(&self, info: &ClassInfo, span: Span, left: u32) -> u32 {
        let (runs, mut left, mut is_next) = (self.runs(), left, false);
        for _ in 0..LOOKS {
            // Relaxed: hints.
            let (run, number) = span.place(info, left - 1);
            let bits = runs.bits(runs.first_word(run) + number / WORD_BITS).load_relaxed();
            if bits != 0 {
                return left;
            }
            if runs.free_words(run) > 0 {
                left -= number % WORD_BITS + 1;
            } else if is_next {
                return 0;
            } else {
                (left, is_next) = (left - (number + 1), true);
            }
            if left == 0 {
                return 0;
            }
        }
        left
    }

    /// The groups that crossed the ends of spans after which no block is free find other spans.
    /// Returns whether the caller's group found none.
    #[inline(never)]
    fn refill(
        &self,
        group: Group,
        peers: Group,
        refills: bool,
        class: SizeClass,
        shard: u32,
        at: Position,
    ) -> bool {
        let (leads, moves) = (refills && peers.leads(), self.overview().class(class));
        let info = *self.class(class);
        let mut found = Slabs::NONE;
        // A search that finds nothing, again and again in a full heap, is no move.
        let begins = leads && (!at.is_dry() || self.has_run(&info, &mut self.overview().common().search()));
        if begins {
            moves.begin();
            found = self.find_slabs(class, &info, shard, peers.count());
        }
        let packed = group.read_64(u64::from(found.first) << 32 | u64::from(found.len), peers.leader());
        let (first, runs) = ((packed >> 32) as u32, packed as u32 / info.slabs);
        let mut i = peers.rank();
        while refills && i < runs {
            self.runs().dedicate(first + i * info.slabs, class, &info);
            i += peers.count();
        }
        group.sync();
        if leads {
            self.extend(class, shard, at, &info, first, runs);
        }
        if begins {
            moves.end();
        }
        refills && runs == 0
    }

    /// Inserts a span of new runs into the ring of a cursor and moves the cursor there. Without new
    /// runs the cursor starts the next lap.
    fn extend(&self, class: SizeClass, shard: u32, at: Position, info: &ClassInfo, first: u32, runs: u32) {
        let (cursor, ring) = (self.cursor(class, shard), self.ring(class, shard));
        let (next, slot) = ring.after(at.slot());
        if runs == 0 {
            return cursor.set_dry(next, slot, info);
        }
        let (used, _) = ring.size();
        // In place of a span whose runs were retired, or behind the last one.
        let is_gone = next != Span::NONE && !self.runs().starts(next.first(info), class, info.slabs);
        let slot = if is_gone || used == SLOTS { slot } else { used };
        let span = Span::new(info, first, runs);
        ring.set(slot, span);
        cursor.advance(at, span, slot, info);
    }

    /// Slabs for a span of the class: free ones, or those of fully free runs.
    fn find_slabs(&self, class: SizeClass, info: &ClassInfo, shard: u32, lanes: u32) -> Slabs {
        let (_, runs) = self.ring(class, shard).size();
        let most = info.span_runs(runs, lanes) * info.slabs;
        let start = self.layout.run_index(class, self.layout.partition_start(shard));
        loop {
            let slabs = self.claim_slabs(info, shard, most);
            if slabs.len > 0 || !self.retire_idle(start, most) {
                return slabs;
            }
        }
    }

    fn claim_slabs(&self, info: &ClassInfo, shard: u32, most: u32) -> Slabs {
        let (hint, start) = (self.hint(shard), self.layout.partition_start(shard));
        // Relaxed: a hint. Each claim goes on where the last one of the shard ended.
        let from = start.wrapping_add(hint.load_relaxed());
        let from = if from < self.layout.slabs { from } else { start };
        let slabs = self.free_slabs().claim(from / WORD_BITS * WORD_BITS, info.slabs, most);
        if slabs.len > 0 {
            hint.store_relaxed((slabs.first + slabs.len).wrapping_sub(start));
        }
        slabs
    }

    /// Waits until the span is replaced, or for a bounded time. Returns whether it is.
    fn await_span(&self, class: SizeClass, shard: u32) -> bool {
        let cursor = self.cursor(class, shard);
        for _ in 0..POLLS {
            if cursor.position().left() >= 0 {
                return true;
            }
            thread::nanosleep(POLL_NANOS);
        }
        false
    }
}
