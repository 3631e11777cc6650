//! The root's counter: threads allocate by subtraction, and the one thread that crosses zero
//! settles the counter (I2, I3).

use super::handle::{Bump, POLL_NANOS, SETTLE_POLLS, SETTLE_ROOT, TAKE_ROOT};
use super::lease::Piece;
use super::state::{decode, encode};
use crate::thread;

impl Bump {
    /// Takes `wanted` granules from the root. If fewer are left, but at least `min`, takes up to
    /// `short`.
    ///
    /// Every access is relaxed: the counter publishes nothing but itself. The memory that it
    /// allocates had no owner since the reset, and the host orders the reset before the launch.
    #[inline(always)]
    pub(super) fn take_from_root(&self, wanted: u64, min: u64, short: u64) -> Piece {
        let counter = &self.root().remaining;
        for _ in 0..SETTLE_POLLS {
            match decode(counter.load_relaxed()) {
                Some(remaining) if remaining < min => return Piece::NOTHING,
                Some(_) => {}
                None => {
                    thread::nanosleep(POLL_NANOS);
                    continue;
                }
            }
            TAKE_ROOT.delay();
            // `None`: below zero; the crosser's store discards this subtraction (I2).
            let Some(remaining) = decode(counter.sub_relaxed(wanted)) else { continue };
            let start = self.granules - remaining;
            if remaining >= wanted {
                return Piece { start, len: wanted };
            }
            // This thread has crossed zero, so it owns the remainder (I2).
            let len = if remaining >= min { remaining.min(short) } else { 0 };
            SETTLE_ROOT.delay();
            // A swap, not a store: it continues the release sequences of earlier subtractions, so a
            // thread that reads this value synchronises with their LEND fences too.
            counter.swap_relaxed(encode(remaining - len));
            if len > 0 {
                return Piece { start, len };
            }
        }
        Piece::UNSETTLED
    }
}
