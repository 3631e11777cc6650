//! Taking blocks from a cursor, or from others while that one is between two spans.

use super::class::SizeClass;
use super::cursor::Span;
use super::{Heap, POLL_NANOS, TAKE};
use crate::lanes::{Group, Lanes};
use crate::sync::NATIVE_LAYOUT;
use crate::thread;
use crate::units::WARP_SIZE;

/// How often a group waits for a span and loses it to others, before it goes on with more care.
pub(super) const TURNS: u32 = if NATIVE_LAYOUT { 16 } else { 2 };

/// Those of them in which it tries another cursor instead.
const HOPS: u32 = if NATIVE_LAYOUT { 3 } else { 1 };

/// The multiplier of a hash: 2^32 by the golden ratio.
const SCATTER: u32 = 0x9e37_79b9;

/// How often a group looks whether the next span is there before it tries its luck: that takes microseconds.
const POLLS: u32 = if NATIVE_LAYOUT { 1 << 7 } else { 2 };

/// Those of the looks that come one after the other: a span that no one has had is there soon.
const EAGER_POLLS: u32 = if NATIVE_LAYOUT { 16 } else { 0 };

impl Heap {
    /// Takes blocks from a cursor, if it has as many. Returns the cursor as it was.
    #[inline(always)]
    pub(super) fn take(&self, wanted: u32, class: SizeClass, shard: u32) -> Span {
        let cursor = self.cursor(class, shard);
        // ordering: acquire; pairs with INSTALL: the slabs' entries, and what their last owners wrote (I4).
        Span(cursor.span.at(TAKE).sub_acquire(wanted.into()))
    }

    /// The same, from another cursor where a group is storing the next span of this one, and after a wait if others
    /// do not help. For who owes no span itself. Few registers and no call: while the cursors get their first spans, all
    /// warps of a multiprocessor are here.
    #[inline(always)]
    pub(super) fn take_in_turn(&self, wanted: u32, class: SizeClass, shard: &mut u32) -> Span {
        let mut seen = self.take(wanted, class, *shard);
        let mut turn = 0;
        while seen.signed_left() < 0 && !seen.is_dry() && turn < TURNS {
            *shard = self.next_shard(class, *shard, turn);
            seen = self.take(wanted, class, *shard);
            turn += 1;
        }
        seen
    }

    /// The leaders of all `peers` that ask take for them. Returns the cursor of the caller's class as it was.
    #[inline(always)]
    pub(super) fn take_together<const WHOLE: bool>(
        &self,
        lanes: Lanes<WHOLE>,
        peers: Group,
        asks: bool,
        class: SizeClass,
        shard: u32,
    ) -> Span {
        let seen = if asks && peers.leads() { self.take(peers.count(), class, shard).0 } else { 0 };
        let seen = lanes.read_64(seen, peers.leader());
        // What the last owners wrote is now before every lane (I4).
        lanes.order();
        Span(seen)
    }

    /// Where to take blocks instead, when `shard` has no span and will have one soon: its neighbour, which is in the
    /// middle of its own; others, those of different warps at different places; then the same, after a wait.
    #[inline(always)]
    pub(super) fn next_shard(&self, class: SizeClass, shard: u32, turn: u32) -> u32 {
        let shards = self.layout.shards;
        if turn == 0 && shard ^ 1 < shards {
            return shard ^ 1;
        }
        if turn < HOPS {
            // Of a hash, so that no division is at each call.
            let place = (shard + thread::index_1d() / WARP_SIZE).wrapping_mul(SCATTER) >> 16;
            return (place * shards) >> 16;
        }
        self.await_span(class, shard);
        shard
    }

    /// Waits until no group is looking for the next span, or for long enough.
    #[inline(always)]
    fn await_span(&self, class: SizeClass, shard: u32) {
        let span = &self.cursor(class, shard).span;
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
