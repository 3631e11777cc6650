//! Moves: operations under way that hide free memory of a class, or free slabs, for a moment.
//!
//! ```text
//! 63      32 31       0
//! | begun   | open     |
//! ```
//!
//! A search finds free memory by hints: the sets of runs and of slabs. A thread that changes a
//! hint, or that holds more memory than it allocates, begins a move first and ends it when the
//! hints are complete again.
//!
//! - I1. `open` is the number of moves that have begun and not ended.
//! - I2. If a search reads the same word before and after, apart from its own moves, and `open` is
//!   zero, then no move by another thread overlapped the search.
//!
//! Any thread may add. Wait-free.

use super::{MOVE, SEARCH};
use crate::sync::AtomicU64;

/// In the high half, where the carry of its wrap is lost.
const BEGUN: u64 = 1 << 32;

/// The word. Initially zero. In a sector of the cache of its own, to avoid false sharing.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Moves(AtomicU64);

/// The state of a [`Moves`] at the start of a search, adjusted for the search's own moves. The
/// default is for a search that proves nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Before(u64);

impl Before {
    /// Accounts for moves by the searching threads themselves.
    pub fn note_own(&mut self, moves: u32) {
        self.0 = self.0.wrapping_add(u64::from(moves) << 32);
    }
}

impl Moves {
    #[cfg(not(target_arch = "nvptx64"))]
    /// No move has begun.
    pub fn new() -> Self {
        Moves(AtomicU64::new(0))
    }

    /// Number of moves that have begun and not ended.
    pub fn open(&self) -> u32 {
        self.0.load_relaxed() as u32
    }

    /// Begins a move. Relaxed: each step of the move that hides memory releases.
    #[inline(always)]
    pub(super) fn begin(&self) {
        self.0.add_relaxed(BEGUN + 1);
    }

    /// Ends a move.
    #[inline(always)]
    pub(super) fn end(&self) {
        // ordering: release; pairs with `search`: the completed hints before the end.
        self.0.at(MOVE).sub_release(1);
    }

    /// Runs `f` as a move.
    #[inline(always)]
    pub(super) fn during<R>(&self, f: impl FnOnce() -> R) -> R {
        self.begin();
        let result = f();
        self.end();
        result
    }

    /// To be called before a search.
    pub(super) fn search(&self) -> Before {
        // ordering: acquire; pairs with `end`: a search reads the hints after every move that ended.
        Before(self.0.at(SEARCH).load_acquire())
    }

    /// Whether no move by another thread overlapped the search (I2). A fence must be between the
    /// search's reads and this call.
    pub(super) fn is_unchanged(&self, before: Before) -> bool {
        // Relaxed: the fence orders it behind the reads of the search.
        before.0 as u32 == 0 && self.0.load_relaxed() == before.0
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for Moves {
    fn default() -> Self {
        Moves::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_moves_wraps_without_a_carry() {
        let moves = Moves(AtomicU64::new(u64::from(u32::MAX) << 32));
        let before = moves.search();
        moves.during(|| assert_eq!(moves.open(), 1));
        assert_eq!(moves.open(), 0);
        assert!(!moves.is_unchanged(before) && moves.is_unchanged(moves.search()));
        let mut own = before;
        own.note_own(1);
        assert!(moves.is_unchanged(own));
    }
}
