//! Allocation: one subtraction for the lanes of a warp that ask for the same class.

use super::class::{SizeClass, rounded_up};
use super::cursor::{Outcome, Span};
use super::debug::CallSite;
use super::full::Found;
use super::layout::ClassInfo;
use super::sets::Run;
use super::{Heap, POLL_NANOS, TAKE};
use crate::lanes::{Group, Lanes, Warp};
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::WARP_SIZE;
use core::ptr::NonNull;

/// How often a group looks whether the next span is there before it tries its luck: that takes microseconds.
const POLLS: u32 = if NATIVE_LAYOUT { 1 << 7 } else { 2 };

/// How often a group starts again because others took what was found for it.
const PATIENCE: u32 = if NATIVE_LAYOUT { 256 } else { 6 };

/// The largest alignment that a block of a class may be asked for: that of the smallest slab.
pub(super) const SMALL_ALIGN: usize = 1 << 14;

/// Those of the looks that come one after the other: a span that no one has had is there soon.
const EAGER_POLLS: u32 = if NATIVE_LAYOUT { 16 } else { 0 };

/// How often a group waits for a span and loses it to others, before it goes on with more care.
const TURNS: u32 = if NATIVE_LAYOUT { 16 } else { 2 };

/// Those of them in which it tries another cursor instead.
const HOPS: u32 = if NATIVE_LAYOUT { 3 } else { 1 };

/// In place of a class, for lanes that ask for nothing any more.
const DONE: u32 = u32::MAX;

impl Heap {
    /// Memory for `layout`, or `None` when the heap has none for it. Any thread, any time, any subset of a
    /// warp. A layout of no bytes gets an address that must not be touched. Alignments are 2 MiB at most.
    ///
    /// Cost per warp whose lanes ask for the same class: 1 acquire atomic on a word of the warp's
    /// multiprocessor. Lanes that ask for other classes do the same at the same time.
    #[track_caller]
    #[inline(always)]
    pub fn alloc(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
        self.alloc_at(layout, CallSite::here())
    }

    /// The same, without what a debug heap adds.
    #[inline(always)]
    pub(super) fn alloc_plain(&self, layout: core::alloc::Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        let bytes = rounded_up(size as u64, align as u64);
        // Sizes from one byte to the limit, compared once: zero wraps around.
        let small = bytes.wrapping_sub(1) < u64::from(self.layout.small_bytes);
        let address = if small && align <= SMALL_ALIGN {
            self.alloc_small(SizeClass::of(bytes as u32))
        } else {
            self.shared().alloc_unusual(size, align)
        };
        NonNull::new(address as *mut u8)
    }

    /// For sizes and alignments that no class serves.
    #[cold]
    #[inline(never)]
    fn alloc_unusual(&self, size: usize, align: usize) -> u64 {
        if size == 0 {
            return align as u64;
        }
        let address = self.alloc_large(size as u64, align as u64);
        if address == 0 {
            // Relaxed: a figure.
            self.refusal_count().add_relaxed(1);
        }
        address
    }

    #[inline(always)]
    fn alloc_small(&self, class: SizeClass) -> u64 {
        let group = Group::converged();
        let Some(warp) = group.whole() else { return self.shared().alloc_partial(group, class) };
        if !warp.all(class.0 == warp.broadcast_32(class.0)) {
            return self.shared().alloc_mixed(warp, class);
        }
        // Read here: what is acquired below empties the multiprocessor's cache.
        let info = *self.class(class);
        let mut home = self.home();
        let seen = Span(warp.lead_64(|| self.take_in_turn(warp.count(), class, &mut home).0));
        // The leader took for all: what the last owners wrote is now before every lane (I4).
        warp.order();
        let rest = seen.signed_left() - warp.count() as i32;
        if rest >= 0 {
            self.block_of_span(&info, seen, rest as u32 + warp.rank())
        } else {
            self.shared().alloc_crossed(warp, class, warp.broadcast_32(home), seen)
        }
    }

    /// For a warp of which all lanes ask for one class, and that mostly has crossed its cursor: it stores the next
    /// span there, of runs that are idle.
    #[inline(never)]
    fn alloc_crossed(&self, warp: Warp, class: SizeClass, home: u32, seen: Span) -> u64 {
        let (count, info) = (warp.count(), self.class(class));
        if seen.outcome(count) != Outcome::Crossed || seen.is_unused() || info.blocks < count {
            return self.alloc_short(warp, warp.group(), class, home, seen);
        }
        let most = info.span_runs(count);
        let (from, to) = self.share_words(home);
        let row = self.idle(class).row::<true, false>(warp, from, to, info.slabs, most);
        let run = self.take_row(warp, class, info, row);
        if run.len == 0 {
            return self.alloc_again(warp, warp.group(), class, home, seen);
        }
        let count_kept = self.keep(warp, class, info, run);
        let (left, next) = (seen.left().unwrap_or(0), info.span_of(run));
        let rest = next.without(count - left);
        if warp.leads() {
            // Behind the fence of `keep`.
            self.cursor(class, home).install_relaxed(rest);
        }
        self.kept(warp, class, info, run, count_kept);
        if warp.rank() < left {
            self.block_of_span(info, seen, warp.rank())
        } else {
            self.block_of_span(info, next, rest.left().unwrap_or(0) + warp.rank() - left)
        }
    }

