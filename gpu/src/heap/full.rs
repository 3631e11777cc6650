//! The search after which a class is refused memory, and how groups share it. It is a proof against what was freed
//! before it; not against what others have in hand meanwhile (decision 6).

use super::class::SizeClass;
use super::cursor::Span;
use super::sets::IndexSet;
use super::{ARRIVE, Heap, POLL_NANOS, SEARCH, VERDICT};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// Polls for the end of a search that another group has begun, before the caller looks once more.
const WAITS: u32 = if NATIVE_LAYOUT { 1 << 10 } else { 3 };

/// What a lane gets from a dry cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Memory at this address.
    Block(u64),
    /// There may be some: look again.
    Perhaps,
    /// There is none.
    Nothing,
}

impl Heap {
    /// For lanes of which some, `dry`, saw `seen` in the dry cursor of their class. All lanes look for memory together,
    /// for one class after the other: a search by one lane takes ten times as long.
    #[inline(never)]
    pub(super) fn alloc_dry(
        &self,
        lanes: Group,
        peers: Group,
        dry: bool,
        class: SizeClass,
        home: u32,
        seen: Span,
    ) -> Found {
        if dry && peers.leads() && seen.has_sunk() {
            self.lift(class, home);
        }
        let (mut waiting, mut found) = (lanes.ballot(dry && peers.leads()), Found::Perhaps);
        // What each lane has freed is before the arrival of the one that arrives for it (I9).
        lanes.order();
        while !waiting.is_empty() {
            let lane = waiting.leader();
            let of = SizeClass(lanes.read_32(class.0, lane));
            let (home, count) = (lanes.read_32(home, lane), lanes.read_32(peers.count(), lane));
            let asks = dry && peers.leader() == lane;
            let answer = self.alloc_dry_of(lanes, asks, peers.rank(), of, home, count);
            if asks {
                found = answer;
            }
            waiting = waiting.without_leader();
        }
        found
    }

    /// The same for one class, of which `count` lanes ask.
    fn alloc_dry_of(
        &self,
        lanes: Group,
        asks: bool,
        rank: u32,
        class: SizeClass,
        home: u32,
        count: u32,
    ) -> Found {
        if self.try_span(lanes, class, home, count) {
            return Found::Perhaps;
        }
        let may_have_holes = self.partial(class).next_word_together(lanes, 0).is_some();
        let hole = if may_have_holes && asks { self.claim_hole(class, home, rank) } else { 0 };
        // Those who have a hole look along with those who have none.
        let known_full = !lanes.all(!asks || hole != 0) && self.is_known_full(lanes, class, home, count);
        match hole {
            0 if known_full => Found::Nothing,
            0 => Found::Perhaps,
            _ => Found::Block(hole),
        }
    }

    /// Looks for a span if there seem to be slabs and no other group is looking for one: there may be runs, and a span is
    /// soon used by many. Whether there is one now. It proves nothing.
    #[inline(never)]
    fn try_span(&self, group: Group, class: SizeClass, home: u32, count: u32) -> bool {
        let cursor = self.cursor(class, home);
        // ordering: acquire; pairs with VERDICT, as in `is_known_full`.
        let verdict = group.lead_64(|| cursor.verdict.load_acquire(VERDICT));
        // Who was refused knows better than a quick look.
        if verdict % 2 == 1 || !self.may_have_slabs(group, class, home) {
            return false;
        }
        let begun = group.lead_64(|| {
            // ordering: acquire; pairs with ARRIVE, as in `is_known_full`.
            let mine = cursor.searches_begun.cas_acquire(verdict / 2, verdict / 2 + 1, SEARCH).is_ok();
            if mine { verdict / 2 } else { u64::MAX }
        });
        if begun == u64::MAX {
            return false;
        }
        group.order();
        let found = !self.is_dry(group, class, home) || self.find_and_install(group, class, home, count);
        self.end_search(group, class, home, begun, false);
        found
    }

    /// Stores what one more search has come to.
    #[inline(always)]
    fn end_search(&self, group: Group, class: SizeClass, home: u32, begun: u64, full: bool) {
        group.sync();
        if group.leads() {
            // ordering: release; pairs with the next search's look at it: the span that this one stored (I8).
            self.cursor(class, home).verdict.store_release(2 * (begun + 1) + u64::from(full), VERDICT);
        }
    }

