//! Fills ranges of memory with a byte, and finds the first byte that differs.
//!
//! All accesses use `peek` and `poke`: another thread may write the memory by mistake at the same
//! time.

use crate::sync::{peek_u8, peek_u64, poke_u8, poke_u64};

const WORD: u64 = 8;

/// Number of words that are compared at once, so that their loads overlap.
const AT_ONCE: u64 = 4;

/// A range of addresses in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub from: u64,
    pub to: u64,
}

impl Stretch {
    pub fn new(from: u64, bytes: u64) -> Self {
        Stretch { from, to: from + bytes }
    }

    /// The start and the end of its aligned words. Both are equal if it has none.
    fn words(self) -> (u64, u64) {
        let first = self.from.next_multiple_of(WORD).min(self.to);
        (first, (self.to & !(WORD - 1)).max(first))
    }

    /// Sets every byte to `byte`.
    ///
    /// # Safety
    /// The range is live memory of the heap, and the calling thread owns it.
    pub unsafe fn fill(self, byte: u8) {
        let (first, last) = self.words();
        // At most seven bytes before the words, and at most seven after them.
        for at in (self.from..first).chain(last..self.to) {
            // SAFETY: the caller's promise.
            unsafe { poke_u8(at as *mut u8, byte) };
        }
        let mut at = first;
        while at < last {
            // SAFETY: the caller's promise; `at` is a multiple of 8.
            unsafe { poke_u64(at as *mut u64, repeated(byte)) };
            at += WORD;
        }
    }

    /// The address of the first byte that is not `byte`.
    ///
    /// # Safety
    /// The range is live memory of the heap.
    pub unsafe fn first_other(self, byte: u8) -> Option<u64> {
        let (first, last) = self.words();
        // SAFETY: the caller's promise.
        let before = unsafe { other_byte(self.from, first, byte) };
        // SAFETY: as above; multiples of 8.
        before.or_else(|| unsafe { other_in_words(first, last, byte) }).or_else(|| {
            // SAFETY: as above.
            unsafe { other_byte(last, self.to, byte) }
        })
    }
}

const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; WORD as usize])
}

/// # Safety
/// The range is live memory.
unsafe fn other_byte(from: u64, to: u64, byte: u8) -> Option<u64> {
    // SAFETY: the caller's promise.
    (from..to).find(|at| unsafe { peek_u8(*at as *const u8) } != byte)
}

/// # Safety
/// The range is live memory, from one multiple of 8 to another.
unsafe fn other_in_words(from: u64, to: u64, byte: u8) -> Option<u64> {
    let mut at = from;
    while at < to {
        let next = (at + AT_ONCE * WORD).min(to);
        let (mut word, mut other) = (at, 0);
        while word < next {
            // SAFETY: the caller's promise.
            other |= unsafe { peek_u64(word as *const u64) } ^ repeated(byte);
            word += WORD;
        }
        if other != 0 {
            // SAFETY: the caller's promise.
            return unsafe { other_byte(at, next, byte) };
        }
        at = next;
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_filled_and_looked_at_and_no_other() {
        let mut memory = [0_u64; 16];
        let base = memory.as_mut_ptr() as u64;
        for (from, to) in (0..100).flat_map(|from| (from..=100).map(move |to| (from, to))) {
            let stretch = Stretch { from: base + from, to: base + to };
            let whole = Stretch { from: base, to: base + 128 };
            // SAFETY: the range is in `memory`.
            unsafe { whole.fill(1) };
            // SAFETY: as above.
            unsafe { stretch.fill(2) };
            // SAFETY: as above.
            let other = unsafe { stretch.first_other(2) };
            // SAFETY: as above.
            let filled = (0..128).filter(|at| unsafe { peek_u8((base + at) as *const u8) } == 2);
            assert!(other.is_none() && filled.eq(from..to), "{from}..{to}");
            for at in [from, (from + to) / 2, to.saturating_sub(1)].into_iter().filter(|_| to > from) {
                // SAFETY: as above.
                unsafe { poke_u8((base + at) as *mut u8, 3) };
                // SAFETY: as above.
                assert_eq!(unsafe { stretch.first_other(2) }, Some(base + at), "{from}..{to}");
                // SAFETY: as above.
                unsafe { poke_u8((base + at) as *mut u8, 2) };
            }
        }
    }
}
