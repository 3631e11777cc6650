//! Refill: the next span of an exhausted cursor, and allocation until it is there.

use super::alloc::{Drawn, Ticket};
use super::class::SizeClass;
use super::class_info::ClassInfo;
use super::cursor::{Lock, Span};
use super::index_set::{WORD_BITS, low_bits};
use super::search::Found;
use super::slabs::Slabs;
use super::{Heap, POLL_NANOS};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// The number of attempts of an allocation. More than a few are needed only while other threads
/// take all memory that is found, or keep the heap busy.
const TURNS: u32 = if NATIVE_LAYOUT { 256 } else { 16 };

/// The number of other cursors of the class to draw from if that takes longer.
const HOPS: u32 = 3;

/// Turns after which a group that still waits for a refill searches for single blocks. Searches
/// take blocks from the spans that others wait for.
const PATIENCE: u32 = if NATIVE_LAYOUT { 32 } else { 2 };

/// The number of looks at a cursor whose span another group is replacing, before the group draws
/// from another one.
const POLLS: u32 = if NATIVE_LAYOUT { 64 } else { 2 };

/// The number of words of a span that a group looks at for a free block.
const LOOKS: u32 = if NATIVE_LAYOUT { 32 } else { 4 };

/// A span is small up to this part of a partition.
const SMALL_PART: u32 = 4;

/// In place of a class, for lanes that do not ask.
const NONE: u32 = u32::MAX;

/// The next step of a group that got none of its blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// More tickets.
    Draw,
    /// The group has locked the cursor, and is to replace the span.
    Refill,
    /// Another group is replacing the span.
    Wait,
    /// There is no other span.
    Search,
}

