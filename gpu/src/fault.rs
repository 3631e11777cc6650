//! What went wrong on the device, written down where the host finds it after the launch.
//!
//! ```text
//! FaultLog  | count | entry 0 | entry 1 | ... | entry 63 |
//! entry     | kind, thread | block | address | detail |
//! ```
//!
//! I1. `count` is the number of faults since the last reset; entries `0..min(count, 64)` hold the first.
//! I2. Entry `i` is written once, by the thread whose increment of `count` returned `i`.
//!
//! The host reads after the kernel has ended, which orders every write before the read. Wait-free.

use crate::sync::{AtomicU64, NATIVE_LAYOUT};
use crate::thread;

/// How many faults are kept in full. Later ones are counted.
pub const FAULT_ENTRIES: usize = 64;

/// What a thread did wrong, or what it found broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum FaultKind {
    /// A block was freed that was not allocated.
    DoubleFree = 1,
    /// An address was freed that is not inside the pool.
    ForeignFree = 2,
    /// An address was freed that is inside a block but not its start.
    InteriorFree = 3,
    /// The free count of a region promised a block that its bitmap does not have.
    CountMismatch = 4,
    /// The global allocator had no memory for a thread, which ended there.
    OutOfMemory = 5,
    /// A thread used the global allocator of a module that no heap was set for, and ended there.
    NoGlobalHeap = 6,
    /// In a debug heap: bytes behind an allocation were written to, seen at its free.
    Overrun = 7,
    /// In a debug heap: bytes before an allocation were written to, seen at its free. Without a
    /// [`detail`](Fault::detail): so many that nothing is known of it, or there was none at the address.
    Underrun = 8,
    /// In a debug heap: a block was written to after its free, seen when it left quarantine.
    WriteAfterFree = 9,
}

impl FaultKind {
    /// The kind with this number, if there is one.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(FaultKind::DoubleFree),
            2 => Some(FaultKind::ForeignFree),
            3 => Some(FaultKind::InteriorFree),
            4 => Some(FaultKind::CountMismatch),
            5 => Some(FaultKind::OutOfMemory),
            6 => Some(FaultKind::NoGlobalHeap),
            7 => Some(FaultKind::Overrun),
            8 => Some(FaultKind::Underrun),
            9 => Some(FaultKind::WriteAfterFree),
            _ => None,
        }
    }
}

/// One fault, as the host reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// The thread in its block.
    pub thread: u32,
    /// The block in its grid.
    pub block: u32,
    /// The address in question; 0 where there is none. The first byte that was written to, for [`FaultKind::Overrun`],
    /// [`FaultKind::Underrun`] and [`FaultKind::WriteAfterFree`].
    pub address: u64,
    /// The block of the pool in question; the region for [`FaultKind::CountMismatch`]; the bytes asked for,
    /// for [`FaultKind::OutOfMemory`] and [`FaultKind::NoGlobalHeap`]; the number of the allocation's site, or 0, for what
    /// a debug heap finds.
    pub detail: u64,
}

#[derive(Debug)]
#[repr(C)]
struct Entry {
    kind_and_thread: AtomicU64,
    block: AtomicU64,
    address: AtomicU64,
    detail: AtomicU64,
}

/// The log, in device memory. All zeroes is an empty log.
#[derive(Debug)]
#[repr(C)]
pub struct FaultLog {
    count: AtomicU64,
    entries: [Entry; FAULT_ENTRIES],
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<FaultLog>() == 8 + 32 * FAULT_ENTRIES);
const _: () = assert!(!NATIVE_LAYOUT || align_of::<FaultLog>() == 8);

#[cfg(not(target_arch = "nvptx64"))]
impl Default for FaultLog {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        FaultLog {
            count: zero(),
            entries: core::array::from_fn(|_| Entry {
                kind_and_thread: zero(),
                block: zero(),
                address: zero(),
                detail: zero(),
            }),
        }
    }
}

/// Words of a [`FaultLog`] in device memory.
pub const FAULT_LOG_WORDS: usize = 1 + 4 * FAULT_ENTRIES;

impl FaultLog {
    #[cfg(not(target_arch = "nvptx64"))]
    /// As it lay in device memory, for the host to read.
    pub fn from_words(words: &[u64; FAULT_LOG_WORDS]) -> Self {
        let word = |i: usize| AtomicU64::new(words[i]);
        FaultLog {
            count: word(0),
            entries: core::array::from_fn(|i| Entry {
                kind_and_thread: word(1 + 4 * i),
                block: word(2 + 4 * i),
                address: word(3 + 4 * i),
                detail: word(4 + 4 * i),
            }),
        }
    }

    /// Writes a fault of the calling thread down.
    #[cold]
    pub fn record(&self, kind: FaultKind, address: u64, detail: u64) {
        // Relaxed: the count only hands out entries (I2); the end of the kernel orders them for the host.
        let i = self.count.add_relaxed(1);
        if let Some(entry) = self.entries.get(i as usize) {
            let thread = u64::from(thread::index_in_block());
            entry.kind_and_thread.store_relaxed(u64::from(kind as u32) << 32 | thread);
            entry.block.store_relaxed(thread::block_index().into());
            entry.address.store_relaxed(address);
            entry.detail.store_relaxed(detail);
        }
    }

    /// Faults since the last reset.
    pub fn count(&self) -> u64 {
        self.count.load_relaxed()
    }

    /// The faults that were kept in full, in the order of their recording.
    pub fn faults(&self) -> impl Iterator<Item = Fault> + '_ {
        let kept = self.count().min(FAULT_ENTRIES as u64) as usize;
        self.entries[..kept].iter().filter_map(|entry| {
            let packed = entry.kind_and_thread.load_relaxed();
            Some(Fault {
                kind: FaultKind::from_code((packed >> 32) as u32)?,
                thread: packed as u32,
                block: entry.block.load_relaxed() as u32,
                address: entry.address.load_relaxed(),
                detail: entry.detail.load_relaxed(),
            })
        })
    }
}
