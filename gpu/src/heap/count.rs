//! A run's count: how many words of its bitmap have holes, and how many are whole.
//!
//! ```text
//! 31      16 15      0
//! | whole    | some   |
//! ```
//!
//! Whoever changes a word of the bitmap adds what that makes of the count, after it. So when no thread is between
//! the two, the count is exact; and a thread whose addition returns a count knows what the ones before it made.

const WHOLE: u32 = 1 << 16;

/// What a run's bitmap holds, or a difference of two such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u32);

impl Count {
    /// What a word of the bitmap adds to the count. `full` is the word of which all blocks are holes.
    #[inline(always)]
    pub const fn of(word: u32, full: u32) -> Self {
        Count((word != 0) as u32 + if word == full { WHOLE } else { 0 })
    }

    /// What to add when a word changes from `old` to `new`.
    #[inline(always)]
    pub const fn change(old: u32, new: u32, full: u32) -> Self {
        Count(Count::of(new, full).0.wrapping_sub(Count::of(old, full).0))
    }

    /// The two together.
    #[inline(always)]
    pub const fn plus(self, other: Count) -> Self {
        Count(self.0.wrapping_add(other.0))
    }

    /// Words with holes.
    #[inline(always)]
    pub const fn some(self) -> u32 {
        self.0 % WHOLE
    }

    /// Words of which all blocks are holes.
    #[inline(always)]
    pub const fn whole(self) -> u32 {
        self.0 / WHOLE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Count;

    #[test]
    fn changes_add_up() {
        let words = [0, 1, 0b11, 0b111, 0b110, 0b111, 0];
        let mut count = Count(0);
        for pair in words.windows(2) {
            count = count.plus(Count::change(pair[0], pair[1], 0b111));
            assert_eq!((count.some(), count.whole()), ((pair[1] != 0).into(), (pair[1] == 0b111).into()));
        }
    }
}