    /// Stores a span of whole runs in a dry cursor, for who owes it. Whether there is one.
    #[inline(never)]
    fn find_and_install(&self, group: Group, class: SizeClass, home: u32, count: u32) -> bool {
        let found = self.find(group, class, home, count);
        self.install_found(group, class, home, found)
    }

    fn install_found(&self, group: Group, class: SizeClass, home: u32, found: Span) -> bool {
        group.sync();
        if !found.is_dry() && group.leads() {
            self.cursor(class, home).install(found);
        }
        !found.is_dry()
    }

    /// Whether the cursor is dry, by the leader's look. Relaxed: a hint.
    fn is_dry(&self, group: Group, class: SizeClass, home: u32) -> bool {
        Span(group.lead_64(|| self.cursor(class, home).span.load_relaxed())).is_dry()
    }

    /// Whether there seem to be slabs that no one uses, by a quick look.
    fn may_have_slabs(&self, group: Group, class: SizeClass, home: u32) -> bool {
        group.lead_64(|| self.has_fresh(home).into()) == 1
            || self.free_slabs().next_word_together(group, 0).is_some()
            || self.idle(class).next_word_together(group, 0).is_some()
    }

    /// Puts a dry cursor back to its start, before failed subtractions borrow from its upper half.
    #[inline(never)]
    fn lift(&self, class: SizeClass, home: u32) {
        let span = &self.cursor(class, home).span;
        let seen = Span(span.load_relaxed());
        if seen.is_dry() {
            // Relaxed: a dry cursor hands nothing out. A failure is another's success, or another span.
            let _ = span.cas_relaxed(seen.0, Span::DRY.0);
        }
    }

    /// Whether a search that began after this call found nothing for the class: another group's, or this one's
    /// own.
    #[inline(never)]
    fn is_known_full(&self, group: Group, class: SizeClass, home: u32, count: u32) -> bool {
        let cursor = self.cursor(class, home);
        // ordering: release; pairs with SEARCH below: what this group has freed, or knows to be freed, before the
        // looks of a search that begins later (I9).
        let arrived = group.lead_64(|| cursor.searches_begun.add_release(0, ARRIVE));
        for _ in 0..WAITS {
            // ordering: acquire; pairs with VERDICT below: what the search before has stored in the cursor, before the
            // next one's look whether that is dry (I8).
            let verdict = group.lead_64(|| cursor.verdict.load_acquire(VERDICT));
            if verdict / 2 > arrived {
                return verdict % 2 == 1;
            }
            let begun = verdict / 2;
            // ordering: acquire; pairs with ARRIVE above.
            let mine =
                group.lead_64(|| cursor.searches_begun.cas_acquire(begun, begun + 1, SEARCH).is_ok().into());
            if mine == 1 {
                // What the leader acquired is before the looks of all.
                group.order();
                let full = !self.search(group, class, home, count);
                self.end_search(group, class, home, begun, full);
                return full;
            }
            thread::nanosleep(POLL_NANOS);
        }
        false
    }

    /// Looks for memory for a class whose cursor was dry: whether there is a span or a hole now, or may be.
    #[cold]
    #[inline(never)]
    fn search(&self, group: Group, class: SizeClass, home: u32, count: u32) -> bool {
        // Only the one search of a cursor stores the next span of a dry one (I8).
        if !self.is_dry(group, class, home) {
            return true;
        }
        if self.find_and_install(group, class, home, count) {
            return true;
        }
        let found = self.find_hidden(group, class, home, count);
        if self.install_found(group, class, home, found) {
            return true;
        }
        // What a group has in hand for another cursor of the class will be seen there. Idle: what was made holes of after
        // the look at those.
        self.is_owed(group, class)
            || self.holds_any(group, self.partial(class))
            || self.holds_any(group, self.idle(class))
    }

    /// Whether there is anything in a set.
    fn holds_any(&self, group: Group, set: IndexSet) -> bool {
        match set.next_word_together(group, 0) {
            Some(w) => group.lead_64(|| set.next(w).is_some().into()) == 1,
            None => false,
        }
    }

    /// Whether a group is about to store the next span of a cursor of the class. The lanes look at a cursor each.
    fn is_owed(&self, group: Group, class: SizeClass) -> bool {
        let (mut home, mut owed) = (group.rank(), false);
        while home < self.layout.homes {
            for span in self.spans(class, home, group.count()) {
                owed |= span.left().is_none();
                home += group.count();
            }
        }
        !group.all(!owed)
    }
}
