//! Violation: the violated invariant, the location, and what was found.

use crate::heap::layout::class::SizeClass;
use core::fmt;

/// An invariant of a structure of the heap that the metadata can violate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// The bits of a run are those of its blocks; other slabs have none.
    Runs1,
    /// The entries of slabs agree with the runs, allocations and free slabs.
    Runs2,
    /// The count of a run is its number of fully free words.
    Runs4,
    /// A run with a free block is listed.
    Runs5,
    /// A fully free run is idle.
    Runs6,
    /// The free slabs with memory are those of the free set.
    Slabs1,
    /// A set contains only slabs of the heap.
    Sets1,
    /// A nonzero word of a set has its bit in the level above.
    Sets2,
    /// A span lies in the heap.
    Cursors,
    /// The group that crossed the end of a span replaces it.
    Cursors2,
    /// Every move has ended.
    Moves1,
}

impl Invariant {
    /// Its number and its structure, as in `I1 of runs`.
    pub const fn number(self) -> &'static str {
        match self {
            Invariant::Runs1 => "I1 of runs",
            Invariant::Runs2 => "I2 of runs",
            Invariant::Runs4 => "I4 of runs",
            Invariant::Runs5 => "I5 of runs",
            Invariant::Runs6 => "I6 of runs",
            Invariant::Slabs1 => "I1 of slabs",
            Invariant::Sets1 => "I1 of sets",
            Invariant::Sets2 => "I2 of sets",
            Invariant::Cursors => "cursors",
            Invariant::Cursors2 => "I2 of cursors",
            Invariant::Moves1 => "I1 of moves",
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// The entry of the class in the class table differs from the heap's layout.
    ClassTable,
    /// The span of a cursor ends outside the heap.
    SpanOutside {
        /// The slab after the span.
        end: u32,
    },
    /// A group crossed the end of a cursor's span and did not replace it.
    SpanNotReplaced {
        /// The number of tickets beyond the end.
        beyond: u32,
    },
    /// Moves are open, but no thread is running.
    MoveOpen {
        /// Number of moves.
        open: u32,
    },
    /// A word of the bitmap has bits beyond the last block.
    BitsBeyond {
        /// The word, counted from the slab's first.
        word: u32,
        /// The bits.
        bits: u32,
    },
    /// A slab without a class has bits.
    BitsWithoutClass {
        /// The word, counted from the slab's first.
        word: u32,
        /// The bits.
        bits: u32,
    },
    /// The entry is invalid, or belongs to a later slab of a missing run or allocation.
    Orphan {
        /// The entry.
        entry: u32,
    },
    /// The run or allocation extends past the last slab.
    ReachesPastEnd {
        /// Its number of slabs according to its entry.
        slabs: u32,
    },
    /// A slab inside a run or an allocation has a different entry.
    Torn {
        /// The entry.
        entry: u32,
    },
    /// The count differs from the number of fully free words.
    Count {
        /// The number of fully free words.
        bits: u32,
        /// The count.
        count: u32,
    },
    /// A slab at which no run starts has a count.
    CountWithoutRun {
        /// The count.
        count: u32,
    },
    /// The run has free blocks but is not listed.
    NotListed,
    /// All blocks of the run are free, but it is not idle.
    NotIdle,
    /// A free slab is not in the free set.
    Lost,
    /// A slab is in the free set, but its entry is not that of a free slab.
    TakenAndFree {
        /// The entry.
        entry: u32,
    },
    /// A slab without memory is in the free set.
    Withheld,
    /// A set contains a slab outside the heap.
    SlabOutside {
        /// The slab.
        slab: u32,
    },
    /// A word of a set is nonzero, but its bit in the level above is clear.
    NotRaised {
        /// The level.
        level: u32,
        /// The word, counted from the first of the level.
        word: u32,
    },
}

impl Defect {
    /// The violated invariant.
    pub const fn invariant(self) -> Invariant {
        match self {
            Defect::BitsBeyond { .. } | Defect::BitsWithoutClass { .. } => Invariant::Runs1,
            Defect::ClassTable
            | Defect::Orphan { .. }
            | Defect::ReachesPastEnd { .. }
            | Defect::Torn { .. } => Invariant::Runs2,
            Defect::Count { .. } | Defect::CountWithoutRun { .. } => Invariant::Runs4,
            Defect::NotListed => Invariant::Runs5,
            Defect::NotIdle => Invariant::Runs6,
            Defect::Lost | Defect::TakenAndFree { .. } | Defect::Withheld => Invariant::Slabs1,
            Defect::SlabOutside { .. } => Invariant::Sets1,
            Defect::NotRaised { .. } => Invariant::Sets2,
            Defect::SpanOutside { .. } => Invariant::Cursors,
            Defect::SpanNotReplaced { .. } => Invariant::Cursors2,
            Defect::MoveOpen { .. } => Invariant::Moves1,
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Defect::ClassTable => write!(f, "the class table differs from the layout"),
            Defect::SpanNotReplaced { beyond } => {
                write!(f, "{beyond} tickets beyond the end of a cursor's span")
            }
            Defect::SpanOutside { end } => {
                write!(f, "a span ends before slab {end}, which is outside the heap")
            }
            Defect::MoveOpen { open } => write!(f, "{open} moves are open, but no thread is running"),
            Defect::BitsBeyond { word, bits } => {
                write!(f, "word {word} of its bits has {bits:#x}, beyond the last block")
            }
            Defect::BitsWithoutClass { word, bits } => {
                write!(f, "it has no class, but word {word} of its bits is {bits:#x}")
            }
            Defect::Orphan { entry } => write!(f, "its entry {entry:#x} belongs to no run and no allocation"),
            Defect::ReachesPastEnd { slabs } => {
                write!(f, "its {slabs} slabs extend past the end of the heap")
            }
            Defect::Torn { entry } => {
                write!(f, "it is inside a run or an allocation, but has the entry {entry:#x}")
            }
            Defect::Count { bits, count } => {
                write!(f, "its count is {count}, but {bits} words of its bits are fully free")
            }
            Defect::CountWithoutRun { count } => write!(f, "no run starts there, but its count is {count}"),
            Defect::NotListed => write!(f, "it has free blocks, but is not listed"),
            Defect::NotIdle => write!(f, "all its blocks are free, but it is not idle"),
            Defect::Lost => write!(f, "it is free, but not in the free set"),
            Defect::TakenAndFree { entry } => {
                write!(f, "it is in the free set, but its entry {entry:#x} says that it is in use")
            }
            Defect::Withheld => write!(f, "it is in the free set, but has no memory"),
            Defect::SlabOutside { slab } => {
                write!(f, "a set contains slab {slab}, which is outside the heap")
            }
            Defect::NotRaised { level, word } => write!(
                f,
                "word {word} of level {level} of a set is nonzero, but its bit in the level above is clear"
            ),
        }
    }
}

/// A violated invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The slab, if the violation concerns one.
    pub slab: Option<u32>,
    /// The size class, if the violation concerns one.
    pub class: Option<SizeClass>,
    /// What was found.
    pub found: Defect,
}

impl Violation {
    /// The violated invariant.
    pub const fn invariant(&self) -> Invariant {
        self.found.invariant()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(slab) = self.slab {
            write!(f, "slab {slab}, ")?;
        }
        if let Some(class) = self.class {
            write!(f, "class {} ({} B), ", class.0, class.bytes())?;
        }
        write!(f, "{}", self.found)
    }
}
