//! A broken invariant: its number, where, and what was found there.

use crate::heap::class::SizeClass;
use core::fmt;

/// An invariant at the head of [`heap`](crate::heap), as far as metadata can show that it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// What a cursor has left is blocks of its class, and in no other cursor.
    I1,
    /// A hole is a block, and in no cursor.
    I2,
    /// A slab is what its entry says.
    I5,
    /// The bits and the count of a slab without a class are zero.
    I6,
    /// Counts, partial sets and idle runs follow from the bits.
    I7,
    /// No cursor waits for its next span, and none is searched for.
    I8,
    /// Every search of the whole heap has ended, and no one is counted who looks for memory.
    I9,
    /// I2 of the sets of slabs: a word with slabs has its bit in the summary.
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
    /// The class' block size and run are not those of the heap's layout.
    ClassTable,
    /// The cursor has blocks of slabs that the heap does not have: its span ends before slab `end`.
    SpanOutside {
        /// The slab behind the span.
        end: u32,
        /// Blocks left of it.
        left: u32,
    },
    /// The cursor has blocks of a slab at which no run of its class starts.
    SpanOfOther {
        /// The slab's entry.
        entry: u32,
    },
    /// The cursor has blocks of a run that another cursor has, too.
    SpanShared,
    /// The cursor has blocks, and its class is not noted as one that has.
    ClassUnnoted,
    /// The cursor is below zero, and no one is left to store the next span.
    SpanOwed {
        /// What is left.
        left: i32,
    },
    /// Searches for the cursor's next span that began, and those that ended.
    SearchOpen {
        /// Begun.
        begun: u64,
        /// Ended.
        ended: u64,
    },
    /// Searches of the whole heap that began, and those that ended.
    ProofOpen {
        /// Begun.
        begun: u64,
        /// Ended.
        ended: u64,
    },
    /// Groups that are said to look for the class' next spans.
    SeekersLeft {
        /// How many.
        seekers: u32,
    },
    /// Blocks that are holes are in a cursor, too.
    HolesInCursor {
        /// How many.
        blocks: u32,
    },
    /// A word of the bitmap has bits that no block has.
    BitsBeyond {
        /// The word, from the slab's first.
        word: u32,
        /// The bits.
        bits: u32,
    },
    /// The entry is none, or that of a later slab of a run or of an allocation that is not there.
    Orphan {
        /// The entry.
        entry: u32,
    },
    /// The run or the allocation reaches past the last slab.
    ReachesPastEnd {
        /// How many slabs it should have.
        slabs: u32,
    },
    /// A slab in the middle of a run or of an allocation has another entry.
    Torn {
        /// The entry.
        entry: u32,
    },
    /// A free slab is neither in the free set nor in a partition of those that no one has had.
    Lost,
    /// A slab is in the free set and in a partition of those that no one has had.
    FreeTwice,
    /// A slab is in the free set, or in a partition of those that no one has had, and its entry is another.
    TakenAndFree {
        /// The entry.
        entry: u32,
    },
    /// A slab that has no memory yet is where a thread would take it.
    Withheld,
    /// The next slab of the shard's partition that no one has had lies before the partition.
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
    /// The count is not that of the bits.
    Count {
        /// What the bits say.
        bits: u64,
        /// The count.
        count: u64,
    },
    /// All blocks of the run are holes, and it is not among the idle ones.
    NotIdle,
    /// The run has holes, and is not in its class' partial set.
    NotPartial,
    /// The free set has a slab that the heap does not have.
    FreeSlabOutside,
    /// Slabs that the heap does not have are noted as idle or partial.
    NoteOutside {
        /// The last word of the set.
        bits: u32,
    },
    /// A word of the free set, or of the class' partial set, has slabs that the summary does not know of.
    NotInSummary {
        /// The word.
        word: u32,
        /// Its slabs.
        bits: u32,
    },
}

impl Defect {
    /// What it breaks.
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
            Defect::ClassTable => write!(f, "what the table says of the class is not what the layout says"),
            Defect::SpanOutside { end, left } => {
                write!(f, "the cursor has {left} blocks before slab {end}, which the heap does not have")
            }
            Defect::SpanOfOther { entry } => {
                write!(
                    f,
                    "the cursor has blocks of a slab that is no run of its class (its entry is {entry:#x})"
                )
            }
            Defect::SpanShared => write!(f, "the cursor has blocks that another cursor has, too"),
            Defect::ClassUnnoted => {
                write!(f, "the cursor has blocks, and no bit says that the class has any")
            }
            Defect::SpanOwed { left } => {
                write!(f, "the cursor is at {left}, and no group is left that would store its next span")
            }
            Defect::SearchOpen { begun, ended } => {
                write!(f, "{begun} searches for memory began and {ended} ended")
            }
            Defect::ProofOpen { begun, ended } => {
                write!(f, "{begun} searches of the whole heap began and {ended} ended")
            }
            Defect::SeekersLeft { seekers } => {
                write!(f, "{seekers} groups look for its spans, and no thread is left")
            }
            Defect::HolesInCursor { blocks } => write!(f, "{blocks} blocks are holes and in a cursor"),
            Defect::BitsBeyond { word, bits } => {
                write!(f, "word {word} of its bits has {bits:#x}, which no block has")
            }
            Defect::Orphan { entry } => write!(f, "its entry {entry:#x} belongs to no run and no allocation"),
            Defect::ReachesPastEnd { slabs } => write!(f, "its {slabs} slabs reach past the end of the heap"),
            Defect::Torn { entry } => {
                write!(f, "it lies inside of a run or of an allocation, and has the entry {entry:#x}")
            }
            Defect::Lost => write!(f, "it is free, and no one would find it"),
            Defect::FreeTwice => write!(f, "it is in the free set, and in a partition that no one has had"),
            Defect::TakenAndFree { entry } => {
                write!(f, "it is free to be taken, and its entry {entry:#x} says that it is in use")
            }
            Defect::Withheld => write!(f, "it is free to be taken, where the heap has no memory"),
            Defect::FreshBeforePartition { next } => {
                write!(f, "slab {next} would be next, which lies before its partition")
            }
            Defect::BitsWithoutClass { word, bits } => {
                write!(f, "it has no class, and word {word} of its bits is {bits:#x}")
            }
            Defect::CountWithoutRun { count } => {
                write!(f, "no run starts there, and its count is {count:#x}")
            }
            Defect::Count { bits, count } => write!(f, "its count is {count:#x}, and its bits say {bits:#x}"),
            Defect::NotIdle => write!(f, "all its blocks are holes, and it is not among the idle runs"),
            Defect::NotPartial => write!(f, "it has holes, and is not in its class' partial set"),
            Defect::FreeSlabOutside => write!(f, "the free set has it, and the heap has not"),
            Defect::NoteOutside { bits } => {
                write!(f, "the last word of a set is {bits:#x}: slabs that the heap does not have")
            }
            Defect::NotInSummary { word, bits } => {
                write!(f, "word {word} of a set has slabs ({bits:#x}), and its summary says that it has none")
            }
        }
    }
}

/// A broken invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The slab in question, if it is one.
    pub slab: Option<u32>,
    /// The class in question.
    pub class: Option<SizeClass>,
    /// The shard whose cursor or share it is.
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
