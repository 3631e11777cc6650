//! The log of faults on the device, which the host reads after the launch.
//!
//! ```text
//! FaultLog  | count | entry 0 | entry 1 | ... | entry 63 |
//! entry     | check, thread | block | address | detail | clock | has, SM |
//!           | word | entry of the slab | the same two about 1 ms later |
//! ```
//!
//! I1. `count` is the number of faults since the last reset; entries `0..min(count, 64)` hold the
//! first ones.
//! I2. Entry `i` is written by the thread that got `i` from its increment of `count`.
//!
//! The host reads after the kernel has ended, which orders every write before the read. Bounded:
//! the threads of the first 64 faults wait for about a millisecond, at most 2^12 naps, and read the
//! words again, which shows whether another thread was about to write them.

use crate::sync::{AtomicU64, NATIVE_LAYOUT};
use crate::thread;
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
    /// [`detail`](Fault::detail), its record was overwritten too, or there was no allocation at the
    /// address.
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

/// The number of faults kept in full. Later ones are only counted. Few under loom, which makes each
/// word anew for every run.
pub const FAULT_ENTRIES: usize = if NATIVE_LAYOUT { 64 } else { 2 };

/// The time after which a thread that recorded a fault reads the words again.
const LATER_NANOS: u32 = 1_000_000;
/// Several times the naps in that time, so that a replay, whose clock counts steps, ends sooner.
const LATER_NAPS: u32 = 1 << 12;

/// Words of the metadata that a check of a block looked at. `None` for a check that looks at none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenWords {
    /// The word of the bitmap with the block's bit. For [`FaultCheck::NoClearBit`], the region's
    /// cursor and count.
    pub word: Option<u64>,
    /// Heap: the entry of the slab; of the first slab of the run for [`FaultCheck::BitWasSet`].
    pub entry: Option<u64>,
}

impl SeenWords {
    /// No words.
    pub const NONE: SeenWords = SeenWords { word: None, entry: None };

    #[inline(always)]
    fn pack(self) -> (u32, [u64; 2]) {
        let has = u32::from(self.word.is_some()) | u32::from(self.entry.is_some()) << 1;
        (has, [self.word.unwrap_or(0), self.entry.unwrap_or(0)])
    }

    fn unpack(has: u32, [word, entry]: [u64; 2]) -> Self {
        SeenWords { word: (has & 1 != 0).then_some(word), entry: (has & 2 != 0).then_some(entry) }
    }
}

/// One fault, as the host reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The check that found it.
    pub check: FaultCheck,
    /// The thread's index in its block.
    pub thread: u32,
    /// The block's index in its grid.
    pub block: u32,
    /// The address in question; 0 if there is none. For [`FaultKind::Overrun`],
    /// [`FaultKind::Underrun`] and [`FaultKind::WriteAfterFree`]: the first byte that was
    /// overwritten.
    pub address: u64,
    /// The index of the pool's block in question. The region for [`FaultKind::CountMismatch`]. The
    /// requested bytes for [`FaultKind::OutOfMemory`] and [`FaultKind::NoGlobalHeap`]. The number
    /// of the allocation's site, or 0, for faults that a debug heap detects.
    pub detail: u64,
    /// The multiprocessor of the thread.
    pub sm: u32,
    /// When the fault was recorded: nanoseconds of the clock that all multiprocessors share
    /// (`%globaltimer`); in a replay on the CPU, steps.
    pub nanos: u64,
    /// The words that the check looked at. The word of [`FaultCheck::BitWasSet`] is as the check
    /// read it; others are read just after the check.
    pub seen: SeenWords,
    /// The words read again about a millisecond later; in a replay on the CPU, some steps later.
    pub later: SeenWords,
}

/// Words of an entry.
const ENTRY_WORDS: usize = 10;

/// The number of words of a [`FaultLog`] in device memory.
pub const FAULT_LOG_WORDS: usize = 1 + ENTRY_WORDS * FAULT_ENTRIES;

