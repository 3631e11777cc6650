//! Refill: the next span of an exhausted cursor, and allocation until it is there.

use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::{Outcome, Span};
use super::index_set::WORD_BITS;
use super::search::Found;
use super::slabs::Slabs;
use super::{Heap, POLL_NANOS};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// The number of attempts of an allocation. More than a few are needed only while other threads
/// take all memory that is found, or keep the heap busy.
const TURNS: u32 = if NATIVE_LAYOUT { 256 } else { 6 };

/// The number of other cursors of the class to draw from while a group refills the own one.
const HOPS: u32 = 3;

/// Turns after which a group that still waits for a refill searches for single blocks. Searches
/// take blocks from the spans that others wait for.
const PATIENCE: u32 = if NATIVE_LAYOUT { 32 } else { 2 };

/// The number of looks at a cursor that another group is refilling, before the group searches for
/// single blocks.
const POLLS: u32 = if NATIVE_LAYOUT { 1 << 8 } else { 2 };

/// The most tickets that a group skips at once.
const MOST_SKIPPED: u32 = 1 << 14;

/// In place of a class, for lanes that do not ask.
const NONE: u32 = u32::MAX;

/// Runs for a span.
#[derive(Clone, Copy)]
struct Next {
    slabs: Slabs,
    is_fresh: bool,
}

