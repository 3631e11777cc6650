//! What a lane gets whose cursor is dry: the class' next span, a hole, or a refusal.

use super::class::SizeClass;
use super::cursor::Span;
use super::overview::ClassSet;
use super::{Heap, SEARCH, SEEK};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// Looks for the end of another group's search for a span, and the pause between two: more than most of them take, for a
/// scan made meanwhile would refuse no one.
const WAITS: u32 = if NATIVE_LAYOUT { 1 << 8 } else { 3 };
const WAIT_NANOS: u32 = 1 << 10;

/// What a lane gets from a dry cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllocOutcome {
    /// Memory at this address.
    Block(u64),
    /// There may be some: look again.
    Perhaps,
    /// There is none.
    Nothing,
}

/// What there seems to be for a class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// A span in the cursor.
    Span,
    /// Another group looks for one.
    Sought,
    /// Holes.
    Holes,
    Nothing,
}

impl Heap {
    /// For lanes of which some, `dry`, saw `seen` in the dry cursor of their class. All lanes look for memory together,
    /// for one class after the other, for a lane by itself would look at one word after the other. The scan that there is
    /// none is one for all classes.
    #[inline(never)]
    pub(super) fn alloc_dry(
        &self,
        lanes: Group,
        peers: Group,
        dry: bool,
        class: SizeClass,
        shard: u32,
        seen: Span,
    ) -> AllocOutcome {
        if lanes.all(!dry) {
            return AllocOutcome::Perhaps;
        }
        if dry && peers.leads() && seen.has_sunk() {
            self.lift(class, shard);
        }
        let look = self.look_together(lanes, peers, dry, class, shard);
        let look = self.await_searches(lanes, peers, look, class, shard);
        let hole = if look == Look::Holes { self.claim_hole(class, shard, peers.rank()) } else { 0 };
        // What each lane has freed is before the arrival of the one that arrives for it (I9).
        lanes.sync();
        let lacks = dry && look != Look::Span && hole == 0;
        // Who has a hole looks along with those who have none.
        let refused = if lanes.all(!lacks) { ClassSet::NONE } else { self.refused_classes(lanes) };
        if lacks && refused.has(class.0) {
            return AllocOutcome::Nothing;
        }
        if hole == 0 { AllocOutcome::Perhaps } else { AllocOutcome::Block(hole) }
    }

    /// Looks for a span or holes, for one class of `dry` lanes after the other.
    fn look_together(&self, lanes: Group, peers: Group, dry: bool, class: SizeClass, shard: u32) -> Look {
        let bare = self.bare_classes(lanes);
        let (mut waiting, mut found) = (lanes.ballot(dry && peers.leads()), Look::Nothing);
        while !waiting.is_empty() {
            let lane = waiting.leader();
            let of = SizeClass(lanes.read_32(class.0, lane));
            let (shard, count) = (lanes.read_32(shard, lane), lanes.read_32(peers.count(), lane));
            let look = self.look_for(lanes, of, shard, count, bare.has(of.0));
            if dry && peers.leader() == lane {
                found = look;
            }
            waiting = waiting.without_leader();
        }
        found
    }

    /// The same for one class. If the last search of the whole heap found it `bare`, another search for a span takes longer
    /// than a hole does, and keeps the next scan waiting.
    fn look_for(&self, lanes: Group, class: SizeClass, shard: u32, count: u32, bare: bool) -> Look {
        // Whole runs that came back since are worth a search: a span is soon used by many.
        let may_have_span = !bare || self.idle(class).next_word_together(lanes, 0).is_some();
        let look = if may_have_span { self.try_span(lanes, class, shard, count) } else { Look::Nothing };
        let may_have_holes =
            || look == Look::Nothing && self.partial(class).next_word_together(lanes, 0).is_some();
        if may_have_holes() { Look::Holes } else { look }
    }

    /// Waits for the groups that look for spans of the lanes' cursors, for all at once: a scan would be none meanwhile.
    fn await_searches(&self, lanes: Group, peers: Group, look: Look, class: SizeClass, shard: u32) -> Look {
        if lanes.all(look != Look::Sought) {
            return look;
        }
        let cursor = self.cursor(class, shard);
        let mut found = false;
        if look == Look::Sought && peers.leads() {
            // Relaxed: what is found is taken from the cursor.
            let seen = cursor.scan_result.load_relaxed();
            for _ in 0..WAITS {
                let now = cursor.scan_result.load_relaxed();
                if now != seen || cursor.searches_begun.load_relaxed() == now / 2 {
                    found = now.is_multiple_of(2);
                    break;
                }
                thread::nanosleep(WAIT_NANOS);
            }
        }
        let found = lanes.read_32(found.into(), peers.leader()) == 1;
        match look {
            Look::Sought if found => Look::Span,
            Look::Sought => Look::Nothing,
            look => look,
        }
    }

    /// Looks for the next span of a dry cursor, if no other group does.
    #[inline(never)]
    fn try_span(&self, lanes: Group, class: SizeClass, shard: u32, count: u32) -> Look {
        let cursor = self.cursor(class, shard);
        // ordering: acquire; pairs with the end of a search below: the span that it stored, before the look whether the
        // cursor is dry (I8).
        let ended = lanes.lead_64(|| cursor.scan_result.at(SEARCH).load_acquire() / 2);
        // Relaxed: whoever was here before has ended, and that was acquired.
        let mine = lanes.lead_64(|| cursor.searches_begun.cas_relaxed(ended, ended + 1).is_ok().into());
        if mine == 0 {
            return Look::Sought;
        }
        lanes.order();
        let is_dry = self.is_dry(lanes, class, shard);
        let found = if is_dry { self.seek(lanes, class, shard, count) } else { Span::DRY };
        if lanes.leads() {
            let found_none = is_dry && found.is_dry();
            // ordering: release; pairs with the beginning of the next search above (I8).
            cursor.scan_result.at(SEARCH).store_release(2 * (ended + 1) + u64::from(found_none));
        }
        if is_dry && found.is_dry() { Look::Nothing } else { Look::Span }
    }

    /// Finds the next span of a dry cursor and stores it, for who searches for it. Who proves meanwhile that there is
    /// nothing knows of it.
    fn seek(&self, lanes: Group, class: SizeClass, shard: u32, count: u32) -> Span {
        if lanes.leads() {
            self.seekers(class).add_relaxed(1);
        }
        lanes.sync();
        // ordering: release; pairs with SEEK of a scan: counted, before what any lane takes from here on.
        SEEK.fence_release();
        let found = self.find(lanes, class, shard, count, 0);
        self.hand_on(lanes);
        if lanes.leads() {
            if !found.is_dry() {
                self.cursor(class, shard).install(found);
            }
            // ordering: release; pairs with SEEK of a scan: the span in the cursor.
            self.seekers(class).at(SEEK).sub_release(1);
        }
        found
    }

    /// Whether the cursor is dry, by the leader's look. Relaxed: only who searches for its span changes that.
    fn is_dry(&self, lanes: Group, class: SizeClass, shard: u32) -> bool {
        Span(lanes.lead_64(|| self.cursor(class, shard).span.load_relaxed())).is_dry()
    }

    /// Puts a dry cursor back to its start, before failed subtractions borrow from its upper half.
    #[inline(never)]
    fn lift(&self, class: SizeClass, shard: u32) {
        let span = &self.cursor(class, shard).span;
        let seen = Span(span.load_relaxed());
        if seen.is_dry() {
            // Relaxed: a dry cursor hands nothing out. A failure is another's success, or another span.
            let _ = span.cas_relaxed(seen.0, Span::DRY.0);
        }
    }
}
