//! The record of a block of a debug heap.
//!
//! ```text
//! 0  state    | 8  size | 16  site << 32 | front | 24  block << 32 | thread | 32  check sum |
//! ```
//!
//! The words are atomic, so that a thread that frees a block it does not own reads no torn word.
//! All words but the state are written before the block is passed to the user, and do not change
//! after that.

use super::{CANARY_LEAST, CANARY_MOST, POISON_MOST, Whole, fill::Stretch};
use crate::sync::AtomicU64;
use crate::thread;

/// Number of words of a record.
pub const RECORD_WORDS: usize = 5;
const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Allocated.
    Live = 0x4c49_5645_4c49_5645,
    /// Freed by the user and in quarantine.
    Quarantined = 0x5741_4954_5741_4954,
    /// Freed to the heap.
    Free = 0x4652_4545_4652_4545,
}

impl State {
    /// The word of this state in the record of the block at `start`. No other block has the same
    /// word.
    const fn word(self, start: u64, salt: u64) -> u64 {
        self as u64 ^ mixed(start ^ mixed(salt))
    }
}

/// The requested size, and the thread and the call site of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Requested bytes.
    pub size: u64,
    /// Number of bytes from the start of the block to the user's bytes.
    pub front: u32,
    /// The number of the call site in the [`SiteTable`](super::SiteTable); 0 if the table was full.
    pub site: u32,
    /// The index of the thread in its thread block.
    pub thread: u32,
    /// The index of the thread block in its grid.
    pub block: u32,
}

/// Number of bytes before the user's bytes, for an allocation aligned to `align`.
pub(super) const fn front_of(align: u64) -> u64 {
    (RECORD_BYTES + CANARY_LEAST).next_multiple_of(align)
}

impl Record {
    /// The record of an allocation by the calling thread.
    pub(super) fn new(size: u64, front: u64, site: u32) -> Self {
        let (thread, block) = (thread::index_in_block(), thread::block_index());
        Record { size, front: front as u32, site, thread, block }
    }

    fn words(self) -> [u64; 3] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [self.size, pair(self.site, self.front), pair(self.block, self.thread)]
    }

    /// The start and the end of the canaries before and after the user's bytes. The block starts at
    /// `start` and has `bytes` bytes, in which the record [fits](Self::fits).
    pub fn canaries(&self, start: u64, bytes: u64) -> [(u64, u64); 2] {
        let user = start + u64::from(self.front);
        let behind = user + self.size;
        let before = (start + RECORD_BYTES).max(user.saturating_sub(CANARY_MOST));
        [(before, user), (behind, (start + bytes).min(behind + CANARY_MOST))]
    }

    /// Whether the request fits in a block of `bytes` bytes.
    pub fn fits(&self, bytes: u64) -> bool {
        u64::from(self.front).checked_add(self.size).is_some_and(|end| end <= bytes)
    }

    /// Decodes the record and the state of the block at `start`, in a heap with this salt. `None`
    /// if the record was overwritten or does not exist.
    pub fn read(
        [state, size, call, by, sum]: [u64; RECORD_WORDS],
        start: u64,
        salt: u64,
    ) -> Option<(Self, State)> {
        let states = [State::Live, State::Quarantined, State::Free];
        let state = states.into_iter().find(|known| known.word(start, salt) == state)?;
        let (front, site) = (call as u32, (call >> 32) as u32);
        let record = Record { size, front, site, thread: by as u32, block: (by >> 32) as u32 };
        (check_sum(record.words(), start, salt) == sum).then_some((record, state))
    }
}

const fn check_sum([a, b, c]: [u64; 3], start: u64, salt: u64) -> u64 {
    mixed(a ^ mixed(b ^ mixed(c ^ mixed(start ^ salt))))
}

/// Mixes a word so that each bit affects every other bit: the finaliser of SplitMix64 (Steele, Lea,
/// Flood, OOPSLA 2014).
pub(super) const fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A block and the words of its record.
#[derive(Clone, Copy)]
pub(super) struct Recorded {
    pub whole: Whole,
    pub salt: u64,
}