/// The log, in device memory. All zeros is an empty log.
#[derive(Debug)]
#[repr(C)]
pub struct FaultLog {
    count: AtomicU64,
    entries: [[AtomicU64; ENTRY_WORDS]; FAULT_ENTRIES],
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<FaultLog>() == 8 * FAULT_LOG_WORDS);
const _: () = assert!(!NATIVE_LAYOUT || align_of::<FaultLog>() == 8);

#[cfg(not(target_arch = "nvptx64"))]
impl Default for FaultLog {
    fn default() -> Self {
        FaultLog::from_words(&[0; FAULT_LOG_WORDS])
    }
}

impl FaultLog {
    #[cfg(not(target_arch = "nvptx64"))]
    /// Decodes the representation in device memory, which the host has read.
    pub fn from_words(words: &[u64; FAULT_LOG_WORDS]) -> Self {
        let word = |i: usize| AtomicU64::new(words[i]);
        let entry = |i: usize| core::array::from_fn(|part| word(1 + ENTRY_WORDS * i + part));
        FaultLog { count: word(0), entries: core::array::from_fn(entry) }
    }

    /// Records a fault of the calling thread, found by a check of no words.
    #[cold]
    pub fn record(&self, check: FaultCheck, address: u64, detail: u64) {
        self.begin(check, address, detail);
    }

    /// Records a fault of the calling thread, with the words that the check `seen`. If the fault is
    /// kept, the thread waits for about a millisecond and reads the words again by `again`.
    ///
    /// Calls no function, so that a caller off the fast path which does nothing else saves no
    /// registers.
    #[inline(always)]
    pub fn record_words(
        &self,
        check: FaultCheck,
        address: u64,
        detail: u64,
        seen: impl FnOnce() -> SeenWords,
        again: impl FnOnce() -> SeenWords,
    ) {
        let Some(entry) = self.begin(check, address, detail) else { return };
        let (has, [word, slab]) = seen().pack();
        entry[5].store_relaxed(u64::from(has) << 32 | u64::from(thread::sm_id()));
        entry[6].store_relaxed(word);
        entry[7].store_relaxed(slab);
        if NATIVE_LAYOUT {
            thread::wait(LATER_NANOS, LATER_NAPS);
        }
        let (_, [word, slab]) = again().pack();
        entry[8].store_relaxed(word);
        entry[9].store_relaxed(slab);
    }

    /// Counts a fault. Returns its entry, without words, if there is one.
    #[inline(always)]
    fn begin(&self, check: FaultCheck, address: u64, detail: u64) -> Option<&[AtomicU64; ENTRY_WORDS]> {
        // Relaxed: the count only assigns entries (I2); the end of the kernel orders them for the
        // host.
        let i = self.count.add_relaxed(1);
        let entry = self.entries.get(i as usize)?;
        entry[0].store_relaxed(u64::from(check as u32) << 32 | u64::from(thread::index_in_block()));
        entry[1].store_relaxed(thread::block_index().into());
        entry[2].store_relaxed(address);
        entry[3].store_relaxed(detail);
        entry[5].store_relaxed(thread::sm_id().into());
        entry[4].store_relaxed(thread::global_timer_nanos());
        Some(entry)
    }

    /// The number of faults since the last reset.
    pub fn count(&self) -> u64 {
        self.count.load_relaxed()
    }

    /// The faults kept in full, in the order of recording.
    pub fn faults(&self) -> impl Iterator<Item = Fault> + '_ {
        let kept = self.count().min(FAULT_ENTRIES as u64) as usize;
        self.entries[..kept].iter().filter_map(|entry| {
            let [packed, block, address, detail, nanos, has, seen @ .., a, b] =
                entry.each_ref().map(AtomicU64::load_relaxed);
            let is_this = |(check, _): &(FaultCheck, FaultKind)| u64::from(*check as u32) == packed >> 32;
            let (check, kind) = FaultCheck::KINDS.into_iter().find(is_this)?;
            let words = |words| SeenWords::unpack((has >> 32) as u32, words);
            Some(Fault {
                kind,
                check,
                thread: packed as u32,
                block: block as u32,
                address,
                detail,
                sm: has as u32,
                nanos,
                seen: words(seen),
                later: words([a, b]),
            })
        })
    }
}
