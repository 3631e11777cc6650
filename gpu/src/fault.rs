//! The log of faults on the device, which the host reads after the launch.
//!
//! ```text
//! FaultLog  | count | entry 0 | entry 1 | ... | entry 63 |
//! entry     | kind, thread | block | address | detail |
//! ```
//!
//! I1. `count` is the number of faults since the last reset; entries `0..min(count, 64)` hold the
//! first ones.
//! I2. Entry `i` is written once, by the thread that got `i` from its increment of `count`.
//!
//! The host reads after the kernel has ended, which orders every write before the read. Wait-free.

use crate::sync::{AtomicU64, NATIVE_LAYOUT};
use crate::thread;

/// The number of faults kept in full. Later ones are only counted.
pub const FAULT_ENTRIES: usize = 64;

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

impl FaultKind {
    /// Every kind.
    const ALL: [FaultKind; 9] = [
        FaultKind::DoubleFree,
        FaultKind::ForeignFree,
        FaultKind::InteriorFree,
        FaultKind::CountMismatch,
        FaultKind::OutOfMemory,
        FaultKind::NoGlobalHeap,
        FaultKind::Overrun,
        FaultKind::Underrun,
        FaultKind::WriteAfterFree,
    ];

    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == code)
    }
}

/// One fault, as the host reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
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
}

/// Words of an entry.
const ENTRY_WORDS: usize = 4;

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

    /// Records a fault of the calling thread.
    #[cold]
    pub fn record(&self, kind: FaultKind, address: u64, detail: u64) {
        // Relaxed: the count only assigns entries (I2); the end of the kernel orders them for the
        // host.
        let i = self.count.add_relaxed(1);
        if let Some(entry) = self.entries.get(i as usize) {
            let thread = u64::from(thread::index_in_block());
            entry[0].store_relaxed(u64::from(kind as u32) << 32 | thread);
            entry[1].store_relaxed(thread::block_index().into());
            entry[2].store_relaxed(address);
            entry[3].store_relaxed(detail);
        }
    }

    /// The number of faults since the last reset.
    pub fn count(&self) -> u64 {
        self.count.load_relaxed()
    }

    /// The faults kept in full, in the order of recording.
    pub fn faults(&self) -> impl Iterator<Item = Fault> + '_ {
        let kept = self.count().min(FAULT_ENTRIES as u64) as usize;
        self.entries[..kept].iter().filter_map(|entry| {
            let [packed, block, address, detail] = entry.each_ref().map(AtomicU64::load_relaxed);
            let kind = FaultKind::from_code((packed >> 32) as u32)?;
            Some(Fault { kind, thread: packed as u32, block: block as u32, address, detail })
        })
    }
}