impl Recorded {
    fn word(&self, i: usize) -> &AtomicU64 {
        debug_assert!(i < RECORD_WORDS);
        // SAFETY: the callers pass a block of the heap; every block of a debug heap has room for a
        // record.
        let word = unsafe { (self.whole.start as *const AtomicU64).add(i) };
        // SAFETY: the word is aligned, and lives as long as the heap.
        unsafe { &*word }
    }

    /// Writes the record. The calling thread has allocated the block from the heap.
    pub fn begin(&self, record: Record) {
        // Relaxed: the thread that frees the block received it from the caller, or reads by
        // mistake.
        let words = record.words();
        for (i, word) in words.into_iter().enumerate() {
            self.word(1 + i).store_relaxed(word);
        }
        self.word(4).store_relaxed(check_sum(words, self.whole.start, self.salt));
        self.word(0).store_relaxed(State::Live.word(self.whole.start, self.salt));
    }

    /// Reads the record and the state. `None` if the record was overwritten.
    pub fn read(&self) -> Option<(Record, State)> {
        // Relaxed: as in `begin`.
        let words = core::array::from_fn(|i| self.word(i).load_relaxed());
        let (record, state) = Record::read(words, self.whole.start, self.salt)?;
        record.fits(self.whole.bytes).then_some((record, state))
    }

    /// Changes the state. Of all threads that try, exactly one succeeds (D1).
    pub fn turn(&self, from: State, to: State) -> bool {
        let word = |state: State| state.word(self.whole.start, self.salt);
        // Relaxed: only selects the winner. The user orders the free after all uses. The slot of
        // the quarantine orders the writes of the thread that freed the block before the thread
        // that takes it out (D4).
        self.word(0).cas_relaxed(word(from), word(to)).is_ok()
    }

    /// The address of the user's bytes.
    pub fn user(&self, record: &Record) -> u64 {
        self.whole.start + u64::from(record.front)
    }

    /// The canaries before and after the user's bytes.
    pub fn canaries(&self, record: &Record) -> [Stretch; 2] {
        record.canaries(self.whole.start, self.whole.bytes).map(|(from, to)| Stretch { from, to })
    }

    /// The poisoned part of the user's bytes.
    pub fn poisoned(&self, record: &Record) -> Stretch {
        Stretch::new(self.user(record), record.size.min(POISON_MOST))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const RECORD: Record = Record { size: 77, front: 64, site: 3, thread: 5, block: 9 };

    fn words(start: u64, salt: u64) -> [u64; RECORD_WORDS] {
        let [a, b, c] = RECORD.words();
        [State::Live.word(start, salt), a, b, c, check_sum([a, b, c], start, salt)]
    }

    #[test]
    fn a_record_is_that_of_its_place_and_its_life_alone() {
        assert_eq!(Record::read(words(4096, 7), 4096, 7), Some((RECORD, State::Live)));
        assert_eq!(Record::read(words(4096, 7), 4160, 7), None);
        assert_eq!(Record::read(words(4096, 7), 4096, 8), None);
        assert_eq!(Record::read([0; RECORD_WORDS], 4096, 7), None);
    }

    #[test]
    fn every_byte_that_is_written_over_shows() {
        for (word, byte) in (0..RECORD_WORDS).flat_map(|word| (0..8).map(move |byte| (word, byte))) {
            let mut words = words(4096, 7);
            words[word] ^= 0x41 << (8 * byte);
            assert_eq!(Record::read(words, 4096, 7), None, "byte {byte} of word {word}");
        }
    }

    #[test]
    fn the_users_bytes_are_aligned_and_behind_record_and_canary() {
        for align in (3..=21).map(|log2| 1_u64 << log2) {
            let front = front_of(align);
            assert!(front.is_multiple_of(align) && front >= RECORD_BYTES + CANARY_LEAST);
            assert!(front < RECORD_BYTES + CANARY_LEAST + align);
        }
    }
}
