//! A broken invariant: its number, its place and what was found there.

use crate::heap::class::SizeClass;
use core::fmt;

/// An invariant of the module [`heap`](crate::heap) that the metadata can show to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// The blocks left in a cursor are of its class, and in no other cursor.
    I1,
    /// A set bit is that of a block, which is in no cursor.
    I2,
    /// The entries of slabs agree with the runs, allocations and free slabs.
    I5,
    /// The bits and the count of a slab without a class are zero.
    I6,
    /// Counts, partial sets and idle sets agree with the bits.
    I7,
    /// No cursor is refilling.
    I8,
    /// Every scan of the whole heap has ended, and no group is counted as searching.
    I9,
    /// I2 of the sets of slabs: each word with slabs has its bit in the summary.
    SetsI2,
}

impl Invariant {
    /// `I1`, `I2`, ...
    pub const fn number(self) -> &'static str {
        match self {
            Invariant::I1 => "I1",
            Invariant::I2 => "I2",
            Invariant::I5 => "I5",
            Invariant::I6 => "I6",
            Invariant::I7 => "I7",
            Invariant::I8 => "I8",
            Invariant::I9 => "I9",
            Invariant::SetsI2 => "I2 of sets",
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// The class' entry of the class table differs from the heap's layout.
    ClassTable,
    /// The cursor has blocks of slabs outside the heap: its span ends before slab `end`.
    SpanOutside {
        /// The slab after the span.
        end: u32,
        /// Blocks left in the span.
        left: u32,
    },
    /// The cursor has blocks of a slab where no run of its class starts.
    SpanOfOther {
        /// The slab's entry.
        entry: u32,
    },
    /// The cursor has blocks of a run that are also in another cursor.
    SpanShared,
    /// The cursor has blocks, but its class is not marked as used.
    ClassUnnoted,
    /// The cursor is below zero, and no group will store its next span.
    SpanOwed {
        /// Blocks left in the span.
        left: i32,
    },
    /// The numbers of begun and ended searches for the cursor's next span differ.
    SearchOpen {
        /// Begun.
        begun: u64,
        /// Ended.
        ended: u64,
    },
    /// The numbers of begun and ended scans of the whole heap differ.
    ProofOpen {
        /// Begun.
        begun: u64,
        /// Ended.
        ended: u64,
    },
    /// Groups are counted as searching for spans of the class, but no thread is running.
    SeekersLeft {
        /// Number of groups.
        seekers: u32,
    },
    /// Blocks are marked as free, and are also in a cursor.
    HolesInCursor {
        /// Number of blocks.
        blocks: u32,
    },
    /// A word of the bitmap has bits beyond the last block.
    BitsBeyond {
        /// The word, from the slab's first.
        word: u32,
        /// The bits.
        bits: u32,
    },
    /// The entry is invalid, or is that of a later slab of a missing run or allocation.
    Orphan {
        /// The entry.
        entry: u32,
    },
    /// The run or allocation extends past the last slab.
    ReachesPastEnd {
        /// Its number of slabs by its entry.
        slabs: u32,
    },
    /// A slab inside a run or an allocation has another entry.
    Torn {
        /// The entry.
        entry: u32,
    },
    /// A free slab is neither in the free set nor fresh.
    Lost,
    /// A slab is in the free set and also fresh.
    FreeTwice,
    /// A slab is in the free set or fresh, but its entry is not that of a free slab.
    TakenAndFree {
        /// The entry.
        entry: u32,
    },
    /// A slab without memory is in the free set or fresh.
    Withheld,
    /// The shard's next fresh slab lies before its partition.
    FreshBeforePartition {
        /// That slab.
        next: u32,
    },
    /// A slab without a class has bits.
    BitsWithoutClass {
        /// The word, from the slab's first.
        word: u32,
        /// The bits.
        bits: u32,
    },
    /// A slab at which no run starts has a count.
    CountWithoutRun {
        /// The count.
        count: u64,
    },
    /// The count differs from the bits.
    Count {
        /// The count by the bits.
        bits: u64,
        /// The count.
        count: u64,
    },
    /// All blocks of the run are free, but it is not in its class' idle set.
    NotIdle,
    /// The run has free blocks, but is not in its class' partial set.
    NotPartial,
    /// The free set contains a slab outside the heap.
    FreeSlabOutside,
    /// An idle or partial set contains slabs outside the heap.
    NoteOutside {
        /// The last word of the set.
        bits: u32,
    },
    /// A word of the free set or of the class' partial set has slabs, but no bit in the summary.
    NotInSummary {
        /// The word.
        word: u32,
        /// Its slabs.
        bits: u32,
    },
}

impl Defect {
    /// The invariant that it breaks.
    pub const fn invariant(self) -> Invariant {
        match self {
            Defect::SpanOutside { .. } | Defect::SpanOfOther { .. } | Defect::SpanShared => Invariant::I1,
            Defect::ClassUnnoted => Invariant::I1,
            Defect::HolesInCursor { .. } | Defect::BitsBeyond { .. } => Invariant::I2,
            Defect::ClassTable | Defect::Orphan { .. } | Defect::ReachesPastEnd { .. } => Invariant::I5,
            Defect::Torn { .. } | Defect::Lost | Defect::FreeTwice | Defect::TakenAndFree { .. } => {
                Invariant::I5
            }
            Defect::Withheld | Defect::FreshBeforePartition { .. } | Defect::FreeSlabOutside => Invariant::I5,
            Defect::BitsWithoutClass { .. } => Invariant::I6,
            Defect::CountWithoutRun { .. } => Invariant::I6,
            Defect::Count { .. } | Defect::NotIdle | Defect::NotPartial => Invariant::I7,
            Defect::NoteOutside { .. } => Invariant::I7,
            Defect::SpanOwed { .. } => Invariant::I8,
            Defect::SearchOpen { .. } => Invariant::I8,
            Defect::ProofOpen { .. } | Defect::SeekersLeft { .. } => Invariant::I9,
            Defect::NotInSummary { .. } => Invariant::SetsI2,
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Defect::ClassTable => write!(f, "the class table differs from the layout"),
            Defect::SpanOutside { end, left } => {
                write!(f, "the cursor has {left} blocks before slab {end}, which is outside the heap")
            }
            Defect::SpanOfOther { entry } => {
                write!(
                    f,
                    "the cursor has blocks of a slab where no run of its class starts (entry {entry:#x})"
                )
            }
            Defect::SpanShared => write!(f, "the cursor has blocks that are also in another cursor"),
            Defect::ClassUnnoted => {
                write!(f, "the cursor has blocks, but its class is not marked as used")
            }
            Defect::SpanOwed { left } => {
                write!(f, "the cursor is at {left}, and no group will store its next span")
            }
            Defect::SearchOpen { begun, ended } => {
                write!(f, "{begun} searches for memory began and {ended} ended")
            }
            Defect::ProofOpen { begun, ended } => {
                write!(f, "{begun} scans of the whole heap began and {ended} ended")
            }
            Defect::SeekersLeft { seekers } => {
                write!(f, "{seekers} groups are counted as searching for its spans, but no thread is running")
            }
            Defect::HolesInCursor { blocks } => write!(f, "{blocks} blocks are free and in a cursor"),
            Defect::BitsBeyond { word, bits } => {
                write!(f, "word {word} of its bits has {bits:#x}, beyond the last block")
            }
            Defect::Orphan { entry } => write!(f, "its entry {entry:#x} belongs to no run and no allocation"),
            Defect::ReachesPastEnd { slabs } => {
                write!(f, "its {slabs} slabs extend past the end of the heap")
            }
            Defect::Torn { entry } => {
                write!(f, "it is inside a run or an allocation, but has the entry {entry:#x}")
            }
            Defect::Lost => write!(f, "it is free, but neither in the free set nor fresh"),
            Defect::FreeTwice => write!(f, "it is in the free set and also fresh"),
            Defect::TakenAndFree { entry } => {
                write!(f, "it is in the free set or fresh, but its entry {entry:#x} says that it is in use")
            }
            Defect::Withheld => write!(f, "it is in the free set or fresh, but has no memory"),
            Defect::FreshBeforePartition { next } => {
                write!(f, "the next fresh slab is {next}, which is before its partition")
            }
            Defect::BitsWithoutClass { word, bits } => {
                write!(f, "it has no class, but word {word} of its bits is {bits:#x}")
            }
            Defect::CountWithoutRun { count } => {
                write!(f, "no run starts there, but its count is {count:#x}")
            }
            Defect::Count { bits, count } => {
                write!(f, "its count is {count:#x}, but its bits give {bits:#x}")
            }
            Defect::NotIdle => write!(f, "all its blocks are free, but it is not in its class' idle set"),
            Defect::NotPartial => write!(f, "it has free blocks, but is not in its class' partial set"),
            Defect::FreeSlabOutside => write!(f, "it is in the free set, but outside the heap"),
            Defect::NoteOutside { bits } => {
                write!(f, "the last word of a set is {bits:#x}: slabs outside the heap")
            }
            Defect::NotInSummary { word, bits } => {
                write!(f, "word {word} of a set has slabs ({bits:#x}), but its bit in the summary is clear")
            }
        }
    }
}

/// A broken invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The slab, if the violation is of one.
    pub slab: Option<u32>,
    /// The size class, if the violation is of one.
    pub class: Option<SizeClass>,
    /// The shard of the cursor or the partition.
    pub shard: Option<u32>,
    /// What was found.
    pub found: Defect,
}

impl Violation {
    /// The invariant that is broken.
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
        if let Some(shard) = self.shard {
            write!(f, "shard {shard}, ")?;
        }
        write!(f, "{}", self.found)
    }
}
