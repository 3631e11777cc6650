//! The log of what the checks found, which the host reads after the launch.
//!
//! ```text
//! CheckLog  | checked | overlapping | counts by kind, 8 | breach 0 | ... | breach 63 |
//! breach    | kind, owner | other, bytes | address | offset | expected | found |
//! ```
//!
//! I1. The counts cover everything since the last reset; the first 64 breaches of all kinds are
//! kept.
//! I2. A breach's entry is written once, by the thread that got its index from the increment of the
//! total.
//!
//! The host reads after the kernel has ended, which orders every write before the read. Wait-free.

use super::record::Owner;
use crate::sync::{AtomicU64, NATIVE_LAYOUT};

/// The number of breaches kept in full. Later ones are only counted.
pub const BREACHES_KEPT: usize = 64;

/// The number of words in a log.
pub const LOG_WORDS: usize = HEAD_WORDS + BREACH_WORDS * BREACHES_KEPT;

const KINDS: usize = 8;
const HEAD_WORDS: usize = 2 + KINDS;
const BREACH_WORDS: usize = 6;

/// The kind of a check's finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum BreachKind {
    /// A block was allocated that overlaps another owner's block.
    Overlap = 1,
    /// A block was allocated that is not inside the pool.
    OutOfBounds = 2,
    /// A block was allocated without the requested alignment.
    Misaligned = 3,
    /// A block does not contain what its owner wrote.
    Torn = 4,
    /// At its free, a block was partly owned by another owner, or by none.
    Usurped = 5,
}

impl BreachKind {
    /// Every kind.
    pub const ALL: [BreachKind; 5] = [
        BreachKind::Overlap,
        BreachKind::OutOfBounds,
        BreachKind::Misaligned,
        BreachKind::Torn,
        BreachKind::Usurped,
    ];

    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == code)
    }
}

/// One finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The kind of the finding.
    pub kind: BreachKind,
    /// The block's owner.
    pub owner: Owner,
    /// The other owner of a part of the block.
    pub other: Owner,
    /// The address of the block. If a census compared a long block with all lanes of a warp, and
    /// another lane than the one of the block's record found the overlap: the address of the shared
    /// granule.
    pub address: u64,
    /// The size of the block; 0 if `address` is that of a granule.
    pub bytes: u32,
    /// The offset of the first affected byte from `address`.
    pub offset: u64,
    /// The word that should be there, for [`BreachKind::Torn`].
    pub expected: u64,
    /// The word that is there.
    pub found: u64,
}

impl Breach {
    /// A finding about a block, without another owner and without words.
    #[inline(always)]
    pub(super) const fn of(kind: BreachKind, owner: Owner, address: u64, bytes: u32) -> Self {
        Breach { kind, owner, other: Owner::NONE, address, bytes, offset: 0, expected: 0, found: 0 }
    }
}

/// The log, in device memory. All zeros is an empty log.
#[repr(C)]
#[derive(Debug)]
pub struct CheckLog {
    checked: AtomicU64,
    overlapping: AtomicU64,
    counts: [AtomicU64; KINDS],
    breaches: [[AtomicU64; BREACH_WORDS]; BREACHES_KEPT],
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<CheckLog>() == 8 * LOG_WORDS);

#[cfg(not(target_arch = "nvptx64"))]
impl Default for CheckLog {
    fn default() -> Self {
        let zero = |_| AtomicU64::new(0);
        CheckLog {
            checked: zero(0),
            overlapping: zero(0),
            counts: core::array::from_fn(zero),
            breaches: core::array::from_fn(|_| core::array::from_fn(zero)),
        }
    }
}

impl CheckLog {
    /// Records a breach.
    #[cold]
    #[inline(never)]
    pub fn record(&self, breach: &Breach) {
        // Relaxed: the counts only assign entries (I2); the end of the kernel orders them for the
        // host.
        self.counts[breach.kind as usize].add_relaxed(1);
        let i = self.counts[0].add_relaxed(1);
        let Some(place) = self.breaches.get(i as usize) else { return };
        place[0].store_relaxed(u64::from(breach.kind as u32) << 32 | u64::from(breach.owner.0));
        place[1].store_relaxed(u64::from(breach.other.0) << 32 | u64::from(breach.bytes));
        place[2].store_relaxed(breach.address);
        place[3].store_relaxed(breach.offset);
        place[4].store_relaxed(breach.expected);
        place[5].store_relaxed(breach.found);
    }

    /// Counts blocks that a [`census`](super::census) has checked.
    #[inline(always)]
    pub(super) fn count_checked(&self, blocks: u32) {
        self.checked.add_relaxed(blocks.into());
    }

    /// Counts a block that overlaps another.
    #[cold]
    pub(super) fn count_overlapping(&self) {
        self.overlapping.add_relaxed(1);
    }
}

/// A log as the host has copied it: its words in order.
#[derive(Clone, Copy, Debug)]
pub struct LogView<'a>(&'a [u64; LOG_WORDS]);

impl<'a> LogView<'a> {
    /// A view of the words of a log; `None` if the number of words is wrong.
    pub fn new(words: &'a [u64]) -> Option<Self> {
        words.try_into().ok().map(LogView)
    }

    /// The number of blocks that a census checked.
    pub fn checked(self) -> u64 {
        self.0[0]
    }

    /// The number of blocks that overlap another, as found by a census.
    pub fn overlapping(self) -> u64 {
        self.0[1]
    }

    /// The number of all findings.
    pub fn total(self) -> u64 {
        self.0[2]
    }

    /// The number of findings of one kind.
    pub fn count(self, kind: BreachKind) -> u64 {
        self.0[2 + kind as usize]
    }

    /// The breaches kept in full, in the order of recording.
    pub fn breaches(self) -> impl Iterator<Item = Breach> + 'a {
        let kept = self.total().min(BREACHES_KEPT as u64) as usize;
        self.0[HEAD_WORDS..].chunks_exact(BREACH_WORDS).take(kept).filter_map(|words| {
            Some(Breach {
                kind: BreachKind::from_code((words[0] >> 32) as u32)?,
                owner: Owner(words[0] as u32),
                other: Owner((words[1] >> 32) as u32),
                address: words[2],
                bytes: words[1] as u32,
                offset: words[3],
                expected: words[4],
                found: words[5],
            })
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn words(log: &CheckLog) -> Vec<u64> {
        // SAFETY: a log is `LOG_WORDS` words, by the assertion.
        unsafe { core::slice::from_raw_parts((&raw const *log).cast::<u64>(), LOG_WORDS) }.to_vec()
    }

    #[test]
    fn breaches_are_read_back_and_all_are_counted() {
        let log = CheckLog::default();
        let breach = Breach::of(BreachKind::Torn, Owner(7), 1 << 60, u32::MAX);
        let breach = Breach { other: Owner(u32::MAX), offset: 9, expected: 10, found: 11, ..breach };
        for _ in 0..100 {
            log.record(&breach);
        }
        log.record(&Breach { kind: BreachKind::Overlap, ..breach });
        let words = words(&log);
        let view = LogView::new(&words).unwrap();
        assert_eq!((view.total(), view.count(BreachKind::Torn)), (101, 100));
        assert_eq!(view.count(BreachKind::Overlap), 1);
        assert_eq!(view.breaches().count(), BREACHES_KEPT);
        assert!(view.breaches().all(|b| b == breach));
        assert!(LogView::new(&words[1..]).is_none());
    }
}
