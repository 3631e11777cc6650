//! Slow path of an allocation: takes more tickets, until the lanes have blocks or there are none.

use crate::heap::layout::bits::{WORD_BITS, low_bits};
use crate::heap::layout::class::{ClassInfo, SizeClass};
use crate::heap::layout::scatter::{hash, salt, scaled};
use crate::heap::paths::NAP_NANOS;
use crate::heap::paths::alloc::{Drawn, Ticket};
use crate::heap::paths::probe::{PROBES, Probed};
use crate::heap::paths::search::{Found, Proof};
use crate::heap::structures::cursor::{BIAS, Span};
use crate::heap::structures::heap_core::HeapCore;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::WARP_SIZE;

/// The number of attempts of an allocation. More than a few are needed only while other threads
/// take all memory that is found, or keep the heap busy. An allocation that fails after them
/// without a proof that there was no memory is counted separately.
const TURNS: u32 = if NATIVE_LAYOUT { 176 } else { 8 };

/// Turns in which a group draws more tickets. In later turns it only searches, and makes a run if
/// it finds none.
const PATIENCE: u32 = if NATIVE_LAYOUT { 128 } else { 4 };

/// The pause between two turns doubles each time this many turns have passed: up to
/// [`PATIENCE`], and after it. Lanes of several classes take many turns, and long pauses would
/// delay them.
const DOUBLING: [u32; 2] = if NATIVE_LAYOUT { [16, 4] } else { [TURNS; 2] };

/// The pause doubles this many times, to 0.6 ms: `nanosleep` takes at most 1 ms. The sum for an
/// allocation is at most 26 ms; a GPU may take twice as long for it.
const DOUBLINGS: u32 = 11;

/// The most tickets that a group takes at once, for each of its lanes, if no block ahead is free.
const MOST_TAKEN: u32 = 64;

/// A part of a warp that waits for a span looks for another cursor in one of this many turns. Each
/// look reads the few cursors of its class, which delays the groups that replace their spans.
const LOOKS_EVERY: u32 = if NATIVE_LAYOUT { 8 } else { 1 };

/// One in this many whole warps that find fully free words ends the aged state of its cursor.
const ENDS: u32 = 32;

// I3 of `cursor`, for 2^18 lanes: the tickets of the last attempt and one for each other turn.
const _: () = assert!(!NATIVE_LAYOUT || ((MOST_TAKEN + 1 + PATIENCE + 1) as u64) << 18 < BIAS);

/// In place of a class, for lanes that do not ask.
const NONE: u32 = u32::MAX;

/// The next step of a group that got none of its blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// More tickets.
    Draw,
    /// The group crossed the end of the span, and is to replace it.
    Refill,
    /// Another group is replacing the span.
    Wait,
    /// There is no other span.
    Search,
}