impl Heap {
    /// Allocates for the lanes without an address. All lanes of `group` have drawn tickets from
    /// the cursors of `shard`, in groups of the same class, and got what [`Drawn`] describes.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(
        &self,
        group: Group,
        class: SizeClass,
        shard: u32,
        seen: Span,
        address: u64,
        stale: u32,
    ) -> u64 {
        let (mut drawn, mut peers) = (Drawn { address, seen, stale }, group.matching(class.0));
        let (mut address, mut shard, mut asks) = (address, shard, true);
        for turn in 0..=TURNS {
            if drawn.stale != 0 {
                self.put_back(class, peers, drawn);
            }
            if turn == TURNS {
                break;
            }
            let served = group.ballot(address != 0);
            let missed = asks && peers.members().without(served) == peers.members();
            let step = if missed && peers.leads() {
                self.step(class, shard, drawn.seen, peers.count())
            } else {
                Step::Draw
            };
            let refills = group.ballot(step == Step::Refill).contains(peers.leader());
            let waits = group.ballot(step == Step::Wait).contains(peers.leader());
            let mut is_dry = group.ballot(step == Step::Search).contains(peers.leader());
            if !group.all(!refills) {
                is_dry |= self.refill(group, peers, refills, class, shard, drawn.seen);
            }
            asks &= address == 0;
            if asks && waits {
                if !self.await_span(class, shard) {
                    shard = self.layout.neighbour(shard, turn % HOPS);
                    is_dry = turn >= PATIENCE;
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

    /// Puts back what the lane claimed by a ticket for a run that is gone.
    #[cold]
    #[inline(never)]
    fn put_back(&self, class: SizeClass, peers: Group, drawn: Drawn) {
        let ticket = Ticket::new(self.class(class), drawn.seen, peers, true);
        let bits = drawn.stale & ticket.bits();
        if bits != 0 {
            self.runs().put_back(ticket.word(self.runs()), bits, drawn.stale);
        }
    }

    /// The next step of a group that got nothing for its tickets from `seen`.
    fn step(&self, class: SizeClass, shard: u32, seen: Span, lanes: u32) -> Step {
        let (info, cursor) = (self.class(class), self.cursor(class, shard));
        let now = cursor.span();
        if (now.0 ^ seen.0) >> 32 != 0 {
            return if now.is_busy() { Step::Wait } else { Step::Draw };
        }
        let next = now.block(info, 1, 0);
        if next < now.blocks(info) {
            let left = next + 1;
            let free = self.first_free(class, info, now, left);
            if free > 0 {
                cursor.skip(now, left - free);
                return Step::Draw;
            }
        }
        if seen.is_dry() && !self.has_run(info, &mut self.overview().common().search()) {
            return Step::Search;
        }
        match cursor.lock(seen) {
            Lock::Taken => {
                let (ring, grows) = (self.ring(class, shard), self.grows(class, info, shard, seen, lanes));
                match if grows { None } else { ring.next_free(self.runs(), class, info, seen) } {
                    Some(span) => {
                        cursor.install(span);
                        Step::Draw
                    }
                    None => Step::Refill,
                }
            }
            Lock::Busy => Step::Wait,
            Lock::Replaced => Step::Draw,
        }
    }

    /// The number of blocks of a span, at most `left`, at which a block may be free. 0 if none is in
    /// the current run and the next one.
    fn first_free(&self, class: SizeClass, info: &ClassInfo, span: Span, left: u32) -> u32 {
        let (runs, mut left, mut is_next) = (self.runs(), left, false);
        for _ in 0..LOOKS {
            // Relaxed: hints.
            let (run, number) = span.place(info, left - 1);
            let (word, bit) = (runs.first_word(run) + number / WORD_BITS, number % WORD_BITS);
            let bits = runs.bits(word).load_relaxed() & low_bits(bit + 1);
            let is_there = runs.starts(run, class, info.slabs);
            if is_there && bits != 0 {
                return left - (bits.leading_zeros() - (WORD_BITS - 1 - bit));
            }
            if is_there && runs.free_words(run) > 0 {
                left -= bit + 1;
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

    /// The groups that have locked their cursors replace the spans. Returns whether the caller's
    /// group found none.
    #[inline(never)]
    fn refill(
        &self,
        group: Group,
        peers: Group,
        refills: bool,
        class: SizeClass,
        shard: u32,
        seen: Span,
    ) -> bool {
        let (leads, moves) = (refills && peers.leads(), self.overview().class(class));
        let info = *self.class(class);
        let (mut slabs, mut other) = (Slabs::NONE, None);
        // A search that finds nothing, again and again in a full heap, is no move.
        let begins = leads && (!seen.is_dry() || self.has_run(&info, &mut self.overview().common().search()));
        if begins {
            moves.begin();
            (slabs, other) = self.find_span(class, &info, shard, seen, peers.count());
        }
        let packed = group.read_64(u64::from(slabs.first) << 32 | u64::from(slabs.len), peers.leader());
        let (first, runs) = ((packed >> 32) as u32, packed as u32 / info.slabs);
        let mut i = peers.rank();
        while refills && i < runs {
            self.runs().dedicate(first + i * info.slabs, class, &info);
            i += peers.count();
        }
        group.sync();
        if leads {
            if runs > 0 {
                let new = Span::new(&info, first, runs);
                self.ring(class, shard).add(self.runs(), class, &info, new);
                other = Some(new);
            }
            self.cursor(class, shard).install(other.unwrap_or(seen.dry(&info)));
        }
        if begins {
            moves.end();
        }
        group.ballot(leads && other.is_none()).contains(peers.leader())
    }

    /// The next span: of free slabs, if there are many in a row; else another one of the ring; else
    /// of any free slabs, or those of fully free runs.
    fn find_span(
        &self,
        class: SizeClass,
        info: &ClassInfo,
        shard: u32,
        last: Span,
        lanes: u32,
    ) -> (Slabs, Option<Span>) {
        let most = info.span_runs(last.runs(), lanes) * info.slabs;
        let mut slabs = Slabs::NONE;
        if self.grows(class, info, shard, last, lanes) {
            slabs = self.claim_slabs(info, shard, most, true);
            if slabs.len > 0 {
                return (slabs, None);
            }
            self.ring(class, shard).settle();
        }
        if let Some(span) = self.ring(class, shard).largest_free(self.runs(), class, info, last) {
            return (slabs, Some(span));
        }
        let start = self.layout.run_index(class, self.layout.partition_start(shard));
        loop {
            slabs = self.claim_slabs(info, shard, most, false);
            if slabs.len > 0 || !self.retire_idle(start, most) {
                return (slabs, None);
            }
        }
    }

    /// Whether a new span is better than another one of the ring: if it is a small part of a
    /// partition, and there were free slabs for it.
    fn grows(&self, class: SizeClass, info: &ClassInfo, shard: u32, last: Span, lanes: u32) -> bool {
        let slabs = info.span_runs(last.runs(), lanes) * info.slabs;
        slabs <= self.layout.partition_start(1) / SMALL_PART && !self.ring(class, shard).is_settled()
    }

    fn claim_slabs(&self, info: &ClassInfo, shard: u32, most: u32, is_picky: bool) -> Slabs {
        let (hint, start) = (self.hint(shard), self.layout.partition_start(shard));
        // Relaxed: a hint. Each claim goes on where the last one of the shard ended.
        let from = start.wrapping_add(hint.load_relaxed());
        let from = if from < self.layout.slabs { from } else { start };
        let slabs = self.free_slabs().claim(from / WORD_BITS * WORD_BITS, info.slabs, most, is_picky);
        if slabs.len > 0 {
            hint.store_relaxed((slabs.first + slabs.len).wrapping_sub(start));
        }
        slabs
    }

    /// Waits until the span is replaced, or for a bounded time. Returns whether it is.
    fn await_span(&self, class: SizeClass, shard: u32) -> bool {
        let cursor = self.cursor(class, shard);
        for _ in 0..POLLS {
            if !cursor.span().is_busy() {
                return true;
            }
            thread::nanosleep(POLL_NANOS);
        }
        false
    }
}
