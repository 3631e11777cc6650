//! Kinds of faults and the checks that find them.

#[cfg(not(target_arch = "nvptx64"))]
use core::fmt;

/// A misuse by a thread, or corruption that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum FaultKind {
    /// A thread freed a block that was not allocated.
    DoubleFree = 1,
    /// A thread freed an address that is not inside the pool.
    ForeignFree = 2,
    /// A thread freed an address inside a block that is not its start.
    InteriorFree = 3,
    /// The free count of a region promised a block that its bitmap does not have.
    CountMismatch = 4,
    /// The global allocator was out of memory. The calling thread ended.
    OutOfMemory = 5,
    /// A thread used the global allocator of a module without a heap. The thread ended.
    NoGlobalHeap = 6,
    /// Debug heap: bytes after an allocation were overwritten; detected at its free.
    Overrun = 7,
    /// Debug heap: bytes before an allocation were overwritten; detected at its free. Without a
    /// [`detail`](super::Fault::detail), its record was overwritten too, or there was no allocation
    /// at the address.
    Underrun = 8,
    /// Debug heap: a block was written to after its free; detected when it left quarantine.
    WriteAfterFree = 9,
}

/// The check that found a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum FaultCheck {
    /// A freed address is not in the pool.
    Outside = 1,
    /// A freed address is not the start of a block.
    NotAStart = 2,
    /// Free list: the bit of a freed block was clear.
    BitWasClear = 3,
    /// Heap: the bit of a freed block was set.
    BitWasSet = 4,
    /// Heap: the entry of the slab of a freed address read `FREE`.
    EntryWasFree = 5,
    /// Heap: the entry of a freed large allocation changed before this thread could free it.
    EntryChanged = 6,
    /// Block cache: a freed block was in the thread's slots.
    InSlots = 7,
    /// Free list: a reservation did not lead to a clear bit in its region.
    NoClearBit = 8,
    /// The global allocator had no memory.
    NoMemory = 9,
    /// The global allocator had no heap.
    NoHeap = 10,
    /// Debug heap: the canary after an allocation was overwritten.
    CanaryAfter = 11,
    /// Debug heap: the canary before an allocation was overwritten.
    CanaryBefore = 12,
    /// Debug heap: at a free, the record of the allocation was not valid.
    InvalidRecord = 13,
    /// Debug heap: the record of a freed allocation did not say that it was live.
    NotLive = 14,
    /// Debug heap: poison or a canary was overwritten in quarantine.
    Poison = 15,
    /// Debug heap: the record was overwritten in quarantine.
    QuarantinedRecord = 16,
}

impl FaultCheck {
    /// Every check, with the kind of the faults that it finds.
    pub(super) const KINDS: [(FaultCheck, FaultKind); 16] = [
        (FaultCheck::Outside, FaultKind::ForeignFree),
        (FaultCheck::NotAStart, FaultKind::InteriorFree),
        (FaultCheck::BitWasClear, FaultKind::DoubleFree),
        (FaultCheck::BitWasSet, FaultKind::DoubleFree),
        (FaultCheck::EntryWasFree, FaultKind::DoubleFree),
        (FaultCheck::EntryChanged, FaultKind::DoubleFree),
        (FaultCheck::InSlots, FaultKind::DoubleFree),
        (FaultCheck::NoClearBit, FaultKind::CountMismatch),
        (FaultCheck::NoMemory, FaultKind::OutOfMemory),
        (FaultCheck::NoHeap, FaultKind::NoGlobalHeap),
        (FaultCheck::CanaryAfter, FaultKind::Overrun),
        (FaultCheck::CanaryBefore, FaultKind::Underrun),
        (FaultCheck::InvalidRecord, FaultKind::Underrun),
        (FaultCheck::NotLive, FaultKind::DoubleFree),
        (FaultCheck::Poison, FaultKind::WriteAfterFree),
        (FaultCheck::QuarantinedRecord, FaultKind::WriteAfterFree),
    ];
}

#[cfg(not(target_arch = "nvptx64"))]
impl fmt::Display for FaultCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultCheck::Outside => "the address is not in the pool",
            FaultCheck::NotAStart => "no block starts at the address",
            FaultCheck::BitWasClear => "the block's bit was clear",
            FaultCheck::BitWasSet => "the block's bit was set",
            FaultCheck::EntryWasFree => "the slab's entry read FREE",
            FaultCheck::EntryChanged => "the slab's entry had changed",
            FaultCheck::InSlots => "the block was in the thread's slots",
            FaultCheck::NoClearBit => "the region had no clear bit",
            FaultCheck::NoMemory => "the heap was out of memory",
            FaultCheck::NoHeap => "no heap was set",
            FaultCheck::CanaryAfter | FaultCheck::CanaryBefore => "a canary was overwritten",
            FaultCheck::InvalidRecord => "the record was not valid",
            FaultCheck::NotLive => "the record was not of a live allocation",
            FaultCheck::Poison => "poison was overwritten",
            FaultCheck::QuarantinedRecord => "the record was overwritten in quarantine",
        })
    }
}