    /// For a part of a warp.
    #[inline(never)]
    fn alloc_partial(&self, group: Group, class: SizeClass) -> u64 {
        if group.count() > 1 {
            return self.alloc_mixed(group, class);
        }
        let info = *self.class(class);
        let mut home = self.part_home();
        let mut seen = self.take_in_turn(1, class, &mut home);
        if seen.is_unused() && seen.left() == Some(0) {
            seen = self.first_span(group, group, true, class, home, seen);
        }
        if seen.signed_left() > 0 {
            self.block_of_span(&info, seen, seen.signed_left() as u32 - 1)
        } else {
            self.alloc_short(group, group, class, home, seen)
        }
    }

    /// For lanes that may ask for several classes: the leaders of all take at once.
    #[inline(never)]
    fn alloc_mixed<const WHOLE: bool>(&self, lanes: Lanes<WHOLE>, class: SizeClass) -> u64 {
        let home = self.part_home();
        let peers = lanes.matching(class.0);
        let info = *self.class(class);
        let seen = self.take_together(lanes, peers, true, class, home);
        let rest = seen.signed_left() - peers.count() as i32;
        if lanes.all(rest >= 0) {
            self.block_of_span(&info, seen, rest as u32 + peers.rank())
        } else {
            self.alloc_short(lanes, peers, class, home, seen)
        }
    }

    /// For lanes of which some saw too little in their class' cursor: begins the first span of a cursor, or waits
    /// for who stores the next one. Whatever takes more is left to `alloc_again`.
    #[inline(never)]
    fn alloc_short<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        class: SizeClass,
        home: u32,
        seen: Span,
    ) -> u64 {
        let (count, leads) = (peers.count(), peers.leads());
        let (mut seen, mut home) = (seen, home);
        for turn in 0..TURNS {
            let first = leads && seen.is_unused() && seen.left() == Some(0);
            if !lanes.all(!first) {
                seen = self.first_span(lanes, peers, first, class, home, seen);
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
                home = self.next_home(class, home, turn);
                seen = self.take(count, class, home);
            }
        }
        let seen = Span(lanes.read_64(seen.0, peers.leader()));
        let home = lanes.read_32(home, peers.leader());
        lanes.order();
        self.alloc_again(lanes, peers, class, home, seen)
    }

    /// Leaders that are `first` in an unused cursor store its first span there. Returns that as it was for their
    /// lanes; elsewhere, and where it takes more to find one, `seen`.
    #[inline(always)]
    fn first_span<const WHOLE: bool>(
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

    /// The leaders of all `peers` that ask take for them. Returns the cursor of the caller's class as it was.
    #[inline(always)]
    fn take_together<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        asks: bool,
        class: SizeClass,
        home: u32,
    ) -> Span {
        let seen = if asks && peers.leads() { self.take(peers.count(), class, home).0 } else { 0 };
        let seen = lanes.read_64(seen, peers.leader());
        // What the last owners wrote is now before every lane (I4).
        lanes.order();
        Span(seen)
    }

    /// Takes blocks from a cursor, if it has as many. Returns the cursor as it was.
    #[inline(always)]
    fn take(&self, wanted: u32, class: SizeClass, home: u32) -> Span {
        let cursor = self.cursor(class, home);
        // ordering: acquire; pairs with INSTALL: the slabs' entries, and what their last owners wrote (I4).
        Span(cursor.span.sub_acquire(wanted.into(), TAKE))
    }

    /// The same, from another cursor where a group is storing the next span of this one, and after a wait if others
    /// do not help. For who owes no span itself. Few registers and no call: while the cursors get their first spans, all
    /// warps of a multiprocessor are here.
    #[inline(always)]
    fn take_in_turn(&self, wanted: u32, class: SizeClass, home: &mut u32) -> Span {
        let mut seen = self.take(wanted, class, *home);
        let mut turn = 0;
        while seen.signed_left() < 0 && !seen.is_dry() && turn < TURNS {
            *home = self.next_home(class, *home, turn);
            seen = self.take(wanted, class, *home);
            turn += 1;
        }
        seen
    }

    /// Where to take blocks instead, when `home` has no span and will have one soon: its neighbour, which is in the
    /// middle of its own; others, those of different warps at different places; then the same, after a wait.
    #[inline(always)]
    fn next_home(&self, class: SizeClass, home: u32, turn: u32) -> u32 {
        let homes = self.layout.homes;
        if turn == 0 && home ^ 1 < homes {
            return home ^ 1;
        }
        if turn < HOPS {
            return (home + 1 + thread::index_1d() / WARP_SIZE) % homes;
        }
        self.await_span(class, home);
        home
    }

    #[inline(always)]
    fn block_of_span(&self, info: &ClassInfo, span: Span, block: u32) -> u64 {
        let (run, block) = span.place(info, block);
        self.block_address(info, run, block)
    }

    /// The address of a block of a run.
    #[inline(always)]
    pub(super) fn block_address(&self, info: &ClassInfo, run: u32, block: u32) -> u64 {
        self.slab_address(run) + u64::from(block * info.bytes)
    }

    #[inline(always)]
    pub(super) fn slab_address(&self, slab: u32) -> u64 {
        self.base() as u64 + (u64::from(slab) << self.layout.slab_log2)
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
        home: u32,
        seen: Span,
    ) -> u64 {
        let (mut peers, mut home, mut seen) = (peers, home, seen);
        let (mut address, mut asks) = (0, true);
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

    /// Waits until no group is looking for the next span, or for long enough.
    #[inline(always)]
    fn await_span(&self, class: SizeClass, home: u32) {
        let span = &self.cursor(class, home).span;
        for poll in 0..POLLS {
            let seen = Span(span.load_relaxed());
            if seen.signed_left() >= 0 || seen.is_dry() {
                return;
            }
            if poll >= EAGER_POLLS {
                thread::nanosleep(POLL_NANOS);
            }
        }
    }
}