impl Heap {
    /// Allocates for the lanes without an address. All lanes of `group` have drawn tickets from
    /// `seen`, in groups of the same class.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(
        &self,
        group: Group,
        class: SizeClass,
        shard: u32,
        seen: Span,
        address: u64,
    ) -> u64 {
        let (mut address, mut seen, mut peers) = (address, seen, group.matching(class.0));
        let mut shard = shard;
        let (mut asks, mut skip) = (true, 0);
        for turn in 0..TURNS {
            let outcome = if asks { seen.outcome(peers.count() + skip) } else { Outcome::Enough };
            let crossed = outcome == Outcome::Crossed;
            let mut is_dry = asks && outcome == Outcome::Dry;
            let refilled = crossed && peers.leads() && self.take_next(class, shard, seen);
            let refilled = group.ballot(refilled);
            let must_refill = crossed && !refilled.contains(peers.leader());
            if !group.all(!must_refill) {
                is_dry |= self.refill(group, peers, must_refill, class, shard, seen);
            }
            if crossed {
                self.let_go(class, seen, peers.rank(), peers.count());
            }
            asks &= address == 0;
            let drew = asks;
            if asks && outcome == Outcome::Behind {
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
            // Before the group fails: memory that is in spans of other classes.
            let fails = group.ballot(drew && address == 0 && !asks);
            if !fails.is_empty() {
                let class = SizeClass(group.read_32(class.0, fails.leader()));
                if group.lead_64(|| self.retire_held(class, 1).into()) == 1 {
                    asks = drew && address == 0;
                }
            }
            asks &= address == 0;
            if group.all(!asks) {
                break;
            }
            peers = group.matching(if asks { class.0 } else { NONE });
            // Tickets for blocks that others have: soon skips the rest of the span.
            let missed = outcome == Outcome::Enough;
            skip = group.read_32(if missed { (2 * skip + WORD_BITS).min(MOST_SKIPPED) } else { 0 }, peers.leader());
            shard = group.read_32(shard, peers.leader());
            let drawn;
            (drawn, seen) = self.draw(group, peers, asks, skip, class, shard);
            if asks {
                address = drawn;
            }
        }
        let failed = group.ballot(address == 0).count();
        if failed > 0 && group.leads() {
            // Relaxed: a statistic.
            self.overview().failures().add_relaxed(failed);
        }
        address
    }

    /// The groups that `crossed` their cursors install the next spans. Returns whether the caller's
    /// group found none.
    #[inline(never)]
    fn refill(
        &self,
        group: Group,
        peers: Group,
        crossed: bool,
        class: SizeClass,
        shard: u32,
        seen: Span,
    ) -> bool {
        let (leads, moves) = (crossed && peers.leads(), self.overview().class(class));
        let info = *self.class(class);
        let mut found = Next { slabs: Slabs::NONE, is_fresh: false };
        // A search that finds nothing, again and again in a full heap, is no move.
        let begins = leads && (!seen.is_dry() || self.has_run(&info, &mut self.overview().common().search()));
        if begins {
            moves.begin();
            if seen.runs() == 0 {
                self.overview().note_use(class);
            }
            found = self.find_span(class, &info, shard, peers.count(), seen.runs());
        }
        let packed = u64::from(found.slabs.first) << 32
            | u64::from(found.slabs.len) << 1
            | u64::from(found.is_fresh);
        let packed = group.read_64(packed, peers.leader());
        let (first, runs) = ((packed >> 32) as u32, (packed as u32 >> 1) / info.slabs);
        let mut i = peers.rank();
        while crossed && packed & 1 == 1 && i < runs {
            self.runs().dedicate(first + i * info.slabs, class, &info);
            i += peers.count();
        }
        group.sync();
        if leads {
            let next = if runs > 0 { Span::new(&info, first, runs) } else { Span::DRY };
            self.cursor(class, shard).install(next);
        }
        if begins {
            moves.end();
        }
        crossed && runs == 0
    }

    /// Installs the idle runs after the last span as the next one, if there are any: the common case,
    /// in few instructions. Returns whether it did.
    fn take_next(&self, class: SizeClass, shard: u32, seen: Span) -> bool {
        let (info, first) = (self.class(class), seen.end());
        if first == 0 || first >= self.layout.slabs {
            return false;
        }
        let (idle, index) = (self.runs().idle(), self.layout.run_index(class, first));
        let word = idle.word(index / WORD_BITS).load_relaxed() >> (index % WORD_BITS);
        let (mut place, mut bits, mut runs) = (0, 0, 0);
        while place < WORD_BITS && word >> place & 1 == 1 {
            bits |= 1 << place;
            place += info.slabs;
            runs += 1;
        }
        if runs == 0 {
            return false;
        }
        self.overview().class(class).during(|| {
            let bits = bits << (index % WORD_BITS);
            let got = idle.remove_bits(index / WORD_BITS, bits);
            if got == bits {
                // Whether they are fully free, tickets find out.
                self.runs().hold(first, runs, info);
                self.cursor(class, shard).install(Span::new(info, first, runs));
            } else if got != 0 {
                idle.insert_bits(index / WORD_BITS, got);
            }
            got == bits
        })
    }

    /// The runs of a span are in no span any more, each lane a part of them.
    #[inline(always)]
    fn let_go(&self, class: SizeClass, seen: Span, rank: u32, lanes: u32) {
        let (slabs, mut i) = (self.class(class).slabs, rank);
        while i < seen.runs() {
            self.runs().let_go(seen.end() - (i + 1) * slabs);
            i += lanes;
        }
    }

    /// Runs for a span of the class, in this order: idle runs of the class, free slabs, slabs of
    /// idle runs of other classes.
    fn find_span(&self, class: SizeClass, info: &ClassInfo, shard: u32, lanes: u32, last: u32) -> Next {
        let (runs, most) = (self.runs(), info.span_runs(lanes, last));
        let start = self.layout.partition_start(shard);
        let (mut first, mut len) = runs.take_idle(class, info, start, self.layout.slabs, most);
        if len == 0 {
            (first, len) = runs.take_idle(class, info, 0, start, most);
        }
        if len > 0 {
            return Next { slabs: Slabs { first, len: len * info.slabs }, is_fresh: false };
        }
        loop {
            let slabs = self.claim_slabs(info, shard, most * info.slabs);
            if slabs.len > 0 {
                return Next { slabs, is_fresh: true };
            }
            if !self.retire_idle(info.slabs) && !self.retire_held(class, info.slabs) {
                break;
            }
        }
        Next { slabs: Slabs::NONE, is_fresh: false }
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

    /// Waits until the cursor is refilled, or for a bounded time. Returns whether it is.
    fn await_span(&self, class: SizeClass, shard: u32) -> bool {
        let cursor = self.cursor(class, shard);
        for _ in 0..POLLS {
            if cursor.span().left() >= 0 {
                return true;
            }
            thread::nanosleep(POLL_NANOS);
        }
        false
    }
}
