//! A run's count: of what class it is, how many words of its bitmap have holes, and how many are whole.
//!
//! ```text
//! 63   48 47   32   31     30    8 7     0
//! | whole | some | JOINED | pins  | class |
//! ```
//!
//! Whoever changes a word of the bitmap adds what that makes of the count, after it. So when no thread is between
//! the two, the count is exact. Before that, what was taken of a word may be subtracted sooner than the free of it is
//! added: `some` and `whole` are then below zero, by as much as is to come, and whoever adds last sees the truth. Of that
//! class and pins know nothing, which lie below.
//!
//! A *pin* keeps a run from being taken whole while a thread looks for a hole of it. `JOINED`: a word became full by
//! more than one free, so that not every one of those has changed the count. A count without a class is that of a slab
//! where no run starts, or of a run that one thread has taken whole to make its slabs free.

use super::class::SizeClass;

const PIN_SHIFT: u32 = 8;
const JOINED_SHIFT: u32 = 31;
const SOME_SHIFT: u32 = 32;
const WHOLE_SHIFT: u32 = 48;
const FIELD: u64 = 0xffff;
const CLASS: u64 = 0xff;

/// A summary of a run's bitmap, or the difference of two summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl Count {
    /// One more thread that searches for a free block.
    pub const PIN: Count = Count(1 << PIN_SHIFT);
    /// A word became fully free by more than one free.
    pub const JOINED: Count = Count(1 << JOINED_SHIFT);
    /// No change.
    pub const NONE: Count = Count(0);

    /// A run of the class without free blocks.
    #[inline(always)]
    pub const fn of_class(class: SizeClass) -> Self {
        Count(class.0 as u64 + 1)
    }

    /// `words` fully free words.
    #[inline(always)]
    pub const fn of_whole(words: u32) -> Self {
        Count((words as u64) << WHOLE_SHIFT | (words as u64) << SOME_SHIFT)
    }

    /// The contribution of a word of the bitmap to the count. `full` is the fully free word.
    #[inline(always)]
    pub const fn of(word: u32, full: u32) -> Self {
        Count(((word == full) as u64) << WHOLE_SHIFT | ((word != 0) as u64) << SOME_SHIFT)
    }

    /// The change of the count when a word changes from `old` to `new`.
    #[inline(always)]
    pub const fn change(old: u32, new: u32, full: u32) -> Self {
        Count::of(new, full).minus(Count::of(old, full))
    }

    /// The sum of the two.
    #[inline(always)]
    pub const fn plus(self, other: Count) -> Self {
        Count(self.0.wrapping_add(other.0))
    }

    /// The difference of the two.
    #[inline(always)]
    pub const fn minus(self, other: Count) -> Self {
        Count(self.0.wrapping_sub(other.0))
    }

    /// Whether a run of the class starts here.
    #[inline(always)]
    pub const fn is_of(self, class: SizeClass) -> bool {
        self.0 & CLASS == class.0 as u64 + 1
    }

    /// The class of the run that starts here, if one does.
    #[inline(always)]
    pub const fn class(self) -> Option<SizeClass> {
        let class = (self.0 & CLASS) as u32;
        if class == 0 { None } else { Some(SizeClass(class - 1)) }
    }

    /// Number of words with free blocks.
    #[inline(always)]
    pub const fn some(self) -> u32 {
        (self.0 >> SOME_SHIFT & FIELD) as u32
    }

    /// Number of fully free words.
    #[inline(always)]
    pub const fn whole(self) -> u32 {
        (self.0 >> WHOLE_SHIFT) as u32
    }

    /// The same, as if each word had become fully free by one free.
    #[inline(always)]
    pub const fn unjoined(self) -> Self {
        Count(self.0 & !Count::JOINED.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Count;
    use crate::heap::class::SizeClass;

    #[test]
    fn changes_add_up() {
        let words = [0, 1, 0b11, 0b111, 0b110, 0b111, 0];
        let mut count = Count::of_class(SizeClass(7)).plus(Count::PIN);
        for pair in words.windows(2) {
            count = count.plus(Count::change(pair[0], pair[1], 0b111));
            assert_eq!((count.some(), count.whole()), ((pair[1] != 0).into(), (pair[1] == 0b111).into()));
            assert!(count.is_of(SizeClass(7)) && !count.is_of(SizeClass(6)));
        }
        assert_eq!(count.minus(Count::PIN), Count::of_class(SizeClass(7)));
    }

    #[test]
    fn what_is_taken_before_its_free_is_added_leaves_class_and_pins_alone() {
        let run = Count::of_class(SizeClass(3)).plus(Count::PIN);
        for (old, new) in [(1, 0), (0b111, 0), (0b111, 0b110)] {
            let taken = run.plus(Count::change(old, new, 0b111));
            assert!(taken.is_of(SizeClass(3)) && taken != run);
            assert_eq!(taken.plus(Count::change(new, old, 0b111)), run);
            assert_eq!(taken.minus(Count::PIN).class(), Some(SizeClass(3)));
        }
        let none = Count::NONE.minus(Count::of(1, 2));
        assert_eq!((none.some(), none.plus(Count::of(1, 2)).some()), (0xffff, 0));
    }

    #[test]
    fn a_slab_without_a_run_is_of_no_class() {
        assert!((0..=255).all(|class| !Count::NONE.plus(Count::PIN).is_of(SizeClass(class))));
    }
}