impl HeapCore {
    /// Allocates for the lanes without an address. All lanes of `group` have drawn tickets from the
    /// cursors of `shard`, in groups of the same class, and got what [`Drawn`] describes. They
    /// probe if the cursors of all lanes without an address are aged and no group crossed the end
    /// of its span. If all ask for one class, the probes see no listed run, and
    /// [`prove`](Self::prove) shows that there is no memory, they fail. Otherwise they take turns.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn alloc_slow(
        &self,
        group: Group,
        class: SizeClass,
        shard: u32,
        seen: Span,
        address: u64,
        stale: u32,
    ) -> u64 {
        // A group that crossed the end of its cursor's span is to replace it.
        let probes = !seen.is_crossed_by(WARP_SIZE) && (address != 0 || seen.is_aged());
        if !PROBES || !group.all(probes) {
            return self.alloc_in_turns(group, class, shard, seen, address, stale);
        }
        // A lane with a stale claim has no address: its cursor has a span, so it is not here.
        debug_assert!(stale == 0);
        let (mut address, mut found_whole) = (address, false);
        let probed = self.probe(group, address == 0, class, salt(0));
        if let Probed::Block { address: found, is_whole } = probed {
            (address, found_whole) = (found, is_whole);
        }
        if !group.all(address != 0) {
            let is_one = group.all(class.0 == group.broadcast_32(class.0));
            // In a full heap, most groups fail here. Through the turns and the search they would
            // save and restore many more registers on their stacks, which is most of the time of a
            // kernel of such groups.
            if is_one
                && group.all(address != 0 || probed == Probed::Empty)
                && self.prove(group, class) == Proof::Nothing
            {
                self.note_failed(group, class, address == 0);
                return address;
            }
            return self.alloc_singly(group, class, address);
        }
        // If three of four lanes found fully free words, a group of `n` lanes ends the aged state
        // with a probability of `n / (32 * ENDS)`.
        let are_whole = group.ballot(found_whole).count() * 4 >= group.count() * 3;
        let ends = group.leads() && scaled(hash(salt(1)), WARP_SIZE * ENDS) < group.count();
        if are_whole && !group.all(!ends) { self.end_aged(group, class, address) } else { address }
    }

    /// Turns of draws, spans and searches, until all lanes have blocks or there are none.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn alloc_in_turns(
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
        // All lanes have blocks: the group ends the aged state of its cursor.
        let ends_aged = group.all(address != 0);
        for turn in 0..=TURNS {
            if drawn.stale != 0 {
                self.put_back(class, peers, drawn);
            }
            let seen = Span(group.read_64(drawn.seen.0, peers.leader()));
            let missing = peers.members().without(group.ballot(address != 0)).count();
            // Most of the blocks that a warp drew tickets for are live.
            let is_occupied = turn == 0 && missing * 2 > WARP_SIZE && seen.is_drawn(peers.count());
            let probes = PROBES && asks && address == 0 && (seen.is_aged() || is_occupied);
            if !group.all(!probes)
                && let Probed::Block { address: found, .. } = self.probe(group, probes, class, salt(turn))
            {
                address = found;
            }
            // The lanes may have diverged.
            group.sync();
            let served = group.ballot(address != 0);
            let missed = asks && peers.members().without(served) == peers.members();
            let (step, seen) = match drawn.seen {
                seen if !asks || !peers.leads() => (Step::Draw, seen),
                seen if turn > PATIENCE => (Step::Search, seen),
                seen if seen.is_crossed_by(peers.count()) => (Step::Refill, seen),
                _ if missed => self.step(class, shard, peers.count(), turn),
                seen => (Step::Draw, seen),
            };
            // The step of each group of peers, which only its leader knows.
            let is = |wanted| group.ballot(step == wanted).contains(peers.leader());
            let (refills, waits, mut is_dry) = (is(Step::Refill), is(Step::Wait), is(Step::Search));
            if !group.all(!refills) {
                // After a miss at the end of an aged cursor, a span is better.
                let must = ends_aged || missed && seen.is_aged();
                is_dry |= self.refill(group, peers, refills, class, shard, seen, must);
            }
            asks &= address == 0;
            if turn == TURNS {
                if asks {
                    // Relaxed: statistics.
                    self.contended_of(self.shard()).add_relaxed(1);
                }
                break;
            }
            let looks = peers.count() == WARP_SIZE || turn % LOOKS_EVERY == LOOKS_EVERY - 1;
            let draws_elsewhere = asks && turn < PATIENCE && (waits && looks || is_dry);
            let other = if group.all(!draws_elsewhere) {
                None
            } else {
                self.other(group, peers, draws_elsewhere, class, shard, turn)
            };
            if asks && waits && other.is_none() {
                nap(turn);
            }
            shard = other.unwrap_or(shard);
            let searches = asks && (is_dry && other.is_none() || turn >= PATIENCE);
            if !group.all(!searches) {
                let salt = thread::index_1d().wrapping_add(turn);
                let found = self.search(group, searches, class, salt, turn >= PATIENCE);
                match found {
                    Found::Block(found) => address = found,
                    Found::Nothing => asks = false,
                    Found::Unsure => {}
                }
                // If a lane of the class found a block, the others search again at once.
                let served = group.ballot(matches!(found, Found::Block(_)));
                let is_lost = peers.members().without(served) == peers.members();
                if searches && is_lost && found == Found::Unsure {
                    nap(turn);
                }
            }
            asks &= address == 0;
            if group.all(!asks) {
                break;
            }
            peers = group.matching(if asks { class.0 } else { NONE });
            shard = group.read_32(shard, peers.leader());
            drawn = self.draw(group, peers, asks && turn < PATIENCE, class, shard);
            if asks {
                address = drawn.address;
            }
        }
        self.note_failed(group, class, address == 0);
        address
    }

    /// Another shard for the groups of `peers` that have no tickets: one with tickets for blocks in
    /// its cursor. Each lane reads one cursor.
    fn other(
        &self,
        group: Group,
        peers: Group,
        draws_elsewhere: bool,
        class: SizeClass,
        shard: u32,
        turn: u32,
    ) -> Option<u32> {
        let (mut rest, mut found) = (group.ballot(draws_elsewhere && peers.leads()), None);
        let salt = hash(thread::index_1d().wrapping_add(turn));
        while !rest.is_empty() {
            let leader = rest.leader();
            let (class, lanes) = (group.read_32(class.0, leader), group.read_32(peers.count(), leader));
            let shard = group.read_32(shard, leader);
            let other = self.layout.shard_beside(shard, lanes, group.rank(), group.broadcast_32(salt));
            let span = self.cursor(SizeClass(class), other).span();
            let has_tickets = !span.is_dry() && span.runs() > 0 && span.left() >= lanes as i32;
            let lanes = group.ballot(has_tickets);
            if !lanes.is_empty() {
                let other = group.read_32(other, lanes.leader());
                found = if peers.leader() == leader { Some(other) } else { found };
            }
            rest = rest.without_leader();
        }
        found
    }

    /// Counts the failed allocations of a group.
    fn note_failed(&self, group: Group, class: SizeClass, fails: bool) {
        let failed = group.ballot(fails);
        if fails && group.lane() == failed.leader() {
            self.note_failures(failed.count(), class.bytes().into());
        }
    }

    /// Sets the bits again that the lane claimed by a ticket for a run that is gone.
    #[cold]
    #[inline(never)]
    fn put_back(&self, class: SizeClass, peers: Group, drawn: Drawn) {
        let ticket = Ticket::new(self.class(class), drawn.seen, peers, true);
        let bits = drawn.stale & ticket.bits();
        if bits != 0 {
            self.runs().put_back(ticket.word(self.runs()), bits, drawn.stale);
        }
    }

    /// The next step of a group that got no block by tickets and by probes, and the span that it is
    /// to replace. If no block ahead is free, the group takes the tickets that are left, or many of
    /// them. If the cursor is also dry, the group searches: in the first turn always, later if
    /// there are no runs of other classes and no slabs.
    #[inline(never)]
    fn step(&self, class: SizeClass, shard: u32, lanes: u32, turn: u32) -> (Step, Span) {
        let (info, cursor) = (self.class(class), self.cursor(class, shard));
        let now = cursor.span();
        if now.left() < 0 {
            return (if now.is_dry() { Step::Search } else { Step::Wait }, now);
        }
        // At the end of the span, its tickets are those of the next one.
        let is_end = now.left() == 0;
        let ahead = if is_end { self.ring(class, shard).after(info, now.slot()) } else { now };
        match self.occupied(class, info, ahead) {
            Some(blocks) => {
                if blocks > 0 && !is_end {
                    cursor.skip(now, blocks);
                }
                return (Step::Draw, now);
            }
            None if now.is_dry() && (turn == 0 || !self.has_other_run(class, info)) => {
                return (Step::Search, now);
            }
            None => {}
        }
        // Not more at once: many groups may do this at the same time (I3 of `cursor`).
        let (left, most) = (now.left() as u32, MOST_TAKEN * lanes);
        let rest = if left < most + lanes {
            // One more than all. If it left fewer tickets than lanes, the next draw would cross the
            // end, and the ring would not be surveyed.
            left + 1
        } else if (turn == PATIENCE || now.is_aged()) && cursor.skip(now, left) {
            // The compare-and-swap took all of them.
            1
        } else {
            most
        };
        let old = cursor.take(rest);
        let step = match old.left() {
            _ if old.is_crossed_by(rest) => Step::Refill,
            left if left >= 0 => Step::Draw,
            _ if old.is_dry() => Step::Search,
            _ => Step::Wait,
        };
        // `is_aged` needs a ticket: one is reported, so that the group knows that a span is better.
        let is_aged = now.is_aged() && old.runs() == 0 && step == Step::Refill;
        (step, if is_aged { old.with_left(1) } else { old })
    }

    /// The number of blocks at the front of a span that are not free. `None` if no block of this
    /// run and the next one seems to be free.
    fn occupied(&self, class: SizeClass, info: &ClassInfo, span: Span) -> Option<u32> {
        let (runs, left) = (self.runs(), (span.left() as u32).min(span.blocks(info)));
        if left == 0 {
            return None;
        }
        let (run, number) = span.place(info, left - 1);
        let bit = number % WORD_BITS;
        // Relaxed: hints.
        let bits = runs.bits(runs.first_word(run) + number / WORD_BITS).load_relaxed() & low_bits(bit + 1);
        let is_free = |run| runs.starts(run, class, info.slabs) && runs.free_words(run) > 0;
        if bits != 0 && runs.starts(run, class, info.slabs) {
            Some(0)
        } else if number > bit && is_free(run) {
            Some(bit + 1)
        } else if number + 1 < left && is_free(run + info.slabs) {
            Some(number + 1)
        } else {
            None
        }
    }
}

/// Waits before the next turn.
fn nap(turn: u32) {
    let late = turn.saturating_sub(PATIENCE);
    let doublings = (turn - late) / DOUBLING[0] + late / DOUBLING[1];
    thread::nanosleep(NAP_NANOS << doublings.min(DOUBLINGS));
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, not(loom)))]
mod step_tests;
